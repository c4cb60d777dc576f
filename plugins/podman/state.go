package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// The labels of a container.
const (
	labelID    = "run.hutch.sandbox"
	labelOwner = "run.hutch.owner"
	labelData  = "run.hutch.handle"
)

// removeTime bounds the removal of a container, whatever became of the call that wanted it.
const removeTime = time.Minute

// state is what Podman says of a container.
type state struct {
	Status    string
	Running   bool
	ExitCode  int
	OOMKilled bool
	Error     string
	missing   bool
}

func (st *state) text() string {
	switch {
	case st.missing:
		return "no container"
	case st.OOMKilled:
		return st.Status + ", killed for want of memory"
	case st.Running:
		return st.Status
	}
	return fmt.Sprintf("%s, exit code %d", st.Status, st.ExitCode)
}

// state asks Podman for the state of a container. One that is not there is no error.
func (p *podman) state(ctx context.Context, name string) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := p.call(ctx, "container", "inspect", "--format={{json .State}}", name)
	if err != nil {
		if there, existsErr := p.exists(ctx, name); existsErr == nil && !there {
			return &state{missing: true}, nil
		}
		return nil, err
	}
	st := &state{}
	if err := json.Unmarshal(out, st); err != nil {
		return nil, fmt.Errorf("read what podman says of %s: %w", name, err)
	}
	return st, nil
}

// exists says whether there is a container of that name, in whatever state.
func (p *podman) exists(ctx context.Context, name string) (bool, error) {
	_, err := p.call(ctx, "container", "exists", name)
	var e *commandError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &e) && e.code == 1:
		return false, nil
	}
	return false, err
}

// remove kills a container by its name, removes it, and looks whether it is gone where podman says that it could not.
// One that does not exist is success.
func (p *podman) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	var last error
	for range 3 {
		if _, last = p.call(ctx, "rm", "--force", "--time=0", "--ignore", "--volumes", name); last == nil {
			return nil
		}
		there, err := p.exists(ctx, name)
		switch {
		case err != nil:
			last = errors.Join(last, err)
		case !there:
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("the container %s cannot be removed: %w", name, errors.Join(last, context.Cause(ctx)))
}

// removeContainer removes the sandbox's container, and what a podman that was killed left of one.
func (s *sandbox) removeContainer(ctx context.Context) error {
	if err := s.podman.remove(ctx, s.name()); err != nil {
		return err
	}
	s.endStray()
	return nil
}

// endStray kills a container that Podman does not know any more: its first process, which waits to be started, and the
// conmon above it. A podman run that is killed at the wrong moment leaves these.
func (s *sandbox) endStray() {
	pid := s.dirs.readPID()
	if pid == 0 {
		return
	}
	// The number may be another process's by now: only one below a conmon that names our file is ours.
	stat, err := procstat.Of(pid)
	if err != nil || stat.Parent <= 1 {
		return
	}
	name, nameErr := os.ReadFile(fmt.Sprintf("/proc/%d/comm", stat.Parent))
	line, lineErr := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", stat.Parent))
	if nameErr != nil || lineErr != nil || strings.TrimSpace(string(name)) != "conmon" ||
		!strings.Contains(string(line), "\x00"+s.dirs.pid()+"\x00") {
		return
	}
	for _, p := range []int{pid, stat.Parent} {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}

// whyEnded reports what Podman and the agent's own last words say of the end of a container that should run; nil when
// it runs.
func (s *sandbox) whyEnded(ctx context.Context) error {
	st, err := s.podman.state(context.WithoutCancel(ctx), s.name())
	if err != nil || st.Running {
		return err
	}
	words := ""
	if root, err := os.OpenRoot(s.dirs.base()); err == nil {
		defer root.Close()
		if b, err := safefile.ReadFile(root, "log", 1<<20); err == nil {
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			words = lines[len(lines)-1]
			if f := strings.SplitN(words, " ", 4); len(f) == 4 { // time, stream, whole or partial
				words = f[3]
			}
		}
	}
	return fmt.Errorf("podman says: %s %s; its last words: %s", st.text(), st.Error, words)
}

// removeDirs removes a directory of the sandbox with all that is in it, also what belongs to other users of its user
// namespace and what its owner closed to itself.
func (s *sandbox) removeDirs(ctx context.Context, dir string) error {
	if err := errors.Join(unshift(s.id), unmount(s.dirs.layer())); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	if openAll(dir); os.RemoveAll(dir) == nil {
		return nil
	}
	if !s.podman.rootless {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if _, rmErr := s.podman.call(ctx, "unshare", "rm", "-rf", "--", dir); rmErr != nil {
		return errors.Join(err, rmErr)
	}
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s cannot be removed", dir)
	}
	return nil
}

// unmount takes away the sized file system of a sandbox with a disk limit.
func unmount(dir string) error {
	if os.Geteuid() != 0 || !isMounted(dir) {
		return nil
	}
	if err := syscall.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// openAll lets this user into directories below dir that a command closed. Links are not followed.
func openAll(dir string) {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return
	}
	defer root.Close()
	inside.OpenBelow(root, filepath.Base(dir))
}

// List implements [sdk.Lister].
func (b *backend) List(ctx context.Context, owner string) ([]sdk.Handle, error) {
	p, err := b.podman()
	if err != nil {
		return nil, err
	}
	filter := "--filter=label=" + labelID
	if owner != "" {
		filter = "--filter=label=" + labelOwner + "=" + owner
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := p.call(ctx, "ps", "--all", "--no-trunc", "--format=json", filter)
	if err != nil {
		return nil, err
	}
	return parseList(out)
}

// parseList reads the sandboxes in what podman ps prints.
func parseList(out []byte) ([]sdk.Handle, error) {
	var rows []struct{ Labels map[string]string }
	if err := json.Unmarshal(out, &rows); err != nil {
		return nil, fmt.Errorf("read podman's list: %w", err)
	}
	var handles []sdk.Handle
	for _, r := range rows {
		id, data := r.Labels[labelID], r.Labels[labelData]
		if id != "" && json.Valid([]byte(data)) {
			handles = append(handles, sdk.Handle{ID: id, Data: json.RawMessage(data)})
		}
	}
	return handles, nil
}
