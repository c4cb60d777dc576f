//go:build linux

package resident

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
	"github.com/hutch-run/hutch/host/resident/handover"
)

// Options say how a resident serves.
type Options struct {
	Version string        // for Status
	Worker  []string      // the arguments of this program with which it calls Work
	Idle    time.Duration // the resident ends when nobody used it for so long; 0 means never
	Ready   func()        // called once clients are served; may be nil
	Log     io.Writer     // gets what workers write outside of commands
}

// server is a running resident.
type server struct {
	opt       Options
	l         *net.UnixListener
	identity  string
	path      string // of the program
	mine      map[string]string
	began     time.Time
	most      int // workers
	mu        sync.Mutex
	idle      []*worker // the last one was used last
	workers   int       // all that run
	busy      int
	served    int
	refused   map[string]int // clients, by reason
	used      time.Time      // when the last client came
	draining  bool
	drained   chan struct{} // closed when draining and no command runs
	closeOnce sync.Once
	stops     sync.WaitGroup // clients that wait for the end
}

// worker is a process that executes commands.
type worker struct {
	cmd  *exec.Cmd
	link *net.UnixConn // it gets connections of clients here and sends a byte after each command
}

// Serve serves the user's clients until ctx ends, Stop is called, nobody came for Options.Idle, or the program at the
// path of this one is another one. It returns when all commands have ended.
func Serve(ctx context.Context, o Options) error {
	// What the shell that started it has open must not reach commands.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return os.NewSyscallError("close_range", err)
	}
	s := &server{opt: o, began: time.Now(), used: time.Now(), most: 2 * runtime.GOMAXPROCS(0), refused: map[string]int{},
		drained: make(chan struct{})}
	var err error
	if s.mine, err = surroundings(os.Getpid()); err != nil {
		return err
	}
	if s.path, err = os.Executable(); err != nil {
		return err
	}
	if s.identity, err = handover.Identity(handover.Self); err != nil {
		return err
	}
	dir, err := MakeDir()
	if err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock.Try(lock, unix.LOCK_EX); err != nil {
		return errors.New("hutch serve runs already; hutch serve --stop ends it")
	}
	path := filepath.Join(dir, "socket")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return err
	}
	defer s.l.Close()
	if o.Ready != nil {
		o.Ready()
	}
	stop := context.AfterFunc(ctx, s.drain)
	defer stop()
	if o.Idle > 0 {
		go s.expire()
	}
	for {
		conn, err := s.l.AcceptUnix()
		if err != nil {
			break // by drain
		}
		go s.serve(conn)
	}
	<-s.drained
	s.stops.Wait()
	return nil
}

// MakeDir makes the directory of the socket.
func MakeDir() (string, error) {
	dir := handover.Dir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir, handover.CheckDir(dir)
}

// expire ends the resident when nobody used it for long.
func (s *server) expire() {
	for {
		s.mu.Lock()
		left := time.Until(s.used.Add(s.opt.Idle))
		if s.busy > 0 {
			left = s.opt.Idle
		}
		s.mu.Unlock()
		if left <= 0 {
			s.drain()
			return
		}
		time.Sleep(left)
	}
}

// drain refuses new clients and ends the resident after the last command.
func (s *server) drain() {
	s.mu.Lock()
	s.draining = true
	for _, w := range s.idle {
		w.link.Close()
	}
	s.idle = nil
	if s.busy == 0 {
		s.closeOnce.Do(func() { close(s.drained) })
	}
	s.mu.Unlock()
	s.l.Close()
}

// serve answers one client.
func (s *server) serve(conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	cred, err := peer(conn)
	if err != nil {
		return
	}
	kind, err := peek(conn)
	if err != nil {
		return
	}
	theirs, err := surroundings(int(cred.Pid))
	why := differs(s.mine, theirs, kind != handover.AsksRun, "/sys/fs/cgroup")
	if err != nil {
		why = "its surroundings cannot be read: " + err.Error()
	}
	if id, err := handover.Identity(s.path); kind == handover.AsksRun && (err != nil || id != s.identity) {
		why = "hutch was replaced since hutch serve began, which ends now"
		s.drain()
	}
	if why != "" {
		s.refuse(conn, why)
		return
	}
	switch kind {
	case handover.AsksRun:
		s.execute(conn)
	case handover.AsksStatus:
		_ = answer(conn, handover.SaysExit, s.status())
	case handover.AsksStop:
		s.stops.Add(1)
		defer s.stops.Done()
		s.drain()
		<-s.drained
		_ = conn.SetDeadline(time.Now().Add(patience))
		_ = answer(conn, handover.SaysExit, "")
	}
}

