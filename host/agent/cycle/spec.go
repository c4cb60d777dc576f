package cycle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Convention is where the specification of a cycle is looked for in its workspace, when nothing else names it.
func Convention(id string) string { return "dev_documents/CYCLE" + id + "/SPEC.md" }

// inputSpec is the name below the input directory of a specification that is not in the workspace.
const inputSpec = "SPEC.md"

// Prepare puts the work together: the specification of a block, or the one that the convention finds in its workspace.
// One that is not in the workspace is added to the input of the sandbox, so that commands can read it too. The block is
// not changed.
func Prepare(id string, b *runfile.Cycle) (Work, error) {
	if err := CheckID(id); err != nil {
		return Work{}, err
	}
	dir := b.Box.Workspace.Source
	if b.SpecFile == "" {
		name := Convention(id)
		text, err := readSpec(dir, name)
		at := filepath.Join(dir, filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			return Work{}, fmt.Errorf("there is no specification %s", at)
		} else if err != nil {
			return Work{}, fmt.Errorf("the specification %s: %w", at, err)
		}
		return Work{ID: id, Spec: Spec{Path: name, At: name, Text: text}, Block: b}, nil
	}
	w := Work{ID: id, Spec: Spec{Path: b.SpecFile, Text: b.SpecText}, Block: b}
	if rel, err := filepath.Rel(dir, b.SpecFile); err == nil && filepath.IsLocal(rel) {
		w.Spec.Path, w.Spec.At = filepath.ToSlash(rel), filepath.ToSlash(rel)
		return w, nil
	}
	block, box := *b, *b.Box
	if slices.ContainsFunc(box.Files, func(f runfile.File) bool { return f.Path == inputSpec }) {
		return w, nil // it is in the conversation in any case
	}
	box.Files = append(slices.Clone(box.Files), runfile.File{Path: inputSpec, Mode: 0o644, Size: int64(len(b.SpecText)), Content: []byte(b.SpecText)})
	slices.SortFunc(box.Files, func(a, b runfile.File) int { return strings.Compare(a.Path, b.Path) })
	block.Box = &box
	w.Block, w.Spec.At = &block, path.Join(guestpath.Input(true), inputSpec)
	return w, nil
}

// readSpec reads a specification below a directory of this host, and follows no link that leads out of it.
func readSpec(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, _, err := safefile.Open(root, name, runfile.MaxSpec)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, runfile.MaxSpec))
	if err != nil {
		return "", err
	}
	if bad := runfile.BadSpec(b); bad != "" {
		return "", errors.New(bad)
	}
	return string(b), nil
}
