package limits

import (
	"context"
	"errors"
	"os/exec"
)

var errTodo = errors.New("not implemented")

type place interface{}

// Probe looks for the best mechanism. It changes nothing and takes well below a millisecond.
func Probe() *Support { return &Support{} }

// Try makes a group with every cgroup limit that s claims, runs nothing in it, and removes it: the proof behind Probe.
func (s *Support) Try(ctx context.Context) error { return errTodo }

// New makes the group for request r. See the function New.
func (s *Support) New(id string, r Request) (*Group, error) { return nil, errTodo }

// Group is a set of processes that the kernel keeps together and within limits. Its methods are safe for concurrent use.
type Group struct{}

// Open finds a group that another process made. A group that is not there is ErrGone.
func Open(h Handle) (*Group, error) { return nil, errTodo }

// ID is the id that New was given.
func (g *Group) ID() string { return "" }

// Handle finds the group again from another process; nil without cgroups.
func (g *Group) Handle() *Handle { return nil }

// Holds says how each limit of the request is held.
func (g *Group) Holds() []Hold { return nil }

// Rlimits are what the command must take on itself besides, because they are held by process and not by group.
func (g *Group) Rlimits() Rlimits { return Rlimits{} }

// Start starts cmd as cmd.Start does, inside the group from its first instruction on. The rest of this process stays
// where it is. Without cgroups it is cmd.Start.
func (g *Group) Start(cmd *exec.Cmd) error { return errTodo }

// Add moves a running process, all its threads, into the group. Its descendants stay where they are.
func (g *Group) Add(pid int) error { return errTodo }

// Pids lists the processes in the group, at this moment.
func (g *Group) Pids() ([]int, error) { return nil, errTodo }

// Stats reads the kernel's counters. They stay readable after all processes ended, until Destroy.
func (g *Group) Stats() (Stats, error) { return Stats{}, errTodo }

// Kill kills every process in the group with SIGKILL, those included that fork while it works, and returns when none is
// left or ctx ends. The group can be used again afterwards.
func (g *Group) Kill(ctx context.Context) error { return errTodo }

// Destroy removes the group, killing what still runs in it. It may be called again, and on a group that is gone.
func (g *Group) Destroy(ctx context.Context) error { return errTodo }

// List names the groups on this machine, visible to this process, whose id begins with prefix.
func List(prefix string) ([]Handle, error) { return nil, errTodo }

// Sweep destroys the groups whose id begins with prefix, which must not be empty, and returns their ids.
func Sweep(ctx context.Context, prefix string) ([]string, error) { return nil, errTodo }
