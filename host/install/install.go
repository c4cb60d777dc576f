// Package install brings backends onto this machine: it finds a release at its source, checks it against its manifest,
// its signature and the lock file, and unpacks it into its own directory.
//
// It is the only part of hutch that uses the network by itself, and only when `hutch init` or `hutch backend install`
// asks for it. Nothing that it fetches is executed by it.
//
// # What is trusted
//
// A source is not: manifests, archives, signatures, redirects and sizes may be hostile. The first fetch of a release
// takes the publisher's word for it unless a key is trusted for that source; from then on the lock file holds hashes,
// and whatever differs from them is refused. An archive is unpacked as a tree from a sandbox is, by package tree.
//
// # Where it goes
//
//	DIR/NAME/VERSION/OS_ARCH/HASH/hutch-backend-NAME
//
// HASH is the beginning of the program's SHA-256, so that two sources with one version number do not share a place, and
// what is there never changes. A directory is renamed into place when it is whole.
package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/flock"
	"github.com/hutch-run/hutch/host/install/careful"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Installer installs backends. Its methods may be called concurrently, and by several processes.
type Installer struct {
	Dir   string // below which backends are installed
	Trust Trust

	// Note is called with what a person should know of one backend, one line; it may be nil.
	Note func(name, text string)
	// Registry opens a repository, HOST/PATH; nil has the helper talk to registries that comes with hutch.
	Registry func(ref string) (Registry, error)
	// Transport is what web servers are talked to through; nil means the network.
	Transport http.RoundTripper
	// Stall is how long a server may send nothing; 0 means a minute.
	Stall time.Duration
	// Platform to install for; "" means this one.
	Platform string
}

// Want is a backend that is wanted.
type Want struct {
	Name        string
	Source      string
	Dir         string // what a local source is relative to
	Version     string // constraint as written, "" for any
	Constraints version.Constraints
}

// trusted is the source as keys are trusted for it: a local one as an absolute path, because a relative one means
// another place in every project.
func (w Want) trusted() string {
	if kindOf(w.Source) == local && !filepath.IsAbs(w.Source) {
		return filepath.Join(w.Dir, w.Source)
	}
	return w.Source
}

// Outcome says what came of a backend.
type Outcome struct {
	Lock    lockfile.Backend
	Path    string // of the program
	Fetched bool   // it was not there before
}

func (i *Installer) platform() string {
	if i.Platform != "" {
		return i.Platform
	}
	return backend.Platform
}

func (i *Installer) note(name, format string, args ...any) {
	if i.Note != nil {
		i.Note(name, fmt.Sprintf(format, args...))
	}
}

func (i *Installer) client() *http.Client {
	stall := i.Stall
	if stall == 0 {
		stall = careful.DefaultStall
	}
	return careful.NewClient(i.Transport, stall)
}

// Ensure makes sure that a backend is installed. With a lock it is that very release, and nothing is asked of the
// source when it is there already; without one the newest that fits.
func (i *Installer) Ensure(ctx context.Context, w Want, locked *lockfile.Backend) (*Outcome, error) {
	o, err := i.ensure(ctx, w, locked)
	if err != nil {
		return nil, fmt.Errorf("backend %q: %w", w.Name, err)
	}
	return o, nil
}

