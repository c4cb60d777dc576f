package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/tree"
)

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
		note := &leftOut{}
		in, out := io.Pipe()
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			note.watch(in)
		}()
		_, err := tree.Pack(ctx, root, io.MultiWriter(w, out), tree.PackOptions{Special: true, MaxEntries: maxEntries, MaxBytes: maxBytes})
		out.Close()
		<-watched
		if note.n > 0 {
			s.ready.Notes = append(s.ready.Notes, note.text(part))
		}
		return err
	})
	return err
}

// leftOut counts what a tree holds that cannot be copied: special files, and what this user may not read.
type leftOut struct {
	n     int
	first string
}

func (l *leftOut) watch(r io.Reader) {
	defer func() { _, _ = io.Copy(io.Discard, r) }()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err != nil {
			return
		}
		if reason, _ := tree.LeftOut(h); reason != "" {
			if l.n++; l.n == 1 {
				l.first = fmt.Sprintf("%q (%s)", h.Name, reason)
			}
		}
	}
}

func (l *leftOut) text(part wire.Part) string {
	if l.n == 1 {
		return fmt.Sprintf("one file of the %s was not copied into the VM: %s", part, l.first)
	}
	return fmt.Sprintf("%d files of the %s were not copied into the VM, the first is %s", l.n, part, l.first)
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
