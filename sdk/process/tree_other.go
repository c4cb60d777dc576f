//go:build unix && !linux

package process

import (
	"context"
	"syscall"
	"time"
)

const maxRSSUnit = 1 // bytes on macOS

func setDeathSignal(*syscall.SysProcAttr) {}

// groupTree is all there is elsewhere than on Linux: the process group.
type groupTree struct {
	group Group
	pid   int
}

func (t groupTree) signal(sig syscall.Signal) error { return syscall.Kill(-t.pid, sig) }
func (t groupTree) terminate() error                { return t.signal(syscall.SIGTERM) }

func (t groupTree) kill(ctx context.Context) error {
	if t.group != nil {
		return t.group.Kill(ctx)
	}
	return t.signal(syscall.SIGKILL)
}

func (p *Process) launch() error {
	p.started = time.Now()
	var err error
	if p.o.Group != nil {
		err = p.o.Group.Start(p.cmd)
	} else {
		err = p.cmd.Start()
	}
	p.closeSlave()
	if err != nil {
		return err
	}
	p.pid = p.cmd.Process.Pid
	p.tree = groupTree{p.o.Group, p.pid}
	go func() {
		waitErr := p.cmd.Wait()
		_ = p.tree.signal(syscall.SIGKILL) // ESRCH when nothing was left, which is the rule
		p.setReaped()
		var r Result
		r.classify(p.cmd.ProcessState)
		p.finish(r, ignoreExit(waitErr))
	}()
	return nil
}
