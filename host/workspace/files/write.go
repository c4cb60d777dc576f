package files

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// DefaultMode is the mode of new files.
const DefaultMode fs.FileMode = 0o644

// ParseMode reads permissions in octal, such as 755.
func ParseMode(s string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(s, 8, 12)
	if err != nil || mode == 0 || mode > 0o777 {
		return 0, fmt.Errorf("invalid mode %.100q: want octal permissions, such as 755", s)
	}
	return fs.FileMode(mode), nil
}

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
		return nil,
			refuse(r.Path, ReasonRequest,
				"the mode %s sets bits that are not allowed: only permissions, and for group and others only to read and execute",
				octal(r.Mode))
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
	h := &tar.Header{Name: path.Base(to.rel), Mode: int64(mode.Perm()), Size: int64(len(data)), Typeflag: tar.TypeReg,
		Format: tar.FormatPAX}
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

// OpPatch is a change that came with others, all of them or none; see [Files.Rewrite].
const OpPatch Op = "patch"

// Replacement is what becomes of one path.
type Replacement struct {
	Path    string
	Deleted bool        // there is to be nothing; the rest does not count
	Data    []byte      // the whole of the file
	Mode    fs.FileMode // permissions, as in [WriteRequest]
}

// Rewrite changes several files in one step. work says what becomes of which paths; it reads what it needs with read,
// whose error is [fs.ErrNotExist] where nothing is. Then all of it is done, or nothing: when something cannot be, what
// was done before it is taken back. A process that dies in between leaves a part. Nothing else of these tools changes a
// file meanwhile, and what a program in the sandbox changes is noticed where that can be seen from here.
func (f *Files) Rewrite(ctx context.Context, work func(read func(name string) ([]byte, fs.FileMode,
	error)) ([]Replacement, error)) error {
	return f.alone(ctx, func() error {
		r := &rewrite{f: f, seen: map[string]*original{}}
		list, err := work(func(name string) ([]byte, fs.FileMode, error) { return r.read(ctx, name) })
		if err != nil {
			return err
		}
		// Deletions come first: something else may take the place of what they remove.
		for _, deleted := range []bool{true, false} {
			for _, x := range list {
				if x.Deleted != deleted {
					continue
				}
				if err := r.do(ctx, x); err != nil {
					return r.undo(ctx, err)
				}
			}
		}
		for _, c := range r.changes {
			if err := f.changed(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// rewrite is one call of Rewrite.
type rewrite struct {
	f       *Files
	seen    map[string]*original // by the name that was asked for
	undoing []func(ctx context.Context) error
	changes []Change
}

// original is a path as it was.
type original struct {
	to   spot
	node *overlay.Node // nil for nothing
	data []byte
}

// look finds out what is at a path, once.
func (r *rewrite) look(ctx context.Context, name string) (*original, error) {
	if o := r.seen[name]; o != nil {
		return o, nil
	}
	s, err := r.f.find(name)
	if err != nil {
		return nil, err
	}
	o := &original{}
	if o.to, o.node, err = r.f.target(ctx, s); err != nil {
		var e *Error
		if errors.As(err, &e) && e.Reason == ReasonNotDir { // there can be nothing at it, until what is in the way is deleted
			o.to, err = s, nil
		}
	}
	if err == nil && o.node != nil {
		o.data, _, err = r.f.content(ctx, o.to)
	}
	if err != nil {
		return nil, err
	}
	r.seen[name] = o
	return o, nil
}

func (r *rewrite) read(ctx context.Context, name string) ([]byte, fs.FileMode, error) {
	o, err := r.look(ctx, name)
	switch {
	case err != nil:
		return nil, 0, err
	case o.node == nil:
		return nil, 0, fs.ErrNotExist
	}
	return o.data, o.node.Mode.Perm(), nil
}

// do makes one change, and remembers how it is taken back.
func (r *rewrite) do(ctx context.Context, x Replacement) error {
	o, err := r.look(ctx, x.Path)
	if err != nil {
		return err
	}
	f, to := r.f, o.to
	if o.node != nil {
		if err := f.unchanged(ctx, to, o.node); err != nil {
			return err
		}
	}
	if x.Deleted {
		if o.node == nil {
			return refuse(x.Path, ReasonMissing, "there is no such file or directory")
		}
		if to.name != path.Clean(x.Path) && to.abs() != path.Clean(x.Path) {
			return refuse(x.Path, ReasonSymlink, "a symbolic link leads to %s; that is deleted by its own name", to.name)
		}
		r.undoing = append(r.undoing, func(ctx context.Context) error {
			return f.send(ctx, to, nil, o.node.Mode.Perm(),
				o.data)
		})
		if err := f.sb.Remove(ctx, to.abs(), false); err != nil {
			return explain(to.name, err)
		}
		r.changes = append(r.changes, Change{Op: OpRemove, Path: to.name, Type: "file"})
		return nil
	}
	// Writing it again with its permissions puts back what was there; what was not there goes, with its new directories.
	if o.node != nil {
		r.undoing = append(r.undoing, func(ctx context.Context) error {
			return f.send(ctx, to, nil, o.node.Mode.Perm(),
				o.data)
		})
	} else {
		missing := f.missing(ctx, to)
		r.undoing = append(r.undoing, func(ctx context.Context) error { return f.removeAll(ctx, missing) })
	}
	if err := f.send(ctx, to, o.node, x.Mode&0o755, x.Data); err != nil {
		return explain(to.name, err)
	}
	sum := sha256.Sum256(x.Data)
	r.changes = append(r.changes, Change{Op: OpPatch, Path: to.name, Size: int64(len(x.Data)),
		SHA256: hex.EncodeToString(sum[:])})
	return nil
}

// missing is a path that is not there, and the directories above it that are not, from the inside out.
func (f *Files) missing(ctx context.Context, s spot) []spot {
	out := []spot{s}
	for up := path.Dir(s.rel); up != "."; up = path.Dir(up) {
		if _, err := s.view.lstat(ctx, up); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		out = append(out, s.at(up))
	}
	return out
}

// removeAll removes what is there of a list. A directory that something else was put into stays.
func (f *Files) removeAll(ctx context.Context, list []spot) error {
	for i, s := range list {
		if _, err := s.view.lstat(ctx, s.rel); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if i > 0 {
			if l, err := f.List(ctx, ListRequest{Path: s.abs(), Depth: 1, Max: 1}); err != nil || len(l.Entries) > 0 {
				return nil
			}
		}
		if err := f.sb.Remove(ctx, s.abs(), i > 0); err != nil {
			return err
		}
	}
	return nil
}

// undoTime bounds taking back, which goes on when ctx has ended.
const undoTime = time.Minute

// undo takes back what was done, the last one included, which may have been done in part.
func (r *rewrite) undo(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var failed error
	for _, back := range slices.Backward(r.undoing) {
		failed = errors.Join(failed, back(ctx))
	}
	if failed != nil {
		return fmt.Errorf("%w; and what was done before could not be taken back: %w", cause, failed)
	}
	return cause
}

// Edit is one replacement.
type Edit struct {
	Old string `json:"old" jsonschema:"text exactly as it is in the file, and there only once"`
	New string `json:"new" jsonschema:"what stands there afterwards"`
	All bool   `json:"all,omitempty" jsonschema:"replace every occurrence"`
}

// EditRequest says what to replace in a file.
type EditRequest struct {
	Path string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	// Edits are done in order, each on what the one before it left; all of them or none.
	Edits []Edit `json:"edits" jsonschema:"replacements, made in order"`
}

// Edited is what came of an edit.
type Edited struct {
	Path     string `json:"path"`
	Size     int64  `json:"size"`     // bytes of the file afterwards
	Replaced int    `json:"replaced"` // occurrences
	Lines    []int  `json:"lines"`    // where each replacement was made, in the text of its turn, counted from 1
}

// EditFile replaces pieces of text in a file, in one step. The file keeps its mode. In a file whose lines all end with
// CRLF, line ends of the pieces count as CRLF. A file that something else changes meanwhile is left as it is.
func (f *Files) EditFile(ctx context.Context, r EditRequest) (*Edited, error) {
	if len(r.Edits) == 0 {
		return nil, refuse(r.Path, ReasonRequest, "there is nothing to replace")
	}
	s, err := f.find(r.Path)
	if err != nil {
		return nil, err
	}
	out := &Edited{Path: s.name}
	return out, f.alone(ctx, func() error {
		to, old, err := f.target(ctx, s)
		if err != nil {
			return err
		}
		if old == nil {
			e := refuse(s.name, ReasonMissing, "there is no such file or directory")
			e.Hint = "a new file is written, not edited"
			return e
		}
		b, _, err := f.content(ctx, to)
		if err != nil {
			return err
		}
		text, err := out.apply(s.name, string(b), r.Edits)
		if err != nil {
			return err
		}
		if err := f.unchanged(ctx, to, old); err != nil {
			return err
		}
		out.Size = int64(len(text))
		return f.put(ctx, OpEdit, to, old, 0, []byte(text))
	})
}

// unchanged makes sure that a file is still the one that was read. A moment is left until it is replaced; what a
// program in the sandbox writes to the file in that moment is lost.
func (f *Files) unchanged(ctx context.Context, s spot, was *overlay.Node) error {
	if _, ok := s.view.(*fetched); ok {
		return nil // it would take as long to look again as to write
	}
	n, err := s.view.lstat(ctx, s.rel)
	if err != nil || n.Size != was.Size || !n.ModTime.Equal(was.ModTime) || n.Layer != was.Layer || n.Mode != was.Mode {
		e := refuse(s.name, ReasonChanged, "something in the sandbox changed it while it was edited; nothing was replaced")
		e.Hint = "read it again"
		return e
	}
	return nil
}

// apply does all edits, or returns an error that says which one cannot be done.
func (out *Edited) apply(name, text string, edits []Edit) (string, error) {
	crlf := strings.Contains(text, "\r\n") && strings.Count(text, "\n") == strings.Count(text, "\r\n")
	for i, e := range edits {
		which := ""
		if len(edits) > 1 {
			which = fmt.Sprintf("edit %d of %d: ", i+1, len(edits))
		}
		if crlf {
			e.Old, e.New = toCRLF(e.Old), toCRLF(e.New)
		}
		switch {
		case e.Old == "":
			return "", refuse(name, ReasonRequest, "%sthe text to replace is empty", which)
		case e.Old == e.New:
			return "", refuse(name, ReasonRequest, "%sthe new text is the same as the old one", which)
		}
		at := occurrences(text, e.Old, !e.All)
		switch {
		case len(at) == 0:
			return "", noMatch(name, which, text, e.Old)
		case len(at) > 1 && !e.All:
			err := refuse(name, ReasonAmbiguous, "%sthe text to replace is there %d times, at %s", which, len(at),
				describe(linesOf(text, at)))
			err.Hint = "give more of the text around the one that is meant, or replace all of them"
			return "", err
		}
		out.Lines = append(out.Lines, linesOf(text, at)...)
		out.Replaced += len(at)
		text = strings.ReplaceAll(text, e.Old, e.New)
	}
	return text, nil
}

func toCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// occurrences finds where old is, those that overlap too if asked for: each of them would be a different edit.
func occurrences(text, old string, overlapping bool) []int {
	var out []int
	step := len(old)
	if overlapping {
		step = 1
	}
	for at := 0; ; {
		i := strings.Index(text[at:], old)
		if i < 0 {
			return out
		}
		out = append(out, at+i)
		at += i + step
	}
}

func linesOf(text string, at []int) []int {
	out := make([]int, len(at))
	line, from := 1, 0
	for i, p := range at {
		line += strings.Count(text[from:p], "\n")
		from = p
		out[i] = line
	}
	return out
}

// noMatch explains that old is not there, and where something is that differs in white space only.
func noMatch(name, which, text, old string) error {
	e := refuse(name, ReasonNoMatch, "%sthe text to replace is not there", which)
	e.Hint = "it must be exactly as in the file, white space and line ends included"
	want := squeeze(old)
	if want == "" {
		return e
	}
	lines := strings.SplitAfter(text, "\n")
	n := strings.Count(strings.TrimRight(old, "\n"), "\n") + 1
	for i := range lines {
		if i+n > len(lines) {
			break
		}
		if strings.Contains(squeeze(strings.Join(lines[i:i+n], "")), want) {
			e.Hint = fmt.Sprintf("line %d has it with other white space", i+1)
			break
		}
	}
	return e
}

// squeeze makes texts equal that differ in white space only.
func squeeze(s string) string {
	var b bytes.Buffer
	for w := range strings.FieldsSeq(s) {
		b.WriteString(w)
	}
	return b.String()
}

// ParseEdits reads edits from JSON: one object with old, new and perhaps all, or a list of them.
func ParseEdits(b []byte) ([]Edit, error) {
	bad := func(format string, args ...any) error {
		e := refuse("", ReasonRequest, format, args...)
		e.Hint = `edits are JSON: {"old": "…", "new": "…"}, or a list of such objects`
		return e
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, bad("there are no edits")
	}
	if b[0] != '[' {
		b = append(append([]byte{'['}, b...), ']')
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var raw []struct {
		Old *string `json:"old"`
		New *string `json:"new"`
		All bool    `json:"all"`
	}
	if err := d.Decode(&raw); err != nil {
		return nil, bad("the edits cannot be read: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad("something follows on the edits")
	}
	if len(raw) == 0 {
		return nil, bad("there are no edits")
	}
	out := make([]Edit, len(raw))
	for i, r := range raw {
		if r.Old == nil || r.New == nil {
			return nil, bad("%s needs both old and new", fmt.Sprintf("edit %d of %d", i+1, len(raw)))
		}
		out[i] = Edit{*r.Old, *r.New, r.All}
	}
	return out, nil
}
