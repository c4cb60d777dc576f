// Package provider has what the clients of all providers share: one HTTP client with bounds, one sorting of what can go wrong,
// one way of asking again, and one collector of answers. It is linked into hutch-agent alone.
package provider

import (
	"context"

	"github.com/hutch-run/hutch/host/agent/model"
)

// Provider asks once.
type Provider interface {
	// Try sends one request. Pieces of text go to delta, which is not nil. What goes wrong is a [*Failure], or the error of ctx.
	Try(ctx context.Context, r model.Request, delta func(string)) (model.Answer, error)
}
