package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// FuzzFetched reads any stream as a tree and follows every path of it: none leads out.
func FuzzFetched(f *testing.F) {
	for _, list := range [][]tar.Header{
		{{Name: "d/", Typeflag: tar.TypeDir}, {Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../../etc"}, {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/workspace/d"}},
		{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "l"}, {Name: "../a"}, {Name: "/b"}, {Name: "."}, {Name: "a//b"}},
		{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "l/x"}, {Name: "m", Typeflag: tar.TypeSymlink, Linkname: "/workspace/../etc"}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range list {
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	v := &fetched{root: "/workspace", name: "workspace"}
	f.Fuzz(func(t *testing.T, data []byte) {
		all := tree{".": {Path: ".", Mode: fs.ModeDir | 0o755}}
		_ = v.entries(tar.NewReader(bytes.NewReader(data)), ".", func(n overlay.Node, r io.Reader) error {
			if !filepath.IsLocal(n.Path) {
				t.Errorf("the path %q", n.Path)
			}
			all[n.Path] = n
			_, err := io.Copy(io.Discard, r)
			return err
		})
		for p := range all {
			for _, last := range []bool{true, false} {
				to, err := v.follow(all, p, last)
				if err == nil && to != "." && (!filepath.IsLocal(to) || filepath.Clean(to) != to) {
					t.Errorf("%q leads to %q", p, to)
				}
				if n, ok := all[to]; err == nil && last && ok && n.Target != "" {
					t.Errorf("%q leads to the link %q", p, to)
				}
			}
		}
		if _, err := v.follow(all, "../x", true); !errors.Is(err, overlay.ErrOutside) {
			t.Errorf("out of the tree: %v", err)
		}
	})
}
