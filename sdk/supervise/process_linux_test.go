package supervise_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise"
)

func TestMain(m *testing.M) {
	switch os.Getenv("PROCESS_TEST_PAYLOAD") {
	case "host": // starts a command with a daemon, which says its number; says the leader's; and waits to be killed
		cmd := sh(daemon + "\nexec sleep 1000")
		cmd.Stdout = os.Stdout
		p, err := supervise.Start(cmd, supervise.Options{})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.Pid())
		io.Copy(io.Discard, os.Stdin)
	case "lifeline": // as a plugin: cleans up when the host is gone, although nobody reads what it says
		ctx, _, err := supervise.Lifeline(context.Background(), 3)
		if err != nil {
			panic(err)
		}
		fmt.Println("up")
		<-ctx.Done()
		for range 100 {
			fmt.Println("a log line to a host that is gone")
		}
		os.WriteFile(os.Getenv("PROCESS_TEST_ARG"), []byte(fmt.Sprint(context.Cause(ctx))), 0o644)
	case "size":
		report := func() {
			ws, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
			fmt.Println(ws.Row, ws.Col, err)
		}
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGWINCH)
		report()
		<-c
		report()
	case "tty": // opens its controlling terminal, says its size, and waits for a key that sends a signal
		f, err := os.Open("/dev/tty")
		if err != nil {
			panic(err)
		}
		ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		fmt.Println(ws.Row, ws.Col, err)
		fmt.Println("ready")
		unix.Poll(nil, -1)
	case "nonblock": // says whether its standard streams are non-blocking
		for fd := range 3 {
			fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err != nil || fl&unix.O_NONBLOCK != 0 {
				fmt.Println("descriptor", fd, fl, err)
			}
		}
		fmt.Println("checked")
	default:
		os.Exit(m.Run())
	}
	os.Exit(0)
}

func payload(name, arg string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "PROCESS_TEST_PAYLOAD="+name, "PROCESS_TEST_ARG="+arg)
	return cmd
}

func sh(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

func start(t testing.TB, cmd *exec.Cmd, o supervise.Options) *supervise.Process {
	t.Helper()
	p, err := supervise.Start(cmd, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Signal(syscall.SIGKILL); <-p.Done() })
	return p
}

// alive reports whether a process runs: a zombie does not.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(data), ") Z ") && !strings.Contains(string(data), ") X ")
}

// waitFor polls what no descriptor reports.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
		runtime.Gosched()
	}
}

func TestHowCommandsEnd(t *testing.T) {
	for script, want := range map[string]struct {
		code int
		sig  syscall.Signal
	}{
		"exit 0": {0, 0}, "exit 7": {7, 0}, "exit 255": {255, 0}, "kill -TERM $$": {143, syscall.SIGTERM},
		"kill -KILL $$": {137, syscall.SIGKILL}, "kill -SEGV $$": {139, syscall.SIGSEGV},
		"exit 137": {137, 0}, // looks like a kill and is not one
	} {
		p := start(t, sh(script), supervise.Options{})
		r := p.Wait(context.Background())
		if r.Code != want.code || r.Signal != want.sig || r.Stopped != nil || r.Killed || r.Err != nil {
			t.Errorf("%s: %+v, want code %d signal %d", script, r, want.code, want.sig)
		}
		if r.Usage.Wall <= 0 || r.Usage.MaxRSS < 100<<10 {
			t.Errorf("%s: usage %+v", script, r.Usage)
		}
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal after the end: %v", err)
		}
	}
	if _, err := supervise.Start(exec.Command("/nonexistent"), supervise.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such program: %v", err)
	}
}

var errTime = errors.New("time is up")

func TestWaitTermsThenKills(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
		code   int
		killed bool
	}{
		"ends on TERM":     {`trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done`, 10 * time.Second, 9, false},
		"ignores TERM":     {`trap '' TERM; echo up; while :; do sleep 0.01; done`, 50 * time.Millisecond, 137, true},
		"no grace":         {`trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done`, -1, 137, true},
		"stopped":          {`trap 'exit 9' TERM; echo up; kill -STOP $$; exit 3`, 10 * time.Second, 9, false},
		"child needs TERM": {`trap "wait; exit 4" TERM; (trap "exit" TERM; echo up; while :; do sleep 0.01; done) & wait`, 10 * time.Second, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := sh(c.script)
			out, _ := cmd.StdoutPipe()
			p := start(t, cmd, supervise.Options{Grace: c.grace})
			if line, _ := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
				t.Fatalf("said %q", line)
			}
			if name == "stopped" {
				waitFor(t, "it is stopped", func() bool {
					data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
					return strings.Contains(string(data), ") T ")
				})
			}
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errTime)
			r := p.Wait(ctx)
			if r.Code != c.code || r.Killed != c.killed || !errors.Is(r.Stopped, errTime) || r.Err != nil {
				t.Errorf("%+v, want code %d killed %v", r, c.code, c.killed)
			}
		})
	}
}

// noZombies checks that no child of ours waits to be reaped.
func noZombies(t *testing.T) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		data, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for pid := range strings.FieldsSeq(string(data)) {
			if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
				t.Errorf("zombie: %s", stat)
			}
		}
	}
}

