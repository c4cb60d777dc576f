package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// told is what an event chain tells about the files beside it.
type told struct {
	first, last Event
	refs        map[string]refAt
	pins        []string // hashes of lines of run.jsonl, in order
	hash        string   // of the event that was asked for; empty when it is not there
	seq         uint64   // of the last line
	torn        int64    // bytes after it
	broken      bool     // it is not all that was told
	runs        []toldRun
}

// refAt is what an event says about a file. A file that was written again counts as it was last.
type refAt struct {
	FileRef
	event  uint64
	before *FileRef // what was said before that; nil for nothing
}

// readTold checks the event chain in dir, and keeps the hash of event number at.
func readTold(ctx context.Context, dir, id string, at uint64, rep *Report) (*told, error) {
	t := &told{refs: map[string]refAt{}}
	check := chainChecker{run: id, find: func(f Finding) { t.broken = true; rep.find(f) }, ok: func(e Event) {
		if t.first.Seq == 0 {
			t.first = e
		}
		t.last = e
		if e.Seq == at {
			t.hash = e.Hash
		}
		for _, f := range e.Files {
			ref := refAt{FileRef: f, event: e.Seq}
			if old, ok := t.refs[f.Path]; ok {
				ref.before = &old.FileRef
			}
			t.refs[f.Path] = ref
		}
		if e.Record != "" {
			t.pins = append(t.pins, e.Record)
		}
		t.note(e)
		noteRepair(rep, e)
	}}
	end, err := readChain(filepath.Join(dir, eventsFile), func(l chainLine) error { check.line(l); return ctx.Err() })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, lerr := os.Lstat(dir); lerr != nil {
			return nil, diskError("read", dir, lerr)
		}
		t.broken = true
		rep.find(Finding{Problem: ProblemFileMissing, Path: eventsFile, Detail: "the event chain is gone"})
	case err != nil:
		return nil, err
	}
	rep.Events, rep.Head = end.lines, check.head
	t.seq, t.torn = check.seq, end.torn
	return t, nil
}

// files hashes every file that events point at.
func (t *told) files(ctx context.Context, root *os.Root, rep *Report) error {
	paths := make([]string, 0, len(t.refs))
	for p := range t.refs {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		if err := t.refs[p].verify(ctx, root, rep); err != nil {
			return err
		}
	}
	return nil
}

// verify hashes one file. A file that hutch replaces is announced before it takes its place, so the one before it is
// what a writer that died left.
func (r refAt) verify(ctx context.Context, root *os.Root, rep *Report) error {
	got, err := hashBelow(ctx, root, r.Path)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rep.Files++
	rep.Bytes += got.Size
	found := Finding{Event: r.event, Path: r.Path}
	var refused *safefile.Error
	switch {
	case errors.As(err, &refused) && refused.Reason == safefile.ReasonMissing:
		found.Problem, found.Detail = ProblemFileMissing, "the file is gone"
		found.Harmless = r.before == nil && replaced(r.Path)
	case err != nil:
		found.Problem, found.Detail = ProblemFileChanged, err.Error()
	case got.Size == r.Size && got.SHA256 == r.SHA256:
		if r.Mode != "" && r.Mode != got.Mode {
			rep.find(Finding{Problem: ProblemFileChanged, Event: r.event, Path: r.Path, Detail: fmt.Sprintf("its mode is %s, and %s was recorded", got.Mode, r.Mode)})
		}
		return nil
	case r.before != nil && replaced(r.Path) && got.Size == r.before.Size && got.SHA256 == r.before.SHA256:
		found.Problem, found.Detail, found.Harmless = ProblemFileChanged, "it is the version before the last: a writer died before it put that one in place", true
	case got.Size != r.Size:
		found.Problem, found.Detail = ProblemFileChanged, fmt.Sprintf("%d bytes, and %d were recorded", got.Size, r.Size)
	default:
		found.Problem, found.Detail = ProblemFileChanged, "its content is not what was recorded"
	}
	if found.Detail == "the file is gone" && found.Harmless {
		found.Detail = "it is not there: a writer died before it put it in place"
	}
	rep.find(found)
	return nil
}

// hashBelow is refFile that can be ended.
func hashBelow(ctx context.Context, root *os.Root, name string) (FileRef, error) {
	f, info, err := safefile.OpenLinked(root, filepath.FromSlash(name), -1)
	if err != nil {
		return FileRef{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, tree.Reader(ctx, f))
	return FileRef{Path: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Mode: octal(info.Mode)}, err
}

// strangers finds the files that nothing speaks of. Directories are nobody's business.
func strangers(ctx context.Context, root *os.Root, rep *Report, knows func(name string) bool) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist):
			return nil // a temporary name, or all of it is being removed
		case err != nil:
			rep.find(Finding{Problem: ProblemUnknownFile, Path: name, Detail: "it cannot be looked at: " + err.Error()})
			return nil
		case d.IsDir() || knows(name):
			return nil
		}
		found := Finding{Problem: ProblemUnknownFile, Path: name, Detail: "no event speaks of it"}
		base := path.Base(name)
		switch {
		case isTemp(base) && rep.State != StateFinished:
			if !tempOwnerDead(base, age(d)) {
				return nil
			}
			fallthrough
		case strings.HasPrefix(name, eventsFile+tornMark), name == baseFile+newMark:
			found.Harmless, found.Detail = true, "a writer that died left it"
		}
		rep.find(found)
		return nil
	})
}

func age(d fs.DirEntry) time.Duration {
	fi, err := d.Info()
	if err != nil {
		return 0
	}
	return time.Since(fi.ModTime())
}

// below reports whether name lies below dir.
func below(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }
