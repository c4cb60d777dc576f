package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/inside"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// sandbox is one sandbox of this process.
type sandbox struct {
	id       string
	owner    string
	dirs     dirs
	spec     sdk.Spec
	keep     bool
	podman   *podman
	held     *held
	over     string // the overlay strategy asked for; once the container runs, the one in use
	who      identity
	snapshot *overlay.Snapshot // of a shared workspace before the first command
	progress func(step string, done, total int64)
	notes    []string // gathered on the way to ready

	mu         sync.RWMutex // held shared while the container is used, alone while it is recreated
	*container              // nil while none runs
	ready      sdk.Ready
	gone       bool // removed
	gateway    gateway

	users sync.Map // name of a user -> *sync.Mutex: see execAs
}

// container is a running container.
type container struct {
	pid   int    // of its first process, as this host counts
	path  string // the image's PATH
	agent *agent.Conn
	root  *os.Root        // the container's, as its first process sees it
	group *limits.Foreign // nil where it has none of its own

	memory  []*os.File      // directories on its memory file systems
	sampler *limits.Sampler // nil when no limit is sampled
}

// sample prepares to sample what happens in a container.
func (s *sandbox) sample(c *container) error {
	for _, p := range append([]string{"/tmp", "/dev/shm", "/dev"}, configOf(&s.spec).Tmpfs...) {
		f, err := c.root.Open(strings.TrimPrefix(p, "/"))
		if err != nil {
			return fmt.Errorf("open %s: %w", p, err)
		}
		if !s.held.InMemory || p == "/dev" { // else it is part of the layer
			c.memory = append(c.memory, f)
		} else {
			f.Close()
		}
	}
	if s.held.Sampled == 0 && s.held.Disk == 0 {
		return nil
	}
	c.sampler = &limits.Sampler{Memory: s.held.Sampled, Tmpfs: c.memory}
	if s.held.Disk > 0 {
		dir, err := os.Open(s.dirs.layer())
		if err != nil {
			return err
		}
		c.sampler.Disk = &limits.Space{Dir: dir, Bytes: s.held.Disk}
		if s.over == overlayCopy {
			c.sampler.Disk.Made = usageOf(s.spec.Workspace.Source)
		}
	}
	return nil
}

// watch samples while a command runs; the end of it is what came of that.
func (c *container) watch(kill func() error) (end func() (*limits.Overrun, uint64)) {
	if c.sampler == nil {
		return func() (*limits.Overrun, uint64) { return nil, 0 }
	}
	return c.sampler.Watch(func() int { return c.pid }, func() { _ = kill() }).End
}

// name is the container's name.
func (s *sandbox) name() string { return "hutch-" + s.id }

// open makes the container.
func (s *sandbox) open(ctx context.Context) error {
	if ws := s.spec.Workspace; ws.Mode == sdk.WorkspaceShared && ws.Source != "" {
		var note string
		var err error
		if s.snapshot, note, err = inside.Snapshot(ctx, ws.Source); err != nil {
			return err
		}
		if note != "" {
			s.notes = append(s.notes, note)
		}
	}
	return s.start(ctx)
}

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready { return s.ready }

// use keeps the container as it is until the returned function is called.
func (s *sandbox) use() (release func(), err error) {
	s.mu.RLock()
	switch {
	case s.gone:
		err = sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
	case s.container == nil || !alive(s.container):
		err = sdk.Errorf(sdk.ReasonUnavailable, "the container of the sandbox %s is stopped",
			s.id).WithFix("start the sandbox: that keeps its files")
	default:
		return s.mu.RUnlock, nil
	}
	s.mu.RUnlock()
	return nil, err
}

// leave lets go of the container; unless it is kept, it ends with that.
func (c *container) leave() {
	if c != nil {
		_ = c.agent.Close()
		_ = c.root.Close()
		for _, f := range c.memory {
			_ = f.Close()
		}
		if c.sampler != nil && c.sampler.Disk != nil {
			_ = c.sampler.Disk.Dir.Close()
		}
	}
}

// alone ends all commands, waits until their ends have been reported, and calls fn while nothing else uses the sandbox.
func (s *sandbox) alone(fn func() error) error {
	s.mu.RLock()
	c := s.container
	s.mu.RUnlock()
	c.leave() // the ends of all commands
	s.mu.Lock()
	defer s.mu.Unlock()
	return fn()
}

// close ends everything and removes it. It may be called twice.
func (s *sandbox) close(ctx context.Context) error {
	return s.alone(func() error {
		s.container = nil
		if err := s.removeContainer(ctx); err != nil {
			return err
		}
		if err := s.removeDirs(ctx, s.dirs.base()); err != nil {
			return err
		}
		s.gone = true
		return nil
	})
}

// Reset implements [sdk.Resetter]. The container is recreated; a hard reset forgets what was written, too.
func (s *sandbox) Reset(ctx context.Context, hard bool) error {
	return s.alone(func() error {
		if s.gone {
			return sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone", s.id)
		}
		s.container = nil
		if err := s.removeContainer(ctx); err != nil {
			return err
		}
		if hard {
			if err := s.removeDirs(ctx, s.dirs.layer()); err != nil {
				return err
			}
		}
		return s.start(ctx)
	})
}

// Inspect implements [sdk.Inspector].
func (s *sandbox) Inspect(ctx context.Context) (sdk.Status, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.gone {
		return sdk.Status{State: sdk.StateGone}, nil
	}
	cfg := configOf(&s.spec)
	details := map[string]string{"container": s.name(), "image": cfg.image(), "overlay": s.over,
		"user": fmt.Sprintf("%d:%d", s.who.uid, s.who.gid)}
	if s.who.rootless {
		details["mode"] = "rootless"
	} else {
		details["mode"] = "rootful"
	}
	if s.container == nil || !alive(s.container) {
		st, err := s.podman.state(ctx, s.name())
		if err != nil {
			return sdk.Status{}, err
		}
		details["podman"] = st.text()
		return sdk.Status{State: sdk.StateStopped, Details: details}, nil
	}
	details[sdk.DetailPID] = strconv.Itoa(s.pid)
	return sdk.Status{State: sdk.StateReady, Details: details}, nil
}

// alive says whether the container's agent still answers for it.
func alive(c *container) bool {
	select {
	case <-c.agent.Done():
		return false
	default:
		return true
	}
}

// readPID reads the number of the container's first process, or 0.
func (d dirs) readPID() int {
	b, err := os.ReadFile(d.pid())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return 0
	}
	return pid
}
