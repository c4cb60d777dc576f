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
		return nil, fmt.Errorf("%q is no registry: what lies in a directory or on a web server is published by copying it there", to)
	}
	dir := filepath.Dir(manifest)
	name, version, ok := release.SplitManifestName(filepath.Base(manifest))
	if !ok {
		return nil, fmt.Errorf("%s is no manifest of a release, which is called %s", manifest, release.ManifestName("NAME", "VERSION"))
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
	digest, err := r.Push(ctx, m, raw, signature, func(a release.Archive) (io.ReadCloser, error) { return os.Open(filepath.Join(dir, a.File)) })
	if err != nil {
		return nil, err
	}
	return &Published{Name: name, Version: version, Source: to, Digest: digest, Platforms: m.Platforms(), Signed: signature != nil}, nil
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
		return nil, fmt.Errorf("%s holds no %s: name the directory that hutch backend pack wrote, or a manifest in it", path, release.ManifestName("NAME", "VERSION"))
	}
	slices.Sort(all)
	return all, nil
}
