package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/internal/overlaytest"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

func TestMain(m *testing.M) {
	overlaytest.Main()
	os.Exit(testbackend.Run(m))
}

// box is a sandbox made of two directories, which it reads and writes as a backend does that can mount nothing.
type box struct {
	t            testing.TB
	lower, upper string
	output       string
	u            layeredBox
	ready        sdk.Ready
	puts         []string
}

// newBox makes one whose lower directory holds files; a name that ends with a slash is a directory, a content that
// begins with "-> " a symbolic link. With layers, the workspace can be read on the host.
func newBox(t testing.TB, layers bool, lower, upper map[string]string) *box {
	t.Helper()
	top := t.TempDir()
	b := &box{t: t, lower: top + "/lower", upper: top + "/upper", output: top + "/output"}
	b.ready = sdk.Ready{Workspace: "/workspace", Output: "/workspace/output"}
	fill(t, b.lower, lower)
	fill(t, b.upper, upper)
	fill(t, b.output, nil)
	u, err := overlay.OpenUnion(b.lower, b.upper, overlay.UnionOptions{At: "/workspace"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	b.u = layeredBox{u, b.lower, b.upper}
	if layers {
		b.ready.Layers = &sdk.Layers{Lower: b.lower, Upper: b.upper}
	}
	return b
}

func fill(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		target, link := strings.CutPrefix(content, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		case link:
			err = os.Symlink(target, at)
		default:
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// both runs a test with layers and without.
func both(t *testing.T, lower, upper map[string]string, fn func(t *testing.T, f *Files, b *box)) {
	for name, layers := range map[string]bool{"layers": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, layers, lower, upper)
			fn(t, b.open(Options{}), b)
		})
	}
}

func (b *box) open(o Options) *Files {
	b.t.Helper()
	f, err := Open(b, o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { f.Close() })
	return f
}

func (b *box) Ready() sdk.Ready { return b.ready }

// in finds the union, or the output directory as one, that a path lies in.
func (b *box) in(p string) (layeredBox, string, func()) {
	if rel, ok := below("/workspace/output", path.Clean(p)); ok {
		u, err := overlay.OpenUnion("", b.output, overlay.UnionOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		return layeredBox{u, "/nonexistent", b.output}, rel, func() { u.Close() }
	}
	rel, ok := below("/workspace", path.Clean(p))
	if !ok {
		b.t.Errorf("a path outside of the workspace reached the backend: %s", p)
	}
	return b.u, rel, func() {}
}

func remote(err error) error {
	var refused *safefile.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sdk.Errorf(sdk.ReasonNotFound, "%w", err)
	case errors.As(err, &refused):
		return sdk.Errorf(sdk.ReasonConfig, "%w", err)
	}
	return sdk.Errorf(sdk.ReasonConfig, "%w", err)
}

func (b *box) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	u, rel, done := b.in(p)
	defer done()
	n, err := u.Lstat(rel)
	if err != nil {
		return remote(err)
	}
	if format == sdk.FormatFile {
		if bad := safefile.Refuse(p, n.Mode, n.Links, 0, -1); bad != nil {
			return remote(bad) // like bwrap it follows no link
		}
		f, _, err := u.Open(rel, -1)
		if err != nil {
			return remote(err)
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}
	if !n.Mode.IsDir() {
		return sdk.Errorf(sdk.ReasonConfig, "%s is no directory", p)
	}
	return sendTree(ctx, u.Union, rel, w)
}

func sendTree(ctx context.Context, u *overlay.Union, rel string, w io.Writer) error {
	var mu sync.Mutex
	var nodes []overlay.Node
	err := u.Scan(ctx, rel, overlay.ScanOptions{}, func(d *overlay.Dir, names []overlay.Name) error {
		for _, n := range names {
			e, err := d.Lstat(n)
			if err != nil {
				return err
			}
			mu.Lock()
			nodes = append(nodes, e)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b overlay.Node) int { return strings.Compare(a.Path, b.Path) })
	tw := tar.NewWriter(w)
	for _, n := range nodes {
		name, _ := below(rel, n.Path)
		if rel == "." {
			name = n.Path
		}
		h := &tar.Header{Name: name, Mode: int64(n.Mode.Perm()), ModTime: n.ModTime, Format: tar.FormatPAX}
		var content io.Reader = strings.NewReader("")
		switch n.Mode.Type() {
		case fs.ModeDir:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		case fs.ModeSymlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, n.Target
		case 0:
			f, _, err := u.Open(n.Path, -1)
			if err != nil {
				continue
			}
			defer f.Close()
			h.Typeflag, h.Size, content = tar.TypeReg, n.Size, f
		case fs.ModeNamedPipe:
			h.Typeflag = tar.TypeFifo
		default:
			continue
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tw, content); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (b *box) Put(_ context.Context, p string, format sdk.Format, r io.Reader) error {
	b.puts = append(b.puts, string(format)+" "+p)
	u, rel, done := b.in(p)
	defer done()
	if format == sdk.FormatFile {
		n, err := u.Lstat(rel)
		if err != nil {
			return remote(err)
		}
		return remote(u.WriteFile(rel, r, n.Mode))
	}
	if err := u.MkdirAll(rel, 0o755); rel != "." && err != nil {
		return remote(err)
	}
	tr := tar.NewReader(r)
	h, err := tr.Next()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(tr)
	if err != nil {
		return err
	}
	if _, err := tr.Next(); err != io.EOF {
		b.t.Errorf("the tar does not end after one file: %v", err)
	}
	return remote(u.WriteFile(path.Join(rel, h.Name), bytes.NewReader(content), h.FileInfo().Mode()))
}

func (b *box) Remove(_ context.Context, p string, recursive bool) error {
	u, rel, done := b.in(p)
	defer done()
	return remote(u.Remove(rel, recursive))
}
