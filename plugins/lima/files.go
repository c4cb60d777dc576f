package main

import (
	"context"
	"io"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/remoteexec"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
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
	argv, err := remoteexec.RemoveArgs(p, recursive, []string{s.ready.Workspace, guestpath.Input(true),
		guestpath.Output(true), "/tmp", "/var/tmp", s.exchangeGuest()})
	if err != nil {
		return err
	}
	return s.files(ctx, argv, sdk.FormatFile, nil, io.Discard)
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
	if format != sdk.FormatFile && format != sdk.FormatTar {
		return sdk.Errorf(sdk.ReasonUnsupported, "lima does not speak %q", format)
	}
	request := func(e *remote.Exec) any { return wire.Request{Op: wire.OpExec, ID: s.rec.ID, Files: true, Exec: e} }
	return l.lost(remoteexec.Files(ctx, l.client, request, argv, r, w))
}

// fill copies a directory of the host into a part of the sandbox.
func (s *sandbox) fill(ctx context.Context, l *link, part wire.Part, dir string) error {
	_, err := l.ask(ctx, wire.Request{Op: wire.OpFill, ID: s.rec.ID, Part: part}, func(w io.Writer) error {
		note, err := remoteexec.Pack(ctx, dir, string(part), w)
		if note != "" {
			s.ready.Notes = append(s.ready.Notes, note)
		}
		return err
	})
	return err
}

// fillWorkspace copies the source into the workspace and remembers what it looked like.
func (s *sandbox) fillWorkspace(ctx context.Context, l *link) error {
	if s.rec.Spec.Workspace.Source == "" {
		return nil
	}
	s.say.say("copying the workspace into the VM")
	if err := s.fill(ctx, l, wire.PartWorkspace, s.rec.Spec.Workspace.Source); err != nil {
		return err
	}
	_, err := l.ask(ctx, wire.Request{Op: wire.OpSnapshot, ID: s.rec.ID}, nil)
	return err
}
