// Package pull brings back what was committed in a sandbox: in the clone of package push, or in a private workspace
// over a repository.
//
// It waits for the output bundle, checks it on a private copy (package bundle), keeps the commits as refs/hutch/NAME in
// the user's repository, and moves the branch by a fast-forward only. Each step that cannot be done says what is kept
// where, and nothing is forced.
package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/git/bundle"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/push"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/workspace/review"
)

// EventPull is in a sandbox's chain: its commits were fetched.
const EventPull store.EventType = "pull"

// Options say how to pull.
type Options struct {
	Wait  Wait
	Caps  bundle.Caps
	Allow map[judge.Rule]bool
}

// Pulled says what came.
type Pulled struct {
	Sandbox    string      `json:"sandbox"`
	Repository string      `json:"repository"`
	Branch     string      `json:"branch"`
	Ref        string      `json:"ref"` // where the commits are kept
	From       string      `json:"from"`
	To         string      `json:"to"`
	Summary    git.Summary `json:"summary"` // of what the branch was moved by
	// Uncommitted is how many paths in the sandbox are in no commit; -1 where nobody looked.
	Uncommitted int `json:"uncommitted"`
	// Marks are what a reviewer should know of what came, a line each.
	Marks []string `json:"marks,omitempty"`
	// Left says why the exchange could not be removed afterwards; "" when it was.
	Left string `json:"left,omitempty"`
}

// puller is one pull.
type puller struct {
	m    *sandbox.Manager
	st   *store.Store
	o    Options
	info store.SandboxInfo
	push *store.SandboxPush
	repo *git.Repo
	sb   *sandbox.Sandbox
	x    *push.Exchange
	out  Pulled
}

// Pull brings the commits of the sandbox that ref means to the branch they were made for. What stands against it is an
// [*push.Refusal].
func Pull(ctx context.Context, m *sandbox.Manager, st *store.Store, ref string, o Options) (*Pulled, error) {
	info, err := st.FindSandbox(ref)
	if err != nil {
		return nil, err
	}
	if info.Push == nil {
		return pullWorkspace(ctx, m, ref, o)
	}
	p := &puller{m: m, st: st, o: o, info: info, push: info.Push}
	p.out = Pulled{Sandbox: info.Name, Repository: info.Push.Repository, Branch: info.Push.Branch,
		Ref: push.Ref(info.Name), Uncommitted: -1}
	if p.repo, err = openRepo(ctx, info); err != nil {
		return nil, err
	}
	if p.sb, err = m.OpenAsleep(ctx, info.ID, sandbox.Shared); err != nil {
		return nil, err
	}
	defer func() { _ = p.sb.Close() }()
	p.x = push.ExchangeOf(p.sb.Sandbox)
	if !p.x.OnHost() {
		if err := p.sb.Rouse(ctx); err != nil {
			return nil, err
		}
	}
	f, err := p.await(ctx)
	if errors.Is(err, errPulled) {
		return &p.out, p.advance(ctx)
	}
	if err != nil {
		return nil, err
	}
	return p.bring(ctx, f)
}

// bring moves the branch by the commits of a bundle, which is removed.
func (p *puller) bring(ctx context.Context, f *os.File) (*Pulled, error) {
	defer func() { _ = os.Remove(f.Name()); _ = f.Close() }()
	if err := p.take(ctx, f); err != nil {
		return nil, err
	}
	if err := p.advance(ctx); err != nil {
		return nil, err
	}
	if p.x != nil {
		if err := p.x.Remove(ctx); err != nil {
			p.out.Left = err.Error()
		}
	}
	return &p.out, p.sb.Changed(EventPull, map[string]any{"repository": p.out.Repository, "branch": p.out.Branch,
		"from": p.out.From, "to": p.out.To})
}

// openRepo opens the repository that the branch came from.
func openRepo(ctx context.Context, info store.SandboxInfo) (*git.Repo, error) {
	r, err := git.Open(ctx, info.Push.Repository)
	if errors.Is(err, git.ErrNoRepository) || err == nil && r.Dir != info.Push.Repository {
		return nil, &push.Refusal{Summary: fmt.Sprintf("the repository %s, whose branch was pushed, is not there any more",
			info.Push.Repository), Hints: []string{
			fmt.Sprintf("hutch cp %s:%s . copies the clone out of the sandbox", info.Name, info.Push.Clone)}, Err: err}
	}
	return r, err
}

