package supervise_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// daemon starts, below a shell, a process that forked twice, has its own session, ignores signals, and has shed
// its environment; it says its number.
const daemon = `setsid /bin/sh -c 'trap "" TERM INT HUP; (env -i /bin/sh -c "trap \"\" TERM HUP; echo \$\$ >&3; exec sleep 1000" &) ; exit 0' 3>&1 `

// startDaemon runs daemon and then script, and returns the daemon's number.
func startDaemon(t *testing.T, o supervise.Options, script string) (*supervise.Process, int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := sh(daemon + "\nread go\n" + script)
	cmd.Stdout = w
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd, o)
	w.Close()
	defer in.Close() // lets the shell go on, now that the daemon is known
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return p, pid
}

// groups runs a test without a group and, where there are cgroups, with one.
func groups(t *testing.T, test func(t *testing.T, o supervise.Options)) {
	t.Run("by init", func(t *testing.T) { test(t, supervise.Options{}) })
	t.Run("by cgroup", func(t *testing.T) {
		if limits.Probe().Mechanism == limits.Rlimit {
			t.Skip("no cgroups here")
		}
		g, err := limits.Probe().New(fmt.Sprintf("process-test-%d-%d", os.Getpid(), time.Now().UnixNano()), limits.Request{PIDs: 300})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := g.Destroy(ctx); err != nil {
				t.Error(err)
			}
		})
		test(t, supervise.Options{Group: g})
	})
}

func TestDaemonsDieWithTheirLeader(t *testing.T) {
	groups(t, func(t *testing.T, o supervise.Options) {
		p, pid := startDaemon(t, o, "exit 5")
		r := p.Wait(context.Background())
		if r.Code != 5 || !r.Killed || r.Err != nil {
			t.Errorf("%+v, want code 5 and that something was killed", r)
		}
		if alive(pid) {
			t.Errorf("daemon %d lives", pid)
		}
		noZombies(t)
	})
}

func TestDaemonsDieAtATimeout(t *testing.T) {
	groups(t, func(t *testing.T, o supervise.Options) {
		o.Grace = 20 * time.Millisecond
		p, pid := startDaemon(t, o, "sleep 1000")
		if !alive(pid) {
			t.Fatal("the daemon is dead before its time")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		r := p.Wait(ctx)
		if !errors.Is(r.Stopped, context.DeadlineExceeded) || r.Err != nil {
			t.Errorf("%+v", r)
		}
		if alive(pid) {
			t.Errorf("daemon %d lives", pid)
		}
		noZombies(t)
	})
}

func TestTreesAreNotMixedUp(t *testing.T) {
	a, daemonA := startDaemon(t, supervise.Options{}, "exit 0")
	var rest []*supervise.Process
	var daemons []int
	for range 5 {
		p, pid := startDaemon(t, supervise.Options{Grace: -1}, "sleep 1000")
		rest, daemons = append(rest, p), append(daemons, pid)
	}
	a.Wait(context.Background())
	if alive(daemonA) {
		t.Error("the first tree's daemon lives")
	}
	for i, pid := range daemons {
		if !alive(pid) || !alive(rest[i].Pid()) {
			t.Errorf("tree %d was killed with the first", i)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i, p := range rest {
		p.Wait(ctx)
		if alive(daemons[i]) {
			t.Errorf("daemon %d lives", i)
		}
	}
	noZombies(t)
}

func TestForkBombDies(t *testing.T) {
	// The rlimit that bounds it does not count root's processes, so as root only a cgroup makes this safe to try.
	groups(t, func(t *testing.T, o supervise.Options) {
		// The leader itself forks once and stays: a shell that is refused a process ends by itself, with any code.
		script := `f() { f & f & wait; }; f 2>/dev/null & exec sleep 1000`
		if o.Group == nil {
			script = `n=0; f() { n=$((n+1)); [ $n -gt 7 ] && exec sleep 1000; f & f & wait; }; f 2>/dev/null & exec sleep 1000` // ends at 256
		}
		o.Grace = -1
		p := start(t, sh(script), o)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		r := p.Wait(ctx)
		if r.Err != nil || r.Code != 137 {
			t.Errorf("%+v", r)
		}
		noZombies(t)
	})
}

func TestTheOutputOfADaemonHoldsNobody(t *testing.T) {
	var out bytes.Buffer
	cmd := sh("echo said; setsid sleep 1000 & exit 0")
	cmd.Stdout = &out // a pipe that the daemon inherits
	p := start(t, cmd, supervise.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if r := p.Wait(ctx); r.Stopped != nil || r.Err != nil || out.String() != "said\n" {
		t.Errorf("%+v %q", r, out.String())
	}
}
