package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/host/store"
)

// Published is what was brought into a registry.
type Published struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Source    string   `json:"source"`
	Digest    string   `json:"digest"` // of the index that the tag names
	Platforms []string `json:"platforms"`
	Signed    bool     `json:"signed"`
}

// Publish brings a release from a directory into a registry, under its version as tag. manifest is the path of its
// manifest; archives and signature lie beside it. Everything is checked against the manifest before anything is sent.
func (i *Installer) Publish(ctx context.Context, manifest, to string) (*Published, error) {
	if err := CheckSource(to); err != nil {
		return nil, err
	}
	if kindOf(to) != registry_ {
		return nil,
			fmt.Errorf("%q is no registry: what lies in a directory or on a web server is published by copying it there", to)
	}
	dir := filepath.Dir(manifest)
	name, version, ok := release.SplitManifestName(filepath.Base(manifest))
	if !ok {
		return nil, fmt.Errorf("%s is no manifest of a release, which is called %s", manifest,
			release.ManifestName("NAME", "VERSION"))
	}
	from := &dirSource{dir: dir, name: name}
	raw, signature, err := from.Manifest(ctx, version)
	if err != nil {
		return nil, err
	}
	m, err := release.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	if m.Name != name || m.Version != version {
		return nil, fmt.Errorf("%s is the manifest of %s %s", manifest, m.Name, m.Version)
	}
	for _, a := range m.Archives {
		if err := check(ctx, from, m, a); err != nil {
			return nil, err
		}
	}
	r, err := i.registry(to)
	if err != nil {
		return nil, err
	}
	digest, err := r.Push(ctx, m, raw, signature, func(a release.Archive) (io.ReadCloser,
		error) {
		return os.Open(filepath.Join(dir, a.File))
	})
	if err != nil {
		return nil, err
	}
	return &Published{Name: name, Version: version, Source: to, Digest: digest, Platforms: m.Platforms(),
		Signed: signature != nil}, nil
}

// check unpacks an archive as an installation would, and throws it away.
func check(ctx context.Context, from source, m *release.Manifest, a release.Archive) error {
	tmp, err := store.MkdirTemp("publish")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	got, err := fetch(ctx, from, m.Version, a, tmp)
	if err == nil {
		err = matches(got, a)
	}
	if err == nil {
		err = place(ctx, filepath.Join(tmp, "installed"), tmp, m, a, got, nil, nil)
	}
	return err
}

// matches says how a fetched archive differs from what its manifest says.
func matches(got fetched, a release.Archive) error {
	switch {
	case got.size != a.Size:
		return fmt.Errorf("%s is %d bytes, and its manifest says %d", a.File, got.size, a.Size)
	case got.sha256 != a.SHA256:
		return fmt.Errorf("%s is not the archive of the manifest: SHA-256 %s instead of %s", a.File, got.sha256, a.SHA256)
	}
	return nil
}

// Manifests finds the manifests in a directory, or is the one file that path names.
func Manifests(path string) ([]string, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s: name the directory that hutch backend pack wrote, or a manifest in it", path)
	}
	if err != nil || !st.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if _, _, ok := release.SplitManifestName(e.Name()); ok {
			all = append(all, filepath.Join(path, e.Name()))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no %s: name the directory that hutch backend pack wrote, or a manifest in it", path,
			release.ManifestName("NAME", "VERSION"))
	}
	slices.Sort(all)
	return all, nil
}

// Trust says whose releases are taken.
type Trust struct {
	// Required refuses a release that no trusted key has signed. Otherwise that is only said.
	Required bool
	// Keys are minisign public keys by the source that they are for: the text of a source, or the beginning of one up
	// to a slash.
	Keys map[string][]string
}

// ErrUnsigned says that a release was not signed by a key that is trusted, and has to be.
var ErrUnsigned = errors.New("no trusted key has signed it")

// Check says what is wrong with the keys.
func (t Trust) Check() error {
	for source, keys := range t.Keys {
		for _, k := range keys {
			var p minisign.PublicKey
			if err := p.UnmarshalText([]byte(k)); err != nil {
				return fmt.Errorf("the key for %q is no public key of minisign, which begins with RW: %w", source, err)
			}
		}
	}
	return nil
}

