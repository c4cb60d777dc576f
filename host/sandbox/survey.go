package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// The states of a sandbox beyond those that backends tell.
const (
	StateReady   = string(sdk.StateReady)
	StateStopped = string(sdk.StateStopped)
	StateAsleep  = string(sdk.StateAsleep)
	StateGone    = string(sdk.StateGone)
	StateBusy    = "busy"    // somebody resets, applies or removes it
	StateUnknown = "unknown" // its backend does not say
)

// surveyTime is how long all sandboxes together have to answer when they are listed.
const surveyTime = 15 * time.Second

// surveyors is how many sandboxes are asked about at once.
const surveyors = 8

// Status is how one sandbox is.
type Status struct {
	store.SandboxInfo
	// Condition is one of the States here, or creating, removing, damaged from its record.
	Condition string            `json:"condition"`
	Details   map[string]string `json:"details,omitempty"` // what the backend says about it, for a person
	Notes     []string          `json:"notes,omitempty"`   // what a careful user should know of it, one sentence each
	Problem   string            `json:"problem,omitempty"` // why it could not be attached to, or asked
	Changes   *ChangeCount      `json:"changes,omitempty"` // nil when nobody can tell, or nobody asked
	// ToPull says that a bundle of commits lies where this host can see it, and waits for hutch pull. False also where
	// only the backend could tell.
	ToPull bool `json:"to_pull,omitempty"`

	Base     string `json:"base,omitempty"` // file that says what the project looked like
	Dir      string `json:"dir"`            // of the record
	StateDir string `json:"state_dir"`      // of the backend's own files
}

// Changed says in a few words what differs, and what waits for a pull; "" when nobody can tell.
func (st *Status) Changed() string {
	var parts []string
	if c := st.Changes; c != nil && c.Entries > 0 {
		parts = append(parts, fmt.Sprintf("%d, %s", c.Entries, humanize.IBytes(uint64(max(c.Bytes, 0)))))
	}
	if c := st.Changes; c != nil && c.Commits {
		parts = append(parts, "commits")
	}
	if st.ToPull {
		parts = append(parts, "1 bundle to pull")
	}
	if len(parts) == 0 && st.Changes != nil {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// ChangeCount sums up what differs between a workspace and its source.
type ChangeCount struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"` // of the files that were added or changed
	// Commits says that branches or tags of the repository, which is no part of these, differ from those of the source.
	Commits bool `json:"commits,omitempty"`

	files []string // that were added, changed or deleted
}

// Overlap is files of one project that several sandboxes changed.
type Overlap struct {
	Sandboxes []string
	Paths     []string // sorted
}

// Overlaps finds the files that sandboxes of the same project changed. Forks of one sandbox count as one with it.
func Overlaps(list []Status) []Overlap {
	type place struct{ project, path string }
	by := map[place][]string{}
	type part struct {
		place
		family string
	}
	seen := map[part]bool{}
	for _, st := range list {
		if st.Changes == nil || st.Workspace.Source == "" {
			continue
		}
		for _, path := range st.Changes.files {
			p := place{st.Workspace.Source, path}
			if of := (part{p, cmp.Or(st.Parent, st.ID)}); !seen[of] {
				seen[of], by[p] = true, append(by[p], st.Name)
			}
		}
	}
	paths := map[string][]string{}
	for p, names := range by {
		if len(names) > 1 {
			key := strings.Join(names, "\x00")
			paths[key] = append(paths[key], p.path)
		}
	}
	var out []Overlap
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		slices.Sort(paths[key])
		out = append(out, Overlap{strings.Split(key, "\x00"), paths[key]})
	}
	return out
}

// Inspect says how the sandbox that ref means is. What cannot be found out is in the status; the error is that there is
// no such sandbox, or the end of ctx.
func (m *Manager) Inspect(ctx context.Context, ref string) (*Status, error) {
	info, err := m.store.FindSandbox(ref)
	if err != nil {
		return nil, err
	}
	st := m.look(ctx, info, true)
	return &st, context.Cause(ctx)
}

