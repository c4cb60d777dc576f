package cycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
)

// setUp makes the sandbox and prepares it. What goes wrong is an outcome; the error is that of the record.
func (c *cycle) setUp(ctx context.Context) (outcome, error) {
	if c.past != nil && c.past.State == StateSetUp {
		// Nothing of it is worth keeping, and it may be half made.
		if err := c.o.Manager.Remove(ctx, c.name, true); err != nil && !errors.Is(err, store.ErrNoSandbox) {
			return outcome{Word: Failed, Reason: "the sandbox that was begun before cannot be removed: " + err.Error()}, nil
		}
	}
	if err := c.enter(StateSetUp, map[string]string{"sandbox": c.name}); err != nil {
		return outcome{}, err
	}
	info, err := c.o.Manager.Create(ctx, c.w.Block.Box, c.name)
	if err != nil {
		reason := err.Error()
		var fail *result.Failure
		if errors.As(err, &fail) && len(fail.Diagnostics) > 0 { // they tell place and mend
			reason, c.res.Diagnostics = fail.Summary, slices.Clone(fail.Diagnostics)
			if last := &c.res.Diagnostics[len(c.res.Diagnostics)-1]; last.Fix == "" {
				last.Fix = fail.Fix
			}
		}
		return c.ended(ctx, outcome{Word: Failed, Reason: "the sandbox could not be made: " + reason}), nil
	}
	c.res.Sandbox = &Sandbox{ID: info.ID, Name: info.Name, Kept: true}
	c.res.Backend = info.Backend
	if err := errors.Join(c.loop.SetBackend(info.Backend), c.loop.SetSandbox(info.Name)); err != nil {
		return outcome{}, err
	}
	if len(c.w.Block.Setup) == 0 {
		return outcome{}, nil
	}
	check, _, err := c.command(ctx, c.w.Block.Setup)
	c.res.Setup = check
	c.o.Progress(Progress{Check: check, Setup: true})
	switch {
	case err != nil:
		return c.ended(ctx, outcome{Word: Failed, Reason: "the setup command could not be run: " + err.Error()}), nil
	case !check.OK:
		return outcome{Word: SetupFailed, Reason: fmt.Sprintf("the setup command failed: %s; hutch logs %s shows what it printed", check.Ended, check.Run)}, nil
	}
	return outcome{}, nil
}

// attach takes the sandbox of a cycle that is gone on with into the result.
func (c *cycle) attach() {
	if info, err := c.o.Store.FindSandbox(c.name); err == nil {
		c.res.Sandbox = &Sandbox{ID: info.ID, Name: info.Name, Kept: true}
		c.res.Backend = info.Backend
	}
}

// ended is an outcome, or the interrupt that it came from.
func (c *cycle) ended(ctx context.Context, o outcome) outcome {
	if ctx.Err() != nil {
		return outcome{Word: Interrupted, Reason: "it was interrupted"}
	}
	return o
}

// command runs a command of the user's in the sandbox.
func (c *cycle) command(ctx context.Context, argv []string) (*Check, tools.ExecOut, error) {
	began := time.Now()
	out, err := c.box().Run(ctx, tools.RunIn{Argv: argv})
	check := &Check{Run: out.Run, OK: err == nil && out.OK, ExitCode: out.ExitCode, Cause: out.Cause, Ended: out.Ended(), Seconds: time.Since(began).Seconds()}
	return check, out, err
}
