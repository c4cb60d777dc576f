package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
	"github.com/hutch-run/hutch/sdk/tree"
)

// Files are reached by a command of ours in the sandbox, with the view and the rights that any command there has.

// Put implements [sdk.Putter].
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	return s.files(ctx, []string{"put", string(format), p}, format, r, io.Discard)
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	if format == sdk.FormatFile {
		w = sdk.SizeLine(ctx, w)
	}
	return s.files(ctx, []string{"get", string(format), p}, format, nil, w)
}

// Remove implements [sdk.Remover].
func (s *sandbox) Remove(ctx context.Context, p string, recursive bool) error {
	clean := path.Clean(p)
	for _, own := range []string{s.ready.Workspace, guestpath.Input(true), guestpath.Output(true), "/tmp", "/var/tmp", s.exchangeGuest()} {
		if own != "" && path.IsAbs(p) && (clean == "/" || own == clean || strings.HasPrefix(own, clean+"/")) {
			return sdk.Errorf(sdk.ReasonConfig, "%s is part of the sandbox and cannot be removed", p).WithFix("remove what is in it")
		}
	}
	op := "remove"
	if recursive {
		op = "remove-all"
	}
	return s.files(ctx, []string{op, p}, sdk.FormatFile, nil, io.Discard)
}

func (s *sandbox) exchangeGuest() string {
	if s.ready.Exchange == nil {
		return ""
	}
	return s.ready.Exchange.Guest
}

// files runs one operation on files to its end.
func (s *sandbox) files(ctx context.Context, argv []string, format sdk.Format, r io.Reader, w io.Writer) error {
	l, release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if p := argv[len(argv)-1]; !path.IsAbs(p) {
		return sdk.Errorf(sdk.ReasonConfig, "the path %q inside the sandbox is not absolute", p)
	} else if strings.Contains(p, "\x00") {
		return sdk.Errorf(sdk.ReasonConfig, "the path %q inside the sandbox has a zero byte", p)
	}
	if format != sdk.FormatFile && format != sdk.FormatTar {
		return sdk.Errorf(sdk.ReasonUnsupported, "lima does not speak %q", format)
	}
	req := wire.Request{Op: wire.OpExec, ID: s.rec.ID, Files: true, Exec: &remote.Exec{Argv: bytesOf(argv), Dir: []byte("/")}}
	var said bytes.Buffer
	sink := &writeError{w: w}
	var in io.ReadCloser
	if r != nil {
		in = io.NopCloser(r)
	}
	c, err := l.client.Start(req, in, nopCloser{sink}, nopCloser{&said})
	if err != nil {
		return l.lost(err)
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
		return l.lost(err)
	case sink.err != nil:
		return sink.err
	case exit.Err != nil:
		return exit.Err
	}
	reply := &wire.Reply{}
	if err := json.Unmarshal(said.Bytes(), reply); err != nil {
		return sdk.Errorf(sdk.ReasonInternal, "hutch's program in the VM ended without a word: %+v: %s", *exit, said.String())
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

// Bounds of what is copied into a VM.
const (
	maxEntries = 2_000_000
	maxBytes   = 256 << 30
)

// fill copies a directory of the host into a part of the sandbox.
func (s *sandbox) fill(ctx context.Context, l *link, part wire.Part, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "the %s cannot be read: %w", part, err)
	}
	defer root.Close()
	_, err = l.ask(ctx, wire.Request{Op: wire.OpFill, ID: s.rec.ID, Part: part}, func(w io.Writer) error {
		sum, err := tree.Pack(ctx, root, w, tree.PackOptions{Special: true, MaxEntries: maxEntries, MaxBytes: maxBytes})
		note := ""
		switch {
		case sum.LeftOut == 1:
			note = fmt.Sprintf("one file of the %s was not copied into the VM: %s", part, sum.FirstLeftOut)
		case sum.LeftOut > 1:
			note = fmt.Sprintf("%d files of the %s were not copied into the VM, the first is %s", sum.LeftOut, part, sum.FirstLeftOut)
		}
		if note != "" {
			s.ready.Notes = append(s.ready.Notes, note)
		}
		return err
	})
	return err
}

// fillWorkspace copies the source into the workspace and remembers what it looked like.
func (s *sandbox) fillWorkspace(ctx context.Context, l *link) error {
	if s.rec.Workspace.Source == "" {
		return nil
	}
	s.say.say("copying the workspace into the VM")
	if err := s.fill(ctx, l, wire.PartWorkspace, s.rec.Workspace.Source); err != nil {
		return err
	}
	_, err := l.ask(ctx, wire.Request{Op: wire.OpSnapshot, ID: s.rec.ID}, nil)
	return err
}
