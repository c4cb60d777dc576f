package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/release"
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

func (i *Installer) initDir(ctx context.Context, dir string, files []*runfile.RunFile, o InitOptions) ([]Initialized,
	error) {
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
		one := Initialized{Name: w.Name, Source: w.Source, Version: l.Version, Signed: l.SignedBy, Fetched: done.Fetched,
			Lock: path, Path: done.Path}
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
			return out,
				fmt.Errorf("%s does not fit the run files any more, and --locked leaves it as it is: run hutch init, and commit "+
					"what it writes", path)
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

// Install installs one backend for this user: source is as in a run file, with :VERSION behind it or the newest is
// meant. name may be empty when the source has it. lock is the path of the user's lock file, in which it then is.
func (i *Installer) Install(ctx context.Context, name, ref, lock string) (*Outcome, error) {
	if err := i.Trust.Check(); err != nil {
		return nil, err
	}
	text, v := SplitVersion(ref)
	if err := CheckSource(text); err != nil {
		if _, tag, ok := strings.Cut(path.Base(text), ":"); ok && strings.Contains(text, "/") && kindOf(text) == registry_ {
			if verr := release.CheckVersion(tag); verr != nil { // not a tag, or SplitVersion had taken it off
				err = verr
			}
		}
		return nil, err
	}
	if kindOf(text) == local { // the lock file is not beside it
		abs, err := filepath.Abs(text)
		if err != nil {
			return nil, err
		}
		text = abs
	}
	if name == "" {
		var err error
		if name, err = nameOf(text); err != nil {
			return nil, err
		}
	}
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	w := Want{Name: name, Source: text, Version: v}
	if v != "" {
		c, err := version.NewConstraint(v)
		if err != nil {
			return nil, err
		}
		w.Constraints = c
	}
	file, err := lockfile.ReadFile(lock)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = &lockfile.File{}, nil
	}
	if err != nil {
		return nil, err
	}
	// The same version of the same source once more is held to what it was. Without a version, the newest is meant.
	before := file.Find(name)
	old := before
	if old != nil && (old.Source != text || old.Version != v) {
		old = nil
	}
	o, err := i.Ensure(ctx, w, old)
	if err != nil {
		return nil, err
	}
	if !o.Fetched && kindOf(text) == local {
		if err := i.unchanged(ctx, o.Lock); err != nil {
			return nil, fmt.Errorf("backend %q: %w; what was installed from it before is as it was", name, err)
		}
	}
	if before != nil && before.Source == text && before.Version == o.Lock.Version && before.Manifest != o.Lock.Manifest {
		i.note(name,
			"version %s from %s is not the one that was installed before: its manifest has the SHA-256 %s, and that one's "+
				"had %s",
			before.Version, text, o.Lock.Manifest, before.Manifest)
	}
	file.Set(o.Lock)
	if err := os.MkdirAll(filepath.Dir(lock), 0o755); err != nil {
		return nil, err
	}
	return o, file.WriteFile(lock)
}

// unchanged compares a release on this machine with what was installed from it. Nothing of it is needed any more, but
// anyone who installs it once more wants to hear that it is another one by now.
func (i *Installer) unchanged(ctx context.Context, l lockfile.Backend) error {
	s, err := i.open(l.Source, l.Name, "")
	if err != nil {
		return err
	}
	raw, _, err := s.Manifest(ctx, l.Version)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(raw); l.Manifest != "" && hex.EncodeToString(sum[:]) != l.Manifest {
		return i.changed(l.Version,
			"its manifest has the SHA-256 "+hex.EncodeToString(sum[:])+", and the lock file has "+l.Manifest)
	}
	m, err := release.Parse(raw)
	if err != nil {
		return err
	}
	a, ok := m.For(i.platform())
	if !ok {
		return fmt.Errorf("version %s is not for %s", l.Version, i.platform())
	}
	got, err := download(ctx, s, l.Version, a, io.Discard)
	if err != nil {
		return err
	}
	return matches(got, a)
}

// nameOf finds the name of the backend that a source is for: of hutch-backend-NAME at its end, or of the only one of
// which a directory holds releases.
func nameOf(text string) (string, error) {
	ask := fmt.Errorf("%s does not tell the name of the backend: add --name NAME", text)
	if kindOf(text) != local {
		p := text
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			p = u.Path
		}
		for p = strings.TrimSuffix(p, "/"); p != "." && p != "/" && p != ""; p = path.Dir(p) {
			if name, ok := strings.CutPrefix(path.Base(p), backend.Prefix); ok && backend.CheckName(name) == nil {
				return name, nil
			}
		}
		return "", ask
	}
	if m := archiveForm().FindStringSubmatch(filepath.Base(text)); m != nil {
		return m[1], nil
	}
	names := map[string]bool{}
	found, err := os.ReadDir(text)
	if err != nil {
		if _, why := openLocal(text, ""); why != nil { // which knows what else it could be
			err = why
		}
		return "", err
	}
	one := ""
	for _, f := range found {
		if n, _, ok := release.SplitManifestName(f.Name()); ok {
			names[n], one = true, n
		}
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("%s holds no release: no %s", text, release.ManifestName("NAME", "VERSION"))
	case 1:
		return one, nil
	}
	return "", ask
}
