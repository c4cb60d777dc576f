package mcp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	iofs "io/fs"
	"strconv"

	"github.com/hutch-run/hutch/host/files"
)

const (
	defaultEntries = 500
	maxEntries     = 5000
	defaultRead    = 64 << 10 // bytes of a file in one answer
	maxRead        = 512 << 10
	defaultMatches = 100
	maxMatches     = 1000
	maxContext     = 20
)

// fileTools are the tools for the files of a sandbox.
func (s *Server) fileTools() {
	tool(s, "list_files", "List files", "Lists files below a directory of a sandbox, in path order. Paths are relative to the workspace.", reads, s.listFiles)
	tool(s, "stat_file", "Describe a file", "Describes a file, directory or symbolic link of a sandbox.", reads, s.statFile)
	tool(s, "read_file", "Read a file", "Reads a file of a sandbox, or lines of it. \"next\" is the line to read on at.", reads, s.readFile)
	tool(s, "write_file", "Write a file", "Writes a file of a sandbox, with the directories that it needs, in one step.", destroys, s.writeFile)
	tool(s, "edit_file", "Edit a file", "Replaces exact pieces of text in a file of a sandbox. Each must be there exactly once, unless \"all\"; all edits are made or none.", destroys, s.editFile)
	tool(s, "grep", "Search files", "Searches the files of a sandbox for lines that match a regular expression in RE2's syntax.", reads, s.grep)
	tool(s, "remove_file", "Remove a file", "Removes a file of a sandbox, or with \"recursive\" a directory.", destroys, s.removeFile)
}

type entryOut struct {
	Path   string `json:"path"`
	Type   string `json:"type" jsonschema:"file, directory, symlink, fifo, socket or device"`
	Size   int64  `json:"size"`
	Mode   string `json:"mode,omitempty" jsonschema:"permissions in octal"`
	Layer  string `json:"layer,omitempty" jsonschema:"upper was written in the sandbox, lower is the project's, merged is a directory of both"`
	Target string `json:"target,omitempty" jsonschema:"of a symbolic link"`
}

func entry(e files.Entry) entryOut {
	return entryOut{e.Path, e.Type, e.Size, e.Mode, e.Layer, e.Target}
}

type listFilesIn struct {
	Sandbox string `json:"sandbox" jsonschema:"name of the sandbox"`
	Path    string `json:"path,omitempty" jsonschema:"directory; default the workspace"`
	Depth   int    `json:"depth,omitempty" jsonschema:"levels: 1 is what is directly in it; default all"`
	Offset  int    `json:"offset,omitempty" jsonschema:"entries to pass over, for the next page"`
	Limit   int    `json:"limit,omitempty" jsonschema:"entries in the answer; default 500, at most 5000"`
}

type listFilesOut struct {
	Entries    []entryOut `json:"entries"`
	Next       int        `json:"next,omitempty" jsonschema:"offset of the next page; missing at the end"`
	Unreadable []string   `json:"unreadable,omitempty" jsonschema:"directories that could not be listed"`
}

func (s *Server) listFiles(ctx context.Context, in listFilesIn) (out listFilesOut, err error) {
	limit, err := bounded("limit", in.Limit, defaultEntries, maxEntries)
	if err != nil || in.Offset < 0 {
		return out, errors.Join(err, negative("offset", in.Offset))
	}
	out.Entries = []entryOut{}
	return out, s.withFiles(ctx, in.Sandbox, func(f *files.Files) error {
		l, err := f.List(ctx, files.ListRequest{Path: in.Path, Depth: in.Depth, Max: in.Offset + limit})
		if err != nil {
			return err
		}
		for _, e := range l.Entries[min(in.Offset, len(l.Entries)):] {
			out.Entries = append(out.Entries, entry(e))
		}
		if l.Truncated {
			out.Next = in.Offset + limit
		}
		for _, u := range l.Unreadable {
			out.Unreadable = append(out.Unreadable, u.Path+": "+u.Detail)
		}
		return nil
	})
}

// bounded is a number of a request: the default for none, and at most so much.
func bounded(name string, n, or, most int) (int, error) {
	if n == 0 {
		n = or
	}
	return min(n, most), negative(name, n)
}

func negative(name string, n int) error {
	if n < 0 {
		return fmt.Errorf("%s: %d is negative", name, n)
	}
	return nil
}

