package safefile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Entry is something that [Walk] met.
type Entry struct {
	Path string // below the root, with slashes
	Info fs.FileInfo
	// Skip says why it must not be opened: a link, a special file, a directory that cannot be read or lies too deep.
	// It is empty for regular files and for directories that are walked.
	Skip   Reason
	Detail string // with Skip: one line for a person
}

// Caps bound a [Walk]. Zero means the default.
type Caps struct {
	Entries int // default 100,000
	Depth   int // components of a path; default 64
}

const (
	defaultEntries = 100_000
	defaultDepth   = 64
	readDirBatch   = 1024
)

// Walk calls fn for everything below dir ("." for all of it), depth first and by name, without following anything.
// Directories come before what is in them. What must not be opened is reported with Skip set; a directory deeper than
// allowed is reported and not entered. When there are more entries than allowed the walk ends with an *[Error] of
// [ReasonTooMany] before it reports any of the directory where that showed. fs.SkipDir from fn leaves a directory out,
// other errors end the walk.
func Walk(ctx context.Context, root *os.Root, dir string, caps Caps, fn func(Entry) error) error {
	if caps.Entries <= 0 {
		caps.Entries = defaultEntries
	}
	if caps.Depth <= 0 {
		caps.Depth = defaultDepth
	}
	w := walker{ctx: ctx, fn: fn, caps: caps, left: caps.Entries}
	if dir == "." {
		return w.dir(root, "", 1)
	}
	if err := checkName(dir); err != nil {
		return err
	}
	parent, base, done, err := descend(root, dir)
	if err != nil {
		return err
	}
	sub, err := openDir(parent, base, dir)
	done()
	if err != nil {
		return err
	}
	defer sub.Close()
	return w.dir(sub, dir, strings.Count(dir, "/")+2)
}

type walker struct {
	ctx  context.Context
	fn   func(Entry) error
	caps Caps
	left int // entries that may still be read
}

// dir walks what is in d, whose path is name and whose entries have so many components.
func (w *walker) dir(d *os.Root, name string, depth int) error {
	names, err := w.read(d, name)
	if err != nil {
		return err
	}
	for _, base := range names {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if err := w.entry(d, base, path.Join(name, base), depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(parent *os.Root, base, name string, depth int) error {
	fi, err := parent.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since the directory was read
	}
	if err != nil {
		return ioError(name, err)
	}
	e := Entry{Path: name, Info: fi}
	if !fi.IsDir() {
		if bad := checkFile(fi, name, -1); bad != nil {
			e.Skip, e.Detail = bad.Reason, bad.Detail
		}
		return w.fn(e)
	}
	if depth >= w.caps.Depth {
		e.Skip, e.Detail = ReasonTooDeep, "it lies too deep to look into"
		return skipDir(w.fn(e))
	}
	sub, err := openDir(parent, base, name)
	if err != nil {
		var bad *Error
		if errors.As(err, &bad) {
			e.Skip, e.Detail = bad.Reason, bad.Detail
		}
		return skipDir(w.fn(e))
	}
	defer sub.Close()
	if err := w.fn(e); err != nil {
		return skipDir(err)
	}
	return w.dir(sub, name, depth+1)
}

func skipDir(err error) error {
	if errors.Is(err, fs.SkipDir) {
		return nil
	}
	return err
}

// read returns the sorted names in d. What it holds counts against the cap, so that a directory of millions of
// entries takes neither memory nor time.
func (w *walker) read(d *os.Root, name string) ([]string, error) {
	f, err := d.Open(".")
	if err != nil {
		return nil, ioError(orDot(name), err)
	}
	defer f.Close()
	var names []string
	for {
		batch, err := f.Readdirnames(readDirBatch)
		if len(names)+len(batch) > w.left {
			return nil, refuse(orDot(name), ReasonTooMany, "with it there are more than %d entries", w.caps.Entries)
		}
		names = append(names, batch...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, ioError(orDot(name), err)
		}
		if w.ctx.Err() != nil {
			return nil, context.Cause(w.ctx)
		}
	}
	w.left -= len(names)
	slices.Sort(names)
	return names, nil
}

func orDot(name string) string {
	if name == "" {
		return "."
	}
	return name
}
