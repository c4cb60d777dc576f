// Package outputs collects the files a run left for its caller. The tree it reads is hostile, the tree it writes is a
// fresh directory of the host's own.
package outputs

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/safepath"
	"github.com/hutch-run/hutch/sdk/tree"
)

// Caps bound what is collected. Zero means the default.
type Caps struct {
	File    int64 // bytes of one file; default 1 GiB
	Total   int64 // bytes of all files; default 4 GiB
	Count   int   // files; default 10,000
	Entries int   // entries looked at, directories included; default 100,000
	Depth   int   // components of a path; default 32
}

func (c Caps) withDefaults() Caps {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.File <= 0 {
		c.File = 1 << 30
	}
	if c.Total <= 0 {
		c.Total = 4 << 30
	}
	def(&c.Count, 10_000)
	def(&c.Entries, 100_000)
	def(&c.Depth, 32)
	return c
}

// Output is one file that was collected.
type Output struct {
	Path   string `json:"path"` // below the output directory, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
	Mode   string `json:"mode"`   // permission bits in octal
	// From is the name that the program gave it, for as long as that is known: it is Path, unless the collector renamed
	// it.
	From string `json:"-"`
}

// Skipped is something that was there and was not collected.
type Skipped struct {
	Path   string          `json:"path"`
	Reason safefile.Reason `json:"reason"`
	Detail string          `json:"detail"`
}

// maxSkipped is how many skipped entries are listed.
const maxSkipped = 1000

// Result is what was found, in path order.
type Result struct {
	Outputs []Output  `json:"outputs"`
	Skipped []Skipped `json:"skipped"`
	// More counts what was skipped beyond the first 1,000 that are listed.
	More int `json:"more,omitempty"`
}

// errEntries ends the reading of a stream that never ends.
var errEntries = errors.New("too many entries")

// Collect collects from a tree that comes out of a sandbox as an uncompressed tar stream. It writes the regular files
// that match one of the patterns (doublestar, against the slash path; none means everything) to dst, which must exist
// and be empty, entry by entry, and skips with a reason everything that must not become a file on the host: links,
// devices, names that lead elsewhere or that collide, what exceeds the caps, and the parts of a git repository, whose
// settings would run programs on the host. Modes keep their permission bits but for writing by group and others, and
// the owner may always read and write. One bad entry does not cost the caller the good ones. It stops reading at the
// cap of entries and at the end of the archive, whichever is first; the writer of the stream then gets an error.
//
// rename, unless it is nil, gives the name under which a file is kept: a program may put into a name what must not be
// stored. Patterns are matched against the program's own name. Where two files get one name, a number distinguishes
// them.
func Collect(ctx context.Context, r io.Reader, dst string, patterns []string, caps Caps,
	rename func(string) string) (*Result, error) {
	for _, p := range patterns {
		if !doublestar.ValidatePattern(p) {
			return &Result{}, fmt.Errorf("output pattern %q is malformed", p)
		}
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return &Result{}, err
	}
	defer root.Close()
	if rename == nil {
		rename = func(name string) string { return name }
	}
	c := &tarCollector{ctx: ctx, root: root, patterns: patterns, rename: rename, caps: caps.withDefaults(),
		res: &Result{Outputs: []Output{}, Skipped: []Skipped{}}, buf: make([]byte, 256<<10)}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		switch {
		case err == io.EOF:
			return c.done()
		case ctx.Err() != nil:
			return c.fail(context.Cause(ctx))
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return c.fail(fmt.Errorf("the sandbox sent a broken tar stream: %w", err))
		}
		if err := c.entry(h, tr); err != nil {
			if errors.Is(err, errEntries) {
				return c.done()
			}
			return c.fail(err)
		}
	}
}

type tarCollector struct {
	ctx      context.Context
	root     *os.Root
	patterns []string
	caps     Caps
	res      *Result
	rename   func(string) string
	names    safepath.Set   // as the program gave them
	kept     safepath.Set   // as they are kept
	same     map[string]int // how many files got a name by being renamed
	entries  int
	total    int64
	buf      []byte
}

// done removes what belongs to a git repository, which only shows when all files are there, and puts the result into
// path order; an archive has its own.
func (c *tarCollector) done() (*Result, error) {
	var failed error
	changes := make([]judge.Change, len(c.res.Outputs))
	for i, o := range c.res.Outputs {
		changes[i] = judge.Change{Path: o.Path, New: judge.Node{There: true, Mode: 0o644}}
	}
	kept := c.res.Outputs[:0]
	for i, v := range judge.Judge(changes, nil) {
		o := c.res.Outputs[i]
		at := slices.IndexFunc(v.Refused, func(f judge.Finding) bool { return f.Rule == judge.Git })
		if at < 0 {
			kept = append(kept, o)
			continue
		}
		failed = errors.Join(failed, c.root.Remove(o.Path))
		c.skip(o.From, safefile.ReasonGit, "%s", v.Refused[at].Detail)
	}
	c.res.Outputs = kept
	slices.SortFunc(c.res.Outputs, func(a, b Output) int { return strings.Compare(a.Path, b.Path) })
	slices.SortStableFunc(c.res.Skipped, func(a, b Skipped) int { return strings.Compare(a.Path, b.Path) })
	return c.res, failed
}

