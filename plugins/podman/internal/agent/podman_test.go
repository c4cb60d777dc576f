package agent

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/sdk"
)

// podman runs podman, away from any directory of the user's.
func podman(t testing.TB, listener *os.File, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("podman", args...)
	cmd.Dir = "/"
	if listener != nil {
		cmd.ExtraFiles = []*os.File{listener}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("podman %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// startPodman starts a container of Podman's with the agent in it.
func startPodman(t testing.TB, more ...string) *container {
	t.Helper()
	image := podmantest.Busybox(t)
	dir := t.TempDir()
	c := &container{t: t, socket: filepath.Join(dir, "agent.sock"), gone: make(chan struct{}), log: &lockedBuffer{}}
	listener, err := Listen(c.socket)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("hutch-agent-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if _, err := podman(t, nil, "rm", "-f", "-t", "0", "--ignore", name); err != nil {
			t.Error(err)
		}
	})
	var first error
	for _, runtime := range []string{"runc", "crun"} { // on hybrid cgroups crun refuses
		args := append([]string{"--runtime", runtime, "run", "-d", "--name", name, "--network", "none", "--cap-drop", "all", "--security-opt", "no-new-privileges",
			"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--preserve-fds", "1", "--tmpfs", "/tmp:rw,mode=1777", "--tmpfs", "/workspace:rw,mode=1777", "-v", program(t) + ":" + Path + ":ro", "--workdir", "/"}, more...)
		_, err := podman(t, listener, append(append(args, image), Args(Options{})...)...)
		if err == nil {
			first = nil
			break
		}
		if first == nil {
			first = err
		}
		_, _ = podman(t, nil, "rm", "-f", "-t", "0", "--ignore", name)
	}
	listener.Close()
	if first != nil {
		need(t, "podman", first.Error())
	}
	out, err := podman(t, nil, "inspect", "-f", "{{.State.Pid}} {{.Name}}", name)
	if err != nil {
		t.Fatal(err)
	}
	pid, name, _ := strings.Cut(out, " ")
	if c.pid, err = strconv.Atoi(pid); err != nil {
		t.Fatal(err)
	}
	c.root = name
	return c
}

func TestPodman(t *testing.T) {
	for name, user := range map[string][]string{"root": nil, "user": {"--user", "1000:1000"}} {
		t.Run(name, func(t *testing.T) {
			c := startPodman(t, user...)
			conn := c.dial()
			if out := run(t, conn, "echo $$ >/dev/null; cat /proc/1/cmdline | tr '\\0' ' '"); out != Path+" serve " {
				t.Errorf("the first process is %q", out)
			}
			if out := run(t, conn, "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status"); out != "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n" {
				t.Errorf("commands have %q", out)
			}
			if out := run(t, conn, "ls /run /proc/self/fd; grep -c agent.sock /proc/net/unix; true"); out != "/proc/self/fd:\n0\n1\n2\n3\n\n/run:\nhutch-agent\n0\n" && out != "/proc/self/fd:\n0\n1\n2\n3\n\n/run:\n.containerenv\nhutch-agent\n0\n" {
				t.Errorf("commands see %q", out)
			}
			if out := run(t, conn, "for f in mem environ exe fd/3; do head -c1 /proc/1/$f 2>/dev/null && echo $f; done; for i in $(seq 1 64); do kill -$i 1; done 2>/dev/null; true"); out != "" {
				t.Errorf("of the agent can be read: %q", out)
			}
			for _, script := range []string{heart + "exit 5", heart + "kill -9 $PPID; exit 5"} {
				j := begin(t, conn, "cd /tmp;"+script)
				if exit, err := j.end(); err != nil || exit.Status != 5<<8 || !exit.Left {
					t.Errorf("%+v, %v, %s", exit, err, j.err.tail())
				}
				silent(t, conn)
				run(t, conn, "rm /tmp/beat")
			}
			// The container outlives a connection that is not its lifeline.
			conn.Close()
			conn = c.dial()
			if err := conn.Lifeline(c.ctx()); err != nil {
				t.Fatal(err)
			}
			run(t, conn, "true")
			conn.Close()
			eventually(t, "the container's end with its lifeline", func() (bool, string) {
				out, err := podman(t, nil, "inspect", "-f", "{{.State.Status}} {{.State.ExitCode}}", c.root)
				return err == nil && out == "exited 0", fmt.Sprint(out, err)
			})
		})
	}
}

func TestTerminal(t *testing.T) {
	test := func(t *testing.T, c *container) {
		conn := c.dial()
		p, err := conn.Exec(c.ctx(), &Command{
			Argv: []string{"sh", "-c", `tty; stty size; trap 'stty size' WINCH; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all >/dev/tty; trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done`},
			Env:  env, Dir: "/", Terminal: &sdk.WindowSize{Rows: 33, Cols: 111},
		})
		if err != nil {
			t.Fatal(err)
		}
		j := &job{Process: p, t: t, out: &lockedBuffer{}, err: &lockedBuffer{}}
		master := p.Terminal()
		defer master.Close()
		j.copied.Go(func() { _, _ = io.Copy(j.out, master) }) // which ends with EIO
		j.says("/dev/pts/0\r\n33 111\r\nall\r\nready\r\n")
		raw, err := master.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132})
		})
		if err != nil {
			t.Fatal(err)
		}
		j.says("50 132")
		if _, err := master.Write([]byte{3}); err != nil { // ^C
			t.Fatal(err)
		}
		if exit, err := j.end(); err != nil || exit.Status != 5<<8 {
			t.Errorf("%+v, %v", exit, err)
		}
		j.says("interrupted")

		// The last bytes, of a command that hands its terminal on to nobody.
		p, err = conn.Exec(c.ctx(), &Command{Argv: []string{"sh", "-c", "head -c 20000 /dev/zero | tr '\\0' x; printf END"}, Env: env, Dir: "/", Terminal: &sdk.WindowSize{Rows: 24, Cols: 80}})
		if err != nil {
			t.Fatal(err)
		}
		last := &lockedBuffer{}
		_, _ = io.Copy(last, p.Terminal())
		p.Terminal().Close()
		if out := last.String(); len(out) != 20003 || !strings.HasSuffix(out, "END") {
			t.Errorf("%d bytes arrived of 20003", len(out))
		}
		// One whose terminal is closed from outside gets SIGHUP.
		p, err = conn.Exec(c.ctx(), &Command{Argv: []string{"sleep", "1000"}, Env: env, Dir: "/", Terminal: &sdk.WindowSize{Rows: 24, Cols: 80}})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Started()
		p.Terminal().Close()
		if exit, err := p.Wait(c.ctx()); err != nil || exit.Status.Signal() != unix.SIGHUP {
			t.Errorf("%+v, %v", exit, err)
		}
	}
	inContainers(t, Options{}, test)
	t.Run("podman", func(t *testing.T) { test(t, startPodman(t)) })
}

// BenchmarkExec compares `true` over the agent with `podman exec`, in the same
// container and interleaved.
func BenchmarkExec(b *testing.B) {
	c := startPodman(b)
	open := c.dial()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	over := func(conn *Conn) {
		p, err := conn.Exec(c.ctx(), &Command{Argv: []string{"true"}, Env: env, Dir: "/", Stdin: null, Stdout: null, Stderr: null})
		if err != nil {
			b.Fatal(err)
		}
		if exit, err := p.Wait(c.ctx()); err != nil || exit.Status != 0 {
			b.Fatal(exit, err)
		}
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			over(open)
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			conn, err := Dial(c.ctx(), c.socket, c.pid)
			if err != nil {
				b.Fatal(err)
			}
			over(conn)
			conn.Close()
		}
	})
	b.Run("podman", func(b *testing.B) {
		for b.Loop() {
			if _, err := podman(b, nil, "exec", c.root, "true"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
