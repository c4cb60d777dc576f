package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// Bounds of what an archive may unpack to.
var caps = tree.Caps{Entries: 2000, Bytes: 1 << 30, Depth: 16}

// fetched is an archive that is on disk.
type fetched struct {
	path   string
	size   int64
	sha256 string
}

// fetch copies an archive into dir and hashes it on the way.
func fetch(ctx context.Context, s source, version string, a release.Archive, dir string) (fetched, error) {
	f, err := os.OpenFile(filepath.Join(dir, "archive"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fetched{}, err
	}
	got, err := download(ctx, s, version, a, f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	got.path = f.Name()
	return got, err
}

// download copies an archive, and says what came.
func download(ctx context.Context, s source, version string, a release.Archive, w io.Writer) (fetched, error) {
	h := sha256.New()
	n := new(counter)
	err := s.Archive(ctx, version, a, io.MultiWriter(w, h, n))
	return fetched{size: int64(*n), sha256: hex.EncodeToString(h.Sum(nil))}, err
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// unpack unpacks an archive that may be hostile into a new directory.
func unpack(ctx context.Context, archive, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = tree.Unpack(ctx, f, root, caps)
	return err
}

// hashBinary hashes the backend in an unpacked tree.
func hashBinary(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	file := backend.Prefix + name
	st, err := root.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no %s in it", file)
	case err != nil:
		return "", err
	case st.Mode()&0o100 == 0:
		return "", fmt.Errorf("%s in it is not executable", file)
	}
	c, err := safefile.Copy(context.Background(), io.Discard, root, file, caps.Bytes)
	return c.SHA256, err
}