// fail is the result so far, and why there is no more.
func (c *tarCollector) fail(err error) (*Result, error) {
	res, failed := c.done()
	return res, errors.Join(err, failed)
}

func (c *tarCollector) skip(name string, reason safefile.Reason, format string, args ...any) {
	if len(c.res.Skipped) >= maxSkipped {
		c.res.More++
		return
	}
	if name = c.rename(name); len(name) > 1024 {
		name = name[:1024] + "…"
	}
	c.res.Skipped = append(c.res.Skipped, Skipped{Path: strings.ToValidUTF8(name, "\ufffd"), Reason: reason,
		Detail: fmt.Sprintf(format, args...)})
}

// entry takes one entry. It returns an error only when collecting cannot go on.
func (c *tarCollector) entry(h *tar.Header, r io.Reader) error {
	if c.entries++; c.entries > c.caps.Entries {
		c.skip(h.Name, safefile.ReasonTooMany, "more than %d entries, the rest was not looked at", c.caps.Entries)
		return errEntries
	}
	name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
	reason, why := tree.LeftOut(h)
	switch {
	case name == "" || name == ".":
		return nil
	case h.Typeflag == tar.TypeDir && reason == "":
		return nil // directories come with their files; an empty one is no output
	case h.Typeflag != tar.TypeDir && !c.wanted(name): // a directory that cannot be entered may hide something that matches
		return nil
	}
	switch h.Typeflag {
	case tar.TypeReg:
	case tar.TypeSymlink:
		c.skip(name, safefile.ReasonSymlink, "a symbolic link")
		return nil
	case tar.TypeLink:
		c.skip(name, safefile.ReasonHardlink, "a hard link")
		return nil
	default:
		if reason == "" {
			reason, why = safefile.ReasonSpecial, "neither a file nor a directory"
		}
		c.skip(name, reason, "%s", strings.ToValidUTF8(why, "\ufffd"))
		return nil
	}
	if depth := strings.Count(name, "/") + 1; depth > c.caps.Depth {
		c.skip(name, safefile.ReasonTooDeep, "%d levels deep, at most %d are collected", depth, c.caps.Depth)
		return nil
	}
	switch {
	case len(c.res.Outputs) >= c.caps.Count:
		c.skip(name, safefile.ReasonTooMany, "more than %d files", c.caps.Count)
		return nil
	case h.Size > c.caps.File:
		c.skip(name, safefile.ReasonTooBig, "%d bytes, at most %d are collected", h.Size, c.caps.File)
		return nil
	case c.total+h.Size > c.caps.Total:
		c.skip(name, safefile.ReasonTotal, "%d bytes more than the %d that are collected in all",
			c.total+h.Size-c.caps.Total, c.caps.Total)
		return nil
	}
	err := c.names.AddFile(name)
	as := name
	if err == nil {
		as, err = c.keep(name)
	}
	if err != nil {
		c.skip(name, safefile.ReasonName, "%s", c.why(name, err))
		return nil
	}
	out, err := c.copy(as, h, r)
	if err != nil {
		return err
	}
	out.From = name
	c.res.Outputs = append(c.res.Outputs, out)
	return nil
}

// keep finds the name under which a file is kept. Without a rename it is the file's own.
func (c *tarCollector) keep(name string) (string, error) {
	as := c.rename(name)
	err := c.kept.AddFile(as)
	if err == nil {
		return as, nil
	}
	if c.same == nil {
		c.same = map[string]int{}
	}
	c.same[as]++
	ext := path.Ext(as)
	numbered := fmt.Sprintf("%s-%d%s", strings.TrimSuffix(as, ext), c.same[as]+1, ext)
	if c.kept.AddFile(numbered) != nil {
		return "", err
	}
	return numbered, nil
}

// why says what is wrong with a name, without the name where that must not be stored.
func (c *tarCollector) why(name string, err error) string {
	var bad *safepath.Error
	if c.rename(name) != name && errors.As(err, &bad) {
		return "its name is refused: " + string(bad.Kind)
	}
	return err.Error()
}

func (c *tarCollector) wanted(name string) bool {
	if len(c.patterns) == 0 {
		return true
	}
	for _, p := range c.patterns {
		if ok, _ := doublestar.Match(p, name); ok { // patterns were validated
			return true
		}
	}
	return false
}

func (c *tarCollector) copy(name string, h *tar.Header, r io.Reader) (out Output, err error) {
	if dir := path.Dir(name); dir != "." {
		if err := c.root.MkdirAll(dir, 0o700); err != nil {
			return out, err
		}
	}
	mode := fs.FileMode(h.Mode)&0o755 | 0o600
	f, err := c.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return out, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = c.root.Remove(name) // an incomplete output does not count
		}
	}()
	hash := sha256.New()
	n, err := tree.CopySparse(int(f.Fd()), io.TeeReader(tree.Reader(c.ctx, r), hash), c.buf)
	if err != nil {
		return out, fmt.Errorf("collect %q: %w", name, err)
	}
	if err := f.Chmod(mode); err != nil { // whatever the umask is
		return out, err
	}
	c.total += n
	return Output{Path: name, Size: n, SHA256: hex.EncodeToString(hash.Sum(nil)), Mode: fmt.Sprintf("%04o", mode)}, nil
}
