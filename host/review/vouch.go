package review

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/gitindex"
)

// vouch notes with each entry of dir git's name of its content, where the index of the repository that dir lies in says
// of a file which looked exactly like this what was in it. That is how git itself knows that a file is clean. Nothing
// is said where there is no index, or one that is not understood: the names are needed for merges alone.
func vouch(dir string, entries []Entry) {
	file, prefix, err := findIndex(dir)
	if err != nil || file == "" {
		return
	}
	x, err := gitindex.Open(file)
	if err != nil {
		return
	}
	at := 0
	for x.Next() {
		rel, ok := bytes.CutPrefix(x.Path, []byte(prefix))
		if !ok {
			continue
		}
		for at < len(entries) && entries[at].Path < string(rel) {
			at++
		}
		if at < len(entries) && entries[at].Path == string(rel) && isOf(x, entries[at]) {
			entries[at].Blob = string(x.ID)
		}
	}
	if x.Err != nil { // what came before it is not to be trusted either
		for i := range entries {
			entries[i].Blob = ""
		}
	}
}

// findIndex finds the index of the repository whose work tree dir lies in, and what its paths begin with there. file is
// empty where there is no repository.
func findIndex(dir string) (file, prefix string, err error) {
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", "", err
	}
	for top := dir; ; top = filepath.Dir(top) {
		at := filepath.Join(top, ".git")
		if _, err := os.Lstat(at); err != nil {
			if top == filepath.Dir(top) {
				return "", "", nil
			}
			continue
		}
		if prefix, err = filepath.Rel(top, dir); err != nil {
			return "", "", err
		}
		if prefix += "/"; prefix == "./" {
			prefix = ""
		}
		file, err = gitindex.Of(at)
		return file, prefix, err
	}
}

// isOf reports whether the entry is about a file that looks as e does, and was written before the index was: what is
// written in the same moment, git itself compares.
func isOf(x *gitindex.Index, e Entry) bool {
	number := func(at int) uint32 { return binary.BigEndian.Uint32(x.Stat[at:]) }
	time := func(at int) int64 { return int64(number(at))*1e9 + int64(number(at+4)) }
	return !x.Conflicted && x.Mode>>12 == unix.S_IFREG>>12 && e.Mode.Type() == 0 && time(gitindex.StatMtime) == e.Mtime && time(gitindex.StatCtime) == e.Ctime && e.Mtime < x.Written &&
		number(gitindex.StatIno) == uint32(e.Ino) && e.Size <= maxText && int64(number(gitindex.StatSize)) == e.Size
}
