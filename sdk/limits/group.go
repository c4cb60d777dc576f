package limits

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
)

// place is where groups can be made: below a v2 directory, or below one directory in each v1 hierarchy.
type place interface {
	make(id string, r Request) (cgroup, error)
}

// cgroup is what the kernel keeps of a group. The two versions differ in every detail and in nothing else.
type cgroup interface {
	start(cmd *exec.Cmd) error
	add(pid int) error
	pids() ([]int, error)
	stats() (Stats, error)
	kill(ctx context.Context) error
	remove(ctx context.Context) error // kills first; missing directories are no error
	dirs() []string
	close()
}

// Group is a set of processes that the kernel keeps together and within limits. Its methods are safe for concurrent
// use.
type Group struct {
	id       string
	mech     Mechanism
	rlimits  Rlimits
	mu       sync.RWMutex // held shared while cg is used, so that Destroy cannot close descriptors under anybody
	cg       cgroup       // nil without cgroups, and after Destroy
	dirs     []string
	noCgroup bool
}

// New makes the group for request r. A limit that cannot be held is an error, and nothing is
// left behind then. The id must be unique on the machine among live groups: a word of at most 128 letters, digits,
// dots, dashes and underscores that begins with a letter or a digit.
//
// Where cgroups are not to be had, the group holds no kernel object; its Rlimits carry what can be held, and Kill,
// Stats and Handle say ErrNoCgroup.
func (s *Support) New(id string, r Request) (*Group, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err := s.refuse(r); err != nil {
		return nil, err
	}
	g := &Group{id: id, mech: s.Mechanism, rlimits: s.rlimits(r)}
	if s.place == nil {
		g.noCgroup = true
		return g, nil
	}
	cg, err := s.place.make(id, s.inCgroup(r))
	if err != nil {
		return nil, fmt.Errorf("make %s group %s: %w", s.Mechanism, id, err)
	}
	g.cg, g.dirs = cg, cg.dirs()
	return g, nil
}

// inCgroup leaves of r what the cgroup has to hold.
func (s *Support) inCgroup(r Request) Request {
	r.Files, r.FileSize = 0, 0
	if s.Limits[PIDs].By == byNProc {
		r.PIDs = 0
	}
	return r
}

// Handle finds the group again from another process; nil without cgroups.
func (g *Group) Handle() *Handle {
	if g.noCgroup {
		return nil
	}
	return &Handle{ID: g.id, Mechanism: g.mech, Dirs: g.dirs}
}

// Rlimits are what the command must take on itself besides, because they are held by process and not by group.
func (g *Group) Rlimits() Rlimits { return g.rlimits }

// with calls fn on the cgroup if there is one.
func (g *Group) with(fn func(cgroup) error) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch {
	case g.noCgroup:
		return ErrNoCgroup
	case g.cg == nil:
		return ErrGone
	}
	return fn(g.cg)
}

// Start starts cmd as cmd.Start does, inside the group from its first instruction on. The rest of this process stays
// where it is. Without cgroups it is cmd.Start.
func (g *Group) Start(cmd *exec.Cmd) error {
	if g.noCgroup {
		return cmd.Start()
	}
	return g.with(func(c cgroup) error { return c.start(cmd) })
}

// Add moves a running process, all its threads, into the group. Its descendants stay where they are.
func (g *Group) Add(pid int) error { return g.with(func(c cgroup) error { return c.add(pid) }) }

// PIDs lists the processes in the group, at this moment.
func (g *Group) PIDs() (pids []int, err error) {
	err = g.with(func(c cgroup) error { pids, err = c.pids(); return err })
	return pids, err
}

// Stats reads the kernel's counters. They stay readable after all processes ended, until Destroy.
func (g *Group) Stats() (st Stats, err error) {
	err = g.with(func(c cgroup) error { st, err = c.stats(); return err })
	return st, err
}

// Kill kills every process in the group with SIGKILL, those included that fork while it works, and returns when none is
// left or ctx ends. The group can be used again afterwards.
func (g *Group) Kill(ctx context.Context) error {
	return g.with(func(c cgroup) error { return c.kill(ctx) })
}

// Destroy removes the group, killing what still runs in it. It may be called again, on a group that is gone, and on one
// without cgroups. When ctx ends first the group stays and Destroy may be called once more.
func (g *Group) Destroy(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cg == nil {
		return nil
	}
	if err := g.cg.remove(ctx); err != nil {
		return fmt.Errorf("remove group %s: %w", g.id, err)
	}
	g.cg.close()
	g.cg = nil
	return nil
}
