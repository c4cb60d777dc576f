package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// now is every file of a box that can be read, by its path.
func now(t *testing.T, f *Files) map[string]string {
	t.Helper()
	l, err := f.List(t.Context(), ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range l.Entries {
		switch e.Type {
		case "file":
			c, err := f.Read(t.Context(), ReadRequest{Path: e.Path})
			if err != nil {
				t.Fatal(err)
			}
			out[e.Path] = e.Mode + " " + c.Text
		case "directory":
			out[e.Path+"/"] = ""
		default:
			out[e.Path] = e.Type
		}
	}
	return out
}

func rewriteTree() map[string]string {
	return map[string]string{"a.txt": "a\n", "dir/b.txt": "b\n", "c.txt": "c\n", "link": "-> dir/b.txt", "loop": "-> loop", "d/": ""}
}

func TestRewrite(t *testing.T) {
	both(t, rewriteTree(), nil, func(t *testing.T, f *Files, b *box) {
		var changes []string
		f.o.Changed = func(c Change) error { changes = append(changes, string(c.Op)+" "+c.Path); return nil }
		err := f.Rewrite(t.Context(), func(read func(string) ([]byte, fs.FileMode, error)) ([]Replacement, error) {
			data, mode, err := read("a.txt")
			if err != nil || string(data) != "a\n" || mode != 0o644 {
				t.Errorf("a.txt: %q, %v, %v", data, mode, err)
			}
			if _, _, err := read("none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("none: %v", err)
			}
			return []Replacement{
				{Path: "a.txt/now/a/dir", Data: []byte("x")}, // in the place of what is deleted
				{Path: "a.txt", Deleted: true},
				{Path: "link", Data: []byte("through the link\n")},
				{Path: "new/deep/e.sh", Data: []byte("#!/bin/sh\n"), Mode: 0o755},
				{Path: "c.txt", Data: []byte("C\n"), Mode: 0o600},
			}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"a.txt/": "", "a.txt/now/": "", "a.txt/now/a/": "", "a.txt/now/a/dir": "0644 x", "c.txt": "0600 C\n", "d/": "", "dir/": "",
			"dir/b.txt": "0644 through the link\n", "link": "symlink", "loop": "symlink", "new/": "", "output/": "", "new/deep/": "", "new/deep/e.sh": "0755 #!/bin/sh\n",
		}
		if diff := cmp.Diff(want, now(t, f)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"remove a.txt", "patch a.txt/now/a/dir", "patch dir/b.txt", "patch new/deep/e.sh", "patch c.txt"}, changes); diff != "" {
			t.Error(diff)
		}
	})
}

// Whatever goes wrong, and wherever, everything is as it was.
func TestRewriteTakesBack(t *testing.T) {
	good := []Replacement{{Path: "a.txt", Deleted: true}, {Path: "c.txt", Data: []byte("other\n"), Mode: 0o755}, {Path: "new/deep/e.txt", Data: []byte("e\n")}}
	for name, bad := range map[string]struct {
		r    Replacement
		want string
	}{
		"outside":        {Replacement{Path: "../x", Data: []byte("x")}, "outside of the workspace"},
		"a directory":    {Replacement{Path: "dir", Data: []byte("x")}, "directory"},
		"a link's loop":  {Replacement{Path: "loop", Data: []byte("x")}, "circle"},
		"nothing there":  {Replacement{Path: "none", Deleted: true}, "no such file"},
		"through a link": {Replacement{Path: "link", Deleted: true}, "by its own name"},
		"below a file":   {Replacement{Path: "dir/b.txt/x", Data: []byte("x")}, "director"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, rewriteTree(), nil, func(t *testing.T, f *Files, b *box) {
				before := now(t, f)
				f.o.Changed = func(c Change) error { t.Errorf("change %v", c); return nil }
				err := f.Rewrite(t.Context(), func(func(string) ([]byte, fs.FileMode, error)) ([]Replacement, error) {
					return append(good[:len(good):len(good)], bad.r), nil
				})
				if err == nil || !strings.Contains(err.Error(), bad.want) {
					t.Errorf("the error is %v, want %q", err, bad.want)
				}
				if diff := cmp.Diff(before, now(t, f)); diff != "" {
					t.Errorf("not as it was:\n%s", diff)
				}
			})
		})
	}
}

// breaking is a sandbox whose backend fails at its nth change, after having done it, and from then on takes none that
// is not a taking back.
type breaking struct {
	*box
	left int
}

var errBroken = errors.New("the backend is broken")

func (b *breaking) step(err error) error {
	if b.left--; b.left == 0 {
		return errBroken
	}
	return err
}

func (b *breaking) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	return b.step(b.box.Put(ctx, p, format, r))
}

func (b *breaking) Remove(ctx context.Context, p string, recursive bool) error {
	return b.step(b.box.Remove(ctx, p, recursive))
}

func TestRewriteBackendFails(t *testing.T) {
	for n := 1; n <= 4; n++ {
		b := &breaking{box: newBox(t, true, rewriteTree(), nil), left: n}
		f, err := Open(b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		before := now(t, f)
		err = f.Rewrite(t.Context(), func(func(string) ([]byte, fs.FileMode, error)) ([]Replacement, error) {
			return []Replacement{{Path: "c.txt", Data: []byte("C\n")}, {Path: "a.txt", Deleted: true}, {Path: "p/q", Data: bytes.Repeat([]byte("q"), 1000)}, {Path: "dir/b.txt", Data: []byte("B\n"), Mode: 0o755}}, nil
		})
		if !errors.Is(err, errBroken) {
			t.Errorf("failure %d: %v", n, err)
		}
		if diff := cmp.Diff(before, now(t, f)); diff != "" {
			t.Errorf("failure %d: not as it was:\n%s", n, diff)
		}
		f.Close()
	}
}
