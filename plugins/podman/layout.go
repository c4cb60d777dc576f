package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/gitguard"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// Paths as the sandbox sees them.
const (
	workspacePath = guestpath.Workspace
	homePath      = "/tmp"
)

// dirs are the directories of one sandbox on the host, below its state directory.
type dirs struct{ state string }

func (d dirs) base() string  { return filepath.Join(d.state, "podman") }
func (d dirs) layer() string { return filepath.Join(d.base(), "layer") }
func (d dirs) upper() string { return filepath.Join(d.layer(), "upper") }
func (d dirs) work() string  { return filepath.Join(d.layer(), "work") }

// of a project that an overlay could not change
func (d dirs) copies() string  { return filepath.Join(d.base(), "copies") }
func (d dirs) output() string  { return filepath.Join(d.layer(), "output") }
func (d dirs) tmp() string     { return filepath.Join(d.layer(), "tmp") }
func (d dirs) shm() string     { return filepath.Join(d.layer(), "shm") }
func (d dirs) socket() string  { return filepath.Join(d.base(), "agent") }
func (d dirs) pid() string     { return filepath.Join(d.base(), "pid") }
func (d dirs) log() string     { return filepath.Join(d.base(), "log") } // of the agent alone
func (d dirs) seccomp() string { return filepath.Join(d.base(), "seccomp.json") }
func (d dirs) alias() string   { return filepath.Join(d.base(), "alias") }

// layout collects the mounts of one container.
type layout struct {
	id    string // of the sandbox
	dirs  dirs
	spec  *sdk.Spec
	cfg   *Config
	who   identity
	over  string // the overlay strategy, never auto
	lower string // what an overlay is laid over, if not the workspace's source
	flags []string
	ready sdk.Ready
	plan  bool // nothing is made: it is there already
	held  *held
	names int // of aliases
	err   error
}

// newLayout makes the host's side of a sandbox, and the options of podman run for it.
func newLayout(
	ctx context.Context, id string, d dirs, spec *sdk.Spec, who identity, over, lower string, held *held,
) (*layout, error) {
	l := &layout{id: id, held: held, dirs: d, spec: spec, cfg: configOf(spec), who: who, over: over, lower: lower}
	return l, l.fill(ctx)
}

// planLayout says what newLayout made.
func planLayout(
	ctx context.Context, id string, d dirs, spec *sdk.Spec, who identity, over string, held *held,
) (*layout, error) {
	l := &layout{id: id, held: held, dirs: d, spec: spec, cfg: configOf(spec), who: who, over: over, plan: true}
	return l, l.fill(ctx)
}

func (l *layout) fill(ctx context.Context) error {
	d := l.dirs
	if strings.ContainsAny(d.state, ":,\\\n\"") {
		return sdk.Errorf(sdk.ReasonConfig, "the state directory %q has a character that Podman takes apart",
			d.state).WithFix("set HUTCH_HOME to a directory without colon, comma, quote and backslash")
	}
	if err := l.make(ctx); err != nil {
		return err
	}
	for _, part := range []func() error{l.temporary, l.workspace, l.others, l.resolve} {
		if err := part(); err != nil {
			return err
		}
		if l.err != nil {
			return l.err
		}
	}
	return nil
}

