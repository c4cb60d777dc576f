//go:build linux

package descendants

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// tree starts a shell that starts others, and waits until all are there.
func tree(t *testing.T, script string, want int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_, _ = Kill(context.Background(), func() []int { return Below([]int{cmd.Process.Pid}) })
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("the shell does not end")
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for len(Of(cmd.Process.Pid)) != want {
		if time.Now().After(deadline) {
			t.Fatalf("descendants are %v, not %d of them", Of(cmd.Process.Pid), want)
		}
		time.Sleep(time.Millisecond)
	}
	return cmd
}

func TestListsParentsFirst(t *testing.T) {
	cmd := tree(t, "sh -c 'sleep 1000 & wait' & sleep 1000 & wait", 3)
	all := Below([]int{cmd.Process.Pid})
	if len(all) != 4 || all[0] != cmd.Process.Pid {
		t.Fatalf("the tree of %d is %v", cmd.Process.Pid, all)
	}
	for _, parent := range all {
		for _, child := range Children(parent) {
			if slices.Index(all, child) < slices.Index(all, parent) {
				t.Errorf("%d comes before its parent %d in %v", child, parent, all)
			}
		}
	}
	if got := Of(0x7fffffff); got != nil {
		t.Errorf("a missing process has descendants %v", got)
	}
	if procstat.Alive(0x7fffffff) || !procstat.Alive(os.Getpid()) {
		t.Error("Alive is wrong about nobody, or about us")
	}
	if err := Supported(); err != nil {
		t.Error(err)
	}
}

func TestKillLeavesNothing(t *testing.T) {
	// More than are held at a time, and one that makes others all the time.
	cmd := tree(t, "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; wait", 300)
	list := func() []int { return Of(cmd.Process.Pid) }
	n, err := Kill(context.Background(), list)
	if err != nil || n < 300 {
		t.Errorf("killed %d, %v", n, err)
	}
	if left := list(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if n, err := Kill(context.Background(), list); n != 0 || err != nil {
		t.Errorf("killing nothing: %d, %v", n, err)
	}
}

func TestKillCatchesWhatForks(t *testing.T) {
	// Orphans become ours.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	cmd := exec.Command("sh", "-c", "while :; do sh -c 'sleep 1000 & :'; sleep 1000 & done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	list := func() []int { return Of(os.Getpid()) }
	for deadline := time.Now().Add(30 * time.Second); len(list()) < 20 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if n, err := Kill(ctx, list); err != nil || n < 5 {
		t.Errorf("killed %d, %v", n, err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the shell ended with %v", err)
	}
	if left := list(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestSignalReachesAll(t *testing.T) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGUSR1)
	defer signal.Stop(got)
	if err := Signal(func() []int { return []int{os.Getpid(), 0x7fffffff} }, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(30 * time.Second):
		t.Fatal("no signal came")
	}
	// One that is listed once only has gone, and its number may be another's.
	first := true
	if err := Signal(func() []int {
		if first {
			first = false
			return []int{os.Getpid()}
		}
		return nil
	}, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestKillIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	// Somebody who is there when asked for and gone when taken hold of, again and again.
	cmd := tree(t, "sleep 1000 & wait", 1)
	n := 0
	list := func() []int {
		if n++; n%2 == 1 { // found, and gone when it is looked for again
			return []int{cmd.Process.Pid}
		}
		return nil
	}
	done := make(chan error, 1)
	go func() { _, err := Kill(ctx, list); done <- err }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on for ever")
	}
}
