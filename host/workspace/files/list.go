package files

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Entry is one file, directory or other thing.
type Entry struct {
	Path string `json:"path"` // relative to the workspace; absolute when it lies outside of it; "." for the workspace itself
	// Type is file, directory, symlink, fifo, socket or device.
	Type    string     `json:"type"`
	Size    int64      `json:"size"`               // bytes of a file; else 0
	Mode    string     `json:"mode,omitempty"`     // permissions in octal, as in 0644; "" when they are not known
	ModTime *time.Time `json:"mod_time,omitempty"` // nil when it is not known
	// Layer says where it comes from: upper was written in the sandbox, lower is the project's; merged is a directory
	// that both have a part of; input and output are mounted. "" when it is not known.
	Layer  string `json:"layer,omitempty"`
	Target string `json:"target,omitempty"` // of a symbolic link
	Links  int    `json:"links,omitempty"`  // of a file with more than one hard link
}

func typeOf(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symlink"
	case fs.ModeNamedPipe:
		return "fifo"
	case fs.ModeSocket:
		return "socket"
	}
	return "device"
}

// octal shows permissions as chmod takes them, in four digits.
func octal(m fs.FileMode) string { return strconv.FormatUint(uint64(0o10000|safefile.Bits(m)), 8)[1:] }

func (s spot) entry(n overlay.Node) Entry {
	e := Entry{Path: s.at(n.Path).name, Type: typeOf(n.Mode), Size: n.Size, Mode: octal(n.Mode), Layer: string(n.Layer),
		Target: n.Target}
	if n.Merged {
		e.Layer = "merged"
	}
	if n.Links > 1 {
		e.Links = n.Links
	}
	if !n.ModTime.IsZero() {
		e.ModTime = &n.ModTime
	}
	return e
}

// mount describes the directory where an area is mounted.
func (a area) mount() Entry {
	return Entry{Path: spot{area: a}.at(".").name, Type: "directory", Layer: a.name}
}

// ListRequest says what to list.
type ListRequest struct {
	Path   string `json:"path,omitempty" jsonschema:"directory; default the workspace"`
	Depth  int    `json:"depth,omitempty" jsonschema:"levels: 1 is what is directly in it; default all"`
	Offset int    `json:"offset,omitempty" jsonschema:"entries to pass over, for the next page"`
	// Ignored lists what git ignores, too; it has no effect without SkipIgnored.
	Ignored     bool `json:"ignored,omitempty" jsonschema:"also .git, and what .gitignore files name"`
	SkipIgnored bool `json:"-"`
	// Max bounds the entries; 0 means DefaultMaxEntries.
	Max int `json:"limit,omitempty" jsonschema:"entries in the answer; default 500, at most 5000"`
}

// DefaultMaxEntries is how many entries a list has at most, unless it is asked for more.
const DefaultMaxEntries = 10_000

// Listing is what is below a directory, in path order.
type Listing struct {
	Path    string  `json:"path"`
	Entries []Entry `json:"entries"`
	// Truncated says that there are more entries than asked for.
	Truncated bool `json:"truncated,omitempty"`
	Next      int  `json:"next,omitempty" jsonschema:"offset of the next page; missing at the end"`
	// Linked is how many of the entries are files with several links, which are listed and not opened.
	Linked int `json:"linked,omitempty"`
	// Unreadable are the directories that could not be listed, each with the reason.
	Unreadable []Skipped `json:"unreadable,omitempty"`
}

// Skipped is something that was left out.
type Skipped struct {
	Path   string `json:"path"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`
}

func skipped(name string, err error) Skipped {
	var e *Error
	if errors.As(explain(name, err), &e) {
		return Skipped{name, e.Reason, e.Detail}
	}
	return Skipped{name, ReasonIO, err.Error()}
}

