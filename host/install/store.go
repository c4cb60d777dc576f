package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/flock"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// protocol is the major version of the contract that this host speaks.
const protocol = sdk.ProtocolVersion

// place unpacks a fetched archive and moves it to where it belongs. dir is where everything is installed, tmp a
// directory below it.
func place(ctx context.Context, dir, tmp string, m *release.Manifest, a release.Archive, got fetched, raw, signature []byte) error {
	tree := filepath.Join(tmp, "tree")
	if err := unpack(ctx, got.path, strings.HasSuffix(a.File, ".zip"), tree); err != nil {
		return fmt.Errorf("%s: %w", a.File, err)
	}
	hash, err := hashBinary(tree, m.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", a.File, err)
	}
	if hash != a.BinarySHA256 {
		return fmt.Errorf("%s: the program in it is not the one of the manifest: SHA-256 %s instead of %s", a.File, hash, a.BinarySHA256)
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
	if err := keep(tree, raw, signature); err != nil {
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

// keep writes manifest and signature into an unpacked tree, which must not have brought its own.
func keep(tree string, raw, signature []byte) error {
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

// kept reads what keep wrote beside the program at path.
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
