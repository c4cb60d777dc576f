package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"

	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/files"
)

type fsCmd struct {
	List  fsListCmd  `cmd:"" help:"List files, with type, mode, size, and the layer each one comes from."`
	Stat  fsStatCmd  `cmd:"" help:"Describe files."`
	Read  fsReadCmd  `cmd:"" help:"Print a file, or lines of it."`
	Write fsWriteCmd `cmd:"" help:"Write stdin to a file."`
	Edit  fsEditCmd  `cmd:"" help:"Replace exact pieces of text in a file."`
	Grep  fsGrepCmd  `cmd:"" help:"Search files for lines that match."`
	Rm    fsRmCmd    `cmd:"" help:"Remove files."`
}

// Help is the text below the synopsis.
func (*fsCmd) Help() string {
	return `Paths are relative to the workspace, or absolute as commands in the sandbox see them, below /workspace.
Symbolic links are followed inside the workspace; a path or a link that leads out of it is refused. input and output
are listed and searched when they are named.

Nothing in the sandbox needs to run for this, and nothing that its programs left there is trusted: only regular files
with one link are opened.`
}

// sandboxArg is the operand that names a sandbox.
type sandboxArg struct {
	Sandbox string `arg:"" name:"sandbox" help:"Name or id of a sandbox, or the beginning of an id." complete:"sandbox"`
}

// withFiles runs fn with the files of the sandbox.
func (a sandboxArg) withFiles(ctx context.Context, u *ui, maxSize int64, fn func(f *files.Files) error) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	m, err := s.Sandboxes(waking(u))
	if err != nil {
		return err
	}
	w, err := workspace.Open(ctx, m, a.Sandbox, sandbox.Shared)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	f, err := w.Files(files.Options{MaxSize: maxSize})
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return hinting(fn(f))
}

// hinting passes on the hint of an error about a file.
func hinting(err error) error {
	var e *files.Error
	if errors.As(err, &e) && e.Hint != "" {
		return hint(err, "%s", e.Hint)
	}
	return err
}

type fsListCmd struct {
	sandboxArg
	Path   string `arg:"" optional:"" default:"." name:"path" help:"Directory to list (default: the workspace)." complete:"path"`
	Depth  int    `short:"d" placeholder:"N" help:"Only N levels; 1 is what is directly in the directory."`
	Max    int    `default:"10000" placeholder:"N" help:"At most N entries (default 10000)."`
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json."`
}

func (c *fsListCmd) Run(ctx context.Context, u *ui) error {
	return c.withFiles(ctx, u, 0, func(f *files.Files) error {
		l, err := f.List(ctx, files.ListRequest{Path: c.Path, Depth: c.Depth, Max: c.Max})
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return u.json(l)
		}
		if err := l.WriteText(u.out); err != nil {
			return err
		}
		u.skipped(l.Unreadable)
		u.linked(c.Sandbox, l.Linked)
		if l.Truncated {
			u.note("there are more than %d entries; --max raises the bound, --depth leaves out what lies deep", c.Max)
		}
		return nil
	})
}

// skipped says what could not be read.
func (u *ui) skipped(list []files.Skipped) {
	const most = 5
	for _, s := range list[:min(len(list), most)] {
		u.note("left out %s: %s", termsafe.Line(s.Path), s.Detail)
	}
	if len(list) > most {
		u.note("%d more were left out; -o json lists them", len(list)-most)
	}
}

// linked says how many files are only for commands in the sandbox.
func (u *ui) linked(sandbox string, n int) {
	if n > 0 {
		u.note("%s with several links: not opened from outside; commands in the sandbox can, as in hutch exec %s -- grep",
			count(n, "file"), sandbox)
	}
}

