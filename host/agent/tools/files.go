package tools

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
	maxOffset      = 100_000_000
	defaultRead    = 64 << 10 // bytes of a file in one answer
	maxRead        = 512 << 10
	maxUnreadable  = 20
	maxListed      = 256 << 10 // bytes of paths and lines in one answer
)

// EntryOut is one file, directory or other thing; see [files.Entry].
type EntryOut struct {
	Path   string `json:"path"`
	Type   string `json:"type" jsonschema:"file, directory, symlink, fifo, socket or device"`
	Size   int64  `json:"size"`
	Mode   string `json:"mode,omitempty" jsonschema:"permissions in octal"`
	Layer  string `json:"layer,omitempty" jsonschema:"upper was written in the sandbox, lower is the project's, merged is a directory of both"`
	Target string `json:"target,omitempty" jsonschema:"of a symbolic link"`
}

func entry(e files.Entry) EntryOut {
	return EntryOut{e.Path, e.Type, e.Size, e.Mode, e.Layer, e.Target}
}

// ListFilesIn are the arguments of [Box.ListFiles].
type ListFilesIn struct {
	Path   string `json:"path,omitempty" jsonschema:"directory; default the workspace"`
	Depth  int    `json:"depth,omitempty" jsonschema:"levels: 1 is what is directly in it; default all"`
	Offset int    `json:"offset,omitempty" jsonschema:"entries to pass over, for the next page"`
	Limit  int    `json:"limit,omitempty" jsonschema:"entries in the answer; default 500, at most 5000"`
}

// ListFilesOut is a page of a list.
type ListFilesOut struct {
	Entries    []EntryOut `json:"entries"`
	Next       int        `json:"next,omitempty" jsonschema:"offset of the next page; missing at the end"`
	Unreadable []string   `json:"unreadable,omitempty" jsonschema:"directories that could not be listed"`
}

// ListFiles lists what is below a directory.
func (b *Box) ListFiles(ctx context.Context, in ListFilesIn) (out ListFilesOut, err error) {
	limit, err := Bounded("limit", in.Limit, defaultEntries, maxEntries)
	offset, err2 := Bounded("offset", in.Offset, 0, maxOffset)
	if err := errors.Join(err, err2); err != nil {
		return out, err
	}
	out.Entries = []EntryOut{}
	err = b.with(ctx, func(f *files.Files) error {
		l, err := f.List(ctx, files.ListRequest{Path: in.Path, Depth: in.Depth, Max: offset + limit})
		if err != nil {
			return err
		}
		bytes, full := 0, false
		for _, e := range l.Entries[min(offset, len(l.Entries)):] {
			bytes += len(e.Path) + len(e.Target)
			if full = bytes > maxListed && len(out.Entries) > 0; full {
				break
			}
			out.Entries = append(out.Entries, entry(e))
		}
		if full || l.Truncated {
			out.Next = offset + len(out.Entries)
		}
		for _, u := range l.Unreadable[:min(len(l.Unreadable), maxUnreadable)] {
			out.Unreadable = append(out.Unreadable, u.Path+": "+u.Detail)
		}
		return nil
	})
	return out, err
}

// FileIn names a file.
type FileIn struct {
	Path string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
}

// StatFile describes what is at a path, and follows no link at its end.
func (b *Box) StatFile(ctx context.Context, in FileIn) (out EntryOut, err error) {
	err = b.with(ctx, func(f *files.Files) error {
		e, err := f.Stat(ctx, in.Path)
		if err == nil {
			out = entry(*e)
		}
		return err
	})
	return out, err
}

// ReadFileIn are the arguments of [Box.ReadFile].
type ReadFileIn struct {
	Path     string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Offset   int    `json:"offset,omitempty" jsonschema:"first line, counted from 1"`
	Limit    int    `json:"limit,omitempty" jsonschema:"lines; default all that fit into the answer"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"bytes in the answer; default 65536, at most 524288"`
}

// ReadFileOut is a page of a file.
type ReadFileOut struct {
	Path   string `json:"path"`
	Size   int64  `json:"size" jsonschema:"bytes of the whole file"`
	Lines  int    `json:"lines" jsonschema:"lines of the whole file"`
	First  int    `json:"first" jsonschema:"number of the first line of the text"`
	Next   int    `json:"next,omitempty" jsonschema:"line to read on at; missing at the end"`
	Text   string `json:"text"`
	Base64 string `json:"base64,omitempty" jsonschema:"instead of the text, for a file that is not UTF-8"`
}

