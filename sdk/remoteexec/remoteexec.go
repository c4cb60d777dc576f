// Package remoteexec is a backend's end of package remote: it runs a command of the contract there, with its streams,
// signals and end, the operations on files (package guestfiles), and requests that are no commands.
//
// A [LostError] says that the connection is over; the backend knows what it led to, and says so.
package remoteexec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
	"github.com/hutch-run/hutch/sdk/tree"
)

// LostError is the error of a connection that is over, and with it its commands.
type LostError struct{ Err error }

// Error implements error.
func (e *LostError) Error() string { return "the connection is over: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// lost is err as a LostError; one with a reason, such as that of a request that is too long, stays as it is.
func lost(err error) error {
	if e := (*sdk.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &LostError{err}
}

// Exec is c as the wire has it. env is its whole environment, and dir where it works when it does not say so.
func Exec(c *sdk.Command, env []string, dir string) *remote.Exec {
	if c.Dir != "" {
		dir = c.Dir
	}
	e := &remote.Exec{Argv: Bytes(c.Argv), Env: Bytes(env), Dir: []byte(dir)}
	if c.TTY != nil {
		e.TTY = &remote.Size{Rows: c.TTY.Rows, Cols: c.TTY.Cols}
	}
	return e
}

// Run runs the command of a request to its end.
func Run(ctx context.Context, client *remote.Client, req any, c *sdk.Command) (*remote.Exit, error) {
	std, err := openStreams(c)
	if err != nil {
		return nil, err
	}
	call, err := client.Start(req, std[0], std[1], std[2])
	if err != nil {
		return nil, lost(err)
	}
	defer call.Close()
	stop := command.Watch(ctx, call, c, func(w sdk.WindowSize) { call.Resize(w.Rows, w.Cols) })
	exit, err := call.Wait()
	stop()
	if err != nil {
		return nil, lost(err)
	}
	call.Drain(ctx)
	return exit, nil
}

// Bytes is a list as JSON can carry it, whose strings hold UTF-8 only.
func Bytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// openStreams opens the command's streams once more, so that closing them wakes up who reads or writes. An output of
// which nobody holds the other end is closed.
func openStreams(c *sdk.Command) (std [3]*os.File, err error) {
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		flag := os.O_WRONLY | unix.O_NONBLOCK
		if i == 0 {
			flag = os.O_RDONLY | unix.O_NONBLOCK
		}
		path := f.Name()
		if runtime.GOOS == "linux" { // where it is the same file whatever stands at its name
			path = fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		}
		std[i], err = os.OpenFile(path, flag, 0)
		if errors.Is(err, unix.ENXIO) {
			if std[i], err = os.Open(os.DevNull); err == nil {
				err = std[i].Close()
			}
		}
		if err != nil {
			for _, f := range std[:i] {
				f.Close()
			}
			return std, sdk.Errorf(sdk.ReasonInternal, "open the command's streams: %w", err)
		}
	}
	return std, nil
}

// Exit says how a command ended, from what the far end reported. killed says what happened to one that was killed from
// outside.
func Exit(ctx context.Context, e *remote.Exit, wall time.Duration, killed string) (*sdk.Exit, error) {
	stopped := sdk.CauseOf(ctx)
	switch {
	case e.Err != nil && stopped == "":
		return nil, e.Err
	case e.Err != nil:
		return &sdk.Exit{Cause: stopped, Code: 137, Signal: "SIGKILL",
			Evidence: "stopped by hutch before it ran; " + e.Err.Summary}, nil
	case e.NotStarted:
		return &sdk.Exit{Cause: sdk.CauseExited, NotStarted: true, Code: e.Code, Evidence: "execve: " + e.Why}, nil
	}
	exit := command.Ended(syscall.WaitStatus(e.Status))
	if e.Killed {
		exit = command.Ended(syscall.WaitStatus(unix.SIGKILL))
		exit.Evidence = killed
	}
	exit.Usage = sdk.Usage{Wall: wall, User: e.User, Sys: e.Sys, PeakMemory: e.MaxRSS, PIDs: int64(e.PIDsPeak)}
	if e.MemoryPeak > 0 {
		exit.Usage.PeakMemory = int64(e.MemoryPeak)
	}
	command.Blame(ctx, exit, command.Met{OOMKills: e.OOMKills, PIDsHits: e.PIDsHits,
		Full: func() bool { return e.DiskFull }})
	return exit, nil
}

// Ask asks for something that is no command. data, where there is any, writes what follows the request.
func Ask(ctx context.Context, client *remote.Client, req any, data func(io.Writer) error) (*remote.Reply, error) {
	s, err := client.Open(req)
	if err != nil {
		return nil, lost(err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.SetDeadline(time.Unix(1, 0)) })()
	if data != nil {
		if err := data(s); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			// A far end that had no use for the rest says why.
			reply := &remote.Reply{}
			if errors.Is(err, yamux.ErrStreamClosed) && remote.NewLines(s).Next(reply) == nil && reply.Err != nil {
				return nil, reply.Err
			}
			return nil, err
		}
	}
	if err := s.Close(); err != nil {
		return nil, lost(err)
	}
	reply := &remote.Reply{}
	if err := remote.NewLines(s).Next(reply); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, lost(err)
	}
	if reply.Err != nil {
		return nil, reply.Err
	}
	return reply, nil
}

