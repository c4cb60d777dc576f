package main

import (
	"context"

	"github.com/hutch-run/hutch/sdk"
)

// Plan implements [sdk.Planner].
func (b *backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	b.spares.warm() // what is planned will probably be made
	held := planLimits(spec, false, "/", b.support(), 0)
	p := &sdk.Plan{Holds: held.Holds, Notes: held.Notes()}
	if _, err := findBwrap(); err != nil {
		p.Diagnostics = append(p.Diagnostics, sdk.DiagnosticOf(err))
	}
	return p, nil
}
