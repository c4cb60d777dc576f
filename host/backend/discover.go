package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/diag"
)

// Prefix is what the file name of every backend begins with.
const Prefix = "hutch-backend-"

// EnvPath names directories, separated by colons, in which backends are looked for.
const EnvPath = "HUTCH_BACKEND_PATH"

// nameOK reports whether s may become part of a path: up to 32 of a-z, 0-9 and -,
// a letter first.
func nameOK(s string) bool {
	for i, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (i == 0 || (c < '0' || c > '9') && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// CheckName says what is wrong with the name of a backend.
func CheckName(name string) error {
	if !nameOK(name) {
		return fmt.Errorf("%q is no name of a backend: up to 32 of a-z, 0-9 and -, a letter first", name)
	}
	return nil
}

// From says by what a backend was found.
type From string

// The ways in which a backend is found, strongest first.
const (
	FromOptions     From = "options"       // Options.Paths
	FromConfig      From = "configuration" // Options.Overrides
	FromEnvironment From = EnvPath
	FromLock        From = "lock"    // a lock file, by Options.Locks
	FromBundle      From = "bundled" // ../libexec/hutch beside the host
	FromRecord      From = "record"  // it made what is worked with, see GetMaker
)

// Origin says where a backend comes from.
type Origin struct {
	From      From
	Selection *Selection // nil unless From is FromLock or FromRecord
}

// Selection is the binary that a lock file names.
type Selection struct {
	Lock    string // path of the lock file
	Source  string
	Version string
	Path    string // where the binary is when it is installed
	SHA256  string // of the binary
	Beside  string // BesideSHA256 of its directory, "" when the lock file does not say it
	Fix     string // the command that brings lock and disk together
}

// Locks knows what lock files select. Its methods may be called concurrently.
type Locks interface {
	// Select returns what the first lock file that names a backend says of it, or nil and the files that do not. An
	// error is one that no other place can make good.
	Select(name string) (*Selection, []Place, error)
	// Names lists the backends that are locked, in no order.
	Names() []string
}

// finder knows where backends may lie.
type finder struct {
	overrides map[string]string
	places    []spot   // files or directories, best first: before what lock files select
	bundled   []spot   // and after it
	locks     Locks    // may be nil
	owners    []uint32 // who may own a binary, besides root
}

// spot is a file or a directory.
type spot struct {
	path string
	from From
}

func newFinder(opt Options, environ map[string]string) *finder {
	f := &finder{owners: []uint32{uint32(os.Geteuid())}, overrides: opt.Overrides, locks: opt.Locks}
	for _, path := range opt.Paths {
		f.places = append(f.places, spot{path, FromOptions})
	}
	for _, dir := range filepath.SplitList(environ[EnvPath]) {
		// A relative entry would make the working directory a place to look in.
		if dir != "" {
			f.places = append(f.places, spot{dir, FromEnvironment})
		}
	}
	exe := opt.Executable
	if exe == "" {
		exe, _ = os.Executable()
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		f.bundled = append(f.bundled, spot{filepath.Join(filepath.Dir(real), "..", "libexec", "hutch"), FromBundle})
		// Anyone who owns the host's own binary is trusted already, since it is running.
		var st unix.Stat_t
		if unix.Stat(real, &st) == nil {
			f.owners = append(f.owners, st.Uid)
		}
	}
	return f
}

// found is a binary that may be used.
type found struct {
	path   string // links resolved
	origin Origin
}

// find returns the first binary of a backend that may be used. What a lock file names is used or nothing is.
func (f *finder) find(name string) (*found, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	nf := &NotFoundError{Name: name}
	take := func(path string, origin Origin) *found {
		why := f.refuse(path)
		if why == "" {
			real, err := filepath.EvalSymlinks(path)
			if err == nil {
				return &found{real, origin}
			}
			why = reason(err)
		}
		nf.Places = append(nf.Places, Place{Path: path, Why: why})
		return nil
	}
	if path := f.overrides[name]; path != "" {
		if got := take(path, Origin{From: FromConfig}); got != nil {
			return got, nil
		}
		nf.Only = true
		nf.Fix = "build it there, or take it out of backend_paths in your configuration"
		return nil, nf // a development build that is not there must not be replaced in silence
	}
	for _, p := range f.places {
		if got := take(f.candidate(p.path, name), Origin{From: p.from}); got != nil {
			return got, nil
		}
	}
	if f.locks != nil {
		sel, places, err := f.locks.Select(name)
		if err != nil {
			return nil, err
		}
		nf.Places = append(nf.Places, places...)
		if sel != nil {
			if got := take(sel.Path, Origin{From: FromLock, Selection: sel}); got != nil {
				return got, nil
			}
			why := nf.Places[len(nf.Places)-1].Why
			if _, err := os.Stat(sel.Path); err == nil { // an installation would find it there, and change nothing
				return nil,
					&LockError{Name: name, Lock: sel.Lock, Found: fmt.Sprintf("it names version %s, and %s is not used: %s",
						sel.Version, sel.Path, why)}
			}
			return nil, &LockError{Name: name, Lock: sel.Lock, Fix: sel.Fix,
				Found: fmt.Sprintf("it names version %s, and %s is %s", sel.Version, sel.Path, why)}
		}
	}
	for _, p := range f.bundled {
		if got := take(f.candidate(p.path, name), Origin{From: p.from}); got != nil {
			return got, nil
		}
	}
	nf.Fix = "hutch backend install SOURCE brings one that is released, " + EnvPath +
		" names the directory of a build of your own"
	if near := diag.Suggest(name, f.names()); near != "" {
		nf.Fix = fmt.Sprintf("did you mean %q? Otherwise ", near) + nf.Fix
	}
	return nil, nf
}

// candidate is the file to look at for a backend in a place: the place itself when
// it is a file of the right name.
func (f *finder) candidate(place, name string) string {
	file := Prefix + name
	if filepath.Base(place) == file {
		if fi, err := os.Stat(place); err == nil && !fi.IsDir() {
			return filepath.Clean(place)
		}
	}
	return filepath.Join(place, file)
}

// refuse says why the file at path may not be used, or "".
func (f *finder) refuse(path string) string {
	if !filepath.IsAbs(path) {
		return "not an absolute path"
	}
	real, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, lerr := os.Lstat(path); lerr == nil {
			return "a link to nothing"
		}
		return "not there"
	case errors.Is(err, fs.ErrPermission):
		return "not readable for this user"
	case err != nil:
		return reason(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return reason(err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return "a directory"
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "not a regular file"
	case unix.Access(real, unix.X_OK) != nil:
		return "not executable: chmod +x " + real
	}
	return f.untrusted(real, &st)
}

func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// untrusted says who else could put another program at path, or "".
func (f *finder) untrusted(path string, st *unix.Stat_t) string {
	if why := f.writable(path, st, false); why != "" {
		return why
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return reason(err)
		}
		if why := f.writable(dir, &st, dir != filepath.Dir(path)); why != "" {
			return why
		}
		if dir == "/" {
			return ""
		}
	}
}

// writable says who but us may change what lies at path. Above the directory of
// the binary the sticky bit is enough, because it keeps others from renaming.
func (f *finder) writable(path string, st *unix.Stat_t, above bool) string {
	if st.Uid != 0 && !slices.Contains(f.owners, st.Uid) {
		return fmt.Sprintf("%s belongs to user %d, who could replace it", path, st.Uid)
	}
	if above && st.Mode&unix.S_ISVTX != 0 {
		return ""
	}
	if st.Mode&0o002 != 0 {
		return fmt.Sprintf("everybody may write %s: chmod o-w %s", path, path)
	}
	if st.Mode&0o020 != 0 && !above && st.Gid != 0 && st.Gid != uint32(os.Getegid()) {
		return fmt.Sprintf("group %d may write %s: chmod g-w %s", st.Gid, path, path)
	}
	return ""
}

// names lists the backends that find would return, or would if what is locked were installed.
func (f *finder) names() []string {
	var names []string
	for name := range f.overrides {
		names = append(names, name)
	}
	if f.locks != nil {
		names = append(names, f.locks.Names()...)
	}
	for _, place := range slices.Concat(f.places, f.bundled) {
		entries, err := os.ReadDir(place.path)
		if err != nil {
			entries = nil
			if name, ok := strings.CutPrefix(filepath.Base(place.path), Prefix); ok && nameOK(name) &&
				f.refuse(place.path) == "" {
				names = append(names, name)
			}
		}
		for _, e := range entries {
			name, ok := strings.CutPrefix(e.Name(), Prefix)
			if ok && nameOK(name) && f.refuse(filepath.Join(place.path, e.Name())) == "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
