package tools

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/hutch-run/hutch/host/agent/ingest"
	"github.com/hutch-run/hutch/host/workspace/files"
)

const (
	defaultEntries = 500
	maxEntries     = 5000
	defaultRead    = 64 << 10 // bytes of a file in one answer
	maxRead        = 512 << 10
	defaultMatches = 100
	maxMatches     = 1000
	maxContext     = 20
	maxPassedOver  = 100_000   // matching lines before a page
	maxUnreadable  = 20        // directories and files in one answer that could not be read
	maxListed      = 256 << 10 // bytes of paths and lines in one answer
)

// ListFiles lists what is below a directory.
func (b *Box) ListFiles(ctx context.Context, in files.ListRequest) (*files.Listing, error) {
	in.SkipIgnored = true
	if in.Max = bounded(in.Max, defaultEntries, maxEntries); in.Max < 0 {
		return nil, fmt.Errorf("limit: %d is negative", in.Max)
	}
	return inFiles(ctx, b, func(f *files.Files) (*files.Listing, error) {
		l, err := f.List(ctx, in)
		if err != nil {
			return nil, err
		}
		bytes := 0
		for i, e := range l.Entries {
			if bytes += len(e.Path) + len(e.Target); bytes > maxListed && i > 0 {
				l.CutTo(in.Offset, i)
				break
			}
		}
		l.Unreadable = l.Unreadable[:min(len(l.Unreadable), maxUnreadable)]
		return l, nil
	})
}

// FileIn names a file.
type FileIn struct {
	Path string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
}

// StatFile describes what is at a path, and follows no link at its end.
func (b *Box) StatFile(ctx context.Context, in FileIn) (*files.Entry, error) {
	return inFiles(ctx, b, func(f *files.Files) (*files.Entry, error) { return f.Stat(ctx, in.Path) })
}

// ReadFile reads a file, or lines of it.
func (b *Box) ReadFile(ctx context.Context, in files.ReadRequest) (*files.Content, error) {
	in.Max = bounded(in.Max, defaultRead, maxRead)
	return inFiles(ctx, b, func(f *files.Files) (*files.Content, error) { return f.Read(ctx, in) })
}

// WriteFileIn are the arguments of [Box.WriteFile].
type WriteFileIn struct {
	Path     string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Content  string `json:"content" jsonschema:"the whole of the file"`
	Encoding string `json:"encoding,omitempty" jsonschema:"utf-8, the default, or base64"`
	Mode     string `json:"mode,omitempty" jsonschema:"permissions in octal, such as 755; default those of the file that is replaced, or 644"`
	New      bool   `json:"new,omitempty" jsonschema:"fail if the file exists"`
}

// WriteFile writes a file in one step.
func (b *Box) WriteFile(ctx context.Context, in WriteFileIn) (_ *files.Written, err error) {
	r := files.WriteRequest{Path: in.Path, Data: []byte(in.Content), New: in.New}
	switch in.Encoding {
	case "", "utf-8":
	case "base64":
		if r.Data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, fmt.Errorf("the content is not base64: %w", err)
		}
	default:
		return nil, fmt.Errorf("the encoding %q is neither utf-8 nor base64", Clip(in.Encoding))
	}
	if in.Mode != "" {
		if r.Mode, err = files.ParseMode(in.Mode); err != nil {
			return nil, err
		}
	}
	return inFiles(ctx, b, func(f *files.Files) (*files.Written, error) { return f.Write(ctx, r) })
}

// EditFile replaces pieces of text in a file, all of them or none.
func (b *Box) EditFile(ctx context.Context, in files.EditRequest) (*files.Edited, error) {
	return inFiles(ctx, b, func(f *files.Files) (*files.Edited, error) { return f.EditFile(ctx, in) })
}

