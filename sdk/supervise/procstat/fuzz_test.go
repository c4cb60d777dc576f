package procstat

import (
	"bytes"
	"fmt"
	"testing"
)

// FuzzParse gives a process a name of its choice, which must not change what is read of it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "sh", "a) Z 1 (b", ") R", "\n", "7 (x) S 1", "\xff(("} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		if s, err := parse(name); err == nil && len(bytes.Fields(name)) < 20 {
			t.Errorf("%q is read as %+v", name, s)
		}
		const rest = ") S 41 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1\n"
		want := Stat{State: 'S', Parent: 41, Start: 123456}
		if got, err := parse(append(fmt.Appendf(nil, "7 (%s", name), rest...)); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	})
}
