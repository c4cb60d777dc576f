package backendtest

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// rearrange changes a workspace made by [C.layered] in every way that a layer has to carry.
const rearrange = `
echo more >> modified; echo new > added; rm deleted; rm -r gone; mkdir -p fresh/sub; echo f > fresh/sub/f; chmod 600 mode
rm -r again; mkdir again; echo n > again/new; rm tofile/in; rmdir tofile; echo f > tofile; rm todir; mkdir todir; echo i > todir/in
ln -s added link; rm -f turned; ln -s elsewhere turned; cp sub/file sub/copied; mv sub/file sub/moved`

// layered makes what rearrange changes.
func (c *C) layered() string {
	src := c.hostDir("source")
	for name, content := range map[string]string{
		"modified": "m\n", "deleted": "d\n", "gone/a": "a\n", "gone/deep/b": "b\n", "mode": "m\n", "again/old": "o\n", "tofile/in": "i\n",
		"todir": "f\n", "turned": "t\n", "sub/file": "s\n", "sub/other": "o\n", "untouched/deep/file": "u\n",
	} {
		c.write(filepath.Join(src, name), content, 0o644)
	}
	return src
}

func layersChecks() []Check {
	private := []Need{needWorkspace(sdk.WorkspacePrivate)}
	const fix = "Ready.Layers names the directories as they are now, or is nil where the workspace cannot be read on this host"
	// same proves that what the layers hold is what a command sees.
	same := func(b *box) {
		l := b.Ready().Layers
		if l == nil {
			b.c.skipf("the backend reports no layers for this workspace")
		}
		if l.Lower == "" && l.Upper == "" {
			b.c.Fatalf("the layers name no directory at all")
		}
		for name, dir := range map[string]string{"lower": l.Lower, "upper": l.Upper} {
			if dir == "" {
				continue
			}
			if fi, err := os.Lstat(dir); !filepath.IsAbs(dir) || err != nil || !fi.IsDir() {
				b.c.Fatalf("the %s layer %q is no absolute path of a directory (%v)", name, dir, err)
			}
		}
		merged, err := mergeLayers(l, "")
		if err != nil {
			b.c.Fatalf("reading the layers: %v", err)
		}
		b.c.eq("the workspace, read from its layers", besides(treeText(merged)), besides(b.must(describeTree)))
	}
	return []Check{
		{ID: "layers/empty", Proves: "what a command writes to a workspace without a source is what the layers hold", Fix: fix,
			run: func(c *C) {
				b := c.used()
				same(b)
				b.must("echo x > file && mkdir -p dir/sub && echo y > dir/sub/file && ln -s dir link && chmod 600 file")
				same(b)
			}},
		{ID: "layers/private", Needs: private, Proves: "a private workspace read from its layers is what a command sees", Fix: fix,
			run: func(c *C) {
				b := c.box(withSource(c.layered(), sdk.WorkspacePrivate))
				same(b)
				b.must(rearrange)
				same(b)
			}},
		{ID: "layers/shared", Needs: []Need{needWorkspace(sdk.WorkspaceShared)}, Proves: "a shared workspace read from its layers is what a command sees", Fix: fix,
			run: func(c *C) {
				b := c.box(withSource(c.layered(), sdk.WorkspaceShared))
				b.must(rearrange)
				same(b)
			}},
		{ID: "layers/readonly", Needs: []Need{needWorkspace(sdk.WorkspaceReadOnly)}, Proves: "a read-only workspace read from its layers is what a command sees", Fix: fix,
			run: func(c *C) { same(c.box(withSource(c.layered(), sdk.WorkspaceReadOnly))) }},
		{ID: "layers/reset", Needs: append([]Need{needCap(sdk.CapReset)}, private...), Proves: "the layers hold the workspace after a reset too, in the same place", Fix: "recreate the layers where they were",
			run: func(c *C) {
				b := c.box()
				b.must("echo kept > file")
				if err := b.Reset(c.ctx, false); err != nil {
					c.Fatalf("reset: %v", err)
				}
				same(b)
				if err := b.Reset(c.ctx, true); err != nil {
					c.Fatalf("hard reset: %v", err)
				}
				b.must("echo new > other")
				same(b)
			}},
		{ID: "layers/attach", Needs: append([]Need{needCap(sdk.CapAttach)}, private...), Proves: "another process that attaches to the sandbox gets the same layers", Fix: "fill in Ready.Layers in Attach as in Create",
			run: func(c *C) {
				b := c.box(withSource(c.layered(), sdk.WorkspacePrivate), func(r *sdk.CreateRequest) { r.Keep = true })
				b.must(rearrange)
				if b.Ready().Layers == nil {
					c.skipf("the backend reports no layers for this workspace")
				}
				other, err := c.fresh(StartOptions{}).Attach(c.ctx, b.Handle())
				if err != nil {
					c.Fatalf("attaching: %v", err)
				}
				got := other.Ready().Layers
				if got == nil || *got != *b.Ready().Layers {
					c.Fatalf("Create reported the layers %+v, Attach reports %+v", b.Ready().Layers, got)
				}
			}},
	}
}

