package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// maxFiles bounds a directory of releases.
const maxFiles = 10_000

// dirSource is a directory that holds releases.
type dirSource struct {
	dir  string
	name string
}

// openLocal distinguishes a directory from an archive.
func openLocal(path, name string) (source, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such file or directory", path)
	case err != nil:
		return nil, err
	case st.IsDir():
		return &dirSource{dir: path, name: name}, nil
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is neither a directory nor a file", path)
	}
	if m := archiveForm().FindStringSubmatch(filepath.Base(path)); m != nil {
		return newArchiveSource(path, m[1], m[2], m[3]+"/"+m[4])
	}
	if st.Mode()&0o111 != 0 {
		return nil, fmt.Errorf("%s is a program and no release: for development, name it in backend_paths of your configuration or in %s", path, backend.EnvPath)
	}
	return nil, fmt.Errorf("%s is neither a directory of releases nor an archive %sNAME_VERSION_OS_ARCH.tar.gz", path, backend.Prefix)
}

// Versions implements source.
func (s *dirSource) Versions(context.Context) ([]string, error) {
	d, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("%s holds more than %d files", s.dir, maxFiles)
	}
	var all []string
	for _, n := range names {
		if name, version, ok := release.SplitManifestName(n); ok && name == s.name {
			all = append(all, version)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no %s", s.dir, release.ManifestName(s.name, "VERSION"))
	}
	return all, nil
}

// Manifest implements source.
func (s *dirSource) Manifest(_ context.Context, version string) (raw, signature []byte, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	file := release.ManifestName(s.name, version)
	if raw, err = safefile.ReadFile(root, file, release.MaxManifest); err != nil {
		return nil, nil, fmt.Errorf("in %s: %w", s.dir, err)
	}
	signature, err = safefile.ReadFile(root, release.SignatureName(file), release.MaxSignature)
	if errors.Is(err, fs.ErrNotExist) {
		signature, err = nil, nil
	}
	return raw, signature, err
}

// Archive implements source.
func (s *dirSource) Archive(ctx context.Context, _ string, a release.Archive, w io.Writer) error {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = safefile.Copy(ctx, w, root, a.File, a.Size)
	return err
}

// archiveForm is what the name of an archive says.
var archiveForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^` + backend.Prefix + `([a-z][a-z0-9-]*)_([^_/]+)_([a-z0-9]+)_([a-z0-9_]+?)\.(?:tar\.gz|zip)$`)
})

// archiveSource is one archive without a manifest, which is made up from what is in it.
type archiveSource struct {
	dirSource
	m *release.Manifest
}

func newArchiveSource(path, name, version, platform string) (source, error) {
	for _, err := range []error{backend.CheckName(name), release.CheckVersion(version), release.CheckPlatform(platform)} {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return &archiveSource{
		dirSource: dirSource{dir: filepath.Dir(path), name: name},
		m: &release.Manifest{Name: name, Version: version, Protocols: []int{protocol},
			Archives: []release.Archive{{Platform: platform, File: filepath.Base(path)}}},
	}, nil
}

// Versions implements source.
func (s *archiveSource) Versions(context.Context) ([]string, error) {
	return []string{s.m.Version}, nil
}

// Manifest implements source.
func (s *archiveSource) Manifest(ctx context.Context, version string) (raw, signature []byte, err error) {
	a := s.m.Archives[0]
	if version != s.m.Version {
		return nil, nil, fmt.Errorf("%s is version %s, and not %s", a.File, s.m.Version, version)
	}
	tmp, err := store.MkdirTemp("archive")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(tmp)
	a.Size = release.MaxArchive
	got, err := fetch(ctx, s, version, a, tmp)
	if err != nil {
		return nil, nil, err
	}
	tree := filepath.Join(tmp, "tree")
	if err := unpack(ctx, got.path, strings.HasSuffix(a.File, ".zip"), tree); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.File, err)
	}
	a.Size, a.SHA256 = got.size, got.sha256
	if a.BinarySHA256, err = hashBinary(tree, s.name); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.File, err)
	}
	if a.BesideSHA256, err = backend.BesideSHA256(tree, s.name); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.File, err)
	}
	m := *s.m
	m.Archives = []release.Archive{a}
	raw, err = m.Encode()
	return raw, nil, err
}