// forSource finds the keys for a source.
func (t Trust) forSource(source string) []string {
	var keys []string
	source = strings.TrimPrefix(source, "oci://")
	for prefix, k := range t.Keys {
		prefix = strings.TrimSuffix(strings.TrimPrefix(prefix, "oci://"), "/")
		if source == prefix || strings.HasPrefix(source, prefix+"/") {
			keys = append(keys, k...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// verify checks the signature of a manifest. by is the ID of the key, "" when none has signed and none had to; then why
// says what was wanting. A signature of a trusted key that does not fit is an error whatever is required.
func (t Trust) verify(source string, manifest, signature []byte) (by, why string, err error) {
	keys := t.forSource(source)
	if len(signature) == 0 {
		why = "it is not signed"
	} else {
		var s minisign.Signature
		if err := s.UnmarshalText(signature); err != nil {
			return "", "", fmt.Errorf("its signature is not a minisign signature: %w", err)
		}
		why = fmt.Sprintf("it is signed by %016X, and no key for %s in your configuration has that ID", s.KeyID, source)
		for _, k := range keys {
			var p minisign.PublicKey
			if err := p.UnmarshalText([]byte(k)); err != nil {
				return "", "", fmt.Errorf("the key for %q: %w", source, err)
			}
			if p.ID() != s.KeyID {
				continue
			}
			if !minisign.Verify(p, manifest, signature) {
				return "", "", fmt.Errorf("its signature by %016X is wrong: it was changed after it was signed", s.KeyID)
			}
			return fmt.Sprintf("%016X", s.KeyID), "", nil
		}
	}
	// Who trusts a key for a source wants that key's releases: a signature that can be left out protects from nobody.
	if t.Required || len(keys) > 0 {
		return "", "", fmt.Errorf("%w: %s", ErrUnsigned, why)
	}
	return "", why, nil
}

// Installed is a program that was installed, as a host is about to execute it.
type Installed struct {
	Name    string
	Program string // its path; manifest and signature lie beside it
	SHA256  string // of the program, in hex
	Source  string // as the lock file has it; "" when only a record names the program
	Dir     string // what a local source is relative to
}

// CheckInstalled refuses a program that this Trust would not install now. It decides from the signed manifest alone: a
// lock file is part of a project and can claim anything. It reads nothing when no signature is asked for.
func (t Trust) CheckInstalled(p Installed) error {
	source := Want{Source: p.Source, Dir: p.Dir}.trusted()
	if p.Source == "" {
		// A key that signed it for any source is trusted; the program is one that this store has used before.
		var all []string
		for _, keys := range t.Keys {
			all = append(all, keys...)
		}
		t.Keys = map[string][]string{"": all}
	}
	if !t.Required && len(t.forSource(source)) == 0 {
		return nil
	}
	raw, signature, err := kept(p.Program)
	if err != nil {
		return fmt.Errorf("%w: it has no manifest: %w", ErrUnsigned, err)
	}
	if _, _, err := t.verify(source, raw, signature); err != nil {
		return err
	}
	m, err := release.Parse(raw)
	if err != nil {
		return fmt.Errorf("its manifest: %w", err)
	}
	a, ok := m.For(backend.Platform)
	if m.Name != p.Name || !ok || a.BinarySHA256 != p.SHA256 {
		return fmt.Errorf("%w: the signed manifest beside it is of version %s of %q, whose program for %s has the SHA-256 "+
			"%s, and this one has %s",
			ErrUnsigned, m.Version, m.Name, backend.Platform, a.BinarySHA256, p.SHA256)
	}
	if a.BesideSHA256 == "" {
		return nil
	}
	beside, err := backend.BesideSHA256(filepath.Dir(p.Program), p.Name)
	if err == nil && beside != a.BesideSHA256 {
		err = fmt.Errorf("%w: the files beside it are not those of its signed manifest", ErrUnsigned)
	}
	return err
}

// SignedBy is the ID of the trusted key that signed what is installed at program, "" for none. It is found out again,
// because a lock file can claim anything. source is what the lock file has, and dir the directory that it lies in.
func (t Trust) SignedBy(program, source, dir string) string {
	raw, signature, err := kept(program)
	if err != nil {
		return ""
	}
	by, _, err := t.verify(Want{Source: source, Dir: dir}.trusted(), raw, signature)
	if err != nil {
		return ""
	}
	return by
}
