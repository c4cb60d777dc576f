package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
)

const (
	defaultPatch   = 64 << 10 // bytes of a patch in one answer
	maxPatch       = 512 << 10
	defaultChanges = 200
	maxChanges     = 2000
)

// reviewTools are the tools that show and bring back what a sandbox changed.
func (s *Server) reviewTools() {
	tool(s, tools.Def{Name: "diff", Title: "Show what changed",
		Description: "Shows what differs between a sandbox's workspace and the project that it was made on: a list of " +
			"changes and a patch, each with a page of its own.", Effect: tools.Reads}, s.diff)
	if s.o.Ledger != nil {
		tool(s, tools.Def{Name: "apply", Title: "Bring changes back",
			Description: "Brings what changed in a sandbox back to its project on the host: all of it, or what is at and " +
				"below \"paths\"; everything or nothing. " +
				"What the project's side changed as well is a conflict and never overwritten; \"merge\" joins texts that were " +
				"changed in different places. The user can take it back.", Effect: tools.Destroys}, s.apply)
	}
}

type diffIn struct {
	Sandbox      string   `json:"sandbox" jsonschema:"name of the sandbox"`
	Paths        []string `json:"paths,omitempty" jsonschema:"only what changed at and below these"`
	Merge        bool     `json:"merge,omitempty" jsonschema:"show texts that both sides changed in different places as apply with \"merge\" would join them"`
	NoPatch      bool     `json:"no_patch,omitempty" jsonschema:"only the list of changes"`
	Offset       int64    `json:"offset,omitempty" jsonschema:"bytes of the patch to pass over, for the next page"`
	MaxBytes     int      `json:"max_bytes,omitempty" jsonschema:"bytes of the patch in the answer; default 65536, at most 524288"`
	ChangeOffset int      `json:"change_offset,omitempty" jsonschema:"changes to pass over in the list"`
	ChangeLimit  int      `json:"change_limit,omitempty" jsonschema:"changes in the list; default 200, at most 2000"`
}

type diffOut struct {
	Project    string        `json:"project"`
	Changes    []review.Item `json:"changes"`
	Total      int           `json:"total" jsonschema:"number of all changes"`
	NextChange int           `json:"next_change,omitempty" jsonschema:"change_offset of the next page; missing at the end"`
	Patch      string        `json:"patch" jsonschema:"unified diff"`
	Next       int64         `json:"next,omitempty" jsonschema:"offset of the next page of the patch; missing at the end"`
	Gaps       string        `json:"gaps,omitempty" jsonschema:"why there may be more changes than these"`
}

func (s *Server) diff(ctx context.Context, in diffIn) (out diffOut, err error) {
	out.Changes = []review.Item{}
	most := min(cmp.Or(in.MaxBytes, defaultPatch), maxPatch)
	limit := min(cmp.Or(in.ChangeLimit, defaultChanges), maxChanges)
	if most < 0 || limit < 0 || in.Offset < 0 || in.ChangeOffset < 0 {
		return out, errors.New("offsets and limits must not be negative")
	}
	if err := s.may(in.Sandbox); err != nil {
		return out, err
	}
	r, err := workspace.OpenReview(ctx, s.o.Manager, in.Sandbox, sandbox.Shared,
		review.Options{Paths: in.Paths, Merge: in.Merge})
	if err != nil {
		return out, tools.Explain(err)
	}
	defer func() { _ = r.Close() }()
	out.Project, out.Total = r.Subject.Project, len(r.Changes)
	if r.Gaps != nil {
		out.Gaps = r.Gaps.Error()
	}
	for _, c := range r.Changes[min(in.ChangeOffset, len(r.Changes)):min(in.ChangeOffset+limit, len(r.Changes))] {
		out.Changes = append(out.Changes, c.Item(s.o.Allowed))
	}
	if in.ChangeOffset+limit < len(r.Changes) {
		out.NextChange = in.ChangeOffset + limit
	}
	if in.NoPatch {
		return out, nil
	}
	w := &window{from: in.Offset, most: most}
	if err := r.Unified(ctx, w, review.Style{}); err != nil && !errors.Is(err, errFull) {
		return out, err
	}
	out.Patch = strings.ToValidUTF8(string(w.b), "\uFFFD")
	if w.more {
		out.Next = in.Offset + int64(len(w.b))
	}
	return out, nil
}