// Survey says how all sandboxes are, oldest first, with what changed in their workspaces when changes is set. It asks
// about several at once. Those that have not answered after 15 seconds are unknown. Sandboxes that are to be removed
// are removed first, for as long at most.
func (m *Manager) Survey(ctx context.Context, changes bool) ([]Status, error) {
	finish, over := context.WithTimeout(ctx, m.surveyTime)
	_ = m.Finish(finish) // what cannot be removed is listed
	over()
	list, err := m.store.Sandboxes()
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, m.surveyTime, fmt.Errorf("no answer within %s", m.surveyTime))
	defer cancel()
	out := make([]Status, len(list))
	var wg sync.WaitGroup
	turn := make(chan struct{}, surveyors)
	for i, info := range list {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			out[i] = m.look(bounded, info, changes)
		})
	}
	wg.Wait()
	return out, context.Cause(ctx)
}

// OutputBundle is the file of an exchange with the commits that a sandbox hands in, and ExchangeDir the directory of
// the workspace that is the exchange where the backend offers none.
const (
	OutputBundle = "output.bundle"
	ExchangeDir  = "exchange"
)

// bundleIn reports whether an output bundle lies on this host. It may be hostile: nobody reads it here.
func bundleIn(r sdk.Ready) bool {
	var dirs []string
	name := OutputBundle
	switch {
	case r.Exchange != nil:
		dirs = []string{r.Exchange.Host}
	case r.Layers != nil:
		dirs, name = r.Layers.Written(), ExchangeDir+"/"+OutputBundle
	}
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return false
		}
		fi, err := root.Lstat(name)
		root.Close()
		if err == nil {
			return fi.Mode().IsRegular()
		}
	}
	return false
}

// look asks the backend of one sandbox.
func (m *Manager) look(ctx context.Context, info store.SandboxInfo, changes bool) Status {
	p := m.store.Paths()
	st := Status{SandboxInfo: info, Condition: string(info.State), Dir: p.Sandbox(info.ID),
		StateDir: p.SandboxState(info.ID)}
	if info.State != store.SandboxReady {
		st.Problem = info.Damage
		return st
	}
	if err := context.Cause(ctx); err != nil {
		st.Condition, st.Problem = StateUnknown, err.Error()
		return st
	}
	s, err := m.attachWithin(ctx, info.ID, Shared, 0) // who looks waits for nobody
	if errors.Is(err, store.ErrInUse) {
		st.Condition = StateBusy
		return st
	}
	var gone *GoneError
	if err != nil {
		st.Condition, st.Problem = StateUnknown, err.Error()
		if errors.As(err, &gone) || errors.Is(err, store.ErrNoSandbox) {
			st.Condition = StateGone
		}
		return st
	}
	defer s.Close()
	ready := s.Ready()
	st.Notes, st.Base = ready.Notes, s.Base
	st.ToPull = info.Push != nil && bundleIn(ready)
	status, err := s.status(ctx)
	if err != nil {
		st.Condition, st.Problem = StateUnknown, err.Error()
		return st
	}
	st.Condition, st.Details = string(status.State), status.Details
	// else looking would wake it
	seen := status.State == sdk.StateReady || ready.Layers != nil &&
		(status.State == sdk.StateAsleep || status.State == sdk.StateStopped)
	if changes && seen && s.backend.Facts.Has(sdk.CapChanges) && info.Workspace.Mode == string(sdk.WorkspacePrivate) {
		list, err := s.Changes(ctx)
		if err != nil {
			st.Problem = err.Error()
			return st
		}
		st.Changes = &ChangeCount{}
		for _, c := range list {
			if info.Workspace.Omits(c.Path) {
				st.Changes.Commits = st.Changes.Commits || c.Path == ".git/packed-refs" ||
					strings.HasPrefix(c.Path, ".git/refs/") && !c.NewMode.IsDir()
				continue
			}
			st.Changes.Entries++
			st.Changes.Bytes += c.Size
			if !c.NewMode.IsDir() && !c.OldMode.IsDir() {
				st.Changes.files = append(st.Changes.files, c.Path)
			}
		}
	}
	return st
}
