package envd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

const (
	pingEvery = 50                // seconds; never 0 or less: that ends the daemon
	silence   = 170 * time.Second // after three pings that did not come, a stream counts as broken
	joinTime  = 60 * time.Second  // for which a stream that broke is tried to be joined again
	firstWait = 100 * time.Millisecond
	maxWait   = 3 * time.Second
)

// Command is a command to start. Everything in it is written to the daemon's log.
type Command struct {
	User  string // "" is the template's own
	Path  string
	Args  []string
	Dir   string
	PTY   *Size // nil for none
	Stdin bool  // there will be input: without it the command reads an end at once
}

// Size is that of a terminal in characters.
type Size struct{ Rows, Cols uint16 }

func (s Size) pty() *process.PTY {
	return &process.PTY{Size: &process.PTY_Size{Rows: uint32(s.Rows), Cols: uint32(s.Cols)}}
}

// Source says where output came from.
type Source int

// The sources. With a terminal there is only that.
const (
	Stdout Source = iota
	Stderr
	Terminal
)

// Events are called while a command runs, one at a time. An error from Output ends the calls and not the command.
type Events struct {
	Started func(pid uint32)
	Joined  func() // the stream broke and goes on; what was printed in between is lost
	Output  func(from Source, b []byte) error
}

// End says how a command ended.
type End struct {
	Exited bool   // by itself, with Code; else by what Status says
	Code   int    // of a command that exited
	Status string // the daemon's words, "exit status 3" or "signal: killed"
	Breaks int    // how often the stream broke and was joined again; what was printed meanwhile is lost
}

// LostError is a command of which is not known how it ended, or whether it has.
type LostError struct {
	PID uint32 // 0 when not even its start was reported
	Err error
}

// Error implements the error interface.
func (e *LostError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("whether the command was started is not known: %v", e.Err)
	}
	return fmt.Sprintf("how the command ended is not known: %v", e.Err)
}

// Unwrap returns the error underneath.
func (e *LostError) Unwrap() error { return e.Err }

// outputError is an error of [Events.Output].
type outputError struct{ error }

// Run starts a command and reports it until its end, also over a broken connection. When ctx ends it returns, and the
// command runs on. Only an end that the daemon reported is an end; any other way in which the events stop is a
// *LostError, except a refusal by which nothing was started and an error of on.Output.
func (c *Client) Run(ctx context.Context, cmd Command, on Events) (*End, error) {
	cfg := &process.ProcessConfig{Cmd: cmd.Path, Args: cmd.Args}
	if cmd.Dir != "" {
		cfg.Cwd = &cmd.Dir
	}
	req := &process.StartRequest{Process: cfg, Stdin: &cmd.Stdin}
	if cmd.PTY != nil {
		req.Pty = cmd.PTY.pty()
	}
	f := &follower{on: on}
	err := receive(ctx, f, (*process.StartResponse).GetEvent,
		func(ctx context.Context) (*connect.ServerStreamForClient[process.StartResponse], error) {
			return c.rpc.Start(streamContext(ctx, cmd.User), req)
		})
	var output outputError
	var refused *Error
	switch {
	case err == nil:
		return f.end, nil
	case errors.As(err, &output):
		return nil, output.error
	case ctx.Err() != nil:
		return nil, &LostError{PID: f.pid, Err: context.Cause(ctx)}
	case f.pid == 0 && errors.As(err, &refused) && refused.Definite():
		return nil, err
	case f.pid == 0:
		return nil, &LostError{Err: err}
	}
	if jerr := c.rejoin(ctx, f, cmd.User); errors.As(jerr, &output) {
		return nil, output.error
	} else if jerr != nil {
		return nil, &LostError{PID: f.pid, Err: fmt.Errorf("%w (after %w)", jerr, err)}
	}
	f.end.Breaks = f.breaks
	return f.end, nil
}

