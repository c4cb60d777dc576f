package limits

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// start puts a child into the group before it runs. v1 has no clone flag for it, but a child is born where its parent
// thread is: one OS thread, locked to this goroutine, writes itself into the group, forks, and goes back. The kernel
// takes a thread that moves itself without the lock over all forks of the machine, so this costs microseconds, where
// moving a child after its start would cost milliseconds and leave it free for that long.
//
// While the thread is inside it counts as one of the group's pids, so the limit is raised by one for just that long;
// the group itself never gets more than its own, because our thread takes the extra one.
func (g *v1Group) start(cmd *exec.Cmd) (err error) {
	g.starting.Lock()
	defer g.starting.Unlock()
	if err := g.openTasks(); err != nil {
		return err
	}
	if g.maxPIDs != 0 {
		if err := write(g.pid+"/pids.max", strconv.FormatInt(g.maxPIDs+1, 10)); err != nil {
			return err
		}
	}
	return offFirstThread(func() error { return g.startHere(cmd) })
}

// offFirstThread runs fn on any thread but the first of the process. The kernel says of a process that it is where its
// first thread is, so with that one inside, another host would take us for a member of the group, and kill us with it.
func offFirstThread(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() != os.Getpid() {
		return fn()
	}
	done := make(chan error)
	go func() { done <- fn() }() // elsewhere, because this thread is ours until it is done
	return <-done
}

// startHere starts cmd on the calling thread.
func (g *v1Group) startHere(cmd *exec.Cmd) (err error) {
	runtime.LockOSThread()
	var in int
	for ; in < len(g.parts) && err == nil; in++ {
		if err = writeFD(g.parts[in].tasks, "0"); err != nil {
			err = fmt.Errorf("join cgroup %s: %w", g.parts[in].dir, err)
			break
		}
	}
	if err == nil {
		err = cmd.Start()
	}
	if g.maxPIDs != 0 {
		// Before the thread leaves, so that its place is never anybody else's.
		err = errors.Join(err, write(g.pid+"/pids.max", strconv.FormatInt(g.maxPIDs, 10)))
	}
	var stuck error
	for _, p := range g.parts[:in] {
		if e := writeFD(p.homeTasks, "0"); e != nil {
			stuck = errors.Join(stuck, fmt.Errorf("leave cgroup %s: %w", p.dir, e))
		}
	}
	if stuck != nil {
		// The thread stays locked, so it ends with this goroutine and never runs anything else inside the group.
		return errors.Join(err, stuck)
	}
	runtime.UnlockOSThread()
	return err
}

func (g *v1Group) openTasks() error {
	for i := range g.parts {
		p := &g.parts[i]
		for _, k := range []struct {
			fd  *int
			dir string
		}{{&p.tasks, p.dir}, {&p.homeTasks, p.home}} {
			if *k.fd >= 0 {
				continue
			}
			fd, err := unix.Open(k.dir+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				if err == unix.ENOENT {
					return ErrGone
				}
				return fmt.Errorf("open cgroup %s: %w", k.dir, err)
			}
			*k.fd = fd
		}
	}
	return nil
}
