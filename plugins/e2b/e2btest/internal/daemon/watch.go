package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem"
)

// watch is what a client wants to hear of.
type watch struct {
	root      string
	recursive bool
	entries   bool // with a description of what each event is about
	notify    *fsnotify.Watcher
}

// newWatch begins to watch a directory. What happens from now on is heard of.
func (s *filesystemService) newWatch(h http.Header, path string, recursive, entries bool) (*watch, error) {
	root, err := s.path(h, path)
	if err != nil {
		return nil, err
	}
	root = filepath.Clean(root)
	switch st, err := os.Stat(root); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("path %s not found: %w", root, err))
	case err != nil:
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error statting path %s: %w", root, err))
	case !st.IsDir():
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %s not a directory", root))
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error creating watcher: %w", err))
	}
	w := &watch{root: root, recursive: recursive, entries: entries, notify: notify}
	if err := w.add(root); err != nil {
		notify.Close()
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error adding path %s to watcher: %w", root, err))
	}
	return w, nil
}

// add watches a directory and, when that was asked for, those below. What is made in a new directory before it is
// watched is not heard of, as with envd.
func (w *watch) add(dir string) error {
	if !w.recursive {
		return w.notify.Add(dir)
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // what cannot be read, or is gone, cannot be watched
		}
		if err := w.notify.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// run reports what happens until ctx ends or the watcher breaks.
func (w *watch) run(ctx context.Context, tell func(*filesystem.FilesystemEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err, ok := <-w.notify.Errors:
			if !ok {
				return connect.NewError(connect.CodeInternal, errors.New("watcher error channel closed"))
			}
			return connect.NewError(connect.CodeInternal, fmt.Errorf("watcher error: %w", err))
		case e, ok := <-w.notify.Events:
			if !ok {
				return connect.NewError(connect.CodeInternal, errors.New("watcher event channel closed"))
			}
			if w.recursive && e.Has(fsnotify.Create) {
				if st, err := os.Lstat(e.Name); err == nil && st.IsDir() {
					if err := w.add(e.Name); err != nil {
						return connect.NewError(connect.CodeInternal, err)
					}
				}
			}
			for _, event := range w.events(e) {
				if err := tell(event); err != nil {
					return err
				}
			}
		}
	}
}

// events says what happened; one event of the kernel can be several.
func (w *watch) events(e fsnotify.Event) (out []*filesystem.FilesystemEvent) {
	name, err := filepath.Rel(w.root, e.Name)
	if err != nil {
		return nil
	}
	for _, k := range []struct {
		op   fsnotify.Op
		kind filesystem.EventType
	}{
		{fsnotify.Create, filesystem.EventType_EVENT_TYPE_CREATE},
		{fsnotify.Rename, filesystem.EventType_EVENT_TYPE_RENAME},
		{fsnotify.Chmod, filesystem.EventType_EVENT_TYPE_CHMOD},
		{fsnotify.Write, filesystem.EventType_EVENT_TYPE_WRITE},
		{fsnotify.Remove, filesystem.EventType_EVENT_TYPE_REMOVE},
	} {
		if !e.Has(k.op) {
			continue
		}
		event := &filesystem.FilesystemEvent{Name: name, Type: k.kind}
		if w.entries {
			if entry, err := entryOf(e.Name); err == nil { // gone already: nothing to describe
				event.Entry = entry
			}
		}
		out = append(out, event)
	}
	return out
}

func (s *filesystemService) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	w, err := s.newWatch(req.Header(), req.Msg.GetPath(), req.Msg.GetRecursive(), req.Msg.GetIncludeEntry())
	if err != nil {
		return err
	}
	defer w.notify.Close()
	if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return connect.NewError(connect.CodeUnknown, fmt.Errorf("error sending start event: %w", err))
	}
	var mu sync.Mutex // a stream is written to by one at a time
	send := func(m *filesystem.WatchDirResponse) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(m)
	}
	ticker := keepAlive(ctx, req.Header())
	defer ticker.Stop()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}) != nil {
					return
				}
			}
		}
	})
	return w.run(ctx, func(event *filesystem.FilesystemEvent) error {
		return send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: event}})
	})
}

// watchers are the watches that clients ask for events.
type watchers struct {
	mu   sync.Mutex
	byID map[string]*polled
}

// polled is a watch whose events wait until they are fetched.
type polled struct {
	*watch
	cancel context.CancelFunc

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	err    error // why there will be no more
}

func newWatchers() *watchers { return &watchers{byID: map[string]*polled{}} }

func (ws *watchers) find(id string) (*polled, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil {
		return w, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
}

func (s *filesystemService) CreateWatcher(_ context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	w, err := s.newWatch(req.Header(), req.Msg.GetPath(), req.Msg.GetRecursive(), req.Msg.GetIncludeEntry())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &polled{watch: w, cancel: cancel}
	go func() {
		err := w.run(ctx, func(event *filesystem.FilesystemEvent) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.events = append(p.events, event)
			return nil
		})
		w.notify.Close()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
	}()
	id := "w" + rand.Text()
	s.watchers.mu.Lock()
	s.watchers.byID[id] = p
	s.watchers.mu.Unlock()
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

func (s *filesystemService) GetWatcherEvents(_ context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	p, err := s.watchers.find(req.Msg.GetWatcherId())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	events := p.events
	p.events = nil
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

func (s *filesystemService) RemoveWatcher(_ context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	id := req.Msg.GetWatcherId()
	p, err := s.watchers.find(id)
	if err != nil {
		return nil, err
	}
	p.cancel()
	s.watchers.mu.Lock()
	delete(s.watchers.byID, id)
	s.watchers.mu.Unlock()
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}