// window keeps a piece of what is written to it, whole lines where it can, and ends the rest.
type window struct {
	from, at int64
	most     int
	b        []byte
	more     bool
}

var errFull = errors.New("the page is full")

// Write implements io.Writer.
func (w *window) Write(p []byte) (int, error) {
	n := len(p)
	if skip := min(w.from-w.at, int64(n)); skip > 0 {
		p = p[skip:]
	}
	w.at += int64(n)
	room := w.most - len(w.b)
	if len(p) <= room {
		w.b = append(w.b, p...)
		return n, nil
	}
	w.b = append(w.b, p[:room]...)
	if i := strings.LastIndexByte(string(w.b), '\n'); i > 0 {
		w.b = w.b[:i+1]
	}
	w.more = true
	return 0, errFull
}

type applyIn struct {
	Sandbox string   `json:"sandbox" jsonschema:"name of the sandbox"`
	Paths   []string `json:"paths,omitempty" jsonschema:"only what changed at and below these"`
	Merge   bool     `json:"merge,omitempty" jsonschema:"join texts that both sides changed in different places, as git merge does; that needs the file as it was when the sandbox was made, in the project's git repository"`
	DryRun  bool     `json:"dry_run,omitempty" jsonschema:"say what would be done, and do nothing"`
}

type applyOut struct {
	Project string        `json:"project"`
	Applied []review.Item `json:"applied"`
	DryRun  bool          `json:"dry_run,omitempty"`
	Undo    string        `json:"undo,omitempty" jsonschema:"command with which the user takes it back"`
	Notes   []string      `json:"notes,omitempty" jsonschema:"what the user should know about this apply"`
}

func (s *Server) apply(ctx context.Context, in applyIn) (out applyOut, err error) {
	out.Applied, out.DryRun = []review.Item{}, in.DryRun
	if err := s.may(in.Sandbox); err != nil {
		return out, err
	}
	if slices.ContainsFunc(s.jobs.Of(in.Sandbox), func(j tools.JobOut) bool { return j.Running }) {
		return out, fmt.Errorf("commands run in sandbox %s; wait for them, or end them with stop_job", in.Sandbox)
	}
	r, err := workspace.OpenReview(ctx, s.o.Manager, in.Sandbox, sandbox.Exclusive,
		review.Options{Paths: in.Paths, Merge: in.Merge, Keep: s.o.Ledger.Dir()})
	if err != nil {
		return out, tools.Explain(err)
	}
	defer func() { _ = r.Close() }()
	out.Project = r.Subject.Project
	done, err := r.Apply(ctx, s.o.Ledger, r.All(), review.Policy{Allow: s.o.Allowed}, in.DryRun)
	if err != nil {
		return out, s.blocked(err, in.Merge)
	}
	for _, p := range done.Taken {
		out.Applied = append(out.Applied, p.Change.Item(s.o.Allowed))
	}
	out.Undo, out.Notes = done.Undo, done.Notes
	return out, nil
}

// blocked says what stands against an apply.
func (s *Server) blocked(err error, merge bool) error {
	var b *review.BlockedError
	if !errors.As(err, &b) {
		return err
	}
	const most = 20
	var lines []string
	for _, c := range slices.Concat(b.Conflicts, b.Refused) {
		lines = append(lines, c.Reasons(s.o.Allowed)...)
	}
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more", more))
	}
	hint := `"paths" leaves them out`
	if len(b.Conflicts) > 0 && !merge {
		hint += `, "merge" joins texts that were changed in different places`
	}
	return fmt.Errorf("%w; %s\n%s", err, hint, strings.Join(lines, "\n"))
}