// ReadFile reads a file, or lines of it.
func (b *Box) ReadFile(ctx context.Context, in ReadFileIn) (out ReadFileOut, err error) {
	most, err := Bounded("max_bytes", in.MaxBytes, defaultRead, maxRead)
	if err != nil {
		return out, err
	}
	err = b.with(ctx, func(f *files.Files) error {
		c, err := f.Read(ctx, files.ReadRequest{Path: in.Path, Offset: in.Offset, Limit: in.Limit, Max: most})
		if err != nil {
			return err
		}
		out = ReadFileOut{Path: c.Path, Size: c.Size, Lines: c.Lines, First: c.First, Next: c.Next, Text: c.Text}
		if c.Binary {
			out.Text, out.Base64 = "", base64.StdEncoding.EncodeToString(c.Data)
		}
		return nil
	})
	return out, err
}

// WriteFileIn are the arguments of [Box.WriteFile].
type WriteFileIn struct {
	Path     string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Content  string `json:"content" jsonschema:"the whole of the file"`
	Encoding string `json:"encoding,omitempty" jsonschema:"utf-8, the default, or base64"`
	Mode     string `json:"mode,omitempty" jsonschema:"permissions in octal, such as 755; default those of the file that is replaced, or 644"`
	New      bool   `json:"new,omitempty" jsonschema:"fail if the file exists"`
}

// WriteFileOut is what was written.
type WriteFileOut struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Created bool   `json:"created" jsonschema:"there was no file before"`
}

// WriteFile writes a file in one step.
func (b *Box) WriteFile(ctx context.Context, in WriteFileIn) (out WriteFileOut, err error) {
	data := []byte(in.Content)
	switch in.Encoding {
	case "", "utf-8":
	case "base64":
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return out, fmt.Errorf("the content is not base64: %w", err)
		}
	default:
		return out, fmt.Errorf("the encoding %q is neither utf-8 nor base64", Clip(in.Encoding))
	}
	var mode uint64
	if in.Mode != "" {
		if mode, err = strconv.ParseUint(in.Mode, 8, 12); err != nil || mode == 0 || mode > 0o777 {
			return out, fmt.Errorf("invalid mode %q: want octal permissions, such as 755", Clip(in.Mode))
		}
	}
	err = b.with(ctx, func(f *files.Files) error {
		w, err := f.Write(ctx, files.WriteRequest{Path: in.Path, Data: data, Mode: iofs.FileMode(mode), New: in.New})
		if err == nil {
			out = WriteFileOut{w.Path, w.Size, w.Created}
		}
		return err
	})
	return out, err
}

// EditFileIn are the arguments of [Box.EditFile].
type EditFileIn struct {
	Path  string   `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Edits []EditIn `json:"edits" jsonschema:"replacements, made in order"`
}

// EditIn is one replacement.
type EditIn struct {
	Old string `json:"old" jsonschema:"text exactly as it is in the file"`
	New string `json:"new" jsonschema:"what stands there afterwards"`
	All bool   `json:"all,omitempty" jsonschema:"replace every occurrence"`
}

// EditFileOut is what came of an edit.
type EditFileOut struct {
	Path     string `json:"path"`
	Size     int64  `json:"size"`
	Replaced int    `json:"replaced" jsonschema:"occurrences"`
	Lines    []int  `json:"lines" jsonschema:"where"`
}

// EditFile replaces pieces of text in a file, all of them or none.
func (b *Box) EditFile(ctx context.Context, in EditFileIn) (out EditFileOut, err error) {
	edits := make([]files.Edit, len(in.Edits))
	for i, e := range in.Edits {
		edits[i] = files.Edit{Old: e.Old, New: e.New, All: e.All}
	}
	out.Lines = []int{}
	err = b.with(ctx, func(f *files.Files) error {
		e, err := f.EditFile(ctx, files.EditRequest{Path: in.Path, Edits: edits})
		if err == nil {
			out = EditFileOut{e.Path, e.Size, e.Replaced, e.Lines}
		}
		return err
	})
	return out, err
}

// RemoveFileIn are the arguments of [Box.RemoveFile].
type RemoveFileIn struct {
	Path      string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"a directory with all that is in it"`
}

// RemoveFileOut is what was removed.
type RemoveFileOut struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

// RemoveFile removes a file, or a directory with all that is in it.
func (b *Box) RemoveFile(ctx context.Context, in RemoveFileIn) (out RemoveFileOut, err error) {
	err = b.with(ctx, func(f *files.Files) error {
		r, err := f.Remove(ctx, in.Path, in.Recursive)
		if err == nil {
			out = RemoveFileOut{r.Path, r.Type}
		}
		return err
	})
	return out, err
}
