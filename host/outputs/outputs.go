// Package outputs collects the files a run left for its caller. The tree it reads is hostile, the tree it writes is a
// fresh directory of the host's own.
package outputs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/safepath"
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
}

// Skipped is something that was there and was not collected.
type Skipped struct {
	Path   string          `json:"path"`
	Reason safefile.Reason `json:"reason"`
	Detail string          `json:"detail"`
}

// maxSkipped is how many skipped entries are listed.
const maxSkipped = 1000

// Result is what Collect found, in path order.
type Result struct {
	Outputs []Output  `json:"outputs"`
	Skipped []Skipped `json:"skipped"`
	// More counts what was skipped beyond the first 1,000 that are listed.
	More int `json:"more,omitempty"`
}

// Collect copies the regular files below src that match one of the patterns (doublestar, against the slash path; none
// means everything) to dst, which must exist and be empty. Links, special files, unsafe names, and what exceeds the
// caps is skipped with its reason, and so is what cannot be read. Modes keep their permission bits but for writing by
// group and others, and the owner may always read and write. Holes stay holes.
//
// An error means that collecting could not go on: a pattern is malformed, src is not a directory, dst takes no more
// (then errors.Is(err, syscall.ENOSPC) may tell why), or ctx ended; what was collected until then is in the result,
// which is never nil.
func Collect(ctx context.Context, src, dst string, patterns []string, caps Caps) (*Result, error) {
	c := &collector{caps: caps.withDefaults(), patterns: patterns, res: &Result{Outputs: []Output{}, Skipped: []Skipped{}}}
	for _, p := range patterns {
		if !doublestar.ValidatePattern(p) {
			return c.res, fmt.Errorf("output pattern %q is malformed", p)
		}
	}
	from, err := os.OpenRoot(src)
	if err != nil {
		return c.res, fmt.Errorf("collect outputs: %w", err)
	}
	defer from.Close()
	if c.dst, err = os.OpenRoot(dst); err != nil {
		return c.res, fmt.Errorf("collect outputs: %w", err)
	}
	defer c.dst.Close()

	err = safefile.Walk(ctx, from, ".", safefile.Caps{Entries: c.caps.Entries, Depth: c.caps.Depth}, func(e safefile.Entry) error {
		return c.entry(ctx, e)
	})
	var refused *safefile.Error
	if errors.As(err, &refused) { // the walk ended early: too many entries, or a directory that cannot be read
		c.skip(refused.Path, refused.Reason, refused.Detail)
		return c.res, nil
	}
	if err != nil {
		return c.res, fmt.Errorf("collect outputs: %w", err)
	}
	return c.res, nil
}

type collector struct {
	caps     Caps
	patterns []string
	dst      *os.Root
	total    int64
	res      *Result
}

func (c *collector) skip(name string, reason safefile.Reason, detail string) {
	if len(c.res.Skipped) >= maxSkipped {
		c.res.More++
		return
	}
	c.res.Skipped = append(c.res.Skipped, Skipped{Path: name, Reason: reason, Detail: detail})
}

// entry collects one entry of the tree or skips it.
func (c *collector) entry(ctx context.Context, e safefile.Entry) error {
	if e.Info.IsDir() {
		// A directory that cannot be entered may hide something that matches.
		if e.Skip != "" {
			c.skip(e.Path, e.Skip, e.Detail)
		}
		return nil
	}
	if !c.matches(e.Path) {
		return nil
	}
	size := e.Info.Size()
	switch err := safepath.Check(e.Path); {
	case err != nil:
		c.skip(e.Path, safefile.ReasonName, err.Error())
		return nil
	case e.Skip != "":
		c.skip(e.Path, e.Skip, e.Detail)
		return nil
	case size > c.caps.File:
		c.skip(e.Path, safefile.ReasonTooBig, fmt.Sprintf("it has %d bytes, at most %d are collected of one file", size, c.caps.File))
		return nil
	case len(c.res.Outputs) >= c.caps.Count:
		c.skip(e.Path, safefile.ReasonTooMany, fmt.Sprintf("%d files were collected, which is the most", c.caps.Count))
		return nil
	case size > c.caps.Total-c.total:
		c.skip(e.Path, safefile.ReasonTotal, fmt.Sprintf("it has %d bytes, and %d of %d are left for all outputs", size, c.caps.Total-c.total, c.caps.Total))
		return nil
	}
	out, err := c.copy(ctx, e)
	var refused *safefile.Error
	if errors.As(err, &refused) {
		c.skip(e.Path, refused.Reason, refused.Detail)
		return nil
	}
	if err != nil {
		return err
	}
	c.total += out.Size
	c.res.Outputs = append(c.res.Outputs, out)
	return nil
}

func (c *collector) matches(name string) bool {
	for _, p := range c.patterns {
		if ok, _ := doublestar.Match(p, name); ok {
			return true
		}
	}
	return len(c.patterns) == 0
}

// copy writes one file to the destination, or nothing of it.
func (c *collector) copy(ctx context.Context, e safefile.Entry) (out Output, err error) {
	if dir := path.Dir(e.Path); dir != "." {
		if err := c.dst.MkdirAll(dir, 0o700); err != nil {
			return Output{}, clash(e.Path, err)
		}
	}
	f, err := c.dst.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Output{}, clash(e.Path, err)
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = c.dst.Remove(e.Path)
		}
	}()
	// The file may have grown since it was looked at, so both caps hold again while it is copied.
	done, err := e.Copy(ctx, f, min(c.caps.File, c.caps.Total-c.total))
	if err != nil {
		return Output{}, err
	}
	mode := done.Mode&0o755 | 0o600
	if err := f.Chmod(mode); err != nil {
		return Output{}, err
	}
	return Output{Path: e.Path, Size: done.Size, SHA256: done.SHA256, Mode: fmt.Sprintf("%04o", mode)}, nil
}

// clash explains a name that is taken in the destination: two outputs whose names differ only in case, say, on a file
// system that folds it.
func clash(name string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return &safefile.Error{Path: name, Reason: safefile.ReasonName, Detail: "another output has that name on this file system", Err: err}
	}
	return err
}