type fsStatCmd struct {
	sandboxArg
	Paths  []string `arg:"" name:"path" help:"Files to describe; a symbolic link is described and not followed." complete:"path"`
	Output string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

func (c *fsStatCmd) Run(ctx context.Context, u *ui) error {
	return c.withFiles(ctx, u, 0, func(f *files.Files) error {
		for i, p := range c.Paths {
			e, err := f.Stat(ctx, p)
			switch {
			case err != nil:
				return err
			case c.Output == "json":
				err = json.NewEncoder(u.out).Encode(e)
			default:
				if i > 0 {
					_, _ = fmt.Fprintln(u.out)
				}
				err = e.WriteText(u.out)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

type fsReadCmd struct {
	sandboxArg
	Path    string `arg:"" name:"path" help:"File to print." complete:"path"`
	Offset  int    `placeholder:"N" help:"Begin at line N, counted from 1."`
	Limit   int    `placeholder:"N" help:"At most N lines."`
	Numbers bool   `short:"n" help:"Put the number of each line before it."`
	MaxSize size   `default:"64MiB" placeholder:"64MiB" help:"Refuse a file that is larger."`
	Output  string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text for the bytes of the file, or json: what is not text goes as base64."`
}

// Help is the text below the synopsis.
func (*fsReadCmd) Help() string {
	return `The bytes of the file go to stdout as they are, unless stdout is a terminal: there, what could act on it is
made visible.

    hutch fs read mine src/main.go
    hutch fs read -n --offset 100 --limit 20 mine src/main.go`
}

func (c *fsReadCmd) Run(ctx context.Context, u *ui) error {
	return c.withFiles(ctx, u, int64(c.MaxSize), func(f *files.Files) error {
		got, err := f.Read(ctx, files.ReadRequest{Path: c.Path, Offset: c.Offset, Limit: c.Limit})
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return u.json(got)
		}
		data := got.Data
		if c.Numbers {
			data = got.Numbered()
		}
		if u.outTTY {
			data = []byte(termsafe.String(string(data)))
		}
		_, err = u.out.Write(data)
		return err
	})
}

// fileMode is a flag with permissions in octal.
type fileMode iofs.FileMode

func (m *fileMode) UnmarshalText(text []byte) error {
	mode, err := files.ParseMode(string(text))
	*m = fileMode(mode)
	return err
}

type fsWriteCmd struct {
	sandboxArg
	Path   string   `arg:"" name:"path" help:"File to write; directories that it needs are made." complete:"path"`
	Mode   fileMode `placeholder:"755" help:"Permissions; without it a file that is replaced keeps its own, and a new one gets 644."`
	New    bool     `help:"Fail if the file exists."`
	Output string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text for nothing, or json."`
}

// Help is the text below the synopsis.
func (*fsWriteCmd) Help() string {
	return `What comes on stdin replaces the file in one step, once all of it is there.

    echo hello | hutch fs write mine notes/hello.txt
    hutch fs write --mode 755 mine run.sh < run.sh`
}

func (c *fsWriteCmd) Run(ctx context.Context, u *ui) error {
	data, err := u.stdin()
	if err != nil {
		return err
	}
	return c.withFiles(ctx, u, 0, func(f *files.Files) error {
		w, err := f.Write(ctx, files.WriteRequest{Path: c.Path, Data: data, Mode: iofs.FileMode(c.Mode), New: c.New})
		if err != nil || c.Output == "text" {
			return err
		}
		return u.json(w)
	})
}

// stdin reads all of stdin, up to the size of files that are read again.
func (u *ui) stdin() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(u.in, files.DefaultMaxSize+1))
	if err == nil && len(b) > files.DefaultMaxSize {
		err = hint(fmt.Errorf("stdin has more than %d MiB", files.DefaultMaxSize>>20), "hutch cp takes files of any size")
	}
	return b, err
}

type fsEditCmd struct {
	sandboxArg
	Path   string  `arg:"" name:"path" help:"File to edit." complete:"path"`
	Old    *string `placeholder:"TEXT" help:"Text to replace, exactly as it is in the file, and there only once."`
	New    *string `placeholder:"TEXT" help:"What stands there afterwards."`
	All    bool    `help:"Replace every occurrence of --old."`
	Output string  `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json."`
}

// Help is the text below the synopsis.
func (*fsEditCmd) Help() string {
	return `The text must be there exactly once; when it is not there, or several times, nothing is changed and the
message says where. Without --old, edits are read from stdin as JSON: {"old": …, "new": …, "all": false}, or a
list of them, done in order, all of them or none. The file keeps its mode and its line ends.

    hutch fs edit mine main.py --old 'debug = True' --new 'debug = False'
    hutch fs edit mine main.py < edits.json`
}

func (c *fsEditCmd) Run(ctx context.Context, u *ui) error {
	edits, err := c.edits(u)
	if err != nil {
		return err
	}
	return c.withFiles(ctx, u, 0, func(f *files.Files) error {
		e, err := f.EditFile(ctx, files.EditRequest{Path: c.Path, Edits: edits})
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return u.json(e)
		}
		u.note("%s: %s replaced", termsafe.Line(e.Path), count(e.Replaced, "occurrence"))
		return nil
	})
}

// edits are those of the flags, or of stdin.
func (c *fsEditCmd) edits(u *ui) ([]files.Edit, error) {
	switch {
	case c.Old != nil && c.New != nil:
		return []files.Edit{{Old: *c.Old, New: *c.New, All: c.All}}, nil
	case c.Old != nil || c.New != nil || c.All:
		return nil, hint(errors.New("--old and --new belong together"), `--new "" takes the text away`)
	}
	b, err := u.stdin()
	if err != nil {
		return nil, err
	}
	edits, err := files.ParseEdits(b)
	return edits, hinting(err)
}

type fsGrepCmd struct {
	sandboxArg
	Pattern    string   `arg:"" name:"pattern" help:"Regular expression in RE2's syntax."`
	Paths      []string `arg:"" optional:"" name:"path" help:"Files and directories to search (default: the workspace)." complete:"path"`
	Fixed      bool     `short:"F" help:"The pattern is plain text."`
	IgnoreCase bool     `short:"i" help:"Upper and lower case are the same."`
	Include    []string `sep:"none" placeholder:"GLOB" help:"Only files that match, as in *.go or src/**/*.py. Repeatable."`
	Exclude    []string `sep:"none" placeholder:"GLOB" help:"No files or directories that match. Repeatable."`
	Before     int      `short:"B" placeholder:"N" help:"Show N lines before each match."`
	After      int      `short:"A" placeholder:"N" help:"Show N lines after each match."`
	Context    int      `short:"C" placeholder:"N" help:"Show N lines before and after each match."`
	FilesOnly  bool     `short:"l" name:"files-with-matches" help:"Only the names of files that match."`
	Max        int      `default:"1000" placeholder:"N" help:"At most N matching lines (default 1000)."`
	Output     string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json."`
}

// Help is the text below the synopsis.
func (*fsGrepCmd) Help() string {
	return `Files that are not text are passed over; hidden ones are not. Exit code 1 means that nothing was found.

    hutch fs grep mine 'func [A-Z]'
    hutch fs grep mine -i -C 2 --include '*.go' --exclude vendor 'func new\w+\('`
}

func (c *fsGrepCmd) Run(ctx context.Context, u *ui) error {
	r := files.GrepRequest{Pattern: c.Pattern, Fixed: c.Fixed, IgnoreCase: c.IgnoreCase, Paths: c.Paths,
		Include: c.Include, Exclude: c.Exclude,
		Before: max(c.Before, c.Context), After: max(c.After, c.Context), Max: c.Max, FilesOnly: c.FilesOnly}
	return c.withFiles(ctx, u, 0, func(f *files.Files) error {
		m, err := f.Grep(ctx, r)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			err = u.json(m)
		} else {
			err = m.WriteText(u.out, r.Before+r.After > 0)
			u.skipped(m.Skipped)
			u.linked(c.Sandbox, m.Linked)
			if m.Truncated {
				u.note("more than %d lines match; --max raises the bound", c.Max)
			}
		}
		if err == nil && m.Count == 0 {
			return exit(exitNo)
		}
		return err
	})
}

type fsRmCmd struct {
	sandboxArg
	Paths     []string `arg:"" name:"path" help:"Files to remove; of a symbolic link the link." complete:"path"`
	Recursive bool     `short:"r" help:"Remove directories with all that is in them."`
	Output    string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text for nothing, or json: one object a line."`
}

func (c *fsRmCmd) Run(ctx context.Context, u *ui) error {
	return c.withFiles(ctx, u, 0, func(f *files.Files) error {
		for _, p := range c.Paths {
			r, err := f.Remove(ctx, p, c.Recursive)
			var e *files.Error
			if errors.As(err, &e) && e.Reason == files.ReasonDir {
				e.Hint = "-r removes it with all that is in it"
			}
			if err == nil && c.Output == "json" {
				err = json.NewEncoder(u.out).Encode(r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
