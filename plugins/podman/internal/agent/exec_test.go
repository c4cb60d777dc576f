package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStatus(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		for script, want := range map[string]syscall.WaitStatus{
			"exit 0": 0, "exit 1": 1 << 8, "exit 126": 126 << 8, "exit 127": 127 << 8, "exit 137": 137 << 8, "exit 255": 255 << 8,
			"kill -9 $$": 9, "kill -TERM $$": 15, "(exit 3); exit 7": 7 << 8,
		} {
			j := begin(t, conn, script)
			exit, err := j.end()
			if err != nil || exit.Status != want {
				t.Errorf("%s: %+v, %v; want status %#x", script, exit, err, int(want))
			}
			if !j.Executed() || insidePID(j) <= 1 {
				t.Errorf("%s: executed %v, pid %d", script, j.Executed(), insidePID(j))
			}
		}
	})
}

func TestNotRunnable(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		run(t, conn, `mkdir d; echo 'echo hello' > script; chmod 644 script; printf '#!/no/such/interpreter\n' > bad; chmod 755 bad; echo garbage > noexec; chmod 755 noexec`)
		for name, want := range map[string]struct {
			errno syscall.Errno
		}{
			"no-such-program": {unix.ENOENT}, "/no/such/program": {unix.ENOENT}, "./none": {unix.ENOENT}, "/bin/sh/x": {unix.ENOENT},
			"./script": {unix.EACCES}, "/": {unix.EACCES}, "./d": {unix.EACCES}, "./bad": {unix.ENOENT}, "./noexec": {unix.ENOEXEC},
		} {
			j := beginArgv(t, conn, name)
			exit, err := j.end()
			if err != nil || exit.NotStarted == nil || !strings.Contains(exit.NotStarted.Evidence, want.errno.Error()) {
				t.Errorf("%s: %+v, %v, want %+v", name, exit, err, want)
			}
			select {
			case <-j.Started():
			default:
				t.Errorf("%s: Started is not closed after the end", name)
			}
			if j.Executed() {
				t.Errorf("%s is said to have been executed", name)
			}
		}
		j := &Command{Argv: []string{"true"}, Env: env, Dir: "/no/such/dir"}
		null, _ := pipe(t)
		j.Stdin, j.Stdout, j.Stderr = null, null, null
		p, err := conn.Exec(c.ctx(), j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(c.ctx()); err == nil || !strings.Contains(err.Error(), "directory /no/such/dir") || !errors.Is(err, unix.ENOENT) {
			t.Errorf("a missing directory gave %v", err)
		}
	})
}

func TestPassesExactly(t *testing.T) {
	inContainers(t, Options{Limits: map[string]uint64{"nofile": 33, "core": 0}}, func(t *testing.T, c *container) {
		conn := c.dial()
		if out := run(t, conn, "pwd; umask; ulimit -n; ulimit -Hn; ulimit -c; env | sort"); out != "/workspace\n0022\n33\n33\n0\nHOME=/tmp\nPATH=/bin\nPWD=/workspace\nSHLVL=1\n" {
			t.Errorf("the command sees %q", out)
		}
		if out := run(t, conn, "ls /proc/self/fd"); out != "0\n1\n2\n3\n" { // 3 is ls's own
			t.Errorf("the command has descriptors %q", out)
		}
		j := beginArgv(t, conn, "grep", "-E", "^(Sig(Blk|Ign)|NoNewPrivs)", "/proc/self/status")
		if _, err := j.end(); err != nil || j.out.String() != "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nNoNewPrivs:\t1\n" {
			t.Errorf("the command starts with %q, %v", j.out, err)
		}
		j = beginArgv(t, conn, "sh", "-c", `printf '%s|' "$0" "$@"; cat; echo e >&2; [ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo leads`, "zero", "x y", "", "é\x01")
		fmt.Fprint(j.stdin, "typed ")
		j.stdin.Close()
		if exit, err := j.end(); err != nil || exit.Status != 0 || j.out.String() != "zero|x y||é\x01|typed leads\n" || j.err.String() != "e\n" {
			t.Errorf("%+v, %v, stdout %q, stderr %q", exit, err, j.out, j.err)
		}
	})
}

