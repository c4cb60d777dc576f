package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// sandbox is a few directories of this machine and what commands may do with them.
type sandbox struct {
	spec     sdk.Spec
	held     *held
	dir      string // the layer: all that the sandbox writes, but for a shared workspace
	ready    sdk.Ready
	snapshot *overlay.Snapshot // of the workspace before the first command; nil where nothing can change
	sampler  *limits.Sampler
}

// newSandbox makes the directories of a sandbox.
func newSandbox(ctx context.Context, req *sdk.CreateRequest, held *held) (*sandbox, error) {
	state, err := filepath.EvalSymlinks(req.StateDir) // rules and answers are about real paths
	if err != nil {
		return nil, err
	}
	s := &sandbox{spec: req.Spec, held: held, dir: filepath.Join(state, layerName)}
	s.ready = sdk.Ready{Workspace: s.path("workspace"), Output: s.path("output"), Holds: held.Holds,
		Notes: append(held.Notes(), notes(&req.Spec)...)}
	for _, dir := range []string{s.dir, s.path("output"), s.path("tmp")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if req.Input != "" {
		if s.ready.Input, err = filepath.EvalSymlinks(req.Input); err != nil {
			return nil, err
		}
	}
	if err := s.makeWorkspace(ctx); err != nil {
		return nil, err
	}
	s.sampler = &limits.Sampler{Memory: held.Sampled, Trees: true, PIDs: held.pids}
	if held.Disk > 0 {
		dir, err := os.Open(s.dir)
		if err != nil {
			return nil, err
		}
		s.sampler.Disk = &limits.Space{Dir: dir, Bytes: held.Disk, Made: limits.UsageOf(dir), Eager: req.Limits.Disk > 0}
	}
	return s, nil
}

// close closes what the sandbox holds open.
func (s *sandbox) close() {
	if s.sampler != nil && s.sampler.Disk != nil {
		s.sampler.Disk.Dir.Close()
	}
}

// path is a directory of the layer.
func (s *sandbox) path(name string) string { return filepath.Join(s.dir, name) }

// makeWorkspace copies a private workspace, and remembers what it looks like.
func (s *sandbox) makeWorkspace(ctx context.Context) error {
	ws := s.spec.Workspace
	if ws.Source == "" {
		s.ready.Layers = &sdk.Layers{Upper: s.ready.Workspace}
		return os.Mkdir(s.ready.Workspace, 0o755)
	}
	source, err := filepath.EvalSymlinks(ws.Source)
	if err != nil {
		return err
	}
	if ws.Mode != sdk.WorkspacePrivate {
		s.ready.Workspace, s.ready.Layers = source, &sdk.Layers{Lower: ws.Source}
		if ws.Mode == sdk.WorkspaceReadOnly {
			return nil
		}
	} else {
		left, err := overlay.CopyTree(ctx, source, s.ready.Workspace)
		if err != nil {
			return fmt.Errorf("copy the workspace: %w", err)
		}
		if left > 0 {
			s.ready.Notes = append(s.ready.Notes, fmt.Sprintf("the copy of the workspace lacks %d entries "+
				"that are neither files, directories nor links, or that your user cannot read", left))
		}
	}
	var note string
	if s.snapshot, note, err = inside.Snapshot(ctx, s.ready.Workspace); err == nil && note != "" {
		s.ready.Notes = append(s.ready.Notes, note)
	}
	return err
}

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready { return s.ready }

// writable are the directories below which commands write.
func (s *sandbox) writable() []string {
	dirs := []string{s.ready.Output, s.path("tmp")}
	if s.spec.Workspace.Mode != sdk.WorkspaceReadOnly || s.spec.Workspace.Source == "" {
		dirs = append(dirs, s.ready.Workspace)
	}
	return dirs
}

// withFiles calls fn with the files of the sandbox's directory that p lies in.
func (s *sandbox) withFiles(p string, write bool, fn func(inside.Files) error) error {
	dirs := s.writable()
	if !write {
		dirs = append(dirs, s.ready.Input, s.ready.Workspace)
	}
	at := s.ready.Workspace
	for _, dir := range dirs {
		if dir != "" && (path.Clean(p) == dir || strings.HasPrefix(path.Clean(p), dir+"/")) {
			at = dir
		}
	}
	if write && at == s.ready.Workspace && s.spec.Workspace.Mode == sdk.WorkspaceReadOnly &&
		s.spec.Workspace.Source != "" {
		return sdk.Errorf(sdk.ReasonDenied, "%s cannot be written: the workspace is read-only", p)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return inside.Error(p, err)
	}
	defer root.Close()
	return fn(inside.Files{Root: root, At: at, Own: []string{s.ready.Workspace, s.ready.Input, s.ready.Output,
		s.path("tmp")}})
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	return s.withFiles(p, false, func(f inside.Files) error { return f.Get(ctx, p, format, w) })
}

// Put implements [sdk.Putter].
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	return s.withFiles(p, true, func(f inside.Files) error { return f.Put(ctx, p, format, r) })
}

// Remove implements [sdk.Remover].
func (s *sandbox) Remove(_ context.Context, p string, recursive bool) error {
	return s.withFiles(p, true, func(f inside.Files) error { return f.Remove(p, recursive) })
}

// Changes implements [sdk.ChangeLister].
func (s *sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	if s.snapshot == nil {
		return nil, nil
	}
	return inside.ChangesSince(ctx, s.snapshot, s.ready.Workspace)
}

// system is what commands may read of this machine: programs, libraries, and of /etc what the dynamic linker, the C
// library and TLS need; and the command's input. Missing paths do not matter.
var system = []string{
	"/proc/self/fd/0", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types",
	"/etc/nsswitch.conf",
	"/etc/passwd", "/etc/group", "/etc/pki/ca-trust", "/etc/pki/tls", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
}

// resolver is what looking up names needs besides.
var resolver = []string{"/etc/hosts", "/etc/resolv.conf"}

// devices are those that are harmless, and the streams of the command, which programs open again as /dev/stdout.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
	"/proc/self/fd/1", "/proc/self/fd/2"}

// readable are the paths that commands may read.
func (s *sandbox) readable() []string {
	paths := append(append([]string{s.ready.Workspace}, system...), configOf(&s.spec).ROPaths...)
	if s.ready.Input != "" {
		paths = append(paths, s.ready.Input)
	}
	if s.spec.Network == sdk.NetworkFull {
		paths = append(paths, resolver...)
	}
	return paths
}