func (i *Installer) ensure(ctx context.Context, w Want, locked *lockfile.Backend) (*Outcome, error) {
	if locked != nil {
		if err := speaks(locked.Version, locked.Protocols); err != nil {
			return nil, err
		}
		if o, err := i.offline(w, locked); o != nil || err != nil {
			return o, err
		}
	}
	s, err := i.open(w.Source, w.Name, w.Dir)
	if err != nil {
		return nil, err
	}
	v := ""
	if locked != nil {
		v = locked.Version
	} else if v, err = i.choose(ctx, s, w); err != nil {
		return nil, err
	}
	raw, signature, err := s.Manifest(ctx, v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	l := lockfile.Backend{Name: w.Name, Source: w.Source, Constraint: w.Version, Version: v,
		Manifest: hex.EncodeToString(sum[:])}
	if locked != nil && locked.Manifest != "" && locked.Manifest != l.Manifest {
		return nil, i.changed(v, "its manifest has the SHA-256 "+l.Manifest+", and the lock file has "+locked.Manifest)
	}
	by, why, err := i.Trust.verify(w.trusted(), raw, signature)
	if err != nil {
		return nil, fmt.Errorf("version %s from %s: %w", v, w.Source, err)
	}
	m, err := release.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("version %s from %s: %w", v, w.Source, err)
	case m.Name != w.Name:
		return nil, fmt.Errorf("%s has releases of %q there", w.Source, m.Name)
	case m.Version != v:
		return nil, fmt.Errorf("what %s gives as version %s is version %s", w.Source, v, m.Version)
	}
	if err := speaks(v, m.Protocols); err != nil {
		return nil, err
	}
	l.SignedBy, l.Protocols = by, m.Protocols
	for _, a := range m.Archives {
		l.Platforms = append(l.Platforms, lockfile.Platform{Name: a.Platform, Archive: a.SHA256, Binary: a.BinarySHA256,
			Beside: a.BesideSHA256})
	}
	slices.SortFunc(l.Platforms, func(a, b lockfile.Platform) int { return strings.Compare(a.Name, b.Name) })
	if locked != nil {
		if p := differs(locked, &l); p != "" {
			return nil, i.changed(v, "its files for "+p+" are not those of the lock file")
		}
	}
	a, ok := m.For(i.platform())
	if !ok {
		return nil, fmt.Errorf("version %s is not for %s; there are %s", v, i.platform(), strings.Join(m.Platforms(), ", "))
	}
	o := &Outcome{Lock: l, Path: backend.InstalledPath(i.Dir, w.Name, v, a.Platform, a.BinarySHA256)}
	if why != "" {
		i.note(w.Name, "version %s from %s: %s", v, w.Source, why)
	}
	if installed(o.Path, w.Name, a.BinarySHA256, a.BesideSHA256) {
		return o, nil
	}
	o.Fetched = true
	return o, i.bring(ctx, s, m, a, raw, signature)
}

// offline is the outcome where what is locked is installed already, and nil where it is not.
func (i *Installer) offline(w Want, locked *lockfile.Backend) (*Outcome, error) {
	p, ok := locked.For(i.platform())
	if !ok {
		return nil, nil
	}
	path := backend.InstalledPath(i.Dir, w.Name, locked.Version, p.Name, p.Binary)
	if !installed(path, w.Name, p.Binary, p.Beside) {
		return nil, nil
	}
	raw, signature, err := kept(path)
	if err != nil {
		return nil, nil // it is brought again
	}
	// Not blindly: what is asked of signatures may have changed since.
	if _, _, err := i.Trust.verify(w.trusted(), raw, signature); err != nil {
		return nil, fmt.Errorf("version %s from %s: %w", locked.Version, w.Source, err)
	}
	return &Outcome{Lock: *locked, Path: path}, nil
}

// differs names a platform whose files are not those that were locked, or is "".
func differs(locked, now *lockfile.Backend) string {
	for _, was := range locked.Platforms {
		is, ok := now.For(was.Name)
		if was.Beside == "" { // it was locked by a hutch that did not write it
			is.Beside = ""
		}
		if !ok || is != was {
			return was.Name
		}
	}
	return ""
}

func (i *Installer) changed(v, how string) error {
	return fmt.Errorf("version %s is not what it was when it was locked: %s; ask its publisher why, and do not use it "+
		"before you know", v, how)
}