// Definite reports whether an answer says that nothing was done.
func (e *Error) Definite() bool {
	switch e.Code {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeUnauthenticated, connect.CodePermissionDenied,
		connect.CodeUnimplemented, connect.CodeFailedPrecondition, connect.CodeResourceExhausted:
		return true
	}
	return e.Status >= 400 && e.Status < 500 || Gone(e)
}

// rejoin follows a command whose stream broke until its end.
func (c *Client) rejoin(ctx context.Context, f *follower, user string) error {
	f.breaks++
	began, wait := time.Now(), firstWait
	for {
		err := c.Health(ctx)
		if err == nil {
			received := f.received
			err = receive(ctx, f, (*process.ConnectResponse).GetEvent,
				func(ctx context.Context) (*connect.ServerStreamForClient[process.ConnectResponse], error) {
					return c.rpc.Connect(streamContext(ctx, user), &process.ConnectRequest{Process: byPID(f.pid)})
				})
			if f.received > received && err != nil { // it broke again
				f.breaks++
				began, wait = time.Now(), firstWait
			}
		}
		var refused *Error
		var output outputError
		switch {
		case err == nil, errors.As(err, &output):
			return err
		case errors.As(err, &refused) && refused.Definite():
			return err // the sandbox is gone, or the command ended too long ago
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Since(began) > joinTime:
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		wait = min(2*wait, maxWait)
	}
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// streamContext adds the headers of a call that streams a command's events to user; "" is the template's own user.
func streamContext(ctx context.Context, user string) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	if user != "" {
		basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
		call.RequestHeader().Set("Authorization", basic)
	}
	call.RequestHeader().Set("Keepalive-Ping-Interval", strconv.Itoa(pingEvery))
	return ctx
}

// follower is what is known of a command from its events.
type follower struct {
	on       Events
	pid      uint32
	end      *End
	received int // events
	breaks   int
}

// errNoEnd is a stream that ended in good order and without an end of the command.
var errNoEnd = errors.New("the stream ended and the command did not")

// receive opens a stream of messages M and handles their events, until the command's end: only then it returns nil.
func receive[M any](ctx context.Context, f *follower, event func(*M) *process.ProcessEvent,
	open func(context.Context) (*connect.ServerStreamForClient[M], error),
) error {
	ctx, cancel := context.WithCancel(ctx) // never a deadline: the daemon would kill the command at it
	defer cancel()
	watch := time.AfterFunc(silence, cancel)
	defer watch.Stop()
	s, err := open(ctx)
	if err != nil {
		return plain(err)
	}
	defer s.Close()
	for s.Receive() {
		watch.Stop() // the reader of the output may take its time
		f.received++
		if err := f.handle(event(s.Msg())); err != nil || f.end != nil {
			return err
		}
		watch.Reset(silence)
	}
	if err := s.Err(); err != nil {
		return plain(err)
	}
	return errNoEnd
}

func (f *follower) handle(ev *process.ProcessEvent) (err error) {
	switch e := ev.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		switch {
		case f.pid == 0:
			f.pid = e.Start.GetPid()
			if f.on.Started != nil {
				f.on.Started(f.pid)
			}
		case f.on.Joined != nil:
			f.on.Joined()
		}
	case *process.ProcessEvent_Data:
		switch o := e.Data.GetOutput().(type) {
		case *process.ProcessEvent_DataEvent_Stdout:
			err = f.on.Output(Stdout, o.Stdout)
		case *process.ProcessEvent_DataEvent_Stderr:
			err = f.on.Output(Stderr, o.Stderr)
		case *process.ProcessEvent_DataEvent_Pty:
			err = f.on.Output(Terminal, o.Pty)
		}
		if err != nil {
			return outputError{err}
		}
	case *process.ProcessEvent_End:
		f.end = &End{Exited: e.End.GetExited(), Code: int(e.End.GetExitCode()), Status: e.End.GetStatus()}
	}
	return nil
}
