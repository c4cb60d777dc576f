package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk"
)

// TestK1KilledHolder kills the holder at every phase of a command's start: nothing of the sandbox may live on. A bwrap
// that is killed between its fork and its first word to its child used to leave that child waiting for good.
func TestK1KilledHolder(t *testing.T) {
	needBwrap(t)
	// What is orphaned becomes a child of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	const kills = 120
	ran, left := 0, 0
	for i := range kills {
		s := newSandbox(t, sdk.Spec{Limits: sdk.Limits{PIDs: int64(i%2) * 50}})
		before := children(t)
		began, started, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			null := devNull(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			close(began)
			_, _ = s.Exec(ctx, &sdk.Command{Argv: []string{"sleep", "600"}, Stdin: null, Stdout: null, Stderr: null, Started: func() { close(started) }})
		}()
		<-began
		if i%4 == 3 {
			<-started
			ran++
		} else {
			time.Sleep(time.Duration(i) * 150 * time.Microsecond) // the moment is the point, not a way to wait for anything
		}
		if err := unix.Kill(s.holder.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-ended
		<-s.holder.Gone()
		for pid := range children(t) { // all are gone before the holder is
			if before[pid] {
				continue
			}
			left++
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("kill %d: still there: %d %q", i, pid, line)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	t.Logf("%d kills, %d of them after the command had started; %d processes left", kills, ran, left)
}

// TestKilledBwrap kills the bwrap of a command: what it started ends with it, and the command's end does not wait for a
// timeout.
func TestKilledBwrap(t *testing.T) {
	needBwrap(t)
	defer func(d time.Duration) { holder.SetupTimeout = d }(holder.SetupTimeout)
	holder.SetupTimeout = time.Hour
	s := newSandbox(t, sdk.Spec{})
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		null := devNull(t)
		_, err := s.Exec(t.Context(), &sdk.Command{Argv: []string{"sleep", "600"}, Stdin: null, Stdout: null, Stderr: null, Started: func() { close(started) }})
		ended <- err
	}()
	<-started
	killed := 0
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.holder.PID()))
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for _, f := range bytes.Fields(pids) {
			if pid, err := strconv.Atoi(string(f)); err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		t.Fatal("the holder has no child")
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the end of the command waits for the timeout")
	}
}

// children are the children of this process that are no zombies; those are reaped, where they are orphans.
func children(t *testing.T) map[int]bool {
	t.Helper()
	out := map[int]bool{}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		list, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for _, f := range bytes.Fields(list) {
			pid, _ := strconv.Atoi(string(f))
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if _, state, ok := bytes.Cut(stat, []byte(") ")); err == nil && ok && state[0] != 'Z' {
				out[pid] = true
			}
		}
	}
	return out
}
