package review

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
)

// fixture is a project, the base taken of it, and what a sandbox wrote, as an overlay's upper directory.
type fixture struct {
	t                      *testing.T
	project, merged, upper string
	base                   *Base
	ledger                 *Ledger
	placeErr               error // of the base
}

// newFixture makes the project from lines such as "dir/", "file=content", "tool*=content" (executable), "link->target".
func newFixture(t *testing.T, lines ...string) *fixture {
	t.Helper()
	top := t.TempDir()
	f := &fixture{t: t, project: top + "/project", merged: top + "/merged", upper: top + "/upper"}
	f.ledger = NewLedger(top+"/ledger", f)
	f.ledger.noSync = true
	for _, d := range []string{f.project, f.merged, f.upper} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	plant(t, f.project, lines...)
	plant(t, f.merged, lines...)
	f.rebase()
	return f
}

// rebase takes the base of the project as it is now.
func (f *fixture) rebase() {
	var err error
	if f.base, err = TakeBase(f.t.Context(), f.project); err != nil {
		f.t.Fatal(err)
	}
	var b bytes.Buffer
	if err := errors.Join(f.base.Save(&b), os.WriteFile(f.SandboxBase("box-id"), b.Bytes(), 0o600)); err != nil {
		f.t.Fatal(err)
	}
}

// SandboxBase implements Bases.
func (f *fixture) SandboxBase(id string) string { return f.project + "." + id + ".base" }

// SandboxesOf implements Bases.
func (f *fixture) SandboxesOf(string) ([]string, error) { return []string{"box-id", "other-id"}, nil }

// PlaceSandboxBase implements Bases.
func (f *fixture) PlaceSandboxBase(id string) (err error) {
	if f.placeErr != nil {
		return f.placeErr
	}
	if err = os.Rename(f.SandboxBase(id)+".new", f.SandboxBase(id)); err == nil && id == "box-id" {
		f.base, err = ReadBase(f.SandboxBase(id))
	}
	return err
}

// knows reports whether the base has a path with that size.
func (f *fixture) knows(path string, size int64) bool {
	e, ok := f.base.Lookup(path)
	return ok && e.Size == size
}