// peek returns the first byte of a message and leaves it, with the descriptors that come with it, to another reader.
func peek(conn *net.UnixConn) (byte, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	b, n := make([]byte, 1), 0
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, _, readErr = unix.Recvfrom(int(fd), b, unix.MSG_PEEK)
		return readErr != unix.EAGAIN
	})
	if err = errors.Join(err, readErr); err == nil && n == 0 {
		err = io.EOF
	}
	return b[0], err
}

func (s *server) refuse(conn *net.UnixConn, why string) {
	s.mu.Lock()
	s.refused[why]++
	s.mu.Unlock()
	_ = answer(conn, handover.SaysRefused, why)
}

// execute has a worker execute the command of a client, and returns when the worker is done with it.
func (s *server) execute(conn *net.UnixConn) {
	w, err := s.take()
	if err != nil {
		s.refuse(conn, err.Error())
		return
	}
	f, err := conn.File()
	if err != nil {
		s.give(w, false)
		return
	}
	defer f.Close()
	fd := int(f.Fd()) // once, because it makes the connection block, and the worker lets it not
	ended, gone := make(chan struct{}), make(chan struct{})
	if _, _, err = w.link.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil); err == nil {
		go w.wake(fd, ended, gone)
		_, err = io.ReadFull(w.link, make([]byte, 1))
		defer func() { <-gone }()
	}
	close(ended)
	s.give(w, err == nil)
}

// wake continues a stopped worker whose client is gone, so that it sees that and ends, or has sent what the worker does
// not read: the signal to continue may have come before the worker stopped.
func (w *worker) wake(client int, ended <-chan struct{}, gone chan<- struct{}) {
	defer close(gone)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(client), Events: unix.POLLRDHUP}}, 1000)
		select {
		case <-ended:
			return
		default:
		}
		if err != nil && err != unix.EINTR {
			return
		}
		unread, _ := unix.Poll([]unix.PollFd{{Fd: int32(client), Events: unix.POLLIN}}, 0)
		if n > 0 || unread > 0 {
			_ = w.cmd.Process.Signal(syscall.SIGCONT)
		}
		if n > 0 {
			return
		}
	}
}

// take returns an idle worker, or starts one.
func (s *server) take() (*worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	switch n := len(s.idle); {
	case s.draining:
		return nil, errors.New("hutch serve is ending")
	case n > 0:
		w := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.busy++
		return w, nil
	case s.workers >= s.most:
		return nil, fmt.Errorf("its %d workers are busy", s.most)
	}
	w, err := s.start()
	if err == nil {
		s.workers++
		s.busy++
	}
	return w, err
}

// give takes a worker back that is done, or has ended.
func (s *server) give(w *worker, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.used = time.Now()
	if well {
		s.served++
	}
	if well && !s.draining && len(s.idle) < runtime.GOMAXPROCS(0) {
		s.idle = append(s.idle, w)
	} else {
		w.link.Close()
	}
	if s.draining && s.busy == 0 {
		s.closeOnce.Do(func() { close(s.drained) })
	}
}

// start starts a worker: the very program that this process executes, in a session without a terminal.
func (s *server) start() (*worker, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "resident")
	defer mine.Close()
	defer theirs.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(handover.Self, s.opt.Worker...)
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = "/", s.opt.Log, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	w := &worker{cmd: cmd, link: conn.(*net.UnixConn)}
	go func() {
		_ = cmd.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.workers--
		for i, other := range s.idle { // it ended by itself
			if other == w {
				s.idle = append(s.idle[:i:i], s.idle[i+1:]...)
				w.link.Close()
				break
			}
		}
	}()
	return w, nil
}

// status is what a user sees of the resident.
func (s *server) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := fmt.Sprintf("hutch %s, process %d, since %s\ncommands: %d executed, %d running\nworkers: %d, %d idle\n",
		s.opt.Version, os.Getpid(), s.began.Format(time.RFC3339), s.served, s.busy, s.workers, len(s.idle))
	for why, n := range s.refused {
		out += fmt.Sprintf("refused %d: %s\n", n, why)
	}
	return out
}
