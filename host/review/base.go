package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// Base is what a project looked like at one time: a line for every path, and no contents. A path whose entry still
// looks the same was not touched since; the change time in it is one that no program can set. It does not change and
// is safe for concurrent use.
type Base struct {
	taken    time.Time
	complete bool
	entries  []overlay.Entry // by path, byte by byte
}

// TakeBase looks at every path below dir, without following symbolic links and without reading a file. It takes some
// 3 ms for 1,000 files. A directory that cannot be read, and what is beyond a million entries or 128 levels, is left
// out: see [Base.Complete].
func TakeBase(ctx context.Context, dir string) (*Base, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the project: %w", err)
	}
	defer root.Close()
	b := &Base{taken: time.Now()}
	s, err := overlay.Take(ctx, root, overlay.Options{})
	if s == nil {
		return nil, fmt.Errorf("look at the project %s: %w", dir, err)
	}
	if err != nil && !errors.Is(err, overlay.ErrTooMany) && !errors.Is(err, overlay.ErrUnreadable) {
		return nil, fmt.Errorf("look at the project %s: %w", dir, err)
	}
	b.complete = err == nil
	b.entries = slices.AppendSeq(make([]overlay.Entry, 0, s.Len()), s.Entries())
	slices.SortFunc(b.entries, func(x, y overlay.Entry) int { return cmp.Compare(x.Path, y.Path) })
	return b, nil
}

// Taken is when the base was taken.
func (b *Base) Taken() time.Time { return b.taken }

// Complete reports whether every path of the project is in the base. Where it is not, a path that is missing from the
// base counts as unknown, and what a sandbox did to it as a conflict unless the project lacks it too.
func (b *Base) Complete() bool { return b.complete }

// Len is the number of paths in the base.
func (b *Base) Len() int { return len(b.entries) }

// Lookup finds the entry of a path.
func (b *Base) Lookup(path string) (overlay.Entry, bool) {
	i := sort.Search(len(b.entries), func(i int) bool { return b.entries[i].Path >= path })
	if i < len(b.entries) && b.entries[i].Path == path {
		return b.entries[i], true
	}
	return overlay.Entry{}, false
}
