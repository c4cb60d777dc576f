package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	pb "github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem"
	"github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem/filesystemconnect"
)

// filesystemService is the RPC service filesystem.Filesystem, without its watchers.
type filesystemService struct {
	filesystemconnect.UnimplementedFilesystemHandler
	*Daemon
}

// path makes the path of a request absolute.
func (s *filesystemService) path(ctx context.Context, path string) (string, error) {
	who, err := s.caller(ctx)
	if err != nil {
		return "", err
	}
	if path, err = s.resolve(path, who); err != nil {
		return "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return path, nil
}

// rpcEntry is entryOf with an RPC's error.
func rpcEntry(path string) (*pb.EntryInfo, error) {
	e, err := entryOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, rpcError(connect.CodeNotFound, "file not found: %w", err)
	}
	if err != nil {
		return nil, rpcError(connect.CodeInternal, "error getting file info: %w", err)
	}
	return e, nil
}

func (s *filesystemService) Stat(ctx context.Context, req *pb.StatRequest) (*pb.StatResponse, error) {
	path, err := s.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	e, err := rpcEntry(path)
	return &pb.StatResponse{Entry: e}, err
}

func (s *filesystemService) MakeDir(ctx context.Context, req *pb.MakeDirRequest) (*pb.MakeDirResponse, error) {
	path, err := s.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	switch st, err := os.Stat(path); {
	case err == nil && st.IsDir():
		return nil, rpcError(connect.CodeAlreadyExists, "directory already exists: %s", path)
	case err == nil:
		return nil, rpcError(connect.CodeInvalidArgument, "path already exists but it is not a directory: %s", path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, rpcError(connect.CodeInternal, "error getting file info: %w", err)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	e, err := rpcEntry(path)
	return &pb.MakeDirResponse{Entry: e}, err
}

func (s *filesystemService) Move(ctx context.Context, req *pb.MoveRequest) (*pb.MoveResponse, error) {
	from, err := s.path(ctx, req.GetSource())
	if err != nil {
		return nil, err
	}
	to, err := s.path(ctx, req.GetDestination())
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	if err := os.Rename(from, to); errors.Is(err, fs.ErrNotExist) {
		return nil, rpcError(connect.CodeNotFound, "source file not found: %w", err)
	} else if err != nil {
		return nil, rpcError(connect.CodeInternal, "error renaming: %w", err)
	}
	e, err := rpcEntry(to)
	return &pb.MoveResponse{Entry: e}, err
}

func (s *filesystemService) ListDir(ctx context.Context, req *pb.ListDirRequest) (*pb.ListDirResponse, error) {
	asked, err := s.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(asked)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, rpcError(connect.CodeNotFound, "path not found: %w", err)
	case errors.Is(err, syscall.ELOOP) || err != nil && strings.Contains(err.Error(), "too many links"):
		return nil, rpcError(connect.CodeFailedPrecondition, "cyclic symlink or chain >255 links at %q", asked)
	case err != nil:
		return nil, rpcError(connect.CodeInternal, "error resolving symlink: %w", err)
	}
	if st, err := os.Stat(root); err != nil {
		return nil, rpcError(connect.CodeInternal, "error getting file info: %w", err)
	} else if !st.IsDir() {
		return nil, rpcError(connect.CodeInvalidArgument, "path is not a directory: %s", root)
	}
	entries, err := listDir(root, asked, max(1, int(req.GetDepth())))
	if err != nil {
		return nil, rpcError(connect.CodeInternal, "error reading directory %s: %w", root, err)
	}
	return &pb.ListDirResponse{Entries: entries}, nil
}

// listDir describes what is at most depth levels below the directory root, with paths below shown, which is root as the
// client names it.
func listDir(root, shown string, depth int) (out []*pb.EntryInfo, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		e, err := entryOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path[len(root):], "/")
		e.Path = filepath.Join(shown, rel)
		out = append(out, e)
		if d.IsDir() && strings.Count(rel, "/")+1 == depth {
			return filepath.SkipDir
		}
		return nil
	})
	return out, err
}

func (s *filesystemService) Remove(ctx context.Context, req *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	path, err := s.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, rpcError(connect.CodeInternal, "error removing file or directory: %w", err)
	}
	return &pb.RemoveResponse{}, nil
}
