package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/runfile"
)

// InitOptions say what Init may do.
type InitOptions struct {
	Upgrade bool // take the newest versions that fit, whatever is locked
	Locked  bool // change no lock file: what would need that is an error
	Whole   bool // the files are all of their directories: what none of them requires goes from the lock file
}

// Initialized is what Init did for one backend of one directory.
type Initialized struct {
	Name    string `json:"name"`
	Source  string `json:"source,omitempty"` // "" for one that comes with hutch
	Version string `json:"version,omitempty"`
	Was     string `json:"was,omitempty"` // the version that was locked before, when it was another one
	Signed  string `json:"signed_by,omitempty"`
	Fetched bool   `json:"fetched"`
	Lock    string `json:"lock,omitempty"` // path of the lock file
	Path    string `json:"path,omitempty"` // of the program
}

// Init installs what run files require, and writes the lock files beside them. A lock file is written when all that its
// directory requires is there; an error leaves it as it was. What is wrong with the files comes back as
// diag.Diagnostics.
func (i *Installer) Init(ctx context.Context, files []*runfile.RunFile, o InitOptions) ([]Initialized, error) {
	if err := i.Trust.Check(); err != nil {
		return nil, err
	}
	var dirs []string
	byDir := map[string][]*runfile.RunFile{}
	for _, f := range files {
		if byDir[f.Dir] == nil {
			dirs = append(dirs, f.Dir)
		}
		byDir[f.Dir] = append(byDir[f.Dir], f)
	}
	var out []Initialized
	for _, dir := range dirs {
		done, err := i.initDir(ctx, dir, byDir[dir], o)
		out = append(out, done...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (i *Installer) initDir(ctx context.Context, dir string, files []*runfile.RunFile, o InitOptions) ([]Initialized, error) {
	wants, bundled, err := gather(dir, files)
	if err != nil {
		return nil, err
	}
	var out []Initialized
	for _, name := range bundled {
		out = append(out, Initialized{Name: name})
	}
	old, err := lockfile.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	now := &lockfile.File{}
	if old != nil && !o.Whole {
		now.Backends = slices.Clone(old.Backends)
	}
	path := filepath.Join(dir, lockfile.Name)
	for _, w := range wants {
		locked := old.Find(w.Name)
		keep, err := keepLock(path, w, locked, o)
		if err != nil {
			return out, err
		}
		done, err := i.Ensure(ctx, w.Want, keep)
		if err != nil {
			return out, w.about(err)
		}
		l := done.Lock
		l.Constraint = w.Version
		now.Set(l)
		one := Initialized{Name: w.Name, Source: w.Source, Version: l.Version, Signed: l.SignedBy, Fetched: done.Fetched, Lock: path, Path: done.Path}
		if locked != nil && locked.Version != l.Version {
			one.Was = locked.Version
		}
		out = append(out, one)
	}
	if old == nil && len(now.Backends) == 0 {
		return out, nil
	}
	if o.Locked {
		if old == nil || !bytes.Equal(old.Bytes(), now.Bytes()) {
			return out, fmt.Errorf("%s does not fit the run files any more, and --locked leaves it as it is: run hutch init, and commit what it writes", path)
		}
		return out, nil
	}
	return out, now.Write(dir)
}

// wanted is a Want with the first place that says so.
type wanted struct {
	Want
	at diag.Range
}

func (w wanted) about(err error) error {
	d := diag.Errorf("%s", err)
	d.Range = &w.at
	return diag.Diagnostics{d}
}

// keepLock decides whether what is locked stays; nil means that a version is chosen again.
func keepLock(path string, w wanted, l *lockfile.Backend, o InitOptions) (*lockfile.Backend, error) {
	wrong := ""
	switch {
	case l == nil && o.Locked:
		d := diag.Errorf("backend %q is required, and %s does not name it", w.Name, path)
		d.Range, d.Fix = &w.at, "run hutch init without --locked, and commit what it writes"
		return nil, diag.Diagnostics{d}
	case l == nil:
		return nil, nil
	case l.Source != w.Source:
		wrong = fmt.Sprintf("backend %q is required from %s, and %s has it from %s", w.Name, w.Source, path, l.Source)
	default:
		v, err := version.NewSemver(l.Version)
		if err != nil || len(w.Constraints) > 0 && !w.Constraints.Check(v) {
			wrong = fmt.Sprintf("backend %q is required in version %s, and %s has %s", w.Name, w.Version, path, l.Version)
		}
	}
	switch {
	case o.Upgrade && !o.Locked:
		return nil, nil
	case wrong != "":
		d := diag.Errorf("%s", wrong)
		d.Range, d.Fix = &w.at, "run hutch init -upgrade, which locks what fits now"
		return nil, diag.Diagnostics{d}
	}
	return l, nil
}

// gather puts together what all files of a directory require. What has no source comes with hutch.
func gather(dir string, files []*runfile.RunFile) (wants []wanted, bundled []string, err error) {
	byName := map[string]*wanted{}
	var names []string
	for _, f := range files {
		for _, r := range f.RequiredBackends {
			if r.Source != "" {
				if err := CheckSource(r.Source); err != nil {
					return nil, nil, wanted{at: r.Range}.about(fmt.Errorf("backend %q: %w", r.Name, err))
				}
			}
			w := byName[r.Name]
			if w == nil {
				w = &wanted{Want: Want{Name: r.Name, Dir: dir}, at: r.Range}
				byName[r.Name] = w
				names = append(names, r.Name)
			}
			switch {
			case w.Source == "":
				w.Source = r.Source
			case r.Source != "" && r.Source != w.Source:
				d := diag.Errorf("backend %q is required from %s here and from %s elsewhere", r.Name, r.Source, w.Source)
				d.Range, d.Related = &r.Range, []diag.Related{{Note: "the other one is here", Range: w.at}}
				return nil, nil, diag.Diagnostics{d}
			}
			if r.Version != "" && !slices.Contains(strings.Split(w.Version, ", "), r.Version) {
				w.Constraints = append(slices.Clone(w.Constraints), r.Constraints...)
				w.Version = strings.TrimPrefix(w.Version+", "+r.Version, ", ")
			}
		}
	}
	slices.Sort(names)
	for _, n := range names {
		if byName[n].Source == "" {
			bundled = append(bundled, n)
		} else {
			wants = append(wants, *byName[n])
		}
	}
	return wants, bundled, nil
}
