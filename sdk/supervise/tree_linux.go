package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

const maxRSSUnit = 1024

func setDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// launch starts the command and returns when it runs, or does not.
func (p *Process) launch() error {
	if p.o.Group == nil {
		return p.launchKept()
	}
	started := make(chan error)
	go p.live(started)
	return <-started
}

// live is the life of a command in a group, on a thread that nothing else uses: its end before the command's would kill
// the command.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
	if unix.Gettid() == os.Getpid() {
		// The first thread of a process never ends, and a group may not start anything on it. What is started here runs
		// elsewhere, because this thread is ours until it has begun.
		begun := make(chan error)
		go p.live(begun)
		started <- <-begun
		runtime.UnlockOSThread()
		return
	}
	p.started = time.Now()
	err := p.o.Group.Start(p.cmd)
	p.closeSlave()
	if err != nil {
		started <- err
		return
	}
	p.pid = p.cmd.Process.Pid
	p.tree = groupTree{p.o.Group, p.pid}
	started <- nil
	err = waitNoReap(p.pid)
	// The leader is dead but not reaped: its number stays its own while the rest is looked for.
	left, cleanErr := p.tree.(groupTree).cleanUp()
	p.setReaped()
	waitErr := p.cmd.Wait()
	var r Result
	r.classify(p.cmd.ProcessState)
	r.Killed = left
	p.finish(r, errors.Join(err, cleanErr, ignoreExit(waitErr)))
}

// waitNoReap waits until a child is dead and leaves it to be reaped.
func waitNoReap(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			if err != nil {
				err = fmt.Errorf("wait for process %d: %w", pid, err)
			}
			return err
		}
	}
}

// groupTree is a tree that the kernel knows as a whole.
type groupTree struct {
	group Group
	pid   int
}

func (t groupTree) signal(sig syscall.Signal) error { return syscall.Kill(-t.pid, sig) }

// terminate sends SIGTERM to every process of the group, and SIGCONT so that one that is stopped gets it.
func (t groupTree) terminate() error {
	list := func() []int {
		pids, _ := t.group.PIDs()
		return pids
	}
	return errors.Join(descendants.Signal(list, syscall.SIGTERM), descendants.Signal(list, syscall.SIGCONT))
}

func (t groupTree) kill(ctx context.Context) error { return t.group.Kill(ctx) }

// cleanUp kills what the dead leader left behind, and says whether there was anything.
func (t groupTree) cleanUp() (left bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	pids, err := t.group.PIDs()
	for _, pid := range pids {
		left = left || pid != t.pid
	}
	if left || err != nil {
		return left, t.group.Kill(ctx)
	}
	return false, nil
}
