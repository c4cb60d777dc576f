package ui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

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
	sign  string // changes with what the page of one of its sandboxes shows
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
	Uses      string       // processor and memory; "" where that is not known
	Decided   string       // by the network in the last command; "" for nothing
	Forks     bool         // its backend can fork it, and its workspace is private

	state string // changes with all of it
	Sign  string // changes with all of it, and with how long ago things began
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

// maxAge is how long it is known how a sandbox is although nothing changed on disk: its backend may know better.
const maxAge = 10 * time.Second

// lookers is how many sandboxes are looked at at once, and lookTime how long each has to answer.
const (
	lookers  = 8
	lookTime = 15 * time.Second
)

// latest is the newest overview, and how each sandbox was when somebody looked last.
type latest struct {
	mu    sync.Mutex
	sign  string
	view  *overview
	boxes map[string]*seen // by id
	past  []shown          // the newest overviews, oldest first

	decided map[string]decided // by the run's id
}

// maxPast is how many overviews are remembered, so that a page that shows one of them gets only the cards that changed.
const maxPast = 16

// shown is what an overview showed: the sign of each card, by its id.
type shown struct {
	version string
	cards   map[string]string
}

// had are the cards of an overview; nil when that is not known any more.
func (l *latest) had(version string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.past {
		if v.version == version {
			return v.cards
		}
	}
	return nil
}

// card is that of a sandbox; nil without one.
func (v *overview) card(id string) *card {
	for _, c := range v.Cards {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// of is what changes with the page of a sandbox; "" without one.
func (v *overview) of(box string) string {
	for _, p := range v.Projects {
		if slices.ContainsFunc(p.Cards, func(c *card) bool { return c.ID == box }) {
			return p.sign
		}
	}
	return ""
}

// seen is how a sandbox was.
type seen struct {
	busy   chan struct{} // has a value while somebody looks
	record string        // signatures of what it was made from
	layer  string
	when   time.Time
	status *sandbox.Status // nil when nobody looked
	facts  *sdk.Facts      // of its backend; nil where they are not known
	load   load
}

// box is what is known of a sandbox.
func (l *latest) box(id string) *seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.boxes == nil {
		l.boxes = map[string]*seen{}
	}
	if l.boxes[id] == nil {
		l.boxes[id] = &seen{busy: make(chan struct{}, 1)}
	}
	return l.boxes[id]
}

// look finds out how sandboxes are, where something changed since the last look; records says that only a change of
// the record counts. Backends are asked, which may not answer.
func (s *Server) look(ctx context.Context, boxes []store.SandboxInfo, records bool) {
	if slices.ContainsFunc(boxes, func(b store.SandboxInfo) bool { return b.State != store.SandboxReady }) {
		bounded, cancel := context.WithTimeout(ctx, lookTime)
		_ = s.manager.Finish(bounded) // what cannot be removed is shown
		cancel()
	}
	var wg sync.WaitGroup
	turn := make(chan struct{}, lookers)
	for _, b := range boxes {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			s.lookAt(ctx, b, records)
		})
	}
	wg.Wait()
}

func (s *Server) lookAt(ctx context.Context, b store.SandboxInfo, records bool) {
	v := s.latest.box(b.ID)
	select {
	case v.busy <- struct{}{}:
		defer func() { <-v.busy }()
	case <-ctx.Done():
		return
	}
	defer s.measure(v)
	record, layer := s.recordSign(b), v.layer
	if !records {
		layer = layerSign(ctx, b)
	}
	young := maxAge
	if v.status != nil && v.status.Condition == sandbox.StateBusy {
		young = lookEvery / 2
	}
	if v.status != nil && record == v.record && layer == v.layer && (records || time.Since(v.when) < young) {
		return
	}
	bounded, cancel := context.WithTimeoutCause(ctx, lookTime, fmt.Errorf("no answer within %s", lookTime))
	defer cancel()
	st, err := s.manager.Inspect(bounded, b.ID)
	if st == nil || ctx.Err() != nil {
		return // it was removed meanwhile
	}
	if err != nil {
		st.Condition, st.Problem = sandbox.StateUnknown, err.Error()
	}
	facts := v.facts
	if facts == nil && st.Backend != "" {
		facts, _ = s.pool.Facts(bounded, st.Backend)
	}
	s.latest.mu.Lock()
	defer s.latest.mu.Unlock()
	v.record, v.layer, v.when, v.status, v.facts = record, layer, time.Now(), st, facts
}

// measure looks at the processes of a sandbox.
func (s *Server) measure(v *seen) {
	if v.status == nil {
		return
	}
	l := v.load
	l.uses(v.status.Details[sdk.DetailPID])
	s.latest.mu.Lock()
	defer s.latest.mu.Unlock()
	v.load = l
}