func plant(t *testing.T, dir string, lines ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir) // a link that an earlier line made is not followed out of it
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, l := range lines {
		var err error
		if name, target, ok := strings.Cut(l, "->"); ok {
			root.MkdirAll(filepath.Dir(name), 0o755)
			root.Remove(name)
			err = root.Symlink(target, name)
		} else if name, content, ok := strings.Cut(l, "="); ok {
			mode := fs.FileMode(0o644)
			if n, exec := strings.CutSuffix(name, "*"); exec {
				name, mode = n, 0o755
			}
			root.MkdirAll(filepath.Dir(name), 0o755)
			if err = root.WriteFile(name, []byte(content), mode); err == nil {
				err = root.Chmod(name, mode)
			}
		} else {
			err = root.MkdirAll(strings.TrimSuffix(l, "/"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// write changes what the sandbox sees; upper is made from that when a review is opened.
func (f *fixture) write(lines ...string) { f.t.Helper(); plant(f.t, f.merged, lines...) }

// remove deletes what the sandbox sees.
func (f *fixture) remove(paths ...string) {
	f.t.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(filepath.Join(f.merged, p)); err != nil {
			f.t.Fatal(err)
		}
	}
}

// seal makes the upper directory from the difference between the base's project and the merged view. It must be called
// before the project is changed behind the sandbox's back.
func (f *fixture) seal() {
	f.t.Helper()
	if err := layer(f.project, f.merged, f.upper, ""); err != nil {
		f.t.Fatal(err)
	}
}

// layer writes into upper what turns lower into merged, below the directory at.
func layer(lower, merged, upper, at string) error {
	want, err := os.ReadDir(filepath.Join(merged, at))
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for _, e := range want {
		here[e.Name()] = true
		rel := filepath.Join(at, e.Name())
		m, err := os.Lstat(filepath.Join(merged, rel))
		if err != nil {
			return err
		}
		l, lerr := os.Lstat(filepath.Join(lower, rel))
		if m.IsDir() {
			dir := filepath.Join(upper, rel)
			if lerr == nil && l.IsDir() && sameTree(filepath.Join(lower, rel), filepath.Join(merged, rel)) {
				continue
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			if lerr == nil && !l.IsDir() || lerr != nil {
				if err := copyIn(merged, upper, rel); err != nil {
					return err
				}
			} else if err := layer(lower, merged, upper, rel); err != nil {
				return err
			}
			if err := os.Chmod(dir, m.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)); err != nil {
				return err
			}
			continue
		}
		if lerr == nil && sameNode(filepath.Join(lower, rel), filepath.Join(merged, rel)) {
			continue
		}
		if err := copyNode(filepath.Join(merged, rel), filepath.Join(upper, rel)); err != nil {
			return err
		}
	}
	have, err := os.ReadDir(filepath.Join(lower, at))
	if err != nil {
		return err
	}
	for _, e := range have {
		if !here[e.Name()] {
			if err := unix.Mknod(filepath.Join(upper, at, e.Name()), unix.S_IFCHR, 0); err != nil {
				return fmt.Errorf("whiteout: %w", err)
			}
		}
	}
	return nil
}

// copyIn copies all below rel.
func copyIn(from, to, rel string) error {
	entries, err := os.ReadDir(filepath.Join(from, rel))
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := filepath.Join(rel, e.Name())
		if err := copyNode(filepath.Join(from, p), filepath.Join(to, p)); err != nil {
			return err
		}
		if e.IsDir() {
			if err := copyIn(from, to, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyNode(from, to string) error {
	fi, err := os.Lstat(from)
	if err != nil {
		return err
	}
	bits := fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	switch {
	case fi.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case fi.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		return os.Chmod(to, bits)
	case fi.Mode().IsRegular():
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err == nil {
			err = os.Chmod(to, bits)
		}
		if err == nil {
			err = os.Chtimes(to, fi.ModTime(), fi.ModTime())
		}
		return err
	case fi.Mode().Type() == fs.ModeNamedPipe:
		return unix.Mkfifo(to, 0o644)
	}
	return fmt.Errorf("%s: cannot copy %v", from, fi.Mode())
}

func sameNode(a, b string) bool {
	x, err1 := os.Lstat(a)
	y, err2 := os.Lstat(b)
	if err1 != nil || err2 != nil || x.Mode() != y.Mode() {
		return false
	}
	switch {
	case x.Mode().Type() == fs.ModeSymlink:
		s, _ := os.Readlink(a)
		t, _ := os.Readlink(b)
		return s == t
	case x.Mode().IsRegular():
		s, _ := os.ReadFile(a)
		t, _ := os.ReadFile(b)
		return bytes.Equal(s, t)
	}
	return true
}

func sameTree(a, b string) bool { return pictureOf(a, false) == pictureOf(b, false) }

// picture describes a tree completely; with times, those of files too.
func pictureOf(dir string, times bool) string {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if rel == "." {
			rel = ""
			if dir == "" {
				return nil
			}
		}
		fmt.Fprintf(&b, "%q %v", rel, fi.Mode())
		switch {
		case fi.Mode().IsRegular():
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %x", len(content), sha256.Sum256(content))
			if times {
				fmt.Fprintf(&b, " %s", fi.ModTime().Format(time.RFC3339Nano))
			}
		case fi.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %q", target)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		return "cannot look at " + dir + ": " + err.Error()
	}
	return b.String()
}

func (f *fixture) subject() Subject {
	return Subject{
		Name: "box", ID: "box-id", Project: f.project, Base: f.base,
		Layers: &sdk.Layers{Lower: f.project, Upper: f.upper},
		Ready:  sdk.Ready{Workspace: "/workspace", Input: guestpath.Input(true), Output: guestpath.Output(true)},
	}
}

// open opens a review whose contents are staged.
func (f *fixture) open(paths ...string) *Review {
	f.t.Helper()
	r, err := Open(f.t.Context(), f.subject(), Options{Paths: paths, Keep: f.ledger.Dir()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(r.Close)
	return r
}

// everything allows all that can be allowed.
func everything() Policy {
	p := Policy{Allow: map[judge.Rule]bool{}}
	for _, r := range judge.Allowable {
		p.Allow[r] = true
	}
	return p
}

// apply applies all of a review.
func (f *fixture) apply(r *Review, o Policy) (*Applied, error) {
	f.t.Helper()
	p, err := r.Plan(f.t.Context(), r.All(), o)
	if err != nil {
		return nil, err
	}
	return f.ledger.Apply(f.t.Context(), r, p)
}

// noConflict checks that nothing the sandbox changed counts as changed in the project.
func (f *fixture) noConflict(format string, args ...any) {
	f.t.Helper()
	if list := f.blocked(); len(list) > 0 {
		f.t.Fatalf(format+": in conflict are %q", append(args, list)...)
	}
}

// noLitter checks that nothing of hutch stays beside the user's files.
func (f *fixture) noLitter() {
	f.t.Helper()
	filepath.WalkDir(f.project, func(p string, _ fs.DirEntry, _ error) error {
		if strings.Contains(filepath.Base(p), ".hutch-") {
			f.t.Errorf("litter: %s", p)
		}
		return nil
	})
}