type fileIn struct {
	Sandbox string `json:"sandbox" jsonschema:"name of the sandbox"`
	Path    string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
}

func (s *Server) statFile(ctx context.Context, in fileIn) (out entryOut, err error) {
	return out, s.withFiles(ctx, in.Sandbox, func(f *files.Files) error {
		e, err := f.Stat(ctx, in.Path)
		if err == nil {
			out = entry(*e)
		}
		return err
	})
}

type readFileIn struct {
	Sandbox  string `json:"sandbox" jsonschema:"name of the sandbox"`
	Path     string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Offset   int    `json:"offset,omitempty" jsonschema:"first line, counted from 1"`
	Limit    int    `json:"limit,omitempty" jsonschema:"lines; default all that fit into the answer"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"bytes in the answer; default 65536, at most 524288"`
}

type readFileOut struct {
	Path   string `json:"path"`
	Size   int64  `json:"size" jsonschema:"bytes of the whole file"`
	Lines  int    `json:"lines" jsonschema:"lines of the whole file"`
	First  int    `json:"first" jsonschema:"number of the first line of the text"`
	Next   int    `json:"next,omitempty" jsonschema:"line to read on at; missing at the end"`
	Text   string `json:"text"`
	Base64 string `json:"base64,omitempty" jsonschema:"instead of the text, for a file that is none"`
}

func (s *Server) readFile(ctx context.Context, in readFileIn) (out readFileOut, err error) {
	most, err := bounded("max_bytes", in.MaxBytes, defaultRead, maxRead)
	if err != nil {
		return out, err
	}
	return out, s.withFiles(ctx, in.Sandbox, func(f *files.Files) error {
		c, err := f.Read(ctx, files.ReadRequest{Path: in.Path, Offset: in.Offset, Limit: in.Limit, Max: most})
		if err != nil {
			return err
		}
		out = readFileOut{Path: c.Path, Size: c.Size, Lines: c.Lines, First: c.First, Next: c.Next, Text: c.Text}
		if c.Binary {
			out.Text, out.Base64 = "", base64.StdEncoding.EncodeToString(c.Data)
		}
		return nil
	})
}

type writeFileIn struct {
	Sandbox  string `json:"sandbox" jsonschema:"name of the sandbox"`
	Path     string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Content  string `json:"content" jsonschema:"the whole of the file"`
	Encoding string `json:"encoding,omitempty" jsonschema:"utf-8, the default, or base64"`
	Mode     string `json:"mode,omitempty" jsonschema:"permissions in octal, such as 755; default those of the file that is replaced, or 644"`
	New      bool   `json:"new,omitempty" jsonschema:"fail if the file exists"`
}

type writeFileOut struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Created bool   `json:"created" jsonschema:"there was no file before"`
}

func (s *Server) writeFile(ctx context.Context, in writeFileIn) (out writeFileOut, err error) {
	data := []byte(in.Content)
	switch in.Encoding {
	case "", "utf-8":
	case "base64":
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return out, fmt.Errorf("the content is not base64: %w", err)
		}
	default:
		return out, fmt.Errorf("the encoding %q is neither utf-8 nor base64", clip(in.Encoding))
	}
	var mode uint64
	if in.Mode != "" {
		if mode, err = strconv.ParseUint(in.Mode, 8, 12); err != nil || mode == 0 || mode > 0o777 {
			return out, fmt.Errorf("the mode %q is none: permissions are written in octal, as in 755", clip(in.Mode))
		}
	}
	return out, s.withFiles(ctx, in.Sandbox, func(f *files.Files) error {
		w, err := f.Write(ctx, files.WriteRequest{Path: in.Path, Data: data, Mode: iofs.FileMode(mode), New: in.New})
		if err == nil {
			out = writeFileOut{w.Path, w.Size, w.Created}
		}
		return err
	})
}

