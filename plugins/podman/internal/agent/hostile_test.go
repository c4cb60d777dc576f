package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

func TestPayloadLearnsNothing(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		other := begin(t, conn, "echo ready; cat")
		other.says("ready")
		out := run(t, conn, fmt.Sprintf(`
tried() { "$@" >/dev/null 2>&1 && echo "possible: $*"; }
reaper=$(cut -d' ' -f4 /proc/%d/stat)
[ "$reaper" != 1 ] || echo "the command has no reaper"
for p in 1 $reaper; do
	for f in environ mem maps auxv stack syscall; do tried dd if=/proc/$p/$f of=/dev/null bs=1 count=1; done
	tried head -c1 /proc/$p/exe
	for f in exe cwd root fd/0 fd/3 fd/9 ns/pid; do tried readlink /proc/$p/$f; done
	tried ls /proc/$p/root/
	tried ls /proc/$p/fd/3/ 
	for fd in 0 1 2 3 4 5 6 7 8 9; do tried head -c0 /proc/$p/fd/$fd; done
done
grep -q agent.sock /proc/net/unix && echo "the socket has a name here"
true`, insidePID(other)))
		if out != "" {
			t.Errorf("in the container it is %s", out)
		}
		if conn.isOver() {
			t.Error("the connection is over")
		}
		other.stdin.Close()
		if exit, err := other.end(); err != nil || exit.Status != 0 {
			t.Errorf("the other command: %+v, %v", exit, err)
		}
	})
}

// insidePID is the number that the container has for a command.
func insidePID(j *job) uint32 {
	pid, _ := j.Report(microinit.Started)
	return pid
}

// isOver says whether the connection has ended.
func (c *Conn) isOver() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func TestSignalsFromWithinHaveNoEffect(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		for range 3 {
			run(t, conn, "for i in $(seq 1 64); do kill -$i 1 2>/dev/null; done; true")
		}
		run(t, conn, "true")
		if conn.isOver() {
			t.Fatal("the connection is over")
		}
		if err := unix.Kill(c.pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		c.await("the end after SIGTERM from outside", c.gone)
		c.await("the end of the connection", conn.Done())
	})
}

// A program that kills all it can kills the reapers too, and its own is one of them.
func TestReapersAreKilled(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		for script, want := range map[string]syscall.WaitStatus{"kill -9 -1; exit 3": 3 << 8, "kill -9 -1; kill -TERM $$": 15} {
			j := begin(t, conn, script)
			if exit, err := j.end(); err != nil || exit.Status != want {
				t.Errorf("%s: %+v, %v", script, exit, err)
			}
		}
		j := begin(t, conn, heart+"kill -9 $PPID; exit 4")
		if exit, err := j.end(); err != nil || exit.Status != 4<<8 || !exit.Left {
			t.Errorf("a tree without its reaper: %+v, %v", exit, err)
		}
		silent(t, conn)
		j = begin(t, conn, heart+"kill -9 $PPID; echo orphaned; while :; do sleep 1; done")
		j.says("orphaned")
		if err := j.Kill(); err != nil {
			t.Fatal(err)
		}
		if exit, err := j.end(); err != nil || exit.Status.Signal() != unix.SIGKILL {
			t.Errorf("killed without its reaper: %+v, %v", exit, err)
		}
		silent(t, conn)
		// Stopped, it goes on.
		j = begin(t, conn, "kill -STOP $PPID; exit 6")
		if exit, err := j.end(); err != nil || exit.Status != 6<<8 {
			t.Errorf("with its reaper stopped: %+v, %v", exit, err)
		}
		// Another command's reaper.
		victim := begin(t, conn, "echo $PPID; cat; exit 2")
		victim.says("\n")
		run(t, conn, "kill -9 "+strings.TrimSpace(victim.out.String()))
		victim.stdin.Close()
		if exit, err := victim.end(); err != nil || exit.Status != 2<<8 {
			t.Errorf("the other command: %+v, %v", exit, err)
		}
	})
}

