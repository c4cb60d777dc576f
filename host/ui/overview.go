package ui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// overview is what is known of all sandboxes and the newest runs. It is not changed once it is made.
type overview struct {
	Version  string // changes with what a page would show
	Projects []project
	Cards    []*card // of all projects
	Runs     []store.Info
	Problem  string
	Overlays []string // in use, with how many sandboxes use each
}

// project is a directory with the sandboxes that were made on it.
type project struct {
	Name  string // of a shared project; "" for any other directory
	Dir   string // "" for sandboxes without one
	Cards []*card
}

// Title names it in a word or two.
func (p project) Title() string {
	switch {
	case p.Name != "":
		return p.Name
	case p.Dir != "":
		return filepath.Base(p.Dir)
	}
	return "No project"
}

// card is one sandbox.
type card struct {
	sandbox.Status
	Isolation string
	Overlay   string       // how its writes are kept apart
	Running   []store.Info // commands that run in it
	Last      *store.Info  // the command that ended last; nil for none
	Resets    bool         // its backend can reset it
	Stops     bool         // its backend can stop and start it
	ForkOf    string       // name of the sandbox that it is a fork of; "" for none, or for one that was removed
	Forks     bool         // its backend can fork it, and its workspace is private
}

// Ready reports whether commands can run in it at once or after it woke up.
func (c *card) Ready() bool {
	return c.Condition == sandbox.StateReady || c.Condition == sandbox.StateAsleep || c.Condition == sandbox.StateBusy
}

// Reviewable reports whether it has changes of its own to be reviewed.
func (c *card) Reviewable() bool {
	return c.Workspace.Source != "" && c.Workspace.Mode == string(sdk.WorkspacePrivate)
}

// Self is the card, for a page that embeds it.
func (c *card) Self() *card { return c }

// Title names it: by its name, unless its record is damaged.
func (c *card) Title() string {
	if c.Name != "" {
		return c.Name
	}
	return c.ID
}

// maxAge is how long an overview is good although nothing changed on disk: a backend may know better.
const maxAge = 10 * time.Second

// latest is the newest overview.
type latest struct {
	looking sync.Mutex // held by who makes a new one
	mu      sync.Mutex // guards the rest
	sign    string
	when    time.Time
	view    *overview
}

// of is the overview that was made when the store was like that, unless it is too old.
func (l *latest) of(sign string, tooOld time.Duration) *overview {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view == nil || l.sign != sign || time.Since(l.when) > tooOld {
		return nil
	}
	return l.view
}

// overview looks at everything, or returns the last one when nothing has changed since. A page does not wait for what
// the watch is about to find out from backends, one of which may not answer.
func (s *Server) overview(ctx context.Context, watching bool) *overview {
	tooOld := maxAge
	if !watching && s.watch.listening() {
		tooOld = time.Hour
	}
	sign := signature(ctx, s.store)
	if v := s.latest.of(sign, tooOld); v != nil {
		return v
	}
	s.latest.looking.Lock()
	defer s.latest.looking.Unlock()
	sign = signature(ctx, s.store)
	if v := s.latest.of(sign, tooOld); v != nil {
		return v
	}
	v := s.survey(ctx)
	if ctx.Err() == nil {
		sum := sha256.New()
		_, _ = fmt.Fprintln(sum, sign, v.Problem)
		for _, c := range v.Cards {
			_, _ = fmt.Fprintln(sum, c.Condition, c.Problem, c.Notes, c.Changed())
		}
		v.Version = hex.EncodeToString(sum.Sum(nil)[:8])
		s.latest.mu.Lock()
		s.latest.sign, s.latest.when, s.latest.view = sign, time.Now(), v
		s.latest.mu.Unlock()
	}
	return v
}

func (s *Server) survey(ctx context.Context) *overview {
	v := &overview{}
	list, err := s.manager.Survey(ctx, true)
	if err != nil {
		v.Problem = err.Error()
	}
	if v.Runs, err = s.store.List(store.Filter{Limit: maxRuns}); err != nil {
		v.Problem = strings.TrimPrefix(v.Problem+"; "+err.Error(), "; ")
	}
	overlays := map[string]int{}
	for i := range list {
		c := s.card(ctx, list[i], v.Runs)
		if at := slices.IndexFunc(list, func(st sandbox.Status) bool { return st.ID == c.Parent }); at >= 0 {
			c.ForkOf = nameOf(list[at].SandboxInfo)
		}
		v.Cards = append(v.Cards, c)
		overlays[c.Overlay]++
		at := slices.IndexFunc(v.Projects, func(p project) bool { return p.Name == c.Project && p.Dir == c.Workspace.Source })
		if at < 0 {
			at = len(v.Projects)
			v.Projects = append(v.Projects, project{Name: c.Project, Dir: c.Workspace.Source})
		}
		v.Projects[at].Cards = append(v.Projects[at].Cards, c)
	}
	for name, n := range overlays {
		v.Overlays = append(v.Overlays, fmt.Sprintf("%s × %d", name, n))
	}
	slices.Sort(v.Overlays)
	return v
}

func (s *Server) card(ctx context.Context, st sandbox.Status, runs []store.Info) *card {
	c := &card{Status: st, Overlay: overlayOf(&st)}
	if st.Backend != "" {
		if f, err := s.pool.Facts(ctx, st.Backend); err == nil {
			c.Forks = f.Has(sdk.CapFork) && st.Workspace.Mode == string(sdk.WorkspacePrivate)
			c.Isolation, c.Resets, c.Stops = string(f.Isolation), f.Has(sdk.CapReset), f.Has(sdk.CapStop)
		}
	}
	for i, r := range runs { // newest first
		switch {
		case r.Sandbox == "" || r.Sandbox != st.Name || r.Started.Before(st.Created):
		case r.State == store.StateRunning:
			c.Running = append(c.Running, r)
		case c.Last == nil:
			c.Last = &runs[i]
		}
	}
	return c
}

// overlayOf says in a few words how the workspace keeps writes apart from the project.
func overlayOf(st *sandbox.Status) string {
	w, own := st.Workspace, st.Details["overlay"]
	switch {
	case w.Source == "":
		return "no project"
	case w.Mode == string(sdk.WorkspaceShared):
		return "shared, no overlay"
	case w.Mode == string(sdk.WorkspaceReadOnly):
		return "read-only"
	case own != "":
		return "overlay: " + own
	case w.Layers != nil:
		return "overlay"
	}
	return "copy"
}
