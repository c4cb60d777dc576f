package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// wires connect a command with the streams of the host. A healthy fake gives the streams to the command as they are;
// faults and terminals need a copy.
type wires struct {
	stdout   *os.File       // the command's end of the copy, until it has started; nil without one
	copied   sync.WaitGroup // of what the command prints
	terminal *command.Terminal
}

// started closes what only the command needs now.
func (w *wires) started() {
	if w.stdout != nil {
		w.stdout.Close()
		w.stdout = nil
	}
}

// finish waits until all that was printed is copied.
func (w *wires) finish() {
	w.started()
	w.copied.Wait()
	w.terminal.Drain()
	w.terminal.Close()
}

func (s *sandbox) wire(c *sdk.Command, cmd *exec.Cmd, o *supervise.Options) (*wires, error) {
	cfg := &s.st.Config
	w := &wires{}
	if c.TTY != nil && !cfg.lies("no_tty") {
		return w, s.openTerminal(c, o, w)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	if cfg.lies("ignore_stdin") {
		cmd.Stdin = nil
	}
	if cfg.lies("merge_streams") {
		cmd.Stderr = c.Stdout
	}
	if !cfg.lies("last_bytes") && !cfg.lies("nul_bytes") {
		return w, nil
	}
	r, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, w.stdout = pw, pw
	w.copied.Go(func() {
		s.copyOutput(c.Stdout, r)
		r.Close() // the command gets SIGPIPE when the host reads no more
	})
	return w, nil
}

// copyOutput copies a command's output and does to it what the block asks for.
func (s *sandbox) copyOutput(dst io.Writer, src io.Reader) {
	cfg := &s.st.Config
	buf := make([]byte, 4096)
	var held []byte // what the lie last_bytes will lose
	total := 0
	for {
		n, err := src.Read(buf)
		p := buf[:n]
		total += n
		if cfg.lies("nul_bytes") {
			p = bytes.ReplaceAll(p, []byte{0}, nil)
		}
		if cfg.lies("last_bytes") && total >= 1<<16 {
			p = append(held, p...)
			keep := min(len(p), 1)
			held = []byte(string(p[len(p)-keep:]))
			p = p[:len(p)-keep]
		}
		if _, werr := dst.Write(p); werr != nil {
			return
		}
		if err != nil {
			break
		}
	}
}

// openTerminal makes a terminal, and copies between it and the host's streams.
func (s *sandbox) openTerminal(c *sdk.Command, o *supervise.Options, w *wires) error {
	size := *c.TTY
	if s.st.Config.lies("tty_size") {
		size = sdk.WindowSize{Rows: 24, Cols: 80}
	}
	t, err := supervise.OpenTerminal(size.Rows, size.Cols)
	if err != nil {
		return err
	}
	if w.terminal, err = command.OpenTerminal(t.Master, c); err != nil {
		return errors.Join(err, t.Slave.Close())
	}
	o.Terminal = t
	go func() {
		for size := range c.Resizes {
			w.terminal.Resize(size)
		}
	}()
	return nil
}