// Pack writes dir as a tar stream for guestfiles.Fill. note is for the user: files that cannot be sent; part is what
// dir is called in it.
func Pack(ctx context.Context, dir, part string, w io.Writer) (note string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", sdk.Errorf(sdk.ReasonConfig, "the %s cannot be read: %w", part, err)
	}
	defer root.Close()
	sum, err := tree.Pack(ctx, root, w, tree.PackOptions{Special: true, MaxEntries: maxEntries, MaxBytes: maxBytes})
	switch {
	case sum.LeftOut == 1:
		note = fmt.Sprintf("one file of the %s was not copied into the sandbox: %s", part, sum.FirstLeftOut)
	case sum.LeftOut > 1:
		note = fmt.Sprintf("%d files of the %s were not copied into the sandbox, the first is %s", sum.LeftOut, part,
			sum.FirstLeftOut)
	}
	return note, err
}

// Bounds of what Pack sends.
const (
	maxEntries = 2_000_000
	maxBytes   = 256 << 30
)

// RemoveArgs are the arguments of guestfiles.Files by which p is removed. own are directories of the sandbox itself,
// which cannot be, nor what they lie in.
func RemoveArgs(p string, recursive bool, own []string) ([]string, error) {
	clean := path.Clean(p)
	for _, o := range own {
		if o != "" && path.IsAbs(p) && (clean == "/" || o == clean || strings.HasPrefix(o, clean+"/")) {
			return nil, sdk.Errorf(sdk.ReasonConfig, "%s is part of the sandbox and cannot be removed",
				p).WithFix("remove what is in it")
		}
	}
	if recursive {
		return []string{"remove-all", p}, nil
	}
	return []string{"remove", p}, nil
}

// Files runs one operation of guestfiles.Files, whose arguments are argv, as the command of a request that request
// makes. r and w are its data.
func Files(ctx context.Context, client *remote.Client, request func(*remote.Exec) any, argv []string, r io.Reader,
	w io.Writer) error {
	if p := argv[len(argv)-1]; !path.IsAbs(p) {
		return sdk.Errorf(sdk.ReasonConfig, "the path %q inside the sandbox is not absolute", p)
	} else if strings.Contains(p, "\x00") {
		return sdk.Errorf(sdk.ReasonConfig, "the path %q inside the sandbox has a zero byte", p)
	}
	var said bytes.Buffer
	sink := &writeError{w: w}
	var in io.ReadCloser
	if r != nil {
		in = io.NopCloser(r)
	}
	c, err := client.Start(request(&remote.Exec{Argv: Bytes(argv), Dir: []byte("/")}), in, nopCloser{sink},
		nopCloser{&said})
	if err != nil {
		return lost(err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Kill() })
	defer stop()
	broken, over := make(chan error, 1), make(chan struct{})
	defer close(over)
	go func() {
		select {
		case err := <-c.InputFailed(): // what comes is not whole, so it must not be taken for that
			broken <- err
			_ = c.Kill()
		case <-over:
		}
	}()
	exit, err := c.Wait()
	if err == nil {
		c.Drain(ctx)
	}
	select {
	case err := <-broken:
		return err
	default:
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	switch {
	case err != nil:
		return lost(err)
	case sink.err != nil:
		return sink.err
	case exit.Err != nil:
		return exit.Err
	}
	reply := &remote.Reply{}
	if err := json.Unmarshal(said.Bytes(), reply); err != nil {
		return sdk.Errorf(sdk.ReasonInternal, "hutch's program in the sandbox ended without a word: %+v: %s", *exit,
			said.String())
	}
	if reply.Err != nil {
		return reply.Err
	}
	return nil
}

// writeError remembers why writing failed.
type writeError struct {
	w   io.Writer
	err error
}

func (w *writeError) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// ChangesOf are the changes of a reply.
func ChangesOf(reply *remote.Reply) []sdk.Change {
	out := make([]sdk.Change, len(reply.Changes))
	for i, c := range reply.Changes {
		out[i] = c.Change
		out[i].Path = string(c.Path)
	}
	return out
}
