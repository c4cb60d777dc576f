package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// keptSandbox makes a persistent sandbox and returns its directory and a way to attach to it as another plugin process
// would.
func keptSandbox(t *testing.T, spec sdk.Spec) (dir string, attach func() *sandbox) {
	var h sdk.Handle
	t.Helper()
	needBwrap(t)
	req := request(t, spec)
	req.Keep = true
	req.Allocated = func(got sdk.Handle) error { h = got; return nil }
	if _, err := newBackend().Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := newBackend().Destroy(context.Background(), h); err != nil {
			t.Error(err)
		}
	})
	return req.StateDir, func() *sandbox {
		t.Helper()
		s, err := newBackend().Attach(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		return s.(*sandbox)
	}
}

// ends waits until no process is left that sleeps for so long.
func ends(t *testing.T, seconds string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); len(alive(t, seconds)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still there: %v", alive(t, seconds))
		}
	}
}

func holderOf(t *testing.T, s *sandbox) string {
	t.Helper()
	st, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Details[sdk.DetailPID]
}

// TestSandboxIsSharedByPlugins: all plugin processes that work in a persistent sandbox work in one world.
func TestSandboxIsSharedByPlugins(t *testing.T) {
	src := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n"})
	_, attach := keptSandbox(t, sdk.Spec{Limits: sdk.Limits{PIDs: 64}, Workspace: sdk.Workspace{Source: src, Mode: sdk.WorkspacePrivate}})
	one, two := attach(), attach()
	if a, b := holderOf(t, one), holderOf(t, two); a != b {
		t.Errorf("two holders: %s and %s", a, b)
	}
	sh(t, one, "echo more >> a.txt; echo x > /tmp/x")
	if r := sh(t, two, "cat a.txt /tmp/x; ulimit -n"); r.out != "hello\nmore\nx\n1024\n" {
		t.Errorf("the other one sees %q %q", r.out, r.err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s := []*sandbox{one, two}[i%2]
			if r, err := try(t, t.Context(), s, &sdk.Command{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d > /workspace/f%d; exit %d", i, i, i)}}); err != nil || r.Code != i {
				t.Errorf("%d: %+v %v", i, r.Exit, err)
			}
		})
	}
	wg.Wait()
	if r := sh(t, two, "cat f*"); r.out != "0\n1\n2\n3\n4\n5\n6\n7\n" {
		t.Errorf("%q", r.out)
	}
}

// TestSandboxOutlivesWhoUsesIt: the commands of a plugin that is gone end, and those of others go on.
func TestSandboxOutlivesWhoUsesIt(t *testing.T) {
	_, attach := keptSandbox(t, sdk.Spec{})
	one, two := attach(), attach()
	start := func(s *sandbox, name string) (exit chan ran, seconds string) {
		seconds, exit = marker(t), make(chan ran, 1)
		started := make(chan struct{})
		go func() {
			r, _ := try(t, t.Context(), s, &sdk.Command{Argv: []string{"sh", "-c", "sleep " + seconds + " & setsid sleep " + seconds + " & wait"}, Started: func() { close(started) }})
			exit <- r
		}()
		<-started
		for end := time.Now().Add(30 * time.Second); len(alive(t, seconds)) < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not start what it shall")
			}
		}
		return exit, seconds
	}
	gone, secondsGone := start(one, "one")
	stays, secondsStays := start(two, "two")
	one.holder.Leave()
	<-gone
	ends(t, secondsGone)
	if len(alive(t, secondsStays)) == 0 {
		t.Error("the command of the other plugin ended, too")
	}
	// A reset by anybody ends them all.
	three := attach()
	if err := three.Reset(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	<-stays
	ends(t, secondsStays)
	if r := sh(t, two, "echo again"); r.out != "again\n" {
		t.Errorf("%q", r.out)
	}
}

// TestSandboxSurvivesItsHolder is a reboot: every process is gone, the files are there.
func TestSandboxSurvivesItsHolder(t *testing.T) {
	src := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n"})
	dir, attach := keptSandbox(t, sdk.Spec{Limits: sdk.Limits{PIDs: 64}, Workspace: sdk.Workspace{Source: src, Mode: sdk.WorkspacePrivate}})
	s := attach()
	sh(t, s, "echo more >> a.txt; echo x > /tmp/x")
	pid := s.holder.PID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.holder.Gone()
	asleep := attach()
	if st, err := asleep.Inspect(t.Context()); err != nil || st.State != sdk.StateAsleep || st.Details[sdk.DetailPID] != "" {
		t.Errorf("%+v %v", st, err)
	}
	if changes, err := asleep.Changes(t.Context()); err != nil || len(changes) != 1 || changes[0].Path != "a.txt" || asleep.world != nil {
		t.Errorf("%+v %v: looking needs no holder", changes, err)
	}
	awake := sh(t, asleep, "cat a.txt; ls -A /tmp")
	if awake.out != "hello\nmore\n" {
		t.Errorf("%q %q", awake.out, awake.err)
	}
	before, after := s.Ready(), attach().Ready()
	if fmt.Sprint(before.Workspace, before.Output, before.Layers.Upper, before.Notes) != fmt.Sprint(after.Workspace, after.Output, after.Layers.Upper, after.Notes) {
		t.Errorf("%+v, then %+v", before, after)
	}
	if r := sh(t, s, "cat a.txt"); r.out != "hello\nmore\n" { // whose holder died under it
		t.Errorf("%q %q", r.out, r.err)
	}
	// A hard reset that was interrupted is gone on with.
	if err := errors.Join(os.WriteFile(filepath.Join(dir, resetMark), nil, 0o600), s.alone(func() error { return s.locked(s.endWorld) }), removeLayer(dir, true)); err != nil {
		t.Fatal(err)
	}
	if r := sh(t, attach(), "cat a.txt"); r.out != "hello\n" {
		t.Errorf("%q %q", r.out, r.err)
	}
}

// TestSandboxHolderEndsWithItsDirectory: somebody removed everything by hand.
func TestSandboxHolderEndsWithItsDirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("it looks once in ten seconds")
	}
	dir, attach := keptSandbox(t, sdk.Spec{})
	s := attach()
	if err := os.Chmod(dir, 0o700); err != nil { // as a host makes it, who may be another user than the holder
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "holder.sock")); err != nil {
		t.Fatal(err)
	}
	<-s.holder.Gone()
}
