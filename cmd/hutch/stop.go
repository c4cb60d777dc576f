package main

import (
	"context"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
)

type stopCmd struct {
	Sandboxes []string `arg:"" name:"sandbox" help:"Names or ids of sandboxes, or beginnings of ids." complete:"sandbox"`
	Force     bool     `short:"f" help:"End commands that run in them."`
}

// Help is the text below the synopsis.
func (*stopCmd) Help() string {
	return `Ends what runs in sandboxes and gives back what they hold besides their files: memory, a container's
processes, a virtual machine once all sandboxes in it are stopped, a cloud machine's bill. What was written to the
workspace and the output stays; temporary files may go. hutch start takes a sandbox up again. One that is asleep
afterwards, see hutch ps, is started by the next command, too.

    hutch stop try
    hutch stop -f try other`
}

func (c *stopCmd) Run(ctx context.Context, u *ui) error {
	return each(ctx, u, c.Sandboxes, func(m *sandbox.Manager, ref string) error { return m.Stop(ctx, ref, c.Force) })
}

type startCmd struct {
	Sandboxes []string `arg:"" name:"sandbox" help:"Names or ids of sandboxes, or beginnings of ids." complete:"sandbox"`
}

// Help is the text below the synopsis.
func (*startCmd) Help() string {
	return `Makes sandboxes ready that are stopped or asleep, see hutch ps. What runs in one that is ready is left alone.

    hutch start try`
}

func (c *startCmd) Run(ctx context.Context, u *ui) error {
	return each(ctx, u, c.Sandboxes, func(m *sandbox.Manager, ref string) error { return m.Start(ctx, ref) })
}

// each calls fn for sandbox after sandbox and prints those with which it went well.
func each(ctx context.Context, u *ui, refs []string, fn func(m *sandbox.Manager, ref string) error) error {
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		failed := false
		for _, ref := range refs {
			if err := fn(m, ref); err != nil {
				if ctx.Err() != nil {
					return err
				}
				failed = true
				u.note("%s", err)
				continue
			}
			if err := u.line("%s", ref); err != nil {
				return err
			}
		}
		if failed {
			return exit(exitFailure)
		}
		return nil
	})
}

// waking shows how far the start of a sandbox is that was asleep.
func waking(u *ui) func(run.Progress) { return bareShow(u, &runCmd{}).progress }
