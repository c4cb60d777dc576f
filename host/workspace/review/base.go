package review

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/gitindex"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Base is what a project looked like when a sandbox was made. The content of an entry is git's name of it, in bytes,
// where git's index vouched for it. Where the base is not complete, a path that is missing from it counts as unknown,
// and what a sandbox did to it as a conflict unless the project lacks it too.
type Base = overlay.Snapshot

// TakeBase looks at every path below dir, without following symbolic links and without reading a file but git's index.
// It takes some 3 ms for 1,000 files. A directory that cannot be read, and what is beyond a million entries or 128
// levels, is left out; the base is then not complete.
func TakeBase(ctx context.Context, dir string) (*Base, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the project: %w", err)
	}
	defer root.Close()
	b, err := overlay.Take(ctx, root, overlay.Options{})
	if b == nil || err != nil && !errors.Is(err, overlay.ErrTooMany) && !errors.Is(err, overlay.ErrUnreadable) {
		return nil, fmt.Errorf("look at the project %s: %w", dir, err)
	}
	fillBlobNames(dir, b.Entries)
	return b, nil
}

// base is the base of a sandbox; nil without one.
func (l *Ledger) base(sandbox string) (*Base, error) {
	if l.bases == nil || sandbox == "" {
		return nil, nil
	}
	return ReadBase(l.bases.SandboxBase(sandbox))
}

// rebase writes into the sandbox's base what the steps of a journal did to the project, or, with back, what taking them
// back did. What an apply brought is what both sides have in common now. A file that was restored is another inode with
// another change time than the base has, although its content is what the base vouched for: it gets its new stat, so
// that it does not count as changed. What was in conflict before is in conflict again.
func (l *Ledger) rebase(j *journal, project *dir, back bool) error {
	if l.bases == nil {
		return nil
	}
	e := &engine{project: project}
	fresh := map[string]overlay.Entry{}
	type restored struct {
		was   Node
		entry overlay.Entry
	}
	files := map[string]restored{}
	for _, s := range j.Steps {
		at := s.Path
		now, err := project.look(at)
		if err != nil {
			return fmt.Errorf("look at %s in the project: %w", Quote(at), err)
		}
		entry := now.entry(at)
		want, was := s.New, s.Was
		if back {
			want, was = s.Old, s.Base
		}
		if !back && j.Undoes == "" {
			if !s.Settled || !s.part {
				fresh[at] = entry
			}
			continue
		}
		same := now.Mode == want.Mode && e.equal(&move{path: at}, want, now)
		if same && want.Type == File {
			files[at] = restored{want.Node, entry}
		}
		switch {
		case was == nil:
		case same && !touched(*was, was.Path != "", want.Node):
			entry.Content = was.Content
			fresh[at] = entry
		default:
			fresh[at] = *was
		}
	}
	err := l.rewrite(j.SandboxID, func(*Base) map[string]overlay.Entry { return fresh })
	if len(files) == 0 {
		return err
	}
	// The other sandboxes of the project know the restored files as they were, too.
	others, oerr := l.bases.SandboxesOf(j.Project)
	err = errors.Join(err, oerr)
	for _, id := range others {
		if id == j.SandboxID {
			continue
		}
		err = errors.Join(err, l.rewrite(id, func(b *Base) map[string]overlay.Entry {
			fresh := map[string]overlay.Entry{}
			for at, r := range files {
				if e, known := b.Lookup(at); known && !touched(e, true, r.was) {
					r.entry.Content = e.Content
					fresh[at] = r.entry
				}
			}
			return fresh
		}))
	}
	return err
}

// rewrite changes some entries of a sandbox's base; a sandbox without one is left alone.
func (l *Ledger) rewrite(id string, change func(*Base) map[string]overlay.Entry) error {
	b, err := l.base(id)
	if err != nil || b == nil {
		return err
	}
	fresh := change(b)
	if len(fresh) == 0 {
		return nil
	}
	file := l.bases.SandboxBase(id)
	f, err := os.OpenFile(file+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = b.With(fresh).Save(f)
	if err == nil && !l.noSync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(file+".new"))
	}
	return l.bases.PlaceSandboxBase(id)
}

// ReadBase reads a base from a file; nil for one that is not there.
func ReadBase(file string) (*Base, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return overlay.Load(f)
}

// WriteBase takes the base of a directory and writes it: what run.Options.TakeBase wants.
func WriteBase(ctx context.Context, dir string, w io.Writer) error {
	b, err := TakeBase(ctx, dir)
	if err != nil {
		return err
	}
	return b.Save(w)
}

// fillBlobNames sets Content from the git index for files whose stat data matches their index entry, the same test git
// uses for a clean file. Best effort: without a readable index it stays empty and nothing can be merged.
func fillBlobNames(dir string, entries []overlay.Entry) {
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
			entries[at].Content = string(x.ID)
		}
	}
	if x.Err != nil { // what came before it is not to be trusted either
		for i := range entries {
			entries[i].Content = ""
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
func isOf(x *gitindex.Index, e overlay.Entry) bool {
	number := func(at int) uint32 { return binary.BigEndian.Uint32(x.Stat[at:]) }
	time := func(at int) int64 { return int64(number(at))*1e9 + int64(number(at+4)) }
	return !x.Conflicted && x.Mode>>12 == unix.S_IFREG>>12 && e.Mode.Type() == 0 &&
		time(gitindex.StatMtime) == e.Mtime && time(gitindex.StatCtime) == e.Ctime && e.Mtime < x.Written &&
		number(gitindex.StatIno) == uint32(e.Ino) && e.Size <= maxText && int64(number(gitindex.StatSize)) == e.Size
}
