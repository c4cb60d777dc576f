package review

import (
	"context"
	"errors"
	"io"

	"github.com/hutch-run/hutch/sdk"
)

// Remote is a sandbox whose workspace is no directory of this host.
type Remote interface {
	Changes(ctx context.Context) ([]sdk.Change, error)
	Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error
}

func openRemote(r Remote, workspace string) (source, error) {
	return nil, errors.New("the backend does not say where the layers of the workspace lie on this host, and a review needs that")
}