// wantedHeader has the version that our script fetches a page for, and hasHeader the one that it shows.
const (
	wantedHeader = "Hutch-Version"
	hasHeader    = "Hutch-Has"
)

// overview is how everything is now, or in the version that a request is for, if that is the newest. While a window is open only what changed in a record is looked at: the rest is
// looked at all the time.
func (s *Server) overview(r *http.Request) *overview {
	ctx, open := r.Context(), s.watch.listening()
	s.latest.mu.Lock()
	view, sign := s.latest.view, s.latest.sign
	s.latest.mu.Unlock()
	if want, _, _ := strings.Cut(r.Header.Get(wantedHeader), "."); open && view != nil && want != "" &&
		(want == view.Version || want == view.of(r.PathValue("id"))) {
		return view
	}
	rec := s.records()
	if open && view != nil && sign == rec.sign {
		return view
	}
	s.look(ctx, rec.boxes, open)
	return s.build(s.records())
}

// build makes an overview of records and of what is known of the sandboxes.
func (s *Server) build(rec records) *overview {
	v := &overview{Problem: rec.problem, Runs: rec.runs}
	sum, overlays := sha256.New(), map[string]int{}
	_, _ = fmt.Fprintln(sum, rec.sign)
	s.latest.mu.Lock()
	defer s.latest.mu.Unlock()
	signs := map[string]string{}
	for i, b := range rec.boxes {
		k, uses := s.latest.boxes[b.ID], ""
		st, layer, facts := sandbox.Status{SandboxInfo: b, Condition: string(b.State), Problem: b.Damage,
			Dir: s.store.Paths().Sandbox(b.ID)}, "", (*sdk.Facts)(nil)
		if k != nil && k.status != nil && b.State == store.SandboxReady {
			st, layer, facts = *k.status, k.layer, k.facts
			st.SandboxInfo = b
			uses = k.load.text
		}
		c := newCard(st, facts, v.Runs)
		c.Uses, c.Decided = uses, s.decisions(c)
		if at := slices.IndexFunc(rec.boxes, func(o store.SandboxInfo) bool { return o.ID == c.Parent }); at >= 0 {
			c.ForkOf = nameOf(rec.boxes[at])
		}
		c.state = digest([]any{rec.marks[i], layer, c.Condition, c.Problem, c.Notes, c.Changed(), c.Details, c.Uses,
			c.Decided, c.Isolation, c.ForkOf, c.Running, c.Last})
		c.Sign = digest(append(c.ages(), c.state))
		signs[c.ID] = c.Sign
		_, _ = fmt.Fprintln(sum, c.state)
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
	for id := range s.latest.boxes { // removed
		if !slices.ContainsFunc(rec.boxes, func(b store.SandboxInfo) bool { return b.ID == id }) {
			delete(s.latest.boxes, id)
		}
	}
	for id := range s.latest.decided { // not shown any more
		if !slices.ContainsFunc(v.Runs, func(i store.Info) bool { return i.ID == id }) {
			delete(s.latest.decided, id)
		}
	}
	v.Version = hex.EncodeToString(sum.Sum(nil)[:8])
	_, works := s.works.now()
	for i, p := range v.Projects {
		all := []any{rec.problem, works, v.Overlays, len(v.Cards)}
		for _, c := range p.Cards {
			all = append(all, c.state)
		}
		v.Projects[i].sign = digest(all)
	}
	s.latest.past = append(s.latest.past, shown{v.Version, signs})
	s.latest.past = s.latest.past[max(0, len(s.latest.past)-maxPast):]
	s.latest.sign, s.latest.view = rec.sign, v
	return v
}

// ages says how long ago things of the card began, as it shows them.
func (c *card) ages() (list []any) {
	times := []time.Time{c.Created}
	if c.Started != nil {
		times = append(times, *c.Started)
	}
	if c.Last != nil {
		times = append(times, c.Last.Started)
	}
	for _, r := range c.Running {
		times = append(times, r.Started)
	}
	for _, t := range times {
		list = append(list, humanize.Time(t))
	}
	return list
}

func newCard(st sandbox.Status, f *sdk.Facts, runs []store.Info) *card {
	c := &card{Status: st, Overlay: overlayOf(&st)}
	if f != nil {
		c.Forks = f.Has(sdk.CapFork) && st.Workspace.Mode == string(sdk.WorkspacePrivate)
		c.Isolation, c.Resets, c.Stops = string(f.Isolation), f.Has(sdk.CapReset), f.Has(sdk.CapStop)
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
