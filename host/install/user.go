package install

import (
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
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/release"
)

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
		i.note(name, "version %s from %s is not the one that was installed before: its manifest has the SHA-256 %s, and that one's had %s",
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
		return i.changed(l.Version, "its manifest has the SHA-256 "+hex.EncodeToString(sum[:])+", and the lock file has "+l.Manifest)
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