func TestForkBomb(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		// Each generation forks and ends; none lives for long.
		j := begin(t, conn, `rabbit() { rabbit & }; ( rabbit & ) ; ( rabbit & ); echo ready; while :; do sleep 1; done`)
		j.says("ready")
		if err := j.Kill(); err != nil {
			t.Fatal(err)
		}
		if exit, err := j.end(); err != nil || exit.Status.Signal() != unix.SIGKILL {
			t.Errorf("%+v, %v", exit, err)
		}
		if out := run(t, conn, "ps -o args | grep -c '[r]abbit'; true"); out != "0\n" {
			t.Errorf("%s processes are left", out)
		}
	})
}

func TestDialRefuses(t *testing.T) {
	c := start(t, kinds()[0], Options{})
	c.dial()
	dir := t.TempDir()
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := Dial(c.ctx(), c.socket, os.Getpid()); !errors.Is(err, &sdk.Error{Reason: sdk.ReasonDenied}) {
		t.Errorf("a listener that is another process gave %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(c.socket, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(c.ctx(), link, c.pid); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a symbolic link gave %v", err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(c.ctx(), filepath.Join(dir, "fifo"), c.pid); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a FIFO gave %v", err)
	}
	if _, err := Dial(c.ctx(), filepath.Join(dir, "none"), c.pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing gave %v", err)
	}
	// A socket on which nobody ever listens, of a process that lives, and of one that does not.
	idle, err := Listen(filepath.Join(dir, "idle"))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := Dial(short(), filepath.Join(dir, "idle"), os.Getpid()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody listening gave %v", err)
	}
	if err := unix.Kill(c.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.await("the container's end", c.gone)
	if _, err := Dial(c.ctx(), filepath.Join(dir, "idle"), c.pid); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a container that is gone gave %v", err)
	}
	if _, err := Dial(c.ctx(), c.socket, c.pid); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the socket of a container that is gone gave %v", err)
	}
}

// A listener of this very process, which says what it likes.
func TestAgentThatLies(t *testing.T) {
	hello := wire.Reply{Op: wire.Hello, Value: wire.Version}.Append(nil)
	for name, c := range map[string]struct {
		says [][]byte
		want string
	}{
		"nothing":           {nil, "deadline"},
		"garbage":           {[][]byte{[]byte("garbage")}, "bytes"},
		"too long":          {[][]byte{make([]byte, 4096)}, "too long"},
		"not a greeting":    {[][]byte{wire.Reply{Op: wire.Ended, ID: 1, Value: 2}.Append(nil)}, "greeting"},
		"another version":   {[][]byte{wire.Reply{Op: wire.Hello, Value: 99}.Append(nil)}, "version 99"},
		"unknown request":   {[][]byte{hello, wire.Reply{Op: wire.Ended, ID: 77}.Append(nil)}, "not made"},
		"a wrong reply":     {[][]byte{hello, []byte("garbage")}, "bytes"},
		"a second greeting": {[][]byte{hello, hello}, "not made"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := Listen(path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := unix.Listen(int(l.Fd()), 8); err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			end := make(chan struct{})
			defer func() { close(end); <-served }()
			go func() {
				defer close(served)
				fd, _, err := unix.Accept(int(l.Fd()))
				if err != nil {
					return
				}
				defer unix.Close(fd)
				for _, b := range c.says {
					_ = unix.Send(fd, b, unix.MSG_NOSIGNAL)
				}
				<-end
			}()
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			if name == "nothing" {
				ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
			}
			defer cancel()
			conn, err := Dial(ctx, path, os.Getpid())
			if err == nil {
				defer conn.Close()
				<-conn.Done()
				_, err = conn.Exec(ctx, &Command{Argv: []string{"true"}, Dir: "/", Terminal: &sdk.WindowSize{}})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %q", err, c.want)
			}
		})
	}
}

