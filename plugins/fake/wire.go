package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/process"
)

// wires connect a command with the streams of the host. A healthy fake gives the
// streams to the command as they are; faults and terminals need a copy.
type wires struct {
	out    sync.WaitGroup // copies of what the command prints
	close  []io.Closer    // ours, once the command has its own
	ending []io.Closer    // at the end
}

// started closes what only the command needs now.
func (w *wires) started() {
	for _, c := range w.close {
		c.Close()
	}
	w.close = nil
}

// finish waits until all that was printed is copied.
func (w *wires) finish() {
	w.started()
	w.out.Wait()
	for _, c := range w.ending {
		c.Close()
	}
}

func (s *sandbox) wire(c *sdk.Command, cmd *exec.Cmd, o *process.Options) (*wires, error) {
	cfg := &s.st.Config
	w := &wires{}
	if c.TTY != nil && !cfg.lies("no_tty") {
		return w, s.terminal(c, o, w)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	if cfg.lies("ignore_stdin") {
		cmd.Stdin = nil
	}
	if cfg.lies("merge_streams") {
		cmd.Stderr = c.Stdout
	}
	if cfg.SlowStream == 0 && !cfg.lies("last_bytes") && !cfg.lies("nul_bytes") {
		return w, nil
	}
	r, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = pw
	w.close = append(w.close, pw)
	w.out.Go(func() {
		s.copyOutput(c.Stdout, r)
		r.Close() // when nobody reads, the command hears of it
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
		time.Sleep(cfg.SlowStream)
	}
}

// terminal makes one, and copies between it and the host's streams.
func (s *sandbox) terminal(c *sdk.Command, o *process.Options, w *wires) error {
	size := *c.TTY
	if s.st.Config.lies("tty_size") {
		size = sdk.WindowSize{Rows: 24, Cols: 80}
	}
	t, err := process.OpenTerminal(size.Rows, size.Cols)
	if err != nil {
		return err
	}
	o.Terminal = t
	g := &guarded{Terminal: t}
	w.ending = append(w.ending, g)
	w.out.Go(func() { io.Copy(c.Stdout, t.Master) }) // ends with an error when the last program has closed the terminal
	go io.Copy(t.Master, c.Stdin)                    // ends when the SDK closes the stream
	go func() {
		for size := range c.Resizes {
			g.resize(size)
		}
	}()
	return nil
}

// guarded is a terminal that is not resized while it is being closed: the resizes
// come for as long as the call lasts, which is longer than the command.
type guarded struct {
	*process.Terminal
	mu     sync.Mutex
	closed bool
}

func (g *guarded) resize(size sdk.WindowSize) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		_ = g.Resize(size.Rows, size.Cols) // the command may just have ended
	}
}

// Close implements io.Closer.
func (g *guarded) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return g.Terminal.Close()
}
