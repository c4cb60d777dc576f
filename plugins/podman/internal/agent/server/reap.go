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

	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// death is how a process ended.
type death struct {
	pid    int
	status syscall.WaitStatus
	usage  syscall.Rusage
}

// reap reaps every process that ends, and tells those who wait for one. Nobody else
// in this process waits for children.
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
// that a process is either still our child or its end was told.
func (s *server) reapOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var d death
	pid, err := syscall.Wait4(-1, &d.status, syscall.WNOHANG|syscall.WUNTRACED, &d.usage)
	if err != nil || pid <= 0 {
		return err == syscall.EINTR
	}
	tell := s.watched[pid]
	d.pid = pid
	switch {
	case tell == nil:
		if !d.status.Stopped() {
			s.unclaimed[s.orphans%len(s.unclaimed)] = d
			s.orphans++
		}
	case d.status.Stopped():
		// A command may stop itself. Its reaper was stopped by somebody who wants its end not to be told.
		if !s.adopted[pid] {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	default:
		delete(s.watched, pid)
		delete(s.adopted, pid)
		tell <- d // it has room
	}
	return true
}

// spawn starts the reaper of a command with the given descriptors, and sends its end
// to ended, which has room for it. Whatever is started below it is the first to be
// killed when memory runs out.
func (s *server) spawn(files []uintptr, ended chan<- death) (pid int, err error) {
	s.mu.Lock() // so that it is watched before it can be reaped
	defer s.mu.Unlock()
	defer s.oom.raise()()
	files = append(files, uintptr(s.reaper))
	pid, err = syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", len(files)-1), []string{"hutch-reaper"}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: files,
	})
	if err == nil {
		s.watched[pid] = ended
	}
	return pid, err
}

// unwatch says that nobody waits for the end of pid any more.
func (s *server) unwatch(pid int, ended chan<- death) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[pid] == ended {
		delete(s.watched, pid)
		delete(s.adopted, pid)
	}
}

// adopt takes a command over whose reaper was killed. Its end is sent to who watches
// it, and may have been sent already. It says false when the command is not to be had.
func (s *server) adopt(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tell := s.watched[pid]
	if tell == nil {
		return true // its end was told
	}
	for i, d := range s.unclaimed {
		if d.pid == pid { // it ended before it had told us its number
			s.unclaimed[i] = death{}
			delete(s.watched, pid)
			tell <- d
			return true
		}
	}
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return false // it ended before its reaper did, which took its status along
	}
	s.adopted[pid] = true
	return true
}

// killStrays kills the orphans that became ours because a reaper was killed. Whose
// they are nobody can tell any more, so it waits until the last command that lost its
// reaper has ended.
func (s *server) killStrays() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s.killers <- struct{}{}
	defer func() { <-s.killers }()
	if _, err := descendants.Kill(ctx, s.strays); err != nil {
		complain("kill what lost its reaper: %v", err)
	}
}

func (s *server) strays() []int {
	children := descendants.Children(os.Getpid())
	s.mu.Lock() // after that: what is listed and has just been started is watched by now
	defer s.mu.Unlock()
	if len(s.adopted) > 0 {
		return nil
	}
	return descendants.Below(slices.DeleteFunc(children, func(pid int) bool { return s.watched[pid] != nil }))
}
