//go:build linux

package resident

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/resident/handover"
)

// linkFD is the descriptor of a worker's connection to the resident.
const linkFD = 3

// Command is one that a worker executes.
type Command struct {
	Args []string

	conn *net.UnixConn
	mu   sync.Mutex
	over bool
}

// Worker executes commands for the resident that started this process.
type Worker struct {
	// Run executes a command and returns its exit code, and whether this process may execute another one.
	Run func(c *Command) (code int, again bool)
	// After is called when nothing of the client is left in this process, whose streams are closed then, and before the
	// next command; it reports whether there may be one.
	After func() (again bool)
	// Signals gets the signals of the client from when it hands over until the command has ended. What an earlier command
	// left in it is dropped.
	Signals chan os.Signal
	// Abandoned is called when the client is gone before the command ended; the process ends when it returns.
	Abandoned func()
	// Umask is called before a command whose client has another umask than that of the last one.
	Umask func()
}

// Work serves until the resident closes the connection, or a command has spoilt this process.
func (w *Worker) Work() error {
	if err := unix.CloseRange(linkFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return os.NewSyscallError("close_range", err)
	}
	f := os.NewFile(linkFD, "resident")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return err
	}
	link, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("a worker is started by hutch serve")
	}
	me, err := handover.Identity(handover.Self)
	if err != nil {
		return err
	}
	was := fixedEnv(os.Environ())
	var streams [3]int // of this process between commands
	for fd := range streams {
		if streams[fd], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 16); err != nil {
			return err
		}
	}
	mask := unix.Umask(0)
	unix.Umask(mask)
	for {
		client, err := w.next(link)
		if err != nil {
			return nil
		}
		r, err := receive(client)
		why := ""
		switch {
		case err != nil:
			why = "invalid request: " + err.Error()
		case r.Identity != me:
			why = "it is another build of hutch"
		case !slices.Equal(was, fixedEnv(r.Env)):
			why = "TZ, a proxy or another variable that is read once differs"
		default:
			err = r.enter()
			if err != nil {
				why = err.Error()
			}
		}
		again := true
		if why != "" {
			_ = answer(client, handover.SaysRefused, why)
		} else {
			if r.Umask != mask {
				mask = r.Umask
				w.Umask()
				unix.Umask(mask)
			}
			again = w.execute(client, r)
		}
		r.close()
		client.Close()
		for fd, from := range streams {
			_ = unix.Dup3(from, fd, 0)
		}
		_ = unix.Chdir("/")
		if !again || why == "" && !w.After() {
			return nil
		}
		if _, err := link.Write([]byte{0}); err != nil {
			return nil
		}
	}
}

// next waits for a client.
func (w *Worker) next(link *net.UnixConn) (*net.UnixConn, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := link.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	files, err := filesOf(oob[:oobn])
	if err != nil || n != 1 || len(files) != 1 {
		return nil, errors.Join(err, errors.New("invalid message of the resident"))
	}
	defer files[0].Close()
	conn, err := net.FileConn(files[0])
	if err != nil {
		return nil, err
	}
	client, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("a client without a unix socket")
	}
	return client, client.SetDeadline(time.Now().Add(patience))
}

// enter makes directory, streams and environment of the client those of this process.
func (r *request) enter() error {
	if err := unix.Fchdir(int(r.Files[0].Fd())); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(int(r.Files[1+fd].Fd()), fd, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
	}
	os.Clearenv()
	for _, kv := range r.Env {
		for i := 1; i < len(kv); i++ { // a name may begin with "="
			if kv[i] == '=' {
				if err := os.Setenv(kv[:i], kv[i+1:]); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// execute executes a command that was entered.
func (w *Worker) execute(client *net.UnixConn, r *request) (again bool) {
	if answer(client, handover.SaysTaken, strconv.Itoa(os.Getpid())) != nil {
		return true
	}
	_ = client.SetDeadline(time.Time{})
	c := &Command{Args: r.Args, conn: client}
	for len(w.Signals) > 0 { // before any of this command can come
		<-w.Signals
	}
	go w.listen(c)
	code, again := w.Run(c)
	c.Exit(code)
	return again
}

// listen passes on the client's signals. When it is gone, this process ends: as when a hutch is killed that executes
// its command itself, backends see that and clean up, and what was recorded stays.
func (w *Worker) listen(c *Command) {
	b := make([]byte, 1)
	for {
		_, err := c.conn.Read(b)
		c.mu.Lock()
		switch {
		case c.over:
			c.mu.Unlock()
			return
		case err != nil:
			w.Abandoned()
			os.Exit(handover.Lost)
		case syscall.Signal(b[0]) == syscall.SIGTSTP:
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		case syscall.Signal(b[0]) == syscall.SIGCONT:
		default:
			select {
			case w.Signals <- syscall.Signal(b[0]):
			default: // as the kernel does with signals that nobody takes
			}
		}
		c.mu.Unlock()
	}
}

// Exit reports the exit code to the client, for which the command is over then. Only the first call does something.
func (c *Command) Exit(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		_ = answer(c.conn, handover.SaysExit, strconv.Itoa(code))
	}
}
