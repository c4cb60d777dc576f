package push

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/hutch-run/hutch/host/git/bundle"
	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// The files of an exchange.
const (
	inputBundle  = "input.bundle"
	inputShallow = "input.shallow" // where the history in the bundle ends; only if it does
	outputBundle = sandbox.OutputBundle
	planDir      = "plan" // holds a plan that is not in the branch
)

// Exchange is where bundles go in and come out: a directory that host and sandbox both see, or one inside the sandbox
// that is reached through the backend. What is in it is hostile.
type Exchange struct {
	Dir  string          // as commands see it
	host string          // as this host sees it; "" for through the backend
	sb   *client.Sandbox // for through the backend
}

// exchangeOf is the exchange of a sandbox.
func exchangeOf(sb *client.Sandbox) *Exchange {
	ready := sb.Ready()
	if e := ready.Exchange; e != nil {
		return &Exchange{Dir: e.Guest, host: e.Host, sb: sb}
	}
	return &Exchange{Dir: path.Join(ready.Workspace, sandbox.ExchangeDir), sb: sb}
}

// Bundle is the path of the bundle that hands in, as commands see it.
func (x *Exchange) Bundle() string { return path.Join(x.Dir, outputBundle) }

// OnHost says whether this host sees what is in it, and so needs no sandbox that runs.
func (x *Exchange) OnHost() bool { return x.host != "" }

// file is a small one that is put in.
type file struct {
	name    string
	content []byte
}

// files puts files there, and makes the directory.
func (x *Exchange) files(ctx context.Context, files []file) error {
	if x.host == "" {
		var tree bytes.Buffer
		t := tar.NewWriter(&tree)
		for _, f := range files {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644,
				Size: int64(len(f.content))}); err != nil {
				return err
			}
			if _, err := t.Write(f.content); err != nil {
				return err
			}
		}
		if err := t.Close(); err != nil {
			return err
		}
		return x.sb.Put(ctx, x.Dir, sdk.FormatTar, &tree)
	}
	for _, f := range files {
		if err := x.in(ctx, f.name, bytes.NewReader(f.content)); err != nil {
			return err
		}
	}
	return nil
}

// in puts a file there, in one step.
func (x *Exchange) in(ctx context.Context, name string, r io.Reader) error {
	if x.host == "" {
		return x.sb.Put(ctx, path.Join(x.Dir, name), sdk.FormatFile, r)
	}
	root, err := os.OpenRoot(x.host)
	if err != nil {
		return err
	}
	defer root.Close()
	part := name + ".part"
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.RemoveAll(part); err != nil {
		return err
	}
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return root.Rename(part, name)
}

// ErrNoBundle says that there is no output bundle yet.
var ErrNoBundle = errors.New("there is no output bundle")

// Fetch copies the bundle that hands in to w, at most max bytes of it. The error is [ErrNoBundle] without one
// yet, and a [*HostileError] when something else stands there.
func (x *Exchange) Fetch(ctx context.Context, w io.Writer, max int64) error {
	if x.host == "" {
		bounded := &keep.Limit{W: w, Max: max}
		err := x.sb.Get(ctx, x.Bundle(), sdk.FormatFile, bounded)
		switch {
		case bounded.Over:
			return &HostileError{fmt.Errorf("it is larger than %s", units.FormatSize(max)), true}
		case errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}):
			return ErrNoBundle
		case errors.Is(err, &sdk.Error{Reason: sdk.ReasonConfig}):
			return &HostileError{Err: err}
		}
		return err
	}
	root, err := os.OpenRoot(x.host)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoBundle
	}
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = safefile.Copy(ctx, w, root, outputBundle, max)
	var bad *safefile.Error
	switch {
	case errors.As(err, &bad) && bad.Reason == safefile.ReasonMissing:
		return ErrNoBundle
	case errors.As(err, &bad) && bad.Reason == safefile.ReasonTooBig:
		return &HostileError{fmt.Errorf("it is larger than %s", units.FormatSize(max)), true}
	case errors.As(err, &bad) && bad.Reason != safefile.ReasonIO:
		return &HostileError{Err: fmt.Errorf("%s: %s", x.Bundle(), bad.Detail)}
	}
	return err
}

// HostileError says that what stands where the bundle should be is not a bundle.
type HostileError struct {
	Err      error
	TooLarge bool // it may be one, and is larger than allowed
}

// Error implements error.
func (e *HostileError) Error() string { return "the bundle cannot be fetched: " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *HostileError) Unwrap() error { return e.Err }

// Drop removes the bundle that hands in, so that the next pull makes a new one; it need not be there.
func (x *Exchange) Drop(ctx context.Context) error { return x.remove(ctx, outputBundle, false) }

// Remove removes the exchange with all that is in it. Where the directory itself is the backend's, it may stay, empty.
func (x *Exchange) Remove(ctx context.Context) error {
	if x.host == "" {
		return x.remove(ctx, ".", true)
	}
	entries, err := os.ReadDir(x.host)
	for _, e := range entries {
		err = errors.Join(err, x.remove(ctx, e.Name(), true))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (x *Exchange) remove(ctx context.Context, name string, recursive bool) error {
	if x.host == "" {
		err := x.sb.Remove(ctx, path.Join(x.Dir, name), recursive)
		if errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
			return nil
		}
		return err
	}
	root, err := os.OpenRoot(x.host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(name)
}

// packing is a bundle that is being made. Git finds and compresses what belongs to it while other things are done, and
// what it has written waits in a pipe.
type packing struct {
	ends  []string // where the history in it ends
	sent  int64    // bytes that were read
	r     *os.File
	wrote chan error // git's end
	ended bool
	err   error // valid once ended
	stop  context.CancelFunc
}

// pack begins to make a bundle; close ends that, whether or not it was read.
func pack(ctx context.Context, w *Work, part bundle.Part) (*packing, error) {
	r, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &packing{ends: part.Ends, r: r, wrote: make(chan error, 1), stop: stop}
	go func() {
		err := bundle.Write(ctx, w.Repo, w.Commit, w.Branch, part, pw)
		p.wrote <- errors.Join(err, pw.Close())
	}()
	return p, nil
}

// whole begins to make a bundle of the history, as much of it as depth says.
func whole(ctx context.Context, w *Work, depth int) (*packing, error) {
	ends, err := w.Repo.Ends(ctx, w.Commit, depth)
	if err != nil {
		return nil, err
	}
	return pack(ctx, w, bundle.Part{Ends: ends})
}

// Read implements [io.Reader]. The end of the pipe is the end of the bundle only when git is content.
func (p *packing) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.sent += int64(n)
	if err == io.EOF {
		if werr := p.wait(); werr != nil {
			err = werr
		}
	}
	return n, err
}

func (p *packing) wait() error {
	if !p.ended {
		p.ended, p.err = true, <-p.wrote
	}
	return p.err
}

// close ends git, if it has not ended.
func (p *packing) close() {
	p.stop()
	_ = p.r.Close()
	_ = p.wait() // a reader that came to the end has seen the error
}
