package backend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// KeptPrefix begins the names of what hutch itself keeps beside an installed program.
const KeptPrefix = ".manifest.json"

// Bounds of what may lie beside a program.
const (
	maxBeside      = 2000
	maxBesideBytes = 1 << 30
)

// BesideSHA256 hashes the files that lie beside the program of a backend in its directory, all but the program and what
// hutch keeps there: their paths, whether they are executable, and their contents; of links the target.
func BesideSHA256(dir, name string) (string, error) {
	list, err := lookBeside(dir, name)
	if err != nil {
		return "", err
	}
	return list.hash(dir)
}

// beside is a file beside a program, as it is found without reading it.
type beside struct {
	Path  string `json:"path"` // relative, with slashes
	Mode  uint32 `json:"mode"`
	Link  string `json:"link,omitempty"` // its target
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime_ns"`
	Ctime int64  `json:"ctime_ns"`
}

type besides []beside

// lookBeside lists the files beside a program, by their paths.
func lookBeside(dir, name string) (besides, error) {
	var list besides
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || rel == Prefix+name || strings.HasPrefix(rel, KeptPrefix) {
			return err
		}
		if len(list) == maxBeside {
			return fmt.Errorf("%s holds more than %d files", dir, maxBeside)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: path, Err: err}
		}
		b := beside{Path: filepath.ToSlash(rel), Mode: uint32(st.Mode), Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size,
			Mtime: timeOf(&st, false), Ctime: timeOf(&st, true)}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			if b.Link, err = os.Readlink(path); err != nil {
				return err
			}
		case unix.S_IFREG:
		default:
			return fmt.Errorf("%s is neither a file nor a link", path)
		}
		list = append(list, b)
		return nil
	})
	slices.SortFunc(list, func(a, b beside) int { return strings.Compare(a.Path, b.Path) })
	return list, err
}

func (l besides) hash(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	h := NewBesideHash()
	left := int64(maxBesideBytes)
	for _, b := range l {
		if b.Mode&unix.S_IFMT == unix.S_IFLNK {
			h.Add(b.Path, "link", b.Link)
			continue
		}
		c, err := safefile.Copy(context.Background(), io.Discard, root, b.Path, left)
		if err != nil {
			return "", err
		}
		left -= b.Size
		h.Add(b.Path, BesideKind(b.Mode&0o100 != 0), c.SHA256)
	}
	return h.Sum(), nil
}

// BesideKind is what a regular file is for [BesideHash.Add].
func BesideKind(executable bool) string {
	if executable {
		return "program"
	}
	return "file"
}

// BesideHash puts together what BesideSHA256 finds in a directory. Files are added in the order of their paths.
type BesideHash struct{ text strings.Builder }

// NewBesideHash returns the hash of no files.
func NewBesideHash() *BesideHash { return &BesideHash{} }

// Add adds a file: content is the SHA-256 of a regular one in hex, the target of a link.
func (h *BesideHash) Add(path, kind, content string) {
	line, _ := json.Marshal([]string{path, kind, content}) // cannot fail, and keeps fields and lines apart
	h.text.Write(append(line, '\n'))
}

// Sum is the hash, in hex.
func (h *BesideHash) Sum() string {
	sum := sha256.Sum256([]byte(h.text.String()))
	return hex.EncodeToString(sum[:])
}

// checkBeside compares what lies beside a program with what a lock file says. Files that are as they were when they
// were hashed, as for the program itself, are not read again: see [known].
func checkBeside(path, name, want, cacheDir string) error {
	dir := filepath.Dir(path)
	list, err := lookBeside(dir, name)
	if err != nil {
		return err
	}
	type remembered struct {
		Files  besides `json:"files"`
		SHA256 string  `json:"sha256"`
	}
	cache := ""
	if cacheDir != "" {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return &os.PathError{Op: "stat", Path: dir, Err: err}
		}
		cache = filepath.Join(cacheDir, fmt.Sprintf("%s-beside-%x-%x.json", name, uint64(st.Dev), st.Ino))
		var r remembered
		if raw, err := os.ReadFile(cache); err == nil && json.Unmarshal(raw, &r) == nil && r.SHA256 == want &&
			slices.Equal(r.Files, list) {
			return nil
		}
	}
	sum, err := list.hash(dir)
	if err != nil {
		return err
	}
	if sum != want {
		return fmt.Errorf("the files beside %s %w", path, errBeside)
	}
	if raw, err := json.Marshal(remembered{list, sum}); err == nil && cache != "" {
		writeCache(cache, raw)
	}
	return nil
}

var errBeside = errors.New("are not those that came with it")
