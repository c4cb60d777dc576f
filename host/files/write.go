package files

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// DefaultMode is the mode of new files.
const DefaultMode fs.FileMode = 0o644

// WriteRequest says what to write.
type WriteRequest struct {
	Path string
	Data []byte
	// Mode are the permissions, without those to write for group and others. 0 keeps those of the file that is replaced,
	// and gives a new one DefaultMode.
	Mode fs.FileMode
	// New refuses to replace a file.
	New bool
}

// Written is what came of a write.
type Written struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Created bool   `json:"created"` // there was no file before
}

// Write makes a file, with the directories it needs, or replaces it in one step. A symbolic link is followed inside the
// workspace.
func (f *Files) Write(ctx context.Context, r WriteRequest) (*Written, error) {
	if r.Mode&^0o755 != 0 {
		return nil, refuse(r.Path, ReasonRequest, "the mode %s sets bits that are not allowed: only permissions, and for group and others only to read and execute", octal(r.Mode))
	}
	if strings.HasSuffix(r.Path, "/") {
		return nil, refuse(r.Path, ReasonName, "a path that ends with a slash names a directory")
	}
	s, err := f.find(r.Path)
	if err != nil {
		return nil, err
	}
	out := &Written{Path: s.name, Size: int64(len(r.Data))}
	return out, f.alone(ctx, func() error {
		to, old, err := f.target(ctx, s)
		if err != nil {
			return err
		}
		if out.Created = old == nil; old != nil && r.New {
			return refuse(s.name, ReasonRequest, "it exists already")
		}
		return f.put(ctx, OpWrite, to, old, r.Mode, r.Data)
	})
}

// target finds out where a write to s goes, and what is there; nil for nothing.
func (f *Files) target(ctx context.Context, s spot) (spot, *overlay.Node, error) {
	rel, missing := s.rel, ""
	for {
		to, err := s.view.resolve(ctx, rel)
		if errors.Is(err, fs.ErrNotExist) && rel != "." {
			missing, rel = path.Join(path.Base(rel), missing), path.Dir(rel)
			continue
		}
		if err != nil {
			return s, nil, explain(s.name, err)
		}
		rel = to
		break
	}
	to := s.at(path.Join(rel, missing))
	n, err := s.view.lstat(ctx, to.rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return to, nil, nil
	case err != nil:
		return s, nil, explain(s.name, err)
	}
	if bad := safefile.Refuse(s.name, n.Mode, 1, 0, -1); bad != nil {
		return s, nil, explain(s.name, bad)
	}
	return to, &n, nil
}

// put writes a file through the backend, and reports it.
func (f *Files) put(ctx context.Context, op Op, to spot, old *overlay.Node, mode fs.FileMode, data []byte) error {
	if err := f.send(ctx, to, old, mode, data); err != nil {
		return explain(to.name, err)
	}
	sum := sha256.Sum256(data)
	return f.changed(Change{Op: op, Path: to.name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])})
}

// send gives a file to the backend. Put of a file keeps its mode, and needs its directory; a tree of one file makes
// both.
func (f *Files) send(ctx context.Context, to spot, old *overlay.Node, mode fs.FileMode, data []byte) error {
	if old != nil && (mode == 0 || mode == old.Mode.Perm()) {
		return f.sb.Put(ctx, to.abs(), sdk.FormatFile, bytes.NewReader(data))
	}
	if mode == 0 {
		mode = DefaultMode
	}
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	h := &tar.Header{Name: path.Base(to.rel), Mode: int64(mode.Perm()), Size: int64(len(data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	// What follows the content of a file in a tar: up to the next block, and two empty ones.
	tail := make([]byte, (512-len(data)%512)%512+1024)
	whole := io.MultiReader(&head, bytes.NewReader(data), bytes.NewReader(tail))
	return f.sb.Put(ctx, path.Dir(to.abs()), sdk.FormatTar, whole)
}

// Removed is what came of a removal.
type Removed struct {
	Path string `json:"path"`
	Type string `json:"type"` // as in Entry; of what was removed
}

// Remove removes a file, a symbolic link and not what it points to, or, with recursive, a directory and all in it.
func (f *Files) Remove(ctx context.Context, name string, recursive bool) (*Removed, error) {
	s, err := f.find(name)
	if err != nil {
		return nil, err
	}
	if s.rel == "." || s.area.name == "workspace" && f.mounted(s.rel) {
		return nil, refuse(s.name, ReasonRequest, "it is part of the sandbox and cannot be removed")
	}
	out := &Removed{Path: s.name}
	return out, f.alone(ctx, func() error {
		n, err := s.view.lstat(ctx, s.rel)
		if err != nil {
			return explain(s.name, err)
		}
		out.Type = typeOf(n.Mode)
		if n.Mode.IsDir() && !recursive {
			e := refuse(s.name, ReasonDir, "it is a directory")
			e.Hint = "say that it is to be removed with all that is in it"
			return e
		}
		// The backend gets the path without links on the way, which it might resolve in another manner.
		at := s.at(n.Path)
		if err := f.sb.Remove(ctx, at.abs(), recursive); err != nil {
			return explain(s.name, err)
		}
		return f.changed(Change{Op: OpRemove, Path: at.name, Type: out.Type})
	})
}

// describe reports several places in a text.
func describe(lines []int) string {
	const most = 10
	text := "lines"
	if len(lines) == 1 {
		text = "line"
	}
	for i, n := range lines[:min(len(lines), most)] {
		sep := ","
		if i == 0 {
			sep = ""
		}
		text += fmt.Sprintf("%s %d", sep, n)
	}
	if len(lines) > most {
		text += fmt.Sprintf(" and %d more", len(lines)-most)
	}
	return text
}
