package limits

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

func TestKillReachesDaemons(t *testing.T) {
	g := newGroup(t, Request{PIDs: 100})
	// Forks twice, makes a session, ignores every signal that can be ignored, and its parents are gone.
	cmd := exec.Command("/bin/sh", "-c", `setsid sh -c 'trap "" TERM INT HUP; (sleep 1000 & sleep 1000) & exit 0' ; exit 0`)
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	pids, err := g.PIDs()
	if err != nil || len(pids) == 0 {
		t.Fatalf("pids %v, %v; want the daemon", pids, err)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil && !zombie(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
}

func zombie(pid int) bool {
	return !procstat.Alive(pid)
}

func TestKillBeatsAForkBomb(t *testing.T) {
	g := newGroup(t, Request{PIDs: 500, CPUs: 1})
	// Every process makes two, as fast as it can, for ever.
	cmd := exec.Command("/bin/sh", "-c", `f() { f & f & wait; }; f 2>/dev/null`)
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	for {
		if st := stats(t, g); st.PIDsHits > 0 {
			break
		}
		if deadlineHit(t) {
			t.Fatal("the bomb never reached its limit")
		}
		runtime.Gosched()
	}
	began := time.Now()
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed in %v", time.Since(began))
	cmd.Wait()
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("pids %v, %v; want none", pids, err)
	}
}

// TestKillByFreezer is for a machine whose pids controller may not be used.
func TestKillByFreezer(t *testing.T) {
	s := needGroups(t)
	sys := thisSystem()
	mounts, err := sys.mounts()
	if err != nil {
		t.Fatal(err)
	}
	own, err := sys.ownCgroups()
	if err != nil {
		t.Fatal(err)
	}
	mounts = slices.DeleteFunc(mounts, func(m mount) bool { return m.controllers["pids"] })
	p, _ := sys.findV1(mounts, own)
	if s.Mechanism != CgroupV1 || p == nil {
		t.Skip("needs the freezer of cgroup v1")
	}
	if _, ok := p.at["freezer"]; !ok {
		t.Fatalf("without pids the freezer is not used: %v", p.where())
	}
	cg, err := p.make(fmt.Sprintf("test-freezer-%d", os.Getpid()), Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cg.remove(deadline(t)); err != nil {
			t.Error(err)
		}
		cg.close()
	}()
	cmd := exec.Command("/bin/sh", "-c", finiteBomb)
	if err := cg.start(cmd); err != nil {
		t.Fatal(err)
	}
	for {
		if pids, err := cg.pids(); err != nil || len(pids) > 50 {
			break
		}
	}
	if err := cg.kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if pids, err := cg.pids(); err != nil || len(pids) != 0 {
		t.Errorf("%d processes, %v; want none", len(pids), err)
	}
}

// finiteBomb makes 2^9 processes that stay, as fast as can be, for tests that have no pids limit to bound it.
const finiteBomb = `f() { [ $1 -gt 8 ] && exec sleep 1000; f $(($1+1)) & f $(($1+1)) & wait; }; f 0 2>/dev/null`

func deadlineHit(t *testing.T) bool {
	d, ok := t.Deadline()
	return ok && time.Until(d) < 10*time.Second
}