// speaks refuses a release whose protocol this host does not speak.
func speaks(v string, protocols []int) error {
	if slices.Contains(protocols, protocol) {
		return nil
	}
	fix := "use an older hutch, or a newer version of the backend"
	if len(protocols) > 0 && protocols[0] > protocol {
		fix = "upgrade hutch, or use an older version of the backend"
	}
	return fmt.Errorf("version %s speaks protocol %s, and this hutch speaks %d; %s", v, join(protocols), protocol, fix)
}

func join(n []int) string {
	var s []string
	for _, v := range n {
		s = append(s, fmt.Sprint(v))
	}
	return strings.Join(s, ", ")
}

// choose finds the newest version that fits.
func (i *Installer) choose(ctx context.Context, s source, w Want) (string, error) {
	if v := exact(w.Version); v != "" {
		return v, nil
	}
	all, err := s.Versions(ctx)
	if errors.Is(err, errNoList) {
		return "", fmt.Errorf("%s cannot tell which versions there are; name one exactly, as in version = \"1.2.3\"",
			w.Source)
	}
	if err != nil {
		return "", err
	}
	var best *version.Version
	var text string
	var found []string
	for _, t := range all {
		if release.CheckVersion(t) != nil {
			continue // a tag such as latest
		}
		v, err := version.NewSemver(t)
		if err != nil {
			continue
		}
		found = append(found, t)
		if len(w.Constraints) == 0 && v.Prerelease() != "" || len(w.Constraints) > 0 && !w.Constraints.Check(v) {
			continue
		}
		if best == nil || v.GreaterThan(best) {
			best, text = v, t
		}
	}
	switch {
	case best != nil:
		return text, nil
	case len(found) == 0:
		return "", fmt.Errorf("%s has no release", w.Source)
	case w.Version == "":
		return "", fmt.Errorf("%s has no release but %s; name one exactly", w.Source, some(found))
	}
	return "", fmt.Errorf("%s has no version that fits %q; there are %s", w.Source, w.Version, some(found))
}

// some names a few versions, the newest first.
func some(versions []string) string {
	slices.SortFunc(versions, func(a, b string) int {
		x, _ := version.NewSemver(a)
		y, _ := version.NewSemver(b)
		return y.Compare(x)
	})
	if n := len(versions); n > 5 {
		return strings.Join(versions[:5], ", ") + fmt.Sprintf(" and %d more", n-5)
	}
	return strings.Join(versions, ", ")
}

// exact is the version that a constraint names when it allows just one, else "".
func exact(constraint string) string {
	v := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(constraint), "="))
	if release.CheckVersion(v) != nil {
		return ""
	}
	return v
}

// bring fetches an archive, checks it and unpacks it to its place.
func (i *Installer) bring(ctx context.Context, s source, m *release.Manifest, a release.Archive, raw,
	signature []byte) error {
	unlock, err := lock(ctx, i.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if installed(backend.InstalledPath(i.Dir, m.Name, m.Version, a.Platform, a.BinarySHA256), m.Name, a.BinarySHA256,
		a.BesideSHA256) {
		return nil // by somebody who had the lock before us
	}
	sweep(i.Dir)
	tmp, err := os.MkdirTemp(i.Dir, tmpPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	got, err := fetch(ctx, s, m.Version, a, tmp)
	if err == nil {
		err = matches(got, a)
	}
	if err != nil {
		return err
	}
	return place(ctx, i.Dir, tmp, m, a, got, raw, signature)
}

const tmpPrefix = ".new-"

// sweep removes what an installation left that was killed. The lock says that none is going on.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, tmpPrefix+"*"))
	for _, l := range left {
		os.RemoveAll(l)
	}
}

// protocol is the major version of the contract that this host speaks.
const protocol = sdk.ProtocolVersion

// place unpacks a fetched archive and moves it to where it belongs. dir is where everything is installed, tmp a
// directory below it.
func place(ctx context.Context, dir, tmp string, m *release.Manifest, a release.Archive, got fetched, raw,
	signature []byte) error {
	tree := filepath.Join(tmp, "tree")
	if err := unpack(ctx, got.path, tree); err != nil {
		return fmt.Errorf("%s: %w", a.File, err)
	}
	hash, err := hashBinary(tree, m.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", a.File, err)
	}
	if hash != a.BinarySHA256 {
		return fmt.Errorf("%s: the program in it is not the one of the manifest: SHA-256 %s instead of %s", a.File, hash,
			a.BinarySHA256)
	}
	if a.BesideSHA256 != "" {
		beside, err := backend.BesideSHA256(tree, m.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", a.File, err)
		}
		if beside != a.BesideSHA256 {
			return fmt.Errorf("%s: the files beside the program in it are not those of the manifest", a.File)
		}
	}
	if err := keepManifest(tree, raw, signature); err != nil {
		return err
	}
	path := backend.InstalledPath(dir, m.Name, m.Version, a.Platform, a.BinarySHA256)
	to := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	err = os.Rename(tree, to)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		// Something is there that is not what it was; otherwise nothing would have been fetched.
		if err := os.Rename(to, filepath.Join(tmp, "old")); err != nil {
			return err
		}
		err = os.Rename(tree, to)
	}
	return err
}

