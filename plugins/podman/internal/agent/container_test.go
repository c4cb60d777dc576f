package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/internal/gobuild"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// bound is how long anything here may take before it counts as hung.
const bound = 2 * time.Minute

// insideEnv marks this test program as the first process of a new container,
// whose root is the variable's value.
const insideEnv = "HUTCH_AGENT_TEST_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(insideEnv); root != "" {
		fmt.Fprintln(os.Stderr, "container:", become(root))
		os.Exit(1)
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// devices are what a container has in its /dev.
var devices = []string{"/dev/null", "/dev/zero", "/dev/tty"}

// become turns this process, the first one of new namespaces, into a container much
// like Podman's: its own root, no capabilities, nothing to gain by executing.
func become(root string) error {
	// Nothing may outlive the test.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct{ what, at, kind, data string }{
		{"proc", "proc", "proc", ""}, {"devpts", "dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"},
	} {
		if err := unix.Mount(m.what, filepath.Join(root, m.at), m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, device := range devices {
		if err := unix.Mount(device, filepath.Join(root, device), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", device, err)
		}
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// Runtimes leak descriptors; the agent must not pass them on.
	if _, err := unix.Dup(1); err != nil {
		return err
	}
	return syscall.Exec(Path, os.Args[1:], []string{"SECRET=of the agent"})
}

// built is the agent's program, built once.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func program(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "hutch-agent-"); built.err != nil {
			return
		}
		if built.err = gobuild.Build(filepath.Join(built.dir, "agent"), "github.com/hutch-run/hutch/plugins/podman/agent", "-ldflags=-s -w"); built.err == nil {
			built.err = os.Chmod(built.dir, 0o755)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "agent")
}

// need skips a test on a machine without a program, unless HUTCH_TEST_REQUIRE lists it.
func need(t testing.TB, tool, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), tool) {
		t.Fatalf("%s is required (HUTCH_TEST_REQUIRE): %s", tool, why)
	}
	t.Skip(why)
}

// container is one with an agent in it.
type container struct {
	t      testing.TB
	root   string // as the host sees it
	socket string
	pid    int
	gone   chan struct{}
	log    *lockedBuffer
}

// lockedBuffer keeps what is written to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	return len(p), nil
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}

// tail is the end of it, for a message.
func (l *lockedBuffer) tail() string {
	s := l.String()
	return s[max(0, len(s)-300):]
}

// kind is how containers are made.
type kind struct {
	name string
	user int // the host's user that the container's root is; 0 for no namespace of users
}

// kinds are those that this machine and this user can make.
func kinds() []kind {
	if os.Getuid() != 0 {
		return []kind{{"user", os.Getuid()}}
	}
	return []kind{{"root", 0}, {"user", 65534}}
}

// inContainers runs a test in a container of each kind.
func inContainers(t *testing.T, o Options, test func(t *testing.T, c *container)) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) { test(t, start(t, k, o)) })
	}
}

// inContainersOf runs a test in a container of one kind.
func inContainersOf(t *testing.T, k kind, o Options, test func(t *testing.T, c *container)) {
	t.Run(k.name, func(t *testing.T) { test(t, start(t, k, o)) })
}

// commandTree lists the container's processes as the host numbers them, parents first.
func commandTree(t testing.TB, c *container) []int {
	t.Helper()
	pids := append([]int{c.pid}, descendants.Of(c.pid)...)
	if len(pids) < 3 {
		t.Fatalf("the container has only the processes %v", pids)
	}
	return pids
}

