package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// entry is one thing in the workspace.
type entry struct {
	Mode fs.FileMode `json:"mode"` // type and permissions
	Size int64       `json:"size,omitempty"`
	Link string      `json:"-"`             // see savedEntry
	Sum  string      `json:"sum,omitempty"` // SHA-256 of a file's content, where it is known
	// Stamp is what no program can set as it likes: the inode, and the time of the last change of the inode. While it is
	// the same, so is the content.
	Stamp string `json:"stamp,omitempty"`
	when  time.Time
}

// maxEntries bounds a workspace.
const maxEntries = 200_000

// maxListing bounds what a machine may say about it.
const maxListing = 256 << 20

func packedEntry(h *tar.Header, sum hash.Hash) entry {
	e := entry{Mode: h.FileInfo().Mode() & (fs.ModeType | fs.ModePerm), Link: h.Linkname}
	if e.Mode.IsRegular() {
		e.Size, e.Sum = h.Size, hex.EncodeToString(sum.Sum(nil))
	}
	return e
}

// verify compares what was packed with what is there, and notes the hashes.
func (p *packer) verify(there map[string]entry) error {
	for name, want := range p.entries {
		got, ok := there[name]
		if !ok || got.Mode.Type() != want.Mode.Type() || got.Size != want.Size || got.Link != want.Link {
			return sdk.Errorf(sdk.ReasonUnavailable, "%q did not arrive in the machine as it was sent", name).
				WithFix("see whether the template's disk has room for the project")
		}
		got.Sum = want.Sum
		there[name] = got
	}
	if len(there) != len(p.entries) {
		return sdk.Errorf(sdk.ReasonConfig, "the template has files at %s: %d entries were sent, %d are there",
			workspacePath, len(p.entries), len(there)).WithFix("use a template that has none")
	}
	return nil
}

// listing takes what list.sh prints.
type listing struct{ zipped bytes.Buffer }

func (l *listing) write(b []byte) error {
	if l.zipped.Len()+len(b) > maxListing {
		return errTooMuch
	}
	l.zipped.Write(b)
	return nil
}

var errTooMuch = sdk.Errorf(sdk.ReasonUnavailable, "the machine says more about its files than can be")

// entries are those of the directory rel of the workspace, by their paths in the workspace.
func (l *listing) entries(rel string) (map[string]entry, error) {
	zip, err := gzip.NewReader(&l.zipped)
	if err != nil {
		return nil, fmt.Errorf("decode the machine's list of files: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(zip, maxListing+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the machine's list of files breaks off: %w", err)
	case len(plain) > maxListing:
		return nil, errTooMuch
	}
	return readListing(plain, rel)
}

// readListing takes a listing apart. Nothing in it is trusted: paths are keys, and are never opened.
func readListing(rest []byte, rel string) (map[string]entry, error) {
	out := map[string]entry{}
	field := func() (string, bool) {
		f, after, ok := bytes.Cut(rest, []byte{0})
		rest = after
		return string(f), ok
	}
	for len(rest) > 0 {
		facts, _ := field()
		name, _ := field()
		link, ok := field()
		if how, end := strings.CutPrefix(facts, "end "); end && ok && name == "" && link == "" && len(rest) == 0 {
			if how != "0" {
				return nil, sdk.Errorf(sdk.ReasonUnavailable, "the machine could not list all of its files: find ended with %.20q",
					how).WithFix("try again")
			}
			return out, nil
		}
		f := strings.Fields(facts)
		if !ok || len(f) != 6 || len(f[0]) != 1 {
			return nil, fmt.Errorf("the machine's list of files breaks off at %.80q", facts)
		}
		mode, merr := strconv.ParseUint(f[1], 8, 32)
		size, serr := strconv.ParseInt(f[2], 10, 64)
		when, terr := readTime(f[4])
		if merr != nil || serr != nil || terr != nil || size < 0 || !isBelow(name) {
			return nil, fmt.Errorf("the machine's list of files has the line %.80q for %.80q", facts, name)
		}
		e := entry{Mode: fs.FileMode(mode)&fs.ModePerm | typeOf(f[0][0]), Stamp: f[3] + " " + f[5], when: when}
		switch e.Mode.Type() {
		case 0:
			e.Size = size
		case fs.ModeSymlink:
			e.Link, e.Mode = link, fs.ModeSymlink|fs.ModePerm
		}
		at := path.Join(rel, name)
		if _, twice := out[at]; twice {
			return nil, fmt.Errorf("the machine's list of files has %.80q twice", name)
		}
		if out[at] = e; len(out) > maxEntries {
			return nil, sdk.Errorf(sdk.ReasonConfig, "the workspace has more than %d entries", maxEntries)
		}
	}
	return nil, errors.New("the machine's list of files has no end")
}

// readTime reads what find prints for %T@: seconds and a fraction, which counts upwards for times before 1970 as well.
func readTime(s string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(whole, 10, 64)
	nsec, nerr := strconv.ParseUint((fraction + "000000000")[:9], 10, 32)
	return time.Unix(sec, int64(nsec)), errors.Join(err, nerr)
}

// isBelow reports whether p is a clean relative path that does not leave where it begins.
func isBelow(p string) bool {
	return p != "." && filepath.IsLocal(p) && path.Clean(p) == p && len(p) < 4096
}

// bytesBelow adds up the sizes of the files that are not skipped.
func bytesBelow(ctx context.Context, root *os.Root, skip func(string, bool) bool) (total int64, err error) {
	err = safefile.Walk(ctx, root, ".", safefile.Caps{Entries: 2 * maxEntries, Depth: 200}, func(e safefile.Entry) error {
		if skip(e.Path, e.Info.IsDir()) {
			if e.Info.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if e.Info.Mode().IsRegular() {
			total += e.Info.Size()
		}
		return nil
	})
	var many *safefile.Error
	if errors.As(err, &many) && many.Reason == safefile.ReasonTooMany {
		return 0, sdk.Errorf(sdk.ReasonConfig, "the directory has too many entries to be sent: %w",
			err).WithFix("name what is not needed in .hutchignore")
	}
	return total, err
}

// typeOf converts a type as find prints it.
func typeOf(letter byte) fs.FileMode {
	switch letter {
	case 'f':
		return 0
	case 'd':
		return fs.ModeDir
	case 'l':
		return fs.ModeSymlink
	case 'p':
		return fs.ModeNamedPipe
	case 's':
		return fs.ModeSocket
	case 'b':
		return fs.ModeDevice
	case 'c':
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return fs.ModeIrregular
}
