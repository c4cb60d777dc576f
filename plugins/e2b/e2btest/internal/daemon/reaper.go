package daemon

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// The daemon is process 1 of its sandbox: when it ends the kernel ends all others, nothing inside can kill or stop it,
// and it becomes the parent of orphans.

// adoptOrphans reaps, from now on, the processes that end and that the daemon has not started.
func (p *processes) adoptOrphans() {
	// Signals that would end process 1 are received and dropped: children would inherit that they are ignored.
	signal.Notify(make(chan os.Signal, 1),
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			p.reap()
		}
	}()
}

func (p *processes) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil || p.live[uint32(pid)] != nil { // ours are waited for
			continue
		}
		if s, err := procstat.Of(pid); err == nil && s.State == 'Z' && s.Parent == 1 {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