// take checks the bundle, and keeps its commits as a ref.
func (p *puller) take(ctx context.Context, f *os.File) error {
	c, err := bundle.Check(ctx, p.repo, f, bundle.Wanted{Base: p.push.Base,
		Refs: []string{"HEAD", "refs/heads/" + p.push.Branch}, Caps: p.o.Caps})
	if err != nil {
		return p.refused(err)
	}
	defer c.Close()
	if err := c.Take(ctx, p.repo, p.out.Ref); err != nil {
		return fmt.Errorf("fetch the commits from a private copy: %w", err)
	}
	p.out.To, p.out.Marks = c.Commit, c.Marks
	err = judge.RefuseFound(c.Findings, p.o.Allow)
	var bad *judge.RefusedError
	if !errors.As(err, &bad) {
		return err
	}
	return p.kept(fmt.Errorf("the commits are not taken over: %w", err),
		fmt.Sprintf("hutch diff %s shows them; hutch pull %s %s takes them", p.info.Name, strings.Join(bad.Flags, " "),
			p.info.Name))
}

// refused says what can be done with a bundle that is refused. It stays where it is.
func (p *puller) refused(err error) error {
	var bad *bundle.RefusedError
	if !errors.As(err, &bad) {
		return err
	}
	if p.x == nil {
		return p.refusedWorkspace(err)
	}
	e := &push.Refusal{Summary: err.Error(), Err: err}
	where := fmt.Sprintf("nothing in %s changed, and the bundle stays at %s in the sandbox %s", p.push.Repository,
		p.x.Bundle(), p.info.Name)
	again := fmt.Sprintf("hutch exec %s -- rm %s and hutch pull %s recreate it from what is committed there", p.info.Name,
		p.x.Bundle(), p.info.Name)
	switch {
	case errors.Is(err, bundle.ErrNothingNew):
		e.Summary = fmt.Sprintf("the bundle of %s holds no new commit", p.info.Name)
	case errors.Is(err, bundle.ErrRewritten):
		again = fmt.Sprintf("in the sandbox, its commits have to be put on top of %.12s (git rebase --onto); then %s",
			p.push.Base, again)
	}
	e.Hints = []string{where, again}
	if errors.Is(err, bundle.ErrLargeFile) {
		e.Hints = append(e.Hints, "hutch pull --max-file SIZE "+p.info.Name+" takes larger files")
	}
	return e
}

// kept is an error after the commits are in the repository.
func (p *puller) kept(err error, hints ...string) error {
	return &push.Refusal{Summary: err.Error(), Err: err,
		Hints: append([]string{fmt.Sprintf("the commits are kept as %s in %s, and in the sandbox; nothing else changed",
			p.out.Ref, p.push.Repository)}, hints...)}
}

// advance moves the branch, if that is the one that is checked out and only forward.
func (p *puller) advance(ctx context.Context) error {
	again := "hutch pull " + p.info.Name
	branch, head, err := p.repo.Branch(ctx)
	switch {
	case errors.Is(err, git.ErrDetached) || err == nil && branch != p.push.Branch:
		have := "no branch is"
		if branch != "" {
			have = "the branch " + branch + " is"
		}
		return p.kept(fmt.Errorf("%s checked out in %s, and the commits are for the branch %s", have, p.push.Repository,
			p.push.Branch),
			fmt.Sprintf("git switch %s, and then %s", p.push.Branch, again))
	case err != nil:
		return err
	}
	p.out.From = head
	if there, err := p.repo.Ancestor(ctx, p.out.To, head); err != nil {
		return err
	} else if there { // somebody merged them by hand
		return nil
	}
	forward, err := p.repo.Ancestor(ctx, head, p.out.To)
	if err != nil {
		return err
	}
	if !forward {
		return p.kept(fmt.Errorf("the branch %s has commits that the sandbox does not know: it cannot be moved forward only",
			branch),
			fmt.Sprintf("git merge %s, or git rebase onto it; then %s ends the pull", p.out.Ref, again))
	}
	if err := p.unfiltered(ctx, head); err != nil {
		return err
	}
	if err := p.move(ctx, branch, head); err != nil {
		return err
	}
	p.out.Summary, err = p.repo.Summarize(ctx, head, p.out.To)
	return err
}

