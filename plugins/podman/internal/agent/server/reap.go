package server

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// death is how a process ended.
type death struct {
	pid    int
	status syscall.WaitStatus
	usage  syscall.Rusage
}

// child is a process whose end is waited for.
type child struct {
	ended chan<- death // has room for it
	init  bool         // and not a command that lost its init
}

// reap reaps every process that ends, and reports it. Nothing else in this process waits for children.
func (s *server) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		for s.reapOne() {
		}
		<-ended
	}
}

// reapOne says whether there was anything to reap. It holds the lock all the time, so
// that a process is either still our child or its end was reported.
func (s *server) reapOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var d death
	pid, err := syscall.Wait4(-1, &d.status, syscall.WNOHANG|syscall.WUNTRACED, &d.usage)
	if err != nil || pid <= 0 {
		return err == syscall.EINTR
	}
	d.pid = pid
	c, watched := s.watched[pid]
	switch {
	case d.status.Stopped():
		if c.init { // and not a command, which may stop itself
			time.AfterFunc(supervise.StopTime, func() { s.resume(pid, c) })
		}
	case !watched:
		s.unclaimed[s.orphans%len(s.unclaimed)] = d
		s.orphans++
	default:
		delete(s.watched, pid)
		if c.init && d.status.Signaled() {
			s.lost++
		}
		c.ended <- d
	}
	return true
}

// resume continues an init that was stopped.
func (s *server) resume(pid int, c child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[pid] == c {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// spawn starts the init of a command with the given descriptors, and sends its end to ended, which has room for it.
// Whatever is started below it is the first to be killed when memory runs out. observed is empty, or a filter and the
// socket for its listener.
func (s *server) spawn(files []uintptr, observed []int, ended chan<- death) (pid int, err error) {
	s.mu.Lock() // so that it is watched before it can be reaped
	defer s.mu.Unlock()
	defer s.oom.raise()()
	files = append(files, s.image.Fd())
	program, argv := fmt.Sprintf("/proc/self/fd/%d", wire.InitFD), []string{"hutch-init"}
	if len(observed) > 0 {
		program, argv = "/proc/self/exe", []string{"hutch-init", "observe"}
	}
	for _, fd := range observed {
		files = append(files, uintptr(fd))
	}
	pid, err = syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: files,
	})
	if err == nil {
		s.watched[pid] = child{ended, true}
	}
	return pid, err
}

// adopt takes a command over whose init was killed: its end is sent to ended, which has room for it. It says false when
// that is not known.
func (s *server) adopt(pid int, ended chan<- death) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.watched[pid]; taken {
		return false
	}
	if unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil {
		s.watched[pid] = child{ended, false}
		return true
	}
	for i, d := range s.unclaimed {
		if d.pid == pid { // it ended before the host had asked for it
			s.unclaimed[i] = death{}
			ended <- d
			return true
		}
	}
	return false // it ended before its init did, which took its status along
}

// settle says that n commands that lost their inits have ended. Whose the other orphans are is not known, so they are
// killed with the last of them.
func (s *server) settle(n int) {
	s.mu.Lock()
	s.lost -= n
	s.mu.Unlock()
	if n > 0 {
		s.kill(s.strays)
	}
}

// strays lists the orphans that became ours because an init was killed.
func (s *server) strays() []int {
	children := descendants.Children(os.Getpid())
	s.mu.Lock() // after that: what is listed and has just been started is watched by now
	defer s.mu.Unlock()
	if s.lost > 0 {
		return nil
	}
	return descendants.Below(slices.DeleteFunc(children, func(pid int) bool { _, ok := s.watched[pid]; return ok }))
}

// kill kills what list lists until nothing is left.
func (s *server) kill(list func() []int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s.killing.Lock() // one at a time, because it takes a thread
	defer s.killing.Unlock()
	if _, err := descendants.Kill(ctx, list); err != nil {
		complain("kill what a command left: %v", err)
	}
}
