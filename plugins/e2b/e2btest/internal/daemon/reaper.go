package daemon

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/hutch-run/hutch/sdk/process/procstat"
)

// The daemon is process 1 of its sandbox: when it ends the kernel ends all others, nothing inside can kill or stop it,
// and what has lost its parent is left to it.

// children are the processes that the daemon itself has started and will wait for.
type children struct {
	mu   sync.Mutex // held from before a process is started until it is in pids
	pids map[int]struct{}
}

func newChildren() *children { return &children{pids: map[int]struct{}{}} }

// start starts a command that has to be waited for with wait. launch is what starts it.
func (c *children) start(cmd *exec.Cmd, launch func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := launch(); err != nil {
		return err
	}
	c.pids[cmd.Process.Pid] = struct{}{}
	return nil
}

func (c *children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, cmd.Process.Pid)
	return err
}

// adopt reaps, from now on, the processes that end and are nobody else's. It is for process 1 only.
func (c *children) adopt() {
	// Those that would end process 1 by themselves are taken and dropped: ignoring them would be inherited.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			c.reap()
		}
	}()
}

func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		if s, err := procstat.Of(pid); err != nil || s.State != 'Z' || s.Parent != 1 {
			continue
		}
		if _, own := c.pids[pid]; !own {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