// unfiltered refuses to check out what a program of the user's configuration would be run on: it may lie in the work
// tree, and what it is fed comes from the sandbox.
func (p *puller) unfiltered(ctx context.Context, head string) error {
	changed, err := p.repo.Changed(ctx, head, p.out.To)
	if err != nil || len(changed) == 0 {
		return err
	}
	list, err := p.repo.Filtered(ctx, changed)
	if err != nil || len(list) == 0 {
		return err
	}
	return p.kept(fmt.Errorf("%s goes through a filter of your git configuration, and hutch runs no program on what "+
		"came back", review.Quote(list[0])),
		fmt.Sprintf("git merge --ff-only %s does it when you have looked; then hutch pull %s ends the pull", p.out.Ref,
			p.info.Name))
}

// move moves the branch.
func (p *puller) move(ctx context.Context, branch, head string) error {
	if p.push.Base != p.push.Head && head == p.push.Head {
		// What was not committed was sent along. Where the work tree is still so, it is part of what comes back.
		same, err := p.repo.SameTree(ctx, p.push.Base)
		if err != nil {
			return err
		}
		if same {
			return p.repo.Advance(ctx, branch, head, p.push.Base, p.out.To)
		}
	}
	err := p.repo.FastForward(ctx, p.out.To)
	var failed *git.Error
	if !errors.As(err, &failed) {
		return err
	}
	dirty, serr := p.repo.Status(ctx)
	if serr != nil || len(dirty) == 0 {
		return p.kept(fmt.Errorf("git does not move the branch %s forward: %w", branch, err),
			fmt.Sprintf("git merge --ff-only %s says more", p.out.Ref))
	}
	return p.kept(fmt.Errorf("what is not committed in %s stands in the way of the commits:\n%s", p.push.Repository,
		push.List(dirty)),
		fmt.Sprintf("git stash -u puts it away; then hutch pull %s, and git stash pop", p.info.Name))
}

// Wait says how long to wait for a bundle.
type Wait struct {
	Interval time.Duration // between two looks; 0 means 2 s
	Timeout  time.Duration // 0 means 30 minutes
	// Progress is called after each look with the time it has been and what the command printed last, escaped; it may be
	// nil.
	Progress func(waited time.Duration, last string)
}

// await waits for the bundle, and returns a private copy of it. When nothing runs in the sandbox that could still make
// it, it is made here.
func (p *puller) await(ctx context.Context) (*os.File, error) {
	w := p.o.Wait
	if w.Interval <= 0 {
		w.Interval = 2 * time.Second
	}
	if w.Timeout <= 0 {
		w.Timeout = 30 * time.Minute
	}
	start := time.Now()
	for {
		running := p.running() // looked at first: what it leaves when it ends is found then
		f, err := p.fetch(ctx)
		if !errors.Is(err, push.ErrNoBundle) {
			return f, err
		}
		if p.sb.Asleep() && !running {
			if err := p.settled(ctx); err != nil {
				return nil, err
			}
		}
		if err := p.sb.Rouse(ctx); err != nil { // not before: a bundle on this host needs no VM
			return nil, err
		}
		if !running {
			return p.handIn(ctx)
		}
		waited := time.Since(start)
		if waited >= w.Timeout {
			summary := fmt.Sprintf("no bundle after %s: the command in %s still runs", waited.Round(time.Second), p.info.Name)
			if last := p.lastLines(5); len(last) > 0 {
				summary += "; its last lines:\n  " + strings.Join(last, "\n  ")
			}
			return nil, &push.Refusal{Summary: summary, Hints: []string{
				"the sandbox goes on; nothing in " + p.push.Repository + " changed",
				fmt.Sprintf("hutch logs -f %s shows what it does; hutch pull --timeout 2h %s waits longer", p.push.Run,
					p.info.Name)}}
		}
		if w.Progress != nil {
			w.Progress(waited, p.lastLine())
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(w.Interval, w.Timeout-waited)):
		}
	}
}

// running reports whether the command of the push runs.
func (p *puller) running() bool {
	if p.push.Run == "" {
		return false
	}
	r, err := p.st.Load(p.push.Run)
	return err == nil && r.State == store.StateRunning
}

// handIn has the bundle made of what is committed.
func (p *puller) handIn(ctx context.Context) (*os.File, error) {
	o, err := push.HandIn(ctx, p.sb, p.push)
	if err != nil {
		return nil, err
	}
	p.out.Uncommitted = o.Uncommitted
	if o.Nothing {
		return nil, p.nothing(o)
	}
	f, err := p.fetch(ctx)
	if errors.Is(err, push.ErrNoBundle) {
		err = fmt.Errorf("the bundle %s was made in the sandbox and is not there", p.x.Bundle())
	}
	return f, err
}

