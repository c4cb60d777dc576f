package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// Plan implements [sdk.Planner].
func (b *backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	b.spares.warm() // what is planned will probably be made
	held := planLimits(spec, false, "/", b.support(), 0)
	p := &sdk.Plan{Holds: held.Holds, Notes: held.Notes()}
	_, err := findBwrap()
	if err == nil && doubtful() {
		err = b.tried()
	}
	if err != nil {
		p.Diagnostics = append(p.Diagnostics, sdk.DiagnosticOf(err))
	}
	return p, nil
}

// tryTimeout bounds the attempt of a plan.
const tryTimeout = 10 * time.Second

// try makes a sandbox, runs a command in it and removes it, so that a plan does not promise what Create would refuse.
func (b *backend) try() error {
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	dir, err := sdk.MkdirTemp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := b.trial(ctx, dir, sdk.Spec{}, "plan")
	if err != nil {
		return err
	}
	_, err = s.capture(ctx, "exit 0")
	return errors.Join(err, s.close())
}
