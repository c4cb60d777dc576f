package sdk

import (
	"bytes"
	"context"
	"testing"
)

// FuzzSizeLine cuts a stream wherever it likes: the same size and the same file get through.
func FuzzSizeLine(f *testing.F) {
	for _, s := range []string{"12\nfile", "-1\nx", "99999999999999999999\n", "no size", "\n", "1\n2\n3"} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			return
		}
		read := func(pieces ...[]byte) (size int64, rest string, ok bool) {
			var out bytes.Buffer
			w := SizeLine(WithProgress(context.Background(), func(_ string, _, total int64) { size = total }), &out)
			for _, p := range pieces {
				if n, err := w.Write(p); err != nil {
					return 0, "", false
				} else if n != len(p) {
					t.Fatalf("%d of %d bytes were taken", n, len(p))
				}
			}
			return size, out.String(), true
		}
		size, rest, ok := read(data)
		if s, r, k := read(data[:cut], data[cut:]); s != size || r != rest || k != ok || s < 0 {
			t.Errorf("in pieces %d %q %v, at once %d %q %v", s, r, k, size, rest, ok)
		}
	})
}