type editFileIn struct {
	Sandbox string   `json:"sandbox" jsonschema:"name of the sandbox"`
	Path    string   `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Edits   []editIn `json:"edits" jsonschema:"replacements, made in order"`
}

type editIn struct {
	Old string `json:"old" jsonschema:"text exactly as it is in the file"`
	New string `json:"new" jsonschema:"what stands there afterwards"`
	All bool   `json:"all,omitempty" jsonschema:"replace every occurrence"`
}

type editFileOut struct {
	Path     string `json:"path"`
	Size     int64  `json:"size"`
	Replaced int    `json:"replaced" jsonschema:"occurrences"`
	Lines    []int  `json:"lines" jsonschema:"where"`
}

func (s *Server) editFile(ctx context.Context, in editFileIn) (out editFileOut, err error) {
	edits := make([]files.Edit, len(in.Edits))
	for i, e := range in.Edits {
		edits[i] = files.Edit{Old: e.Old, New: e.New, All: e.All}
	}
	out.Lines = []int{}
	return out, s.withFiles(ctx, in.Sandbox, func(f *files.Files) error {
		e, err := f.EditFile(ctx, files.EditRequest{Path: in.Path, Edits: edits})
		if err == nil {
			out = editFileOut{e.Path, e.Size, e.Replaced, e.Lines}
		}
		return err
	})
}

type grepIn struct {
	Sandbox    string   `json:"sandbox" jsonschema:"name of the sandbox"`
	Pattern    string   `json:"pattern" jsonschema:"regular expression in RE2's syntax, matched against each line"`
	Fixed      bool     `json:"fixed,omitempty" jsonschema:"the pattern is plain text"`
	IgnoreCase bool     `json:"ignore_case,omitempty"`
	Paths      []string `json:"paths,omitempty" jsonschema:"files and directories to search; default the workspace"`
	Include    []string `json:"include,omitempty" jsonschema:"only files that match one of these globs, such as *.go"`
	Exclude    []string `json:"exclude,omitempty" jsonschema:"no files or directories that match one of these globs"`
	Context    int      `json:"context,omitempty" jsonschema:"lines to show before and after each match; at most 20"`
	Limit      int      `json:"limit,omitempty" jsonschema:"matching lines in the answer; default 100, at most 1000"`
}

type grepOut struct {
	Files     []grepFile `json:"files"`
	Count     int        `json:"count" jsonschema:"matching lines in the answer"`
	Truncated bool       `json:"truncated,omitempty" jsonschema:"there are more: search for less, or in fewer files"`
	Searched  int        `json:"searched" jsonschema:"files that were looked into"`
}

type grepFile struct {
	Path  string     `json:"path"`
	Lines []grepLine `json:"lines"`
}

type grepLine struct {
	Line  int    `json:"line"`
	Text  string `json:"text"`
	Match bool   `json:"match,omitempty" jsonschema:"else it is context"`
}

func (s *Server) grep(ctx context.Context, in grepIn) (out grepOut, err error) {
	limit, err := bounded("limit", in.Limit, defaultMatches, maxMatches)
	if err != nil {
		return out, err
	}
	around, err := bounded("context", in.Context, 0, maxContext)
	if err != nil {
		return out, err
	}
	out.Files = []grepFile{}
	return out, s.withFiles(ctx, in.Sandbox, func(f *files.Files) error {
		m, err := f.Grep(ctx, files.GrepRequest{Pattern: in.Pattern, Fixed: in.Fixed, IgnoreCase: in.IgnoreCase, Paths: in.Paths,
			Include: in.Include, Exclude: in.Exclude, Before: around, After: around, Max: limit})
		if err != nil {
			return err
		}
		out.Count, out.Truncated, out.Searched = m.Count, m.Truncated, m.Searched
		for _, file := range m.Files {
			g := grepFile{Path: file.Path, Lines: []grepLine{}}
			for _, l := range file.Lines {
				g.Lines = append(g.Lines, grepLine{l.Number, l.Text, l.Match})
			}
			out.Files = append(out.Files, g)
		}
		return nil
	})
}

type removeFileIn struct {
	Sandbox   string `json:"sandbox" jsonschema:"name of the sandbox"`
	Path      string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"a directory with all that is in it"`
}

type removeFileOut struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

func (s *Server) removeFile(ctx context.Context, in removeFileIn) (out removeFileOut, err error) {
	return out, s.withFiles(ctx, in.Sandbox, func(f *files.Files) error {
		r, err := f.Remove(ctx, in.Path, in.Recursive)
		if err == nil {
			out = removeFileOut{r.Path, r.Type}
		}
		return err
	})
}