// make makes the directories, which belong to the sandbox's user.
func (l *layout) make(ctx context.Context) error {
	if l.plan {
		return nil
	}
	d := l.dirs
	if err := os.Mkdir(d.base(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	if err := os.RemoveAll(d.alias()); err != nil {
		return err
	}
	for _, dir := range []string{d.alias(), d.layer()} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make the sandbox's directory: %w", err)
		}
	}
	if err := errors.Join(l.sized(), l.copyProject(ctx)); err != nil {
		return err
	}
	mode := os.FileMode(0o755)
	if st, err := os.Stat(l.spec.Workspace.Source); l.spec.Workspace.Source != "" && err == nil {
		mode = st.Mode() & (os.ModePerm | os.ModeSticky)
	}
	for dir, mode := range map[string]os.FileMode{d.upper(): mode, d.work(): 0o755, d.output(): 0o755,
		d.tmp(): 0o777 | os.ModeSticky, d.shm(): 0o777 | os.ModeSticky} {
		if err := l.who.mkdir(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// sized lays a sized file system under all that the sandbox writes, when there is a disk limit. Only root comes here.
func (l *layout) sized() error {
	if !l.held.InMemory || isMounted(l.dirs.layer()) {
		return nil
	}
	disk, copied := uint64(l.spec.Limits.Disk), l.copied()
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=700", disk+copied.Bytes, limits.FilesOf(disk)+copied.Files)
	if err := syscall.Mount("tmpfs", l.dirs.layer(), "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a file system of %s: %w", sdk.Bytes(l.spec.Limits.Disk), err)
	}
	return nil
}

// isMounted says whether another file system begins at dir.
func isMounted(dir string) bool {
	var here, above syscall.Stat_t
	return syscall.Lstat(dir, &here) == nil && syscall.Lstat(filepath.Dir(dir), &above) == nil && here.Dev != above.Dev
}

// temporary adds what is lost with the container: /tmp, shared memory, and what the configuration asks for.
func (l *layout) temporary() error {
	size := int64(l.cfg.TmpSize)
	if l.held.Disk > 0 {
		size = min(size, int64(l.held.Disk))
	}
	if l.held.InMemory {
		l.bind(l.dirs.tmp(), "/tmp", "rw")
		l.bind(l.dirs.shm(), "/dev/shm", "rw")
	} else {
		l.flag("--tmpfs=/tmp:rw,nosuid,nodev,exec,mode=1777,size=%d", size)
		l.flag("--shm-size=%db", size)
	}
	for _, p := range l.cfg.Tmpfs {
		l.flag("--tmpfs=%s:rw,nosuid,nodev,exec,mode=1777,size=%d", p, size)
	}
	return nil
}

// workspace adds the workspace, the input and the output.
func (l *layout) workspace() error {
	ws, d := &l.spec.Workspace, l.dirs
	source := ""
	if ws.Source != "" {
		source = l.path(ws.Source)
	}
	switch {
	case ws.Source == "":
		l.bind(d.upper(), workspacePath, "rw")
		l.ready.Layers = &sdk.Layers{Upper: d.upper()}
	case ws.Mode == sdk.WorkspaceShared:
		l.bind(source, workspacePath, "rw")
		if err := l.guardGit(source); err != nil {
			return err
		}
		l.ready.Layers = &sdk.Layers{Lower: ws.Source}
	case ws.Mode == sdk.WorkspaceReadOnly:
		l.bind(source, workspacePath, "ro")
		l.ready.Layers = &sdk.Layers{Lower: ws.Source}
	default:
		if l.lower != "" {
			source = l.path(l.lower)
		}
		l.overlay(source)
		l.ready.Layers = &sdk.Layers{Lower: ws.Source, Upper: d.upper(), Trusted: trustedMarks()}
	}
	l.ready.Workspace = workspacePath
	l.ready.Output = guestpath.Output(ws.Source != "")
	if err := l.mountPoint("output"); err != nil {
		return err
	}
	l.bind(d.output(), l.ready.Output, "rw")
	if l.spec.Input == "" {
		return nil
	}
	if err := sdk.NeedDirectory("input", l.spec.Input); err != nil {
		return err
	}
	l.ready.Input = guestpath.Input(ws.Source != "")
	if err := l.mountPoint("input"); err != nil {
		return err
	}
	l.bind(l.path(l.spec.Input), l.ready.Input, "ro")
	return nil
}

// mountPoint makes the place for a mount inside a workspace without project, in the layer that the sandbox writes. It
// belongs to the sandbox's user, so that it goes away with the layer.
func (l *layout) mountPoint(name string) error {
	if l.spec.Workspace.Source != "" || l.plan {
		return nil
	}
	return l.who.mkdir(filepath.Join(l.dirs.upper(), name), 0o755)
}

// guardGit keeps a sandbox from planting programs in a shared workspace that the user's next git command would run.
// source is a path to it that no option parser takes apart.
func (l *layout) guardGit(source string) error {
	if l.plan {
		return nil // the mounts are there, and what commands have made since must not keep anybody out
	}
	parts, err := gitguard.Parts(l.spec.Workspace.Source, l.cfg.Git)
	if err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "%w", err).WithFix("use workspace mode private")
	}
	for _, p := range parts {
		target, mode := path.Join(workspacePath, p.Path), "rw"
		if !isPlainPath(target) {
			return sdk.Errorf(sdk.ReasonConfig,
				"the git repository at %q cannot be guarded: its name has a character that Podman takes apart",
				p.Path).WithFix("use workspace mode private")
		}
		if p.ReadOnly {
			mode = "ro"
		}
		l.bind(path.Join(source, p.Path), target, mode)
	}
	return nil
}

