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

// input passes on what the host writes once the command runs, and its end.
func (r *running) input(ctx context.Context) {
	if !hasInput(r.c) {
		return
	}
	select {
	case <-r.begun:
	case <-r.ended:
		return
	}
	pid := r.pid.Load()
	var err error
	if r.c.TTY != nil {
		err = r.d.Input(ctx, pid, true, &eot{from: r.io.stdin})
	} else if err = r.d.Input(ctx, pid, false, r.io.stdin); err == nil {
		err = r.d.CloseInput(ctx, pid)
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if r.waitEnd(2 * time.Second) { // it has read what it wanted
		return
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

// eot is a terminal's input, which ends with the character that is typed for the end.
type eot struct {
	from *os.File
	sent bool
}

// Read implements [io.Reader].
func (e *eot) Read(b []byte) (int, error) {
	n, err := e.from.Read(b)
	if n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !e.sent {
		e.sent = true
		b[0] = 4
		return 1, nil
	}
	return n, err
}