// RemoveFileIn are the arguments of [Box.RemoveFile].
type RemoveFileIn struct {
	Path      string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"a directory with all that is in it"`
}

// RemoveFile removes a file, or a directory with all that is in it.
func (b *Box) RemoveFile(ctx context.Context, in RemoveFileIn) (*files.Removed, error) {
	return inFiles(ctx, b, func(f *files.Files) (*files.Removed, error) { return f.Remove(ctx, in.Path, in.Recursive) })
}

// Grep searches files for lines that match.
func (b *Box) Grep(ctx context.Context, in files.GrepRequest) (*files.Matches, error) {
	in.SkipIgnored = true
	if in.Skip > maxPassedOver {
		return nil, fmt.Errorf("offset: at most %d; search for less, or in fewer files", maxPassedOver)
	}
	in.Max = bounded(in.Max, defaultMatches, maxMatches)
	in.Before, in.After = min(in.Before, maxContext), min(in.After, maxContext)
	return inFiles(ctx, b, func(f *files.Files) (*files.Matches, error) {
		m, err := f.Grep(ctx, in)
		if err != nil {
			return nil, err
		}
		m.Skipped = m.Skipped[:min(len(m.Skipped), maxUnreadable)]
		cutMatches(m, in.Skip)
		return m, nil
	})
}

// cutMatches keeps as much as an answer holds, at least one matching line.
func cutMatches(m *files.Matches, skipped int) {
	bytes, count := 0, 0
	for i := range m.Files {
		f := &m.Files[i]
		before := count
		for j, l := range f.Lines {
			if bytes += len(l.Text); bytes > maxListed && count > 0 {
				f.Lines, f.Count = f.Lines[:j], count-before
				m.Files, m.Count, m.Truncated, m.Next = m.Files[:i+min(j, 1)], count, true, skipped+count
				return
			}
			if l.Match {
				count++
			}
		}
	}
}

// ApplyPatchIn are the arguments of [Box.ApplyPatch].
type ApplyPatchIn struct {
	Patch string `json:"patch" jsonschema:"the patch, with paths relative to the workspace"`
}

// ApplyPatchOut is what a patch did.
type ApplyPatchOut struct {
	Files []PatchedFile `json:"files" jsonschema:"what became of each path, in path order"`
	Notes []string      `json:"notes,omitempty" jsonschema:"what was read or found with good will"`
}

// PatchedFile is a path that a patch changed.
type PatchedFile struct {
	Path string `json:"path"`
	Kind string `json:"kind" jsonschema:"added, modified or deleted"`
	Size int64  `json:"size,omitempty" jsonschema:"bytes of the file afterwards"`
}

// ApplyPatch applies a patch to the files of the sandbox, all of it or nothing.
func (b *Box) ApplyPatch(ctx context.Context, in ApplyPatchIn) (out ApplyPatchOut, err error) {
	patch, err := ingest.Parse([]byte(in.Patch), "")
	if err != nil {
		return out, mendable(err)
	}
	switch patch.Format {
	case ingest.Diff, ingest.V4A, ingest.SearchReplace:
	default:
		return out,
			fmt.Errorf("this is no patch, but files as %s; apply_patch takes a unified diff, a *** Begin Patch block or "+
				"SEARCH/REPLACE blocks, and write_file a whole file", patch.Format)
	}
	out.Files, out.Notes = []PatchedFile{}, patch.Notes
	_, err = inFiles(ctx, b, func(f *files.Files) (none struct{}, err error) {
		return none, f.Rewrite(ctx, func(read func(string) ([]byte, fs.FileMode, error)) ([]files.Replacement, error) {
			outcomes, notes, err := patch.Apply(patched{ctx, f, read})
			if err != nil {
				return nil, mendable(err)
			}
			out.Notes = append(out.Notes, notes...)
			var list []files.Replacement
			for _, o := range outcomes {
				list = append(list, files.Replacement{Path: o.Path, Deleted: o.Deleted, Data: o.Content, Mode: o.Mode})
				p := PatchedFile{Path: o.Path, Kind: "modified", Size: int64(len(o.Content))}
				switch {
				case o.Deleted:
					p.Kind = "deleted"
				case o.Created:
					p.Kind = "added"
				}
				out.Files = append(out.Files, p)
			}
			return list, nil
		})
	})
	if err != nil {
		return ApplyPatchOut{Files: []PatchedFile{}}, err
	}
	return out, nil
}

// patched is the workspace as a patch sees it.
type patched struct {
	ctx  context.Context
	f    *files.Files
	read func(name string) ([]byte, fs.FileMode, error)
}

// Read implements [ingest.Tree].
func (t patched) Read(name string) ([]byte, fs.FileMode, error) { return t.read(name) }

// Names implements [ingest.Tree].
func (t patched) Names() (names []string) {
	l, err := t.f.List(t.ctx, files.ListRequest{})
	if err != nil {
		return nil
	}
	for _, e := range l.Entries {
		if e.Type == "file" {
			names = append(names, e.Path)
		}
	}
	return names
}

// mendable is an error of a patch with what to do about each problem; nothing was changed.
func mendable(err error) error {
	var e *ingest.Error
	if !errors.As(err, &e) {
		return err
	}
	var lines []string
	for _, p := range e.Problems {
		line := strings.ReplaceAll(p.Error(), "of the answer", "of the patch")
		if p.Hint != "" {
			line += "\nhint: " + p.Hint
		}
		lines = append(lines, line)
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more problems", e.More))
	}
	return fmt.Errorf("nothing was changed:\n%s", strings.Join(lines, "\n"))
}
