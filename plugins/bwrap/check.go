package main

import (
	"context"

	"github.com/hutch-run/hutch/sdk"
)

// Check implements [sdk.Backend].
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) { return nil, nil }
