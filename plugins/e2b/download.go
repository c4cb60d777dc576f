package main

import (
	"context"
	"errors"
	"io"

	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
)

// download reads a file of the machine that does not change. When the connection breaks it goes on from there; the
// caller's hash shows whether it was one file all through.
type download struct {
	ctx    context.Context
	s      *sandbox
	path   string
	size   int64 // of the file
	got    int64
	breaks int
	body   io.ReadCloser
}

// open begins, or goes on from what has been read.
func (d *download) open() error {
	c, err := d.s.connect(d.ctx)
	if err != nil {
		return err
	}
	body, length, err := c.Download(d.ctx, d.path, d.got)
	if err != nil {
		d.s.lost(err)
		return err
	}
	if rest := d.size - d.got; length >= 0 && length != rest {
		_ = body.Close()
		return sdk.Errorf(sdk.ReasonUnavailable, "%d bytes of the archive are to come, and the daemon sends %d", rest, length)
	}
	d.body = body
	return nil
}

// Read implements [io.Reader].
func (d *download) Read(b []byte) (int, error) {
	for {
		n, err := d.body.Read(b)
		d.got += int64(n)
		if n > 0 || err == nil {
			return n, nil
		}
		if d.got >= d.size || d.ctx.Err() != nil {
			return 0, err
		}
		if err := d.again(); err != nil {
			return 0, err
		}
	}
}

// again opens the file once more after the connection broke.
func (d *download) again() error {
	_ = d.body.Close()
	for {
		if d.breaks++; d.breaks > 3 {
			return io.ErrUnexpectedEOF
		}
		if err := d.s.backend.sleep(d.ctx, lookAgain[min(d.breaks, len(lookAgain)-1)]); err != nil {
			return err
		}
		err := d.open()
		var refused *envd.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused) && refused.Status == 416: // it has become shorter
			return io.ErrUnexpectedEOF
		case !transient(err):
			return err
		}
	}
}

// Close implements [io.Closer].
func (d *download) Close() error { return d.body.Close() }
