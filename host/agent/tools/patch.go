package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/hutch-run/hutch/host/agent/ingest"
	"github.com/hutch-run/hutch/host/files"
)

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
		return out, fmt.Errorf("this is no patch, but files as %s; apply_patch takes a unified diff, a *** Begin Patch block or SEARCH/REPLACE blocks, and write_file a whole file", patch.Format)
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
