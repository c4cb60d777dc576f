package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem"
)

// filesystemService is the RPC service filesystem.Filesystem.
type filesystemService struct{ *Daemon }

// path makes the path of a request absolute.
func (s *filesystemService) path(h http.Header, path string) (string, error) {
	who, err := s.caller(h)
	if err != nil {
		return "", err
	}
	if path, err = s.resolve(path, who); err != nil {
		return "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return path, nil
}

// rpcEntry is entryOf with an RPC's error.
func rpcEntry(path string) (*filesystem.EntryInfo, error) {
	e, err := entryOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("file not found: %w", err))
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	}
	return e, nil
}

func (s *filesystemService) Stat(_ context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	path, err := s.path(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	e, err := rpcEntry(path)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: e}), nil
}

func (s *filesystemService) MakeDir(_ context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	path, err := s.path(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	switch st, err := os.Stat(path); {
	case err == nil && st.IsDir():
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
	case err == nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", path))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	}
	if err := ensureDirs(path); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	e, err := rpcEntry(path)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: e}), nil
}

func (s *filesystemService) Move(_ context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	from, err := s.path(req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	to, err := s.path(req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	if err := ensureDirs(filepath.Dir(to)); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	if err := os.Rename(from, to); errors.Is(err, fs.ErrNotExist) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("source file not found: %w", err))
	} else if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error renaming: %w", err))
	}
	e, err := rpcEntry(to)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: e}), nil
}

func (s *filesystemService) ListDir(_ context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	asked, err := s.path(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	depth := max(1, int(req.Msg.GetDepth()))
	root, err := filepath.EvalSymlinks(asked)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("path not found: %w", err))
	case errors.Is(err, syscall.ELOOP) || err != nil && strings.Contains(err.Error(), "too many links"):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cyclic symlink or chain >255 links at %q", asked))
	case err != nil:
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error resolving symlink: %w", err))
	}
	if st, err := os.Stat(root); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	} else if !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", root))
	}
	var out []*filesystem.EntryInfo
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == root {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		level := strings.Count(rel, "/") + 1
		if level > depth {
			return filepath.SkipDir
		}
		e, err := entryOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		e.Path = filepath.Join(asked, rel) // as the caller sees it, symbolic links on the way included
		out = append(out, e)
		if level == depth && d.IsDir() {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error reading directory %s: %w", root, err))
	}
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: out}), nil
}

func (s *filesystemService) Remove(_ context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	path, err := s.path(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error removing file or directory: %w", err))
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}