// start makes a container and waits for nothing.
func start(t testing.TB, k kind, o Options) *container {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		need(t, "busybox", "a container's root is made of a static busybox")
	}
	base, err := os.MkdirTemp("", "hutch-agent-box-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	c := &container{t: t, root: filepath.Join(base, "root"), socket: filepath.Join(base, "agent.sock"), gone: make(chan struct{}), log: &lockedBuffer{}}
	for _, dir := range []string{"bin", "proc", "dev/pts", "tmp", "run", "workspace"} {
		if err := os.MkdirAll(filepath.Join(c.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, busybox, filepath.Join(c.root, "bin/busybox"))
	copyFile(t, program(t), filepath.Join(c.root, Path))
	for _, device := range devices {
		if err := os.WriteFile(filepath.Join(c.root, device), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, applet := range strings.Fields(string(list)) {
		if err := os.Symlink("busybox", filepath.Join(c.root, "bin", applet)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET}
	if k.user != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: k.user, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: k.user, Size: 1}}
		if os.Getuid() == 0 {
			attr.Credential = &syscall.Credential{}
			if err := filepath.Walk(base, func(p string, _ os.FileInfo, err error) error {
				return errors.Join(err, os.Lchown(p, k.user, k.user))
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	listener, err := Listen(c.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if k.user != 0 { // which may not see where it lies
		copyFile(t, self, filepath.Join(base, "self"))
		self = filepath.Join(base, "self")
	}
	cmd := exec.Command(self, Args(o)...)
	cmd.Env = []string{insideEnv + "=" + c.root}
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = attr
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if err := cmd.Start(); err != nil {
		need(t, "namespaces", fmt.Sprintf("a container cannot be made here: %v", err))
	}
	c.pid = cmd.Process.Pid
	go func() {
		_ = cmd.Wait()
		close(c.gone)
	}()
	t.Cleanup(func() {
		_ = unix.Kill(c.pid, unix.SIGKILL)
		c.await("the container's end", c.gone)
		if text := c.log.String(); text != "" {
			t.Logf("the agent said: %s", text)
		}
	})
	return c
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// await fails the test when something does not happen in time.
func (c *container) await(what string, ch <-chan struct{}) {
	c.t.Helper()
	select {
	case <-ch:
	case <-time.After(bound):
		c.t.Fatalf("%s: nothing for %s; the agent said: %s", what, bound, c.log)
	}
}

// eventually waits for a condition, and says what it saw when it does not come.
func eventually(t testing.TB, what string, cond func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for {
		ok, saw := cond()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %s", what, bound, saw)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (c *container) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	c.t.Cleanup(cancel)
	return ctx
}

// dial connects to the agent.
func (c *container) dial() *Conn {
	c.t.Helper()
	conn, err := Dial(c.ctx(), c.socket, c.pid)
	if err != nil {
		c.t.Fatalf("%v; the agent said: %s", err, c.log)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

// env is what commands get.
var env = []string{"PATH=/bin", "HOME=/tmp"}

// job is a command that runs, and its output so far.
type job struct {
	*Process
	t        testing.TB
	out, err *lockedBuffer
	copied   sync.WaitGroup
	stdin    *os.File
}

// begin starts a shell script.
func begin(t testing.TB, conn *Conn, script string) *job {
	return beginArgv(t, conn, "sh", "-c", script)
}

func beginArgv(t testing.TB, conn *Conn, argv ...string) *job {
	t.Helper()
	j := &job{t: t, out: &lockedBuffer{}, err: &lockedBuffer{}}
	in, w := pipe(t)
	j.stdin = w
	cmd := &Command{Argv: argv, Env: env, Dir: "/workspace", Stdin: in}
	for _, s := range []struct {
		to   *lockedBuffer
		file **os.File
	}{{j.out, &cmd.Stdout}, {j.err, &cmd.Stderr}} {
		r, w := pipe(t)
		*s.file = w
		j.copied.Go(func() { _, _ = io.Copy(s.to, r) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var err error
	j.Process, err = conn.Exec(ctx, cmd)
	for _, f := range []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f.Close()
	}
	if err != nil {
		t.Fatalf("exec %q: %v", argv, err)
	}
	return j
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// says waits until the command has printed a text.
func (j *job) says(text string) {
	j.t.Helper()
	<-j.Started() // what it prints may be heard of before that
	eventually(j.t, "the command prints "+strconv.Quote(text), func() (bool, string) {
		return strings.Contains(j.out.String(), text), fmt.Sprintf("stdout %q, stderr %q", j.out.tail(), j.err.tail())
	})
}

// end waits for the command's end.
func (j *job) end() (*Exit, error) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	exit, err := j.Wait(ctx)
	if ctx.Err() != nil {
		j.t.Fatalf("the command has not ended within %s; stdout %q, stderr %q", bound, j.out.tail(), j.err.tail())
	}
	j.copied.Wait()
	return exit, err
}

// run runs a script that must end with 0, and returns what it printed.
func run(t testing.TB, conn *Conn, script string) string {
	t.Helper()
	j := begin(t, conn, script)
	j.stdin.Close()
	exit, err := j.end()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	if exit.Status != 0 {
		t.Fatalf("%s: status %#x, stdout %q, stderr %q", script, int(exit.Status), j.out, j.err)
	}
	return j.out.String()
}
