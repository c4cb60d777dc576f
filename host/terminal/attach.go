// Package terminal connects runs to the terminal or the pipes of the person who started them.
package terminal

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/sdk"
)

// Size is the size of a terminal that nobody looks at.
var Size = sdk.WindowSize{Rows: 24, Cols: 80}

// Attach gives a run a terminal that is connected to in and out: raw mode, so that every key reaches the program, ^C
// included, and the size of out whenever it changes. With interactive unset the program has a terminal that nobody
// types into. Restore puts the terminal back, and nothing reads from it any more; it must be called, and may be called
// twice.
func Attach(in, out *os.File, interactive bool) (s run.Streams, restore func(), err error) {
	size := Size
	s = run.Streams{Stdout: out, TTY: &size}
	outFD := int(out.Fd())
	restore = func() {}
	if !interactive {
		resize(&size, outFD)
		return s, restore, nil
	}
	if !term.IsTerminal(int(in.Fd())) {
		return s, restore, errors.New("-it needs a terminal, and stdin is not one; leave -t out to pipe input")
	}
	if !term.IsTerminal(outFD) {
		return s, restore, errors.New("-it needs a terminal, and stdout is not one; leave -t out to pipe output")
	}
	resize(&size, outFD)
	keys, err := NewReader(in)
	if err != nil {
		return s, restore, err
	}
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		keys.Stop()
		return s, restore, fmt.Errorf("put the terminal into raw mode: %w", err)
	}
	changes, resizes, done := make(chan os.Signal, 1), make(chan sdk.WindowSize, 1), make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		defer close(resizes)
		for {
			select {
			case <-done:
				return
			case <-changes:
				now := size
				resize(&now, outFD)
				select {
				case resizes <- now:
				case <-done:
					return
				}
			}
		}
	}()
	s.Stdin, s.Resizes = keys, resizes
	restored := false
	return s, func() {
		if restored {
			return
		}
		restored = true
		signal.Stop(changes)
		close(done)
		keys.Stop()
		_ = term.Restore(int(in.Fd()), old)
	}, nil
}

func resize(size *sdk.WindowSize, fd int) {
	if cols, rows, err := term.GetSize(fd); err == nil && cols > 0 && rows > 0 {
		*size = sdk.WindowSize{Rows: uint16(min(rows, 1<<16-1)), Cols: uint16(min(cols, 1<<16-1))}
	}
}
