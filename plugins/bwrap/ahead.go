package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk"
)

// ahead is what is left to do when a sandbox that was made ahead of its use, see [sdk.CreateRequest.Ahead], is used
// first: to mount the overlay over a workspace that may have changed until then. bwrap and pid 1 of the first command
// run by then, and see the mount because bwrap's root is a slave of the holder's.
type ahead struct {
	layer    string // "" when there is nothing to mount: the workspace is empty
	volatile bool
	copied   map[string]string // what is in the sandbox as it was: file on the host to its identity
}

// identify distinguishes a file from what it was, or will be.
func identify(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
}

// newAhead refuses what is not worth it.
func newAhead(spec *sdk.Spec) (*ahead, error) {
	if ws := &spec.Workspace; ws.Source != "" && ws.Mode != sdk.WorkspacePrivate || hasNetwork(spec) {
		return nil,
			sdk.Errorf(sdk.ReasonUnsupported,
				"only a sandbox with a private workspace and without a network can be made ahead of its use")
	}
	return &ahead{}, nil
}

// prepare does all that can be done in a world before its first use.
func (s *sandbox) prepare(w *world, l *layout) (err error) {
	bwrap, err := findBwrap()
	if err != nil {
		return err
	}
	s.ahead.copied = map[string]string{bwrap: identify(bwrap)}
	for _, f := range l.setup.Files {
		if source := string(f.Data); f.Kind == wire.Copy && strings.HasPrefix(source, "/etc/") {
			s.ahead.copied[source] = identify(source)
		}
	}
	if l.setup.Late {
		s.ahead.layer, s.ahead.volatile = l.layer, l.volatile
	}
	if w.waiting, err = w.holder.Spawn(initPath, nil, nil); err != nil {
		return err
	}
	pid := w.waiting.AwaitInit()
	if pid == 0 { // bwrap failed, as it will do again
		return nil
	}
	w.mounts, _ = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)) // an ordinary user may not
	if w.group != nil {
		return w.group.Add(pid)
	}
	return nil
}

// begin ends the time before the first use. s.mu is held.
func (s *sandbox) begin() error {
	s.aheadMu.Lock()
	defer s.aheadMu.Unlock()
	a := s.ahead
	if a == nil {
		return nil
	}
	for path, was := range a.copied {
		if identify(path) != was {
			return sdk.Errorf(sdk.ReasonUnavailable, "%s has changed since the sandbox was made", path)
		}
	}
	if s.ident.mountsChanged() {
		return sdk.Errorf(sdk.ReasonUnavailable, "the mounts of this machine have changed since the sandbox was made")
	}
	if a.layer != "" {
		lower := project
		if !s.ident.Privileged {
			copied, err := copyUnmapped(context.Background(), s.spec.Workspace.Source, s.dir)
			switch {
			case err != nil:
				return err
			case copied.Entries > 0 && a.layer != diskLayer:
				return sdk.Errorf(sdk.ReasonUnavailable, "%s", copied.Note())
			case copied.Entries > 0:
				lower = a.layer + "/copies:" + project
			}
		}
		if a.layer == diskLayer {
			owner, err := ownerOf(s.spec.Workspace.Source)
			if err == nil {
				err = os.Chtimes(filepath.Join(s.dir, "layer", "upper"), time.Unix(owner.Atim.Unix()), time.Unix(owner.Mtim.Unix()))
			}
			if err != nil {
				return err
			}
		}
		if err := s.holder.Mount(overlayOf(a.layer, lower, a.volatile)); err != nil {
			return sdk.Errorf(sdk.ReasonInternal, "mount the workspace: %w", err)
		}
	}
	s.ahead = nil
	return nil
}

// takeWaiting returns what waits for a command since before the first use, once; nil when nothing does.
func (s *sandbox) takeWaiting() *holder.Process {
	s.aheadMu.Lock()
	defer s.aheadMu.Unlock()
	p := s.waiting
	s.waiting = nil
	if p != nil && isClosed(p.Over()) { // killed meanwhile
		_, _ = p.Wait()
		return nil
	}
	return p
}
