package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// source is the sandbox's side. Everything that comes from it is hostile and may change while it is read.
type source interface {
	// changes lists what differs from the project, in path order, and what was seen there if it was looked at. With
	// overlay.ErrTooMany or overlay.ErrUnreadable come the changes that were found.
	changes(ctx context.Context) ([]overlay.Difference, error)
	// look says what stands at a path of a change.
	look(path string) (Node, ident, error)
	// copy writes the content of a file of at most max bytes to dst. It may be called concurrently.
	copy(ctx context.Context, dst io.Writer, path string, max int64) (safefile.Copied, error)
	close()
}

// layers is a source that lies in directories of this host.
type layers struct {
	lower, upper *os.Root
	dir          *dir // upper once more
	options      overlay.Options
	elsewhere    bool // lower is not the project
}

func openLayers(l *sdk.Layers, project *dir, o overlay.Options) (_ *layers, err error) {
	s := &layers{options: o}
	s.options.Trusted = l.Trusted
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.lower, err = os.OpenRoot(l.Lower); err != nil {
		return nil, fmt.Errorf("open the project: %w", err)
	}
	if s.upper, err = os.OpenRoot(l.Upper); err != nil {
		return nil, fmt.Errorf("open what the sandbox wrote: %w", err)
	}
	if s.dir, err = openDir(l.Upper); err != nil {
		return nil, fmt.Errorf("open what the sandbox wrote: %w", err)
	}
	var lower, top unix.Stat_t
	f, err := s.lower.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open the project: %w", err)
	}
	defer f.Close()
	if err := errors.Join(unix.Fstat(int(f.Fd()), &lower), unix.Fstat(project.top, &top)); err != nil {
		return nil, fmt.Errorf("look at the project: %w", err)
	}
	s.elsewhere = lower.Dev != top.Dev || lower.Ino != top.Ino
	return s, nil
}

func (s *layers) changes(ctx context.Context) ([]overlay.Difference, error) {
	list, err := overlay.Differences(ctx, s.lower, s.upper, s.options)
	for i := range list {
		list[i].Seen = list[i].Seen && !s.elsewhere
	}
	return list, err
}

func (s *layers) look(path string) (Node, ident, error) { return s.dir.look(path) }

func (s *layers) copy(ctx context.Context, dst io.Writer, path string, max int64) (safefile.Copied, error) {
	return safefile.Copy(ctx, dst, s.upper, path, max)
}

func (s *layers) close() {
	for _, r := range []*os.Root{s.lower, s.upper} {
		if r != nil {
			r.Close()
		}
	}
	if s.dir != nil {
		s.dir.close()
	}
}