// List lists what is below a directory. Of something that is no directory it lists that alone.
func (f *Files) List(ctx context.Context, r ListRequest) (*Listing, error) {
	if r.Path == "" {
		r.Path = "."
	}
	if r.Max <= 0 {
		r.Max = DefaultMaxEntries
	}
	if r.Depth < 0 {
		return nil,
			refuse("", ReasonRequest, "a depth of %d makes no sense: 1 is what is directly in the directory, 0 everything",
				r.Depth)
	}
	if r.Offset < 0 || r.Offset > maxOffset {
		return nil, refuse("", ReasonRequest, "the offset %d is negative or more than %d", r.Offset, maxOffset)
	}
	last := r.Offset + r.Max
	s, err := f.find(r.Path)
	if err != nil {
		return nil, err
	}
	out := &Listing{Path: s.name, Entries: []Entry{}}
	var mu sync.Mutex
	var skip func(rel string, isDir bool) bool
	if r.SkipIgnored && !r.Ignored && s.area.name == "workspace" {
		i := f.ignorer(ctx)
		skip = func(rel string, isDir bool) bool { return rel != s.rel && i.skips(s.at(rel).name, isDir) }
	}
	err = s.view.scan(ctx, s.rel, overlay.ScanOptions{Depth: r.Depth, MaxEntries: max(last*scanFactor, leastScan),
		Skip: skip}, func(d folder) error {
		if d.err != nil {
			mu.Lock()
			defer mu.Unlock()
			out.Unreadable = append(out.Unreadable, skipped(s.at(d.path).name, d.err))
			return nil
		}
		batch := make([]Entry, 0, len(d.names))
		for _, n := range d.names {
			node, err := d.dir.Lstat(n)
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					continue // gone since it was listed
				}
				return err
			}
			batch = append(batch, s.entry(node))
		}
		mu.Lock()
		defer mu.Unlock()
		out.Entries = append(out.Entries, batch...)
		return nil
	})
	switch {
	case errors.Is(err, overlay.ErrTooMany):
		out.Truncated = true
	case errors.Is(err, unix.ENOTDIR):
		e, serr := f.Stat(ctx, r.Path)
		if serr != nil {
			return nil, serr
		}
		out.Entries = []Entry{*e}[min(r.Offset, 1):]
		return out, nil
	case err != nil:
		return nil, explain(s.name, err)
	}
	out.Entries = append(out.Entries, f.mounts(s, r.Depth)...)
	slices.SortFunc(out.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(out.Unreadable, func(a, b Skipped) int { return strings.Compare(a.Path, b.Path) })
	if len(out.Entries) > last {
		out.Entries, out.Truncated = out.Entries[:last], true
	}
	out.Entries = out.Entries[min(r.Offset, len(out.Entries)):]
	out.CutTo(r.Offset, len(out.Entries))
	for _, e := range out.Entries {
		if e.Type == "file" && e.Links > 1 {
			out.Linked++
		}
	}
	return out, nil
}

// CutTo keeps the first n entries of a page that began at offset, and sets Next.
func (l *Listing) CutTo(offset, n int) {
	if n < len(l.Entries) {
		l.Entries, l.Truncated = l.Entries[:n], true
	}
	if l.Truncated {
		l.Next = offset + n
	}
}

const maxOffset = 100_000_000

// How many entries are looked at: many times those that were asked for, and many, so that the first ones in path order
// are most likely among them. Of a directory that holds more by itself nothing is seen.
const (
	scanFactor = 4
	leastScan  = 100_000
)

// mounts are the entries of input and output that lie directly below s.
func (f *Files) mounts(s spot, depth int) []Entry {
	var out []Entry
	for _, a := range f.areas {
		if a.name == "workspace" || s.area.name != "workspace" {
			continue
		}
		at, ok := below(s.abs(), a.root)
		if ok && at != "." && (depth == 0 || strings.Count(at, "/") < depth) {
			e := a.mount()
			e.Path = path.Join(s.rel, at)
			out = append(out, e)
		}
	}
	return out
}

// Stat looks at a path; a symbolic link is described and not followed.
func (f *Files) Stat(ctx context.Context, name string) (*Entry, error) {
	s, err := f.find(name)
	if err != nil {
		return nil, err
	}
	if s.rel == "." && s.area.name != "workspace" {
		e := s.area.mount()
		return &e, nil
	}
	n, err := s.view.lstat(ctx, s.rel)
	if err != nil {
		return nil, explain(s.name, err)
	}
	e := s.entry(n)
	return &e, nil
}
