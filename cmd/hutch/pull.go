package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/git/bundle"
	"github.com/hutch-run/hutch/host/pull"
	"github.com/hutch-run/hutch/host/push"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
)

type pullCmd struct {
	sandboxArg
	Interval duration `placeholder:"2s" help:"Time between two looks for the bundle (default 2s)."`
	Timeout  duration `placeholder:"30m" help:"Give up after this time (default 30m)."`
	MaxSize  size     `placeholder:"1g" help:"Largest bundle that is taken (default 1g)."`
	MaxFile  size     `placeholder:"100m" help:"Largest file in it (default 100m)."`
	Output   string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object."`

	allowFlags
}

// Help is the text below the synopsis.
func (*pullCmd) Help() string {
	return `Waits until the command of hutch push has handed in its commits, or has ended, and brings them to the branch
that was sent. Where no command runs, the commits that are there are taken.

What comes back is checked on a private copy: its size and that of every object in it, every object itself, and every
path and mode in every new commit. It must build on the commit that was sent. The commits are kept as
refs/hutch/SANDBOX; then the branch, which must be checked out, is moved forward. Nothing is merged and nothing
forced: what stands in the way is said, with what is kept where. No hook and no filter is run. The exit code is 1 when
something stands against it.

Until the branch moves, hutch diff and hutch apply work with the commits that were fetched.

    hutch pull push-3f9a1c20
A sandbox with a private workspace over a repository, such as that of hutch agent, hands in what was committed there
on top of the branch that is checked out here. What is in no commit is for hutch diff and hutch apply.

    hutch pull --timeout 2h --interval 10s push-3f9a1c20
    hutch pull push-3f9a1c20 -o json`
}

func (c *pullCmd) Run(ctx context.Context, u *ui) error {
	return withSandboxes(u, func(m *sandbox.Manager, s *session.Session) error {
		show, err := newShow(u, &runCmd{Output: "text"}, []*runfile.Definition{{Instance: c.Sandbox}})
		if err != nil {
			return err
		}
		defer show.restore()
		p, err := pull.Pull(ctx, m, s.Store(), c.Sandbox, pull.Options{
			Wait: pull.Wait{Interval: time.Duration(c.Interval), Timeout: time.Duration(c.Timeout),
				Progress: c.waiting(u, show)},
			Caps:  bundle.Caps{Bytes: int64(c.MaxSize), Object: int64(c.MaxFile)},
			Allow: c.policy(false).Allow,
		})
		show.restore()
		if err != nil {
			return pullError(err)
		}
		if c.Output == "json" {
			return u.json(struct {
				Schema string `json:"schema"`
				*pull.Pulled
			}{"hutch.pulled/v1", p})
		}
		err = pulled(u, p)
		if p.Uncommitted > 0 {
			u.note("%s changed in the sandbox and not committed", count(p.Uncommitted, "path"))
		}
		if p.Left != "" {
			u.note("the exchange of the sandbox could not be removed: %s", p.Left)
		}
		u.note("hutch rm %s removes the sandbox; the commits are also in %s", p.Sandbox, p.Ref)
		return err
	})
}

// pulled says what a pull brought.
func pulled(u *ui, p *pull.Pulled) error {
	for _, m := range p.Marks[:min(len(p.Marks), mostLeft)] {
		u.note("look at %s", m)
	}
	switch n := p.Summary; {
	case p.From == p.To:
		return u.line("%s is at %.12s already", p.Branch, p.To)
	case n.Commits == 0:
		return u.line("%s has %.12s already", p.Branch, p.To)
	default:
		return u.line("%s: %.12s..%.12s, %s, %s changed, %s(+), %s(-)", p.Branch, p.From, p.To,
			count(n.Commits, "commit"), count(n.Files, "file"), count(n.Insertions, "insertion"), count(n.Deletions, "deletion"))
	}
}

// quietly is how often something is said about a wait where nothing may move.
const quietly = time.Minute

// waiting shows how long it has been: as a line that moves on a terminal, else once a minute.
func (c *pullCmd) waiting(u *ui, show *show) func(time.Duration, string) {
	var mu sync.Mutex
	next := time.Duration(0)
	return func(waited time.Duration, last string) {
		text := fmt.Sprintf("waited %s", waited.Round(time.Second))
		if last != "" {
			text += ": " + last
		}
		if u.errTTY {
			show.step(c.Sandbox, text)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if waited >= next {
			next = waited + quietly
			u.note("%s: %s", c.Sandbox, text)
		}
	}
}

// pullError puts the hints of an error into the words of the command line. It is a no, not a failure.
func pullError(err error) error {
	var r *push.Refusal
	if errors.As(err, &r) {
		return &hinted{blockedError{err}, r.Hints}
	}
	return err
}
