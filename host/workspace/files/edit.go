package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hutch-run/hutch/sdk/overlay"
)

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
			err := refuse(name, ReasonAmbiguous, "%sthe text to replace is there %d times, at %s", which, len(at), describe(linesOf(text, at)))
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
