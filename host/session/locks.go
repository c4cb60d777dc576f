package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/store"
)

// locks are the lock files of one call: those beside its run files, and after them the user's own. They are read when
// the first backend is looked for.
type locks struct {
	installed string // below which backends lie
	own       string // path of the user's lock file

	mu    sync.Mutex
	files []string // of projects, paths
	runs  map[string]string
	read  map[string]*lockfile.File // nil for one that is not there
}

func newLocks(p store.Paths) *locks {
	return &locks{installed: p.Installed(), own: p.InstalledLock(), runs: map[string]string{},
		read: map[string]*lockfile.File{}}
}

// use adds the lock files beside run files.
func (l *locks) use(runFiles []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range runFiles {
		if st, err := os.Stat(f); err != nil || !st.Mode().IsRegular() {
			continue
		}
		path := filepath.Join(filepath.Dir(f), lockfile.Name)
		if !slices.Contains(l.files, path) {
			l.files = append(l.files, path)
			l.runs[path] = f
		}
	}
}

// open reads a lock file once, or nil.
func (l *locks) open(path string) (*lockfile.File, error) {
	if f, ok := l.read[path]; ok {
		return f, nil
	}
	f, err := lockfile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = nil, nil
	}
	if err == nil {
		l.read[path] = f
	}
	return f, err
}

// Select implements [backend.Locks].
func (l *locks) Select(name string) (*backend.Selection, []backend.Place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sel *backend.Selection
	var places []backend.Place
	for _, path := range append(slices.Clone(l.files), l.own) {
		if path == l.own && sel != nil {
			break // a project's word goes before the user's
		}
		f, err := l.open(path)
		if err != nil {
			return nil, nil, err
		}
		found := f.Find(name)
		switch {
		case f == nil:
			places = append(places, backend.Place{Path: path, Why: "not there"})
			continue
		case found == nil:
			places = append(places, backend.Place{Path: path, Why: "does not name it"})
			continue
		}
		next, err := l.selection(path, found)
		if err != nil {
			return nil, nil, err
		}
		if sel != nil && sel.SHA256 != next.SHA256 {
			return nil, nil, &backend.LockError{Name: name, Lock: path, Fix: "run the files of one directory at a time",
				Found: fmt.Sprintf("it names version %s, and %s names version %s", next.Version, sel.Lock, sel.Version)}
		}
		if sel == nil {
			sel = next
		}
	}
	return sel, places, nil
}

// selection says where what is locked lies on this machine.
func (l *locks) selection(path string, b *lockfile.Backend) (*backend.Selection, error) {
	fix := "run hutch init " + l.runs[path]
	if path == l.own {
		fix = "run hutch backend install " + b.Source + ":" + b.Version
	}
	p, ok := b.For(backend.Platform)
	switch {
	case !ok:
		var have []string
		for _, p := range b.Platforms {
			have = append(have, p.Name)
		}
		return nil, &backend.LockError{Name: b.Name, Lock: path, Fix: "name another backend in the run file",
			Found: fmt.Sprintf("it names version %s, which is not for %s but for %s", b.Version, backend.Platform,
				strings.Join(have, ", "))}
	case !slices.Contains(b.Protocols, Protocol):
		fix = "run hutch init -upgrade " + l.runs[path]
		if path == l.own {
			fix = "run hutch backend install " + b.Source + " for a newer version"
		}
		return nil, &backend.LockError{Name: b.Name, Lock: path, Fix: fix + ", or another version of hutch",
			Found: fmt.Sprintf("it names version %s, which speaks protocol %s, and this hutch speaks %d", b.Version,
				strings.Trim(fmt.Sprint(b.Protocols), "[]"), Protocol)}
	}
	return &backend.Selection{
		Lock: path, Source: b.Source, Version: b.Version, SHA256: p.Binary, Beside: p.Beside, Fix: fix,
		Path: backend.InstalledPath(l.installed, b.Name, b.Version, p.Name, p.Binary),
	}, nil
}

// Names implements [backend.Locks]. A lock file that cannot be read has none; asking for a backend returns why.
func (l *locks) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, path := range append(slices.Clone(l.files), l.own) {
		f, err := l.open(path)
		if err != nil || f == nil {
			continue
		}
		for _, b := range f.Backends {
			names = append(names, b.Name)
		}
	}
	return names
}