// errPulled says that the ref holds all that was committed in the sandbox.
var errPulled = errors.New("everything was pulled already")

// settled returns why a sandbox that sleeps need not be woken: since hutch handed in its commits, and pulled them,
// nothing ran in it and nothing was put into it. It is nil where the sandbox has to be asked.
func (p *puller) settled(ctx context.Context) error {
	events, err := p.sb.Events()
	if err != nil {
		return err
	}
	var last push.HandedIn
	var changed uint64 // the last event that may have come with commits
	running := map[string]bool{}
	pulled := ""
	for _, e := range events {
		var data struct{ Run, To string }
		switch e.Type {
		case push.EventHandIn:
			pulled, last = "", push.HandedIn{}
			if err := json.Unmarshal(e.Data, &last); err != nil {
				return err
			}
			continue
		case EventPull, store.EventExecStart, store.EventExecEnd:
			if err := json.Unmarshal(e.Data, &data); err != nil {
				return err
			}
		case store.EventSandboxRecord, store.EventSandboxStop, store.EventSandboxStart:
			continue
		}
		switch e.Type {
		case EventPull:
			pulled = data.To
			continue
		case store.EventExecStart:
			running[data.Run] = true
		case store.EventExecEnd:
			delete(running, data.Run)
		}
		changed = e.Seq
	}
	if last.After < changed || len(running) > 0 {
		return nil
	}
	if last.Nothing {
		return p.nothing(last.Outcome)
	}
	if p.out.To, err = p.repo.Commit(ctx, p.out.Ref); err != nil || p.out.To != pulled {
		return nil // the user removed or moved the ref
	}
	return errPulled
}

// nothing is the error where no commit was made.
func (p *puller) nothing(o push.Outcome) error {
	e := &push.Refusal{Summary: fmt.Sprintf("there is nothing to pull: no commit was made in %s, and no command runs "+
		"there", p.info.Name)}
	if o.Uncommitted > 0 {
		e.Summary += fmt.Sprintf("; %s in it %s in no commit", english.Plural(o.Uncommitted, "path", ""),
			english.PluralWord(o.Uncommitted, "is", "are"))
		e.Hints = append(e.Hints, fmt.Sprintf("hutch exec -w %s %s -- git commit -am MESSAGE commits them", p.push.Clone,
			p.info.Name))
	}
	if p.push.Run != "" {
		e.Hints = append(e.Hints, "hutch logs "+p.push.Run+" shows what the command printed")
	}
	e.Hints = append(e.Hints, fmt.Sprintf("hutch push --resume %s runs it again", p.info.Name))
	return e
}

// fetch copies the bundle to a file that is nobody else's.
func (p *puller) fetch(ctx context.Context) (f *os.File, err error) {
	if f, err = os.OpenFile(store.TempName("pull"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err = p.x.Fetch(ctx, f, p.o.Caps.MaxBytes()); err != nil {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		var bad *push.HostileError
		if errors.As(err, &bad) {
			hints := []string{fmt.Sprintf("nothing in %s changed; what stands there stays in the sandbox %s", p.push.Repository,
				p.info.Name),
				fmt.Sprintf("hutch exec %s -- rm -rf %s, and then hutch pull %s, recreate it from what is committed there",
					p.info.Name, p.x.Bundle(), p.info.Name)}
			if bad.TooLarge {
				hints = append(hints, "hutch pull --max-size SIZE "+p.info.Name+" takes larger ones")
			}
			return nil, &push.Refusal{Summary: bad.Error(), Err: err, Hints: hints}
		}
		return nil, err
	}
	return f, nil
}

// lastLine is what the command printed last.
func (p *puller) lastLine() string {
	if l := p.lastLines(1); len(l) > 0 {
		return l[0]
	}
	return ""
}

// lastLines are the last n lines that are not empty of what the command printed, escaped: of stdout, or of stderr when
// it printed nothing else.
func (p *puller) lastLines(n int) []string {
	r, err := p.st.Load(p.push.Run)
	if err != nil {
		return nil
	}
	for _, stream := range []store.Stream{store.Stdout, store.Stderr} {
		log, err := r.OpenLog(stream)
		if err != nil {
			continue
		}
		var b strings.Builder
		if log.TailBytes(2048) == nil {
			_, err = log.WriteTo(&b)
		}
		_ = log.Close()
		var lines []string
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, termsafe.Line(line))
			}
		}
		if err == nil && len(lines) > 0 {
			return lines[max(0, len(lines)-n):]
		}
	}
	return nil
}
