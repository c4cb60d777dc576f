package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"

	pb "github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem"
)

// watch is what a client wants to be notified of.
type watch struct {
	root      string
	recursive bool
	entries   bool // describe what each event is about
	*fsnotify.Watcher
}

// WatchDir reports what happens in a directory until the client leaves.
func (s *filesystemService) WatchDir(
	ctx context.Context, req *pb.WatchDirRequest, stream *connect.ServerStream[pb.WatchDirResponse],
) error {
	w, err := s.newWatch(ctx, req)
	if err != nil {
		return err
	}
	defer w.Close()
	start := &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}
	if err := stream.Send(&pb.WatchDirResponse{Event: start}); err != nil {
		return err
	}
	ticker := keepAlive(requestHeader(ctx))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-w.Errors:
			return rpcError(connect.CodeInternal, "watcher error: %w", err)
		case <-ticker.C:
			alive := &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}
			if err := stream.Send(&pb.WatchDirResponse{Event: alive}); err != nil {
				return err
			}
		case e := <-w.Events:
			if err := w.addNew(e); err != nil {
				return connect.NewError(connect.CodeInternal, err)
			}
			for _, event := range w.events(e) {
				out := &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: event}}
				if err := stream.Send(out); err != nil {
					return err
				}
			}
		}
	}
}

// newWatch starts to watch a directory.
func (s *filesystemService) newWatch(ctx context.Context, req *pb.WatchDirRequest) (*watch, error) {
	root, err := s.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	root = filepath.Clean(root)
	switch st, err := os.Stat(root); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, rpcError(connect.CodeNotFound, "path %s not found: %w", root, err)
	case err != nil:
		return nil, rpcError(connect.CodeInternal, "error statting path %s: %w", root, err)
	case !st.IsDir():
		return nil, rpcError(connect.CodeInvalidArgument, "path %s not a directory", root)
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, rpcError(connect.CodeInternal, "error creating watcher: %w", err)
	}
	w := &watch{root: root, recursive: req.GetRecursive(), entries: req.GetIncludeEntry(), Watcher: notify}
	if err := w.add(root); err != nil {
		w.Close()
		return nil, rpcError(connect.CodeInternal, "error adding path %s to watcher: %w", root, err)
	}
	return w, nil
}

// add watches a directory and, when recursive, those below.
func (w *watch) add(dir string) error {
	if !w.recursive {
		return w.Add(dir)
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a directory that cannot be read or is gone cannot be watched
		}
		if err := w.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// addNew watches a new directory. As with envd, what is made in it before that is not reported.
func (w *watch) addNew(e fsnotify.Event) error {
	if !w.recursive || !e.Has(fsnotify.Create) {
		return nil
	}
	if st, err := os.Lstat(e.Name); err != nil || !st.IsDir() {
		return nil //nolint:nilerr // removed again
	}
	return w.add(e.Name)
}

// events converts an event of the kernel, which can be several of envd's.
func (w *watch) events(e fsnotify.Event) (out []*pb.FilesystemEvent) {
	name, err := filepath.Rel(w.root, e.Name)
	if err != nil {
		return nil
	}
	for _, k := range []struct {
		op   fsnotify.Op
		kind pb.EventType
	}{
		{fsnotify.Create, pb.EventType_EVENT_TYPE_CREATE},
		{fsnotify.Rename, pb.EventType_EVENT_TYPE_RENAME},
		{fsnotify.Chmod, pb.EventType_EVENT_TYPE_CHMOD},
		{fsnotify.Write, pb.EventType_EVENT_TYPE_WRITE},
		{fsnotify.Remove, pb.EventType_EVENT_TYPE_REMOVE},
	} {
		if !e.Has(k.op) {
			continue
		}
		event := &pb.FilesystemEvent{Name: name, Type: k.kind}
		if w.entries {
			event.Entry, _ = entryOf(e.Name) // nil for what is gone already
		}
		out = append(out, event)
	}
	return out
}
