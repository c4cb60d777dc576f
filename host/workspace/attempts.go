package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// Attempts compares what sandboxes made of one project.
type Attempts struct {
	Schema   string    `json:"schema"` // hutch.attempts/v1
	Project  string    `json:"project"`
	Attempts []Attempt `json:"attempts"`
	// Agreed are the paths that all changed in the same way, and Differing the others that any changed; sorted.
	Agreed    []string        `json:"agreed"`
	Differing []DifferingPath `json:"differing"`
}

// Attempt is one of the sandboxes.
type Attempt struct {
	Sandbox string         `json:"sandbox"`
	Run     *result.Result `json:"-"`               // nil where the sandbox has no record of an attempt, or it was removed
	Check   *result.Result `json:"-"`               // nil where nothing judged it
	RunID   string         `json:"run,omitempty"`   // of Run
	CheckID string         `json:"check,omitempty"` // of Check
	Cause   string         `json:"cause,omitempty"`
	OK      bool           `json:"ok"` // it ended well, and passed the check if there is one
	Passed  *bool          `json:"passed,omitempty"`
	Wall    result.Seconds `json:"wall_seconds"`
	Files   int            `json:"files"`   // changed paths, without directories that have others in them
	Added   int            `json:"added"`   // lines
	Removed int            `json:"removed"` // lines
	Gaps    string         `json:"gaps,omitempty"`
}

// DifferingPath is a path of which there are several versions.
type DifferingPath struct {
	Path string `json:"path"`
	// Versions has a letter for each attempt, in order: the same letter means the same version, and "-" no change.
	Versions []string `json:"versions"`
}

// AttemptsSchema is the schema of [Attempts].
const AttemptsSchema = "hutch.attempts/v1"

// CompareAttempts compares the sandboxes that boxes are the records of.
func CompareAttempts(ctx context.Context, m *sandbox.Manager, st *store.Store, boxes []store.SandboxInfo) (*Attempts,
	error) {
	out := &Attempts{Schema: AttemptsSchema, Project: boxes[0].Workspace.Source, Agreed: []string{},
		Differing: []DifferingPath{}}
	versions := map[string][]string{}
	for i, box := range boxes {
		if box.Workspace.Source != out.Project {
			return nil, fmt.Errorf("%s and %s are not of the same project", boxes[0].Name, box.Name)
		}
		a := Attempt{Sandbox: box.Name}
		if at := box.Attempt; at != nil {
			a.RunID, a.CheckID = at.Run, at.Check
			a.Run, a.Check = resultOf(st, at.Run), resultOf(st, at.Check)
		}
		if r := a.Run; r != nil {
			a.Cause, a.OK, a.Wall = string(r.Cause), r.OK, r.Usage.Wall
		}
		if c := a.Check; c != nil {
			a.Passed, a.OK = &c.OK, a.OK && c.OK
		}
		err := a.look(ctx, m, st, box, func(path, version string) {
			if versions[path] == nil {
				versions[path] = make([]string, len(boxes))
			}
			versions[path][i] = version
		})
		if err != nil {
			return nil, err
		}
		out.Attempts = append(out.Attempts, a)
	}
	for path, list := range versions {
		path = strings.ToValidUTF8(path, "\uFFFD")
		if !slices.ContainsFunc(list, func(v string) bool { return v != list[0] }) {
			out.Agreed = append(out.Agreed, path)
			continue
		}
		out.Differing = append(out.Differing, DifferingPath{path, letters(list)})
	}
	slices.Sort(out.Agreed)
	slices.SortFunc(out.Differing, func(a, b DifferingPath) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// look fills in what an attempt changed, and calls each with every path and what makes a version of it.
func (a *Attempt) look(ctx context.Context, m *sandbox.Manager, st *store.Store, box store.SandboxInfo,
	each func(path, version string)) error {
	v, err := OpenReview(ctx, m, box.ID, sandbox.Shared, review.Options{Keep: Ledger(st).Dir(), Unjudged: true})
	if err != nil {
		return err
	}
	defer v.Close()
	doc, err := v.Document(ctx)
	if err != nil {
		return err
	}
	a.Added, a.Removed, a.Gaps = doc.Added, doc.Removed, doc.Gaps
	for _, c := range review.Shown(v.Changes) {
		a.Files++
		n := c.New
		each(c.Path, fmt.Sprint(c.From, "\x00", n.Type, n.Mode, n.Link, "\x00", n.SHA256))
	}
	return nil
}

// resultOf is the result of a run; nil where its record is gone.
func resultOf(st *store.Store, id string) *result.Result {
	rec, err := st.Load(id)
	if err != nil {
		return nil
	}
	raw, err := rec.Result()
	if err != nil {
		return nil
	}
	r, err := result.Decode(raw)
	if err != nil {
		return nil
	}
	return r
}

// letters gives equal versions equal letters.
func letters(versions []string) []string {
	seen := []string{}
	out := make([]string, len(versions))
	for i, v := range versions {
		if v == "" {
			out[i] = "-"
			continue
		}
		n := slices.Index(seen, v)
		if n < 0 {
			n, seen = len(seen), append(seen, v)
		}
		if out[i] = fmt.Sprint(n + 1); n < 26 {
			out[i] = string(rune('A' + n))
		}
	}
	return out
}
