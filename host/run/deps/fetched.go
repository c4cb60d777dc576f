package deps

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/textproto"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/result"
)

// Bounds of what is read of a list that an installer left.
const (
	maxMetadata = 4 << 20
	maxLock     = 64 << 20
	maxFetched  = 20_000
)

// Fetched lists the packages in a directory that an installer of lang filled, sorted by name. The directory is hostile:
// a package's own installation code can have written to it.
func Fetched(lang, dir string) ([]result.Package, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var list []result.Package
	switch lang {
	case "python":
		list, err = wheels(root)
	case "javascript":
		list, err = nodeModules(root)
	}
	if err != nil {
		return nil, fmt.Errorf("list what was installed: %w", err)
	}
	slices.SortFunc(list, func(a, b result.Package) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version))
	})
	return slices.Compact(list), nil
}

// wheels reads the *.dist-info directories of a directory that pip or uv filled, whose format is at
// https://packaging.python.org/specifications/recording-installed-packages/. The digest of a package is that of its
// RECORD, which has the digest of each of its files.
func wheels(root *os.Root) (list []result.Package, err error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasSuffix(e.Name(), ".dist-info") {
			continue
		}
		if len(list) == maxFetched {
			return nil, fmt.Errorf("more than %d packages", maxFetched)
		}
		raw, err := read(root, path.Join(e.Name(), "METADATA"), maxMetadata)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// What a header that is no header leaves is enough: the description below them is free text.
		h, _ := textproto.NewReader(bufio.NewReader(strings.NewReader(string(raw)))).ReadMIMEHeader()
		p := result.Package{Name: h.Get("Name"), Version: h.Get("Version")}
		if record, err := read(root, path.Join(e.Name(), "RECORD"), maxMetadata); err == nil {
			sum := sha256.Sum256(record)
			p.Digest = "sha256-" + hex.EncodeToString(sum[:])
		}
		list = append(list, p)
	}
	return list, nil
}

// nodeModules reads the lock file that npm leaves beside the packages. The digest is the registry's.
func nodeModules(root *os.Root) (list []result.Package, err error) {
	raw, err := read(root, "node_modules/.package-lock.json", maxLock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was to be installed
	}
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct{ Name, Version, Integrity string }
	}
	if err := json.Unmarshal(raw, &lock); err != nil {
		return nil, err
	}
	if len(lock.Packages) > maxFetched {
		return nil, fmt.Errorf("more than %d packages", maxFetched)
	}
	for at, p := range lock.Packages {
		if !strings.Contains(at, "node_modules/") {
			continue // the directory itself
		}
		name := at[strings.LastIndex(at, "node_modules/")+len("node_modules/"):]
		list = append(list, result.Package{Name: cmp.Or(p.Name, name), Version: p.Version, Digest: p.Integrity})
	}
	return list, nil
}

func read(root *os.Root, name string, most int64) ([]byte, error) {
	st, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > most {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", name, most)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