// The host's own mistakes must not bring the agent down, nor other connections.
func TestHostThatErrs(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		good := c.dial()
		for _, data := range [][]byte{
			[]byte("x"), make([]byte, wire.RequestSize), make([]byte, 100_000),
			wire.Request{Op: wire.Exec, ID: 1}.Append(nil), // without its descriptors
			wire.Request{Op: wire.Dial, ID: 1}.Append(nil), wire.Request{Op: 99, ID: 1}.Append(nil),
		} {
			conn := c.dial()
			if err := conn.socket.Send(data); err != nil {
				t.Fatal(err)
			}
			c.await("the end of a connection with nonsense on it", conn.Done())
		}
		// A command whose init was not killed, and one that is not there, are not waited for.
		for _, pid := range []uint32{0, 1, 12345} {
			if a, err := good.ask(c.ctx(), wire.Request{Op: wire.Await, Arg: pid}); err != nil || a.Op != wire.Failed || wire.Failure(a.Value) != wire.Lost {
				t.Errorf("waiting for %d: %+v, %v", pid, a, err)
			}
		}
		// A file that is not a memfd.
		r, w := pipe(t)
		child, files, err := supervise.Prepare([]string{"-"})
		if err != nil {
			t.Fatal(err)
		}
		defer files.Close()
		p := &Process{Child: child, conn: good, ended: make(chan struct{})}
		ended, err := good.begin(wire.Request{Op: wire.Exec}, int(r.Fd()), int(w.Fd()), int(w.Fd()), int(files.Status.Fd()), int(files.Exec.Fd()), int(r.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		files.Close()
		go p.follow(ended)
		if _, err := p.Wait(c.ctx()); err == nil || !strings.Contains(err.Error(), "read the command") {
			t.Errorf("a pipe instead of a memfd gave %v", err)
		}
		run(t, good, "true")
	})
}

func TestProcessesUsedUp(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the number of processes of one's own user cannot be limited without meeting others")
	}
	// The kernel does not hold this limit against root itself.
	inContainersOf(t, kind{"user", 61234}, Options{}, func(t *testing.T, c *container) {
		limit := unix.Rlimit{Cur: 60, Max: 60}
		conn := c.dial()
		j := begin(t, conn, "echo ready; read x; ( i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done ) 2>/dev/null; echo full; read y")
		j.says("ready")
		procs := commandTree(t, c)
		for _, pid := range procs {
			if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintln(j.stdin)
		j.says("full")
		eventually(t, "no further process can be made", func() (bool, string) {
			again := begin(t, conn, "true")
			exit, err := again.end()
			return errors.Is(err, &sdk.Error{Reason: sdk.ReasonQuota}), fmt.Sprintf("%+v, %v", exit, err)
		})
		if err := j.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := j.end(); err != nil {
			t.Fatal(err)
		}
		run(t, conn, "true")
	})
}

// What a container's limit leaves room for the agent has taken before the first command, so that no command gets it,
// and needs no more of it later. Go may have a thread more or less, by the machine and by what it does just then.
func TestTakesItsOwnPIDs(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		run(t, conn, "true")
		tasks := func() int {
			all, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.pid))
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		if n := tasks(); n < OwnPIDs-2 || n > OwnPIDs { // one more than its own where the machine is busy
			t.Errorf("the agent has %d threads, and %d are its own", n, OwnPIDs-1)
		}
		var jobs []*job
		for range 20 {
			j := begin(t, conn, "echo ready; sleep 1000")
			j.says("ready")
			jobs = append(jobs, j)
		}
		for _, j := range jobs {
			if err := j.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for _, j := range jobs {
			if _, err := j.end(); err != nil {
				t.Fatal(err)
			}
		}
		if n := tasks(); n > OwnPIDs {
			t.Errorf("after 20 commands that were killed at once it has %d threads", n)
		}
	})
}

func TestLifeline(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		second := c.dial()
		if err := conn.Lifeline(c.ctx()); err != nil {
			t.Fatal(err)
		}
		j := begin(t, second, "echo ready; sleep 1000")
		j.says("ready")
		conn.Close()
		c.await("the container's end with its lifeline", c.gone)
		if _, err := j.end(); !errors.Is(err, &sdk.Error{Reason: sdk.ReasonUnavailable}) {
			t.Errorf("the command: %v", err)
		}
	})
	inContainers(t, Options{Lifeline: 100 * time.Millisecond}, func(t *testing.T, c *container) {
		c.await("the container's end without a host", c.gone)
	})
	inContainersOf(t, kinds()[0], Options{Lifeline: 6 * time.Second}, func(t *testing.T, c *container) {
		if err := c.dial().Lifeline(c.ctx()); err != nil {
			t.Fatal(err)
		}
		second := c.dial()
		second.Close()
		run(t, c.dial(), "sleep 6.5")
	})
}