func TestSignals(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		j := begin(t, conn, `trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.05; done`)
		j.says("ready")
		if err := j.Signal(unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if exit, err := j.end(); err != nil || exit.Status.ExitStatus() != 9 {
			t.Errorf("%+v, %v", exit, err)
		}
		if err := j.Signal(unix.SIGUSR1); err == nil {
			t.Error("a signal to a command that is gone was taken")
		}
		j = begin(t, conn, `sh -c 'trap "echo child; exit" TERM; echo ready; while :; do sleep 0.05; done' & wait; wait`)
		j.says("ready")
		if err := j.SignalGroup(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if exit, err := j.end(); err != nil || exit.Status.Signal() != unix.SIGTERM {
			t.Errorf("%+v, %v", exit, err)
		}
		if err := j.Signal(0); err == nil {
			t.Error("signal 0 was taken")
		}
		j = begin(t, conn, "exec sleep 1000")
		<-j.Started()
		if err := j.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if exit, err := j.end(); err != nil || exit.Status.Signal() != unix.SIGTERM {
			t.Errorf("%+v, %v", exit, err)
		}
	})
}

// heart starts descendants that write to the file beat: a child, an orphan, one in a
// session of its own; all deaf to SIGTERM.
const heart = `
trap '' TERM
beat() { while :; do echo $1 >> beat; sleep 0.02; done; }
beat child &
( ( beat orphan & ) & )
setsid sh -c 'while :; do echo session >> beat; sleep 0.02; done' &
( setsid sh -c 'while :; do echo daemon >> beat; sleep 0.02; done' & )
until grep -q child beat && grep -q orphan beat && grep -q session beat && grep -q daemon beat; do sleep 0.02; done 2>/dev/null
echo ready
`

// silent says that nothing of the heart is left; what is dead and not yet reaped stands in brackets.
func silent(t *testing.T, conn *Conn) {
	t.Helper()
	if out := run(t, conn, `ps -o pid,args | grep -E '[s]leep|[b]eat' | grep -vF '[sleep]'; true`); out != "" {
		t.Errorf("left behind: %s", out)
	}
}

func TestKillsTheTree(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		conn := c.dial()
		other := begin(t, conn, "echo ready; cat; exit 8")
		other.says("ready")
		j := begin(t, conn, heart+"while :; do sleep 1; done")
		j.says("ready")
		if err := j.Kill(); err != nil {
			t.Fatal(err)
		}
		if exit, err := j.end(); err != nil || exit.Status.Signal() != unix.SIGKILL {
			t.Errorf("killed: %+v, %v", exit, err)
		}
		silent(t, conn)

		j = begin(t, conn, heart+"exit 5")
		if exit, err := j.end(); err != nil || exit.Status.ExitStatus() != 5 || !exit.Left {
			t.Errorf("ended by itself: %+v, %v", exit, err)
		}
		silent(t, conn)

		second := c.dial()
		j = begin(t, second, heart+"while :; do sleep 1; done")
		j.says("ready")
		second.Close()
		if _, err := j.end(); err == nil {
			t.Error("a command over a closed connection ended without an error")
		}
		eventually(t, "the commands of a closed connection are gone", func() (bool, string) {
			out := run(t, conn, `ps -o pid,args | grep -E '[s]leep|[b]eat' ; true`)
			return out == "", out
		})

		other.stdin.Close()
		if exit, err := other.end(); err != nil || exit.Status.ExitStatus() != 8 || exit.Left {
			t.Errorf("the other command: %+v, %v", exit, err)
		}
		if out := run(t, conn, "ps -o pid,stat | grep ' Z' ; true"); out != "" {
			t.Errorf("zombies: %s", out)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	inContainers(t, Options{}, func(t *testing.T, c *container) {
		var wg sync.WaitGroup
		for range 3 {
			conn := c.dial()
			for i := range 30 {
				wg.Go(func() {
					j := begin(t, conn, fmt.Sprintf("cat; echo err%d >&2; exit %d", i, i))
					fmt.Fprintf(j.stdin, "in%d", i)
					j.stdin.Close()
					exit, err := j.end()
					if err != nil || exit.Status.ExitStatus() != i || j.out.String() != fmt.Sprintf("in%d", i) || j.err.String() != fmt.Sprintf("err%d\n", i) {
						t.Errorf("command %d: %+v, %v, stdout %q, stderr %q", i, exit, err, j.out, j.err)
					}
				})
			}
		}
		wg.Wait()
	})
}
