package backendtest

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// rearrange changes a workspace made by [C.layered] in every way that a layer has to carry.
const rearrange = `
echo more >> modified; echo new > added; rm deleted; rm -r gone; mkdir -p fresh/sub; echo f > fresh/sub/f
chmod 600 mode; rm -r again; mkdir again; echo n > again/new; rm tofile/in; rmdir tofile; echo f > tofile; rm todir; mkdir todir
echo i > todir/in; ln -s added link; rm -f turned; ln -s elsewhere turned
cp sub/file sub/copied; mv sub/file sub/moved`

// layered makes what rearrange changes.
func (c *C) layered() string {
	src := c.hostDir("source")
	for _, name := range strings.Fields(
		"modified deleted gone/a gone/deep/b mode again/old tofile/in todir turned sub/file sub/other untouched/deep/file") {
		c.write(filepath.Join(src, name), name+"\n", 0o644)
	}
	return src
}

// layersToo is wantLayers where there are layers.
func (b *box) layersToo() {
	if b.Ready().Layers != nil {
		b.wantLayers()
	}
}

// wantLayers ends the check unless what the layers hold is what a command sees.
func (b *box) wantLayers() {
	l := b.layers()
	if l.Lower == "" && l.Upper == "" {
		b.Fatalf("the layers name no directory at all")
	}
	for name, dir := range map[string]string{"lower": l.Lower, "upper": l.Upper} {
		if dir != "" {
			b.wantHostDir("the "+name+" layer", dir)
		}
	}
	merged, err := mergeLayers(l, "")
	b.ok("reading the layers", err)
	b.eq("the workspace, read from its layers", besides(treeText(merged)), besides(b.must(describeTree)))
}

// layers are those that the backend reports; without any the check does not apply.
func (b *box) layers() *sdk.Layers {
	l := b.Ready().Layers
	if l == nil {
		b.skipf("the backend reports no layers for this workspace")
	}
	return l
}

// wantHostDir ends the check unless a path that the backend reports is that of a directory on this host.
func (c *C) wantHostDir(what, dir string) {
	if fi, err := os.Lstat(dir); !filepath.IsAbs(dir) || err != nil || !fi.IsDir() {
		c.Fatalf("%s %q is no absolute path of a directory on this host (%v)", what, dir, err)
	}
}

func layersChecks() []Check {
	// of is a check of a sandbox whose workspace has the mode.
	of := func(mode sdk.WorkspaceMode, run func(*box), change ...ask) func(*C) {
		return func(c *C) { run(c.box(append(change, withSource(c.layered(), mode))...)) }
	}
	return []Check{
		row("layers/empty", "what a command writes to a workspace without a source is what the layers hold",
			"Ready.Layers names the directories as they are now, or is nil where the workspace cannot be read on this host",
			used(func(b *box) {
				b.wantLayers()
				b.must("echo x > file && mkdir -p dir/sub && echo y > dir/sub/file && ln -s dir link && chmod 600 file")
				b.wantLayers()
			})),
		row("layers/private", "a private workspace read from its layers is what a command sees",
			"Ready.Layers names the directories as they are now, or is nil where the workspace cannot be read on this host",
			of(sdk.WorkspacePrivate, func(b *box) {
				b.wantLayers()
				b.must(rearrange)
				b.wantLayers()
			}), needPrivate),
		row("layers/shared", "a shared workspace read from its layers is what a command sees",
			"Ready.Layers names the directories as they are now, or is nil where the workspace cannot be read on this host",
			of(sdk.WorkspaceShared, func(b *box) {
				b.must(rearrange)
				b.wantLayers()
			}), needWorkspace(sdk.WorkspaceShared)),
		row("layers/readonly", "a read-only workspace read from its layers is what a command sees",
			"Ready.Layers names the directories as they are now, or is nil where the workspace cannot be read on this host",
			of(sdk.WorkspaceReadOnly, (*box).wantLayers), needWorkspace(sdk.WorkspaceReadOnly)),
		row("layers/reset", "the layers hold the workspace after a reset too, in the same place",
			"recreate the layers where they were", boxed(func(b *box) {
				b.must("echo kept > file")
				b.reset(false)
				b.wantLayers()
				b.reset(true)
				b.must("echo new > other")
				b.wantLayers()
			}), needPrivate, needCap(sdk.CapReset)),
		row("layers/attach", "another process that attaches to the sandbox gets the same layers",
			"fill in Ready.Layers in Attach as in Create", of(sdk.WorkspacePrivate, func(b *box) {
				b.must(rearrange)
				l := b.layers()
				if got := b.elsewhere().Ready().Layers; !reflect.DeepEqual(got, l) {
					b.Fatalf("Create reported the layers %+v, Attach reports %+v", l, got)
				}
			}, keep), needPrivate, needAttach),
	}
}

// beside is a line of describeTree about what lies in the workspace and is no part of it.
var beside = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^[dfl] \d+ (input|output)(/.*| = .*)?\n`)
})

func besides(text string) string { return beside().ReplaceAllString(text, "") }

// mergeLayers reads what is below dir of the layers as an overlay file system would show it. It is plain on purpose:
// the suite must not lean on the code that backends may be made with.
func mergeLayers(l *sdk.Layers, dir string) ([]entry, error) {
	names := map[string]string{} // to the layer that shows the name
	hidden := false
	for _, layer := range append(l.Written(), l.Lower) {
		if layer == "" || hidden {
			continue
		}
		for at := dir; at != "" && at != "." && layer != l.Lower && !hidden; at = path.Dir(at) {
			hidden = hides(l, layer, at)
		}
		list, err := os.ReadDir(filepath.Join(layer, dir))
		if err != nil && !os.IsNotExist(err) && !strings.Contains(err.Error(), "not a directory") {
			return nil, err
		}
		for _, e := range list {
			if names[e.Name()] == "" {
				names[e.Name()] = layer
			}
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
			var below []entry
			below, err = mergeLayers(l, p)
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

// hides reports whether a layer hides the directory of those below it.
func hides(l *sdk.Layers, layer, dir string) bool {
	at := filepath.Join(layer, dir)
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
