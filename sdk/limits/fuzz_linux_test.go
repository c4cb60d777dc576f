package limits

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzRemovedMapping gives a mapped file a name of the program's choice: it may hide neither its size nor its inode.
func FuzzRemovedMapping(f *testing.F) {
	for _, s := range []string{"/dev/zero", "/memfd:x", "/SYSV00000000", "/tmp/a b", "/tmp/x (deleted)", "/", "/\\012", "/1-2 rw-s 0 0 0 /y", "/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		_, size, _, ok := removedMapping([]byte(name))
		if ok && !strings.HasSuffix(name, " (deleted)\n") {
			t.Errorf("%q counts %d bytes", name, size)
		}
		if strings.Contains(name, "\n") { // the kernel writes \012
			return
		}
		id, size, memory, ok := removedMapping(fmt.Appendf(nil, "7f68387d5000-7f683c7d5000 rw-s 00000000 00:01 1046      /%s (deleted)\n", name))
		if !ok || size != 64<<20 || id != (inode{"00:01", 1046}) {
			t.Errorf("%q: %v, %d bytes, %v", name, id, size, ok)
		}
		if first, _, _ := strings.Cut("/"+name, " "); memory && !strings.HasPrefix(first, "/memfd:") && !strings.HasPrefix(first, "/SYSV") && !strings.HasPrefix(first, "/dev/zero") {
			t.Errorf("%q is in memory", name)
		}
	})
}
