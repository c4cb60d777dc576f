package overlaytest

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"testing"
)

// Random returns the next of a sequence of random operations. Names are few, so that they meet often.
func Random(r *rand.Rand) Op {
	name := func() string {
		p := ""
		for range 1 + r.IntN(3) {
			p = path.Join(p, string(rune('a'+r.IntN(4))))
		}
		return p
	}
	targets := []string{"a", "b", "b/c", "../a", "../b/c", At + "/a", At + "/b/c", "nowhere", ".", "..", "../..", "/etc",
		At}
	modes := []fs.FileMode{0o755, 0o700, 0o750, 0o711}
	o := Op{Path: name(), Mode: modes[r.IntN(len(modes))]}
	switch n := r.IntN(100); {
	case n < 28:
		o.Do, o.Data = "write", fmt.Sprint("data ", r.IntN(1000), "\n")
	case n < 36:
		o.Do, o.Data = "append", "more\n"
	case n < 52:
		o.Do = "mkdir"
	case n < 70:
		o.Do = "remove"
	case n < 82:
		o.Do, o.To = "rename", name()
	case n < 90:
		o.Do, o.To = "symlink", targets[r.IntN(len(targets))]
	default:
		o.Do = "chmod"
	}
	return o
}

// Lower makes a lower directory in which most names that [Random] uses are there.
func Lower(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for p, data := range map[string]string{"a/a/a": "aaa\n", "a/a/b": "aab\n", "a/b": "ab\n", "b/c/d": "bcd\n",
		"b/c/a": "bca\n", "c": "c\n", "d/d/d": "ddd\n", "d/a": "da\n"} {
		at := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"b/a": "../a", "d/c": At + "/b/c", "b/d": "/etc"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