// beside is a line of describeTree about what lies in the workspace and is no part of it.
var beside = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[dfl] \d+ (input|output)(/.*| = .*)?\n`) })

func besides(text string) string { return beside().ReplaceAllString(text, "") }

// mergeLayers reads what is below dir of the layers as an overlay file system would show it. It is plain on purpose:
// the suite must not lean on the code that backends may be made with.
func mergeLayers(l *sdk.Layers, dir string) ([]entry, error) {
	names := map[string]string{} // to the layer that shows the name
	add := func(layer string) error {
		list, err := os.ReadDir(filepath.Join(layer, dir))
		for _, e := range list {
			if names[e.Name()] == "" {
				names[e.Name()] = layer
			}
		}
		if os.IsNotExist(err) || strings.Contains(fmt.Sprint(err), "not a directory") {
			return nil
		}
		return err
	}
	hidden := false
	if l.Upper != "" {
		if err := add(l.Upper); err != nil {
			return nil, err
		}
		for at := dir; at != "" && at != "." && !hidden; at = path.Dir(at) {
			hidden = hides(l, at)
		}
	}
	if l.Lower != "" && !hidden {
		if err := add(l.Lower); err != nil {
			return nil, err
		}
	}
	var out []entry
	for name, layer := range names {
		p := path.Join(dir, name)
		at := filepath.Join(layer, p)
		fi, err := os.Lstat(at)
		if err != nil {
			return nil, err
		}
		e := entry{name: p, mode: int64(fi.Mode().Perm())}
		switch fi.Mode().Type() {
		case fs.ModeDir:
			e.typ = tar.TypeDir
			below, err := mergeLayers(l, p)
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		case fs.ModeSymlink:
			e.typ = tar.TypeSymlink
			e.link, err = os.Readlink(at)
		case 0:
			e.typ = tar.TypeReg
			var b []byte
			b, err = os.ReadFile(at)
			e.content = string(b)
		case fs.ModeDevice | fs.ModeCharDevice:
			if l.Lower != "" {
				continue // what it stands for is deleted
			}
			e.typ = tar.TypeChar
		default:
			err = fmt.Errorf("%s is of type %s", p, fi.Mode().Type())
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// hides reports whether the upper layer hides the lower one's directory.
func hides(l *sdk.Layers, dir string) bool {
	at := filepath.Join(l.Upper, dir)
	if fi, err := os.Lstat(at); err != nil || !fi.IsDir() {
		return err == nil
	}
	attr := "user.overlay.opaque"
	if l.Trusted {
		attr = "trusted.overlay.opaque"
	}
	var buf [1]byte
	n, err := unix.Lgetxattr(at, attr, buf[:])
	return err == nil && n == 1 && buf[0] == 'y'
}
