package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// cheap is how many bytes of files are fetched rather than hashed first, which takes two more requests.
const cheap = 1 << 20

// assembly is a directory of the workspace that is put together from what the machine lists, from files of this host
// that are still what was sent, and from an archive of all others. It is the archive that the machine would make of the
// whole.
//
// The machine's word decides which files do not travel. A lie can hide a change, which the next look may show, and
// bring back nothing but what this host itself has sent: each file is known by the hash of that.
type assembly struct {
	s     *sandbox
	rel   string           // the directory, below the workspace
	names []string         // of its entries, in the workspace, in an archive's order
	now   map[string]entry // by such names
	asked map[string]bool  // the names of what has to travel
	from  *os.Root         // the project on this host; nil until it is needed
}

// sentTo says which directory of the workspace p is, if anything in it was sent there.
func (s *sandbox) sentTo(p string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(p+"/", workspacePath+"/")
	if rel = strings.TrimSuffix(rel, "/"); rel == "" {
		return ".", ok && len(s.base.Entries) > 0
	}
	_, known := s.base.Entries[rel]
	return rel, ok && known
}

// assemble writes the directory rel of the workspace to w. done is false when nothing was written, and the whole has to
// be fetched: the machine cannot list it, say, or something in it went away meanwhile.
func (s *sandbox) assemble(ctx context.Context, rel string, w io.Writer) (done bool, err error) {
	now, err := s.list(ctx, rel)
	if err != nil {
		return false, err
	}
	unclear, size := s.settle(now), int64(0)
	for _, name := range unclear {
		size += now[name].Size
	}
	if size > cheap {
		if err := s.hash(ctx, now, unclear); err != nil {
			return false, err
		}
	}
	a := &assembly{s: s, rel: rel, now: now, asked: map[string]bool{}}
	defer a.close()
	if err := a.plan(ctx); err != nil {
		return false, err
	}
	t := newTaker(ctx, w)
	if len(a.asked) == 0 {
		return true, a.write(t, newIncoming(strings.NewReader("")))
	}
	list, err := s.sendList(ctx, a.list())
	if err != nil {
		return false, err
	}
	err = s.fetch(ctx, path.Join(workspacePath, rel), list, func(r io.Reader) error {
		done = true
		return a.write(t, newIncoming(r))
	})
	return done, err
}

// plan puts the entries in order, and decides which have to travel.
func (a *assembly) plan(ctx context.Context) error {
	for name := range a.now {
		a.names = append(a.names, name)
	}
	slices.SortFunc(a.names, comparePaths)
	for _, name := range a.names {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		switch e := a.now[name]; {
		case e.Mode.IsDir(), e.Mode&(fs.ModeSymlink|fs.ModeSocket) != 0, e.Mode.IsRegular() && e.Size == 0:
		case a.unchanged(name) && a.have(name):
		default:
			a.asked[name] = true
		}
	}
	return nil
}

// unchanged reports whether the machine says that a file is what was sent.
func (a *assembly) unchanged(name string) bool {
	was, now := a.s.base.Entries[name], a.now[name]
	return now.Mode.IsRegular() && was.Mode.IsRegular() &&
		was.Sum != "" && was.Sum == now.Sum && was.Size == now.Size
}

// list names what has to travel, in an archive's order, as the machine is asked for it.
func (a *assembly) list() (out []string) {
	for _, name := range a.names {
		if a.asked[name] {
			out = append(out, a.below(name))
		}
	}
	return out
}

// write writes the archive. What has to travel comes from in.
func (a *assembly) write(t *taker, in incoming) error {
	for _, name := range a.names {
		var err error
		switch {
		case a.asked[name]:
			err = a.arrived(t, in, name)
		case a.now[name].Mode&fs.ModeSocket != 0: // which no archive has
		default:
			err = a.known(t, name)
		}
		if err != nil {
			return err
		}
	}
	if h, err := in.next(); err == nil {
		return hostile("%.200q was not asked for", h.Name)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return t.out.Close()
}

// arrived passes on the next entry of what travelled.
func (a *assembly) arrived(t *taker, in incoming, name string) error {
	h, err := in.next()
	switch {
	case errors.Is(err, io.EOF):
		return hostile("it ends before %.200q, which was asked for", name)
	case err != nil:
		return err
	case nameOf(h) != a.below(name):
		return hostile("%.200q stands where %.200q was asked for", h.Name, name)
	}
	return t.entry(h, in)
}

// known passes on an entry that did not travel.
func (a *assembly) known(t *taker, name string) error {
	e := a.now[name]
	h := &tar.Header{Name: a.below(name), Mode: int64(e.Mode.Perm()), ModTime: e.when}
	switch {
	case e.Mode.IsDir():
		h.Typeflag = tar.TypeDir
	case e.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
	case e.Size == 0:
		h.Typeflag = tar.TypeReg
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
		f, err := a.open(name)
		if err != nil {
			return movedOn(name)
		}
		defer f.Close()
		sum := sha256.New()
		if err := t.entry(h, io.TeeReader(io.LimitReader(f, e.Size), sum)); err != nil {
			return err
		}
		if hex.EncodeToString(sum.Sum(nil)) != e.Sum {
			return movedOn(name)
		}
		return nil
	}
	return t.entry(h, strings.NewReader(""))
}

// movedOn is a file of this host that was what the machine has a moment ago.
func movedOn(name string) error {
	return sdk.Errorf(sdk.ReasonUnavailable, "%.200q was changed on this host while it was read",
		name).WithFix("try again")
}

// have reports whether this host has the content of a file that the machine did not change.
func (a *assembly) have(name string) bool {
	f, err := a.open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, a.now[name].Size+1))
	return err == nil && n == a.now[name].Size && hex.EncodeToString(sum.Sum(nil)) == a.now[name].Sum
}

// open opens the file of this host that was sent as name. What it is now decides its hash.
func (a *assembly) open(name string) (*os.File, error) {
	if a.from == nil {
		var err error
		if a.from, err = os.OpenRoot(a.s.spec.Workspace.Source); err != nil {
			return nil, err
		}
	}
	f, err := a.from.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO that took its place must not hold us up
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(os.ErrInvalid, err, f.Close())
	}
	return f, nil
}

func (a *assembly) close() {
	if a.from != nil {
		a.from.Close()
	}
}

// below is the path in the directory of an entry of it.
func (a *assembly) below(name string) string {
	if a.rel == "." {
		return name
	}
	return strings.TrimPrefix(name, a.rel+"/")
}

// comparePaths orders paths as tar --sort=name does: a directory comes before what is in it, and that before its next
// sibling.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return int(a[i]) - int(b[i])
	}
	return len(a) - len(b)
}