func TestTheThreadThatCallsStartMayEnd(t *testing.T) {
	// golang/go#27505: the parent-death signal comes when the forking thread ends.
	groups(t, func(t *testing.T, o supervise.Options) {
		type started struct {
			p   *supervise.Process
			err error
			tid int
		}
		for {
			done := make(chan started)
			go func() {
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				tid := unix.Gettid()
				if tid == os.Getpid() {
					done <- started{tid: tid} // the first thread of a program never ends
					return
				}
				p, err := supervise.Start(exec.Command("/bin/sleep", "1000"), o)
				done <- started{p, err, tid}
			}()
			s := <-done
			if s.tid == os.Getpid() {
				continue
			}
			if s.err != nil {
				t.Fatal(s.err)
			}
			waitFor(t, "the calling thread is gone", func() bool {
				_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", s.tid))
				return err != nil
			})
			if !alive(s.p.Pid()) {
				t.Error("the command died with the thread")
			}
			s.p.Signal(syscall.SIGKILL)
			<-s.p.Done()
			return
		}
	})
}

func TestTheTreeDiesWithItsHost(t *testing.T) {
	host := payload("host", "")
	in, _ := host.StdinPipe()
	defer in.Close()
	out, _ := host.StdoutPipe()
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	var pids []int
	for range 2 {
		line, _ := r.ReadString('\n')
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || !alive(pid) {
			t.Fatalf("host said %q", line)
		}
		pids = append(pids, pid)
	}
	host.Process.Kill()
	waitFor(t, "leader and daemon are dead", func() bool { return !alive(pids[0]) && !alive(pids[1]) })
	host.Wait()
}

func TestAnInitThatIsKilledIsReported(t *testing.T) {
	cmd := sh("read go; kill -KILL $PPID; exec sleep 1000")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd, supervise.Options{})
	in.Close()
	r := p.Wait(context.Background())
	if r.Err == nil || !strings.Contains(r.Err.Error(), "the init above") {
		t.Errorf("%+v, want an error that says what happened", r)
	}
	waitFor(t, "the command is dead", func() bool { return !alive(p.Pid()) })
}

// A command may stop its init, which is of the same user. That keeps neither its end from being seen nor it from being
// killed.
func TestAnInitThatIsStoppedGoesOn(t *testing.T) {
	p := start(t, sh("kill -STOP $PPID; exit 6"), supervise.Options{})
	if r := p.Wait(t.Context()); r.Code != 6 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	p = start(t, sh("while :; do kill -STOP $PPID; done"), supervise.Options{Grace: -1})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTime)
	if r := p.Wait(ctx); r.Code != 137 || r.Err != nil {
		t.Errorf("%+v", r)
	}
}

func TestRlimits(t *testing.T) {
	var out bytes.Buffer
	cmd := sh("ulimit -n; ulimit -Hn; ulimit -c")
	cmd.Stdout = &out
	p := start(t, cmd, supervise.Options{Rlimits: []supervise.Rlimit{{Resource: unix.RLIMIT_NOFILE, Value: 33}, {Resource: unix.RLIMIT_CORE}}})
	if r := p.Wait(t.Context()); r.Err != nil || out.String() != "33\n33\n0\n" {
		t.Errorf("%+v %q", r, out.String())
	}
}

// What cannot be started is an error that says why, and leaves nothing.
func TestStartErrors(t *testing.T) {
	for name, c := range map[string]struct {
		cmd  *exec.Cmd
		want error
	}{
		"no program":   {&exec.Cmd{Path: "/nonexistent"}, os.ErrNotExist},
		"a directory":  {&exec.Cmd{Path: "/"}, os.ErrPermission},
		"no directory": {&exec.Cmd{Path: "/bin/true", Dir: "/nonexistent"}, os.ErrNotExist},
	} {
		if _, err := supervise.Start(c.cmd, supervise.Options{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := supervise.Start(&exec.Cmd{Path: "/bin/true", ExtraFiles: []*os.File{os.Stdin}}, supervise.Options{}); err == nil {
		t.Error("a descriptor that the command would not get was accepted")
	}
	noZombies(t)
}

func TestLifeline(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "cleaned")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := payload("lifeline", mark)
	cmd.ExtraFiles = []*os.File{r}
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	bufio.NewReader(out).ReadString('\n')
	out.Close() // nobody reads any more
	w.Close()   // the host is gone
	if err := cmd.Wait(); err != nil {
		t.Errorf("the plugin ended with %v: a log line killed it", err)
	}
	if data, err := os.ReadFile(mark); err != nil || string(data) != supervise.ErrHostGone.Error() {
		t.Errorf("clean-up wrote %q, %v", data, err)
	}
}

func TestLifelineLeavesChildrenTheirSIGPIPE(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd, err := unix.Dup(int(r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	ctx, cancel, err := supervise.Lifeline(context.Background(), uintptr(fd))
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, sh(`(while echo y; do :; done; echo survived >&2) | head -n 1 > /dev/null`), supervise.Options{})
	limit, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	if res := p.Wait(limit); res.Stopped != nil || res.Code != 0 {
		t.Errorf("%+v: a pipe without a reader does not end its writer", res)
	}
	out, err := sh(`grep -E 'Sig(Ign|Blk)' /proc/self/status`).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		mask, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64)
		if err != nil || mask&(1<<(syscall.SIGPIPE-1)) != 0 {
			t.Errorf("a child inherits %s", line)
		}
	}
	if ctx.Err() != nil {
		t.Errorf("the lifeline ended while its host lives: %v", context.Cause(ctx))
	}
	cancel()
	if _, _, err := supervise.Lifeline(context.Background(), 999); err == nil {
		t.Error("a descriptor that is not open is accepted")
	}
}

func BenchmarkStart(b *testing.B) {
	b.Run("exec.Cmd", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("process", func(b *testing.B) {
		for b.Loop() {
			p, err := supervise.Start(exec.Command("/bin/true"), supervise.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if r := p.Wait(context.Background()); r.Code != 0 {
				b.Fatal(r)
			}
		}
	})
}