// others adds the directories that the run names.
func (l *layout) others() error {
	for _, m := range l.spec.Mounts {
		target := path.Clean(m.Target)
		if !isPlainPath(target) || reserved(target) {
			return sdk.Errorf(sdk.ReasonConfig,
				"nothing can be mounted at %q: the sandbox makes it itself, or the path is not plain", m.Target)
		}
		if err := sdk.NeedDirectory("mount", m.Source); err != nil {
			return err
		}
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		l.bind(l.path(m.Source), target, mode)
	}
	return nil
}

// show lays the files by which commands see their limits over those of the machine. Where the container's cgroup holds
// all of them, real says so, commands see that.
func (l *layout) show(files []visible.File, real bool) error {
	cgroup := filepath.Join(l.dirs.alias(), "cgroup")
	for i, f := range files {
		source := filepath.Join(l.dirs.alias(), fmt.Sprintf("visible%d", i))
		name, inCgroup := strings.CutPrefix(f.Path, visible.CgroupDir)
		switch {
		case inCgroup && real:
			continue
		case inCgroup:
			source = filepath.Join(cgroup, name)
			if err := os.Mkdir(cgroup, 0o755); err == nil {
				l.bind(cgroup, path.Clean(visible.CgroupDir), "ro")
			} else if !errors.Is(err, os.ErrExist) {
				return err
			}
		default:
			l.bind(source, f.Path, "ro")
		}
		if err := os.WriteFile(source, f.Data, 0o444); err != nil {
			return err
		}
	}
	return nil
}

// path returns a path to the host directory p that no option parser takes apart, by a symbolic link where needed. The
// links lie in the sandbox's own directory, which nobody else can write to.
func (l *layout) path(p string) string {
	if l.who.uids != nil {
		at, err := l.shifted(p)
		l.err = errors.Join(l.err, err)
		return at
	}
	if isPlainPath(p) {
		return p
	}
	l.names++
	link := filepath.Join(l.dirs.alias(), fmt.Sprint(l.names))
	if !l.plan {
		_ = os.Symlink(p, link) // podman reports a missing link
	}
	return link
}

// bind makes a directory of the host visible. What is mounted below it does not come along: a read-only mount would not
// make that read-only.
func (l *layout) bind(source, target, mode string) {
	l.flag("--volume=%s:%s:%s,bind,nosuid,nodev,rprivate", source, target, mode)
}

func (l *layout) flag(format string, args ...any) {
	l.flags = append(l.flags, fmt.Sprintf(format, args...))
}

// likeSource gives the upper layer the times of the directory under it, whose attributes it hides.
func (l *layout) likeSource() {
	if st, err := os.Stat(l.spec.Workspace.Source); l.spec.Workspace.Source != "" && err == nil {
		_ = os.Chtimes(l.dirs.upper(), time.Time{}, st.ModTime())
	}
}
