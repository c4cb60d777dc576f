package envd

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// Resize sets the size of a command's terminal.
func (c *Client) Resize(ctx context.Context, pid uint32, size Size) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := c.rpc.Update(ctx, &process.UpdateRequest{Process: byPID(pid), Pty: size.pty()})
	return plain(err)
}

// CloseInput ends the input of a command that has no terminal.
func (c *Client) CloseInput(ctx context.Context, pid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := c.rpc.CloseStdin(ctx, &process.CloseStdinRequest{Process: byPID(pid)})
	return plain(err)
}

// Input copies what r holds to a command's input, or types it on its terminal, until r ends. It goes in one stream,
// which the daemon does not log; a stream that breaks is an error: how much of it arrived is not known. After ctx a
// Read that still waits is waited for.
func (c *Client) Input(ctx context.Context, pid uint32, terminal bool, r io.Reader) error {
	s, err := c.rpc.StreamInput(ctx)
	if err != nil {
		return plain(err)
	}
	in := &input{s: s}
	start := &process.StreamInputRequest_StartEvent{Process: byPID(pid)}
	err = in.send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: start}})
	if err == nil {
		stop := make(chan struct{})
		var alive sync.WaitGroup
		alive.Go(func() { in.keepAlive(stop) })
		err = in.copy(r, terminal)
		close(stop)
		alive.Wait()
	}
	if err != nil && !errors.Is(err, io.EOF) { // which says that the daemon receives no more: its answer says why
		return plain(err)
	}
	if _, cerr := s.CloseAndReceive(); cerr != nil {
		return plain(cerr)
	}
	return plain(err)
}

// input is one stream of input.
type input struct {
	mu sync.Mutex
	s  *connect.ClientStreamForClientSimple[process.StreamInputRequest, process.StreamInputResponse]
}

func (in *input) send(m *process.StreamInputRequest) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.s.Send(m)
}

func (in *input) copy(r io.Reader, terminal bool) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			data := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: buf[:n]}}
			if terminal {
				data.Input = &process.ProcessInput_Pty{Pty: buf[:n]}
			}
			event := &process.StreamInputRequest_DataEvent{Input: data}
			m := &process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: event}}
			if serr := in.send(m); serr != nil {
				return serr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// keepAlive keeps proxies from closing a stream on which nothing is typed.
func (in *input) keepAlive(stop <-chan struct{}) {
	tick := time.NewTicker(pingEvery * time.Second)
	defer tick.Stop()
	alive := &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}
	for {
		select {
		case <-tick.C:
			_ = in.send(&process.StreamInputRequest{Event: alive})
		case <-stop:
			return
		}
	}
}
