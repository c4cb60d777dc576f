package agent

import (
	"context"
	"errors"
	"io"

	"github.com/hutch-run/hutch/sdk"
)

var errTODO = errors.New("not implemented")

// Put writes what r holds at path in the container, as [sdk.Putter] says.
func (c *Conn) Put(ctx context.Context, path string, format sdk.Format, r io.Reader) error {
	return errTODO
}

// Get writes what is at path in the container to w, as [sdk.Getter] says. What comes
// is whatever the sandbox likes: the caller must take it for hostile.
func (c *Conn) Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error {
	return errTODO
}

// Remove removes what is at path in the container, as [sdk.Remover] says. Which
// directories the sandbox itself is made of the caller must know.
func (c *Conn) Remove(ctx context.Context, path string, recursive bool) error { return errTODO }