// The manifest of a release and its signature stay beside the program, so that they can be looked at again offline.
const (
	keptManifest  = backend.KeptPrefix
	keptSignature = backend.KeptPrefix + ".minisig"
)

// keepManifest writes manifest and signature into an unpacked tree, which must not have brought its own.
func keepManifest(tree string, raw, signature []byte) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	for name, content := range map[string][]byte{keptManifest: raw, keptSignature: signature} {
		if _, err := root.Lstat(name); err == nil {
			return fmt.Errorf("the archive holds %s, which is hutch's to write", name)
		}
		if content == nil {
			continue
		}
		if err := root.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// kept reads what keepManifest wrote beside the program at path.
func kept(path string) (raw, signature []byte, err error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	if raw, err = safefile.ReadFile(root, keptManifest, release.MaxManifest); err != nil {
		return nil, nil, err
	}
	signature, err = safefile.ReadFile(root, keptSignature, release.MaxSignature)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return raw, signature, err
}

// installed reports whether a backend is there, unchanged, and what lies beside it, where beside says what that is.
func installed(path, name, binarySHA256, beside string) bool {
	dir := filepath.Dir(path)
	hash, err := hashBinary(dir, name)
	if err != nil || hash != binarySHA256 || beside == "" {
		return err == nil && hash == binarySHA256
	}
	found, err := backend.BesideSHA256(dir, name)
	return err == nil && found == beside
}

// lock lets one process at a time install something below dir.
func lock(ctx context.Context, dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return flock.Path(ctx, filepath.Join(dir, ".lock"))
}

// Remove removes all versions of a backend that were installed, and takes it out of the user's lock file. It returns
// how many versions there were, and refuses while a persistent sandbox was made by one of them.
func Remove(s *store.Store, name string) (int, error) {
	if err := backend.CheckName(name); err != nil {
		return 0, err
	}
	paths := s.Paths()
	dir := filepath.Join(paths.Installed(), name)
	versions, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("no backend %q was installed by hutch init or hutch backend install", name)
	}
	if err != nil {
		return 0, err
	}
	boxes, err := s.Sandboxes()
	if err != nil {
		return 0, err
	}
	for _, b := range boxes {
		if real, err := filepath.EvalSymlinks(dir); err == nil &&
			strings.HasPrefix(b.Binary, real+string(filepath.Separator)) {
			return 0, fmt.Errorf("the sandbox %s was made by it; hutch rm %s removes that", b.Name, b.Name)
		}
	}
	f, err := lockfile.ReadFile(paths.InstalledLock())
	if err == nil && f.Find(name) != nil {
		f.Remove(name)
		err = f.WriteFile(paths.InstalledLock())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	return len(versions), os.RemoveAll(dir)
}
