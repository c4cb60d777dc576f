package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
)

func hasInput(c *sdk.Command) bool {
	if c.TTY != nil {
		return true
	}
	st, err := c.Stdin.Stat()
	return err == nil && st.Mode()&fs.ModeCharDevice == 0 // not /dev/null
}

// input passes on what the host writes, and its end.
func (r *running) input(ctx context.Context) {
	pid := r.number()
	err := r.d.Input(ctx, pid, r.c.TTY != nil, eot{r.io.stdin, r.c.TTY != nil, new(bool)})
	if err == nil && r.c.TTY == nil {
		err = r.d.CloseInput(ctx, pid)
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	select {
	case <-r.ended: // it has read what it wanted
		return
	case <-time.After(2 * time.Second): // whose end is on its way
	}
	select {
	case <-r.ended:
		return
	default:
	}
	var e *envd.Error
	if errors.As(err, &e) && e.Definite() {
		return // it reads no more: its end of the pipe is closed
	}
	// What it has read is not what was sent: it must not go on as if that were all.
	r.mu.Lock()
	r.broken = err
	r.mu.Unlock()
	r.end(ctx, "KILL")
}

// eot is a reader that ends, on a terminal, with what is typed for the end.
type eot struct {
	from     *os.File
	terminal bool
	sent     *bool
}

// Read implements [io.Reader].
func (e eot) Read(b []byte) (int, error) {
	n, err := e.from.Read(b)
	if e.terminal && n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !*e.sent {
		*e.sent = true
		b[0] = 4
		return 1, nil
	}
	return n, err
}
