package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// TestNothingIsLeft of a sandbox that was removed: no container, mount, volume, process and directory.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := newBackend()
	spec := private(t, project(t))
	if !b.machine().rootless {
		spec.Limits.Disk = 16 << 20 // with its own file system
	}
	s, h, err := makeSandbox(t, b, spec)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "mkdir closed && echo x > closed/x && chmod 0 closed; sleep 1000 > /dev/null 2>&1 &")
	pid := s.pid
	if err := b.Destroy(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	p, err := b.podman()
	if err != nil {
		t.Fatal(err)
	}
	if there, err := p.exists(t.Context(), s.name()); err != nil || there {
		t.Errorf("the container is there: %v, %v", there, err)
	}
	volumes, err := p.call(t.Context(), "volume", "ls", "--format={{.Name}} {{.Labels}}")
	if err != nil || strings.Contains(string(volumes), s.id) {
		t.Errorf("volumes: %s %v", volumes, err)
	}
	if left := processes(pid); len(left) > 0 {
		t.Errorf("processes %v", left)
	}
	if entries, err := os.ReadDir(s.dirs.state); err != nil || len(entries) > 0 {
		t.Errorf("the state directory holds %v, %v", entries, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), s.dirs.state) {
		t.Errorf("mounts: %s %v", mounts, err)
	}
	// Twice, and by a process that knows the handle only.
	for _, other := range []*backend{b, newBackend()} {
		if err := other.Destroy(t.Context(), h); err != nil {
			t.Errorf("once more: %v", err)
		}
	}
}

// TestAttach goes on with a kept sandbox from another process, while it runs and after its container was stopped.
func TestAttach(t *testing.T) {
	t.Parallel()
	b := newBackend()
	s, h, err := makeSandbox(t, b, private(t, project(t)), kept)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "echo first > file")
	s.leave()
	other := newBackend()
	t.Cleanup(func() {
		if err := other.Destroy(context.Background(), h); err != nil {
			t.Error(err)
		}
	})
	sb, err := other.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	found := sb.(*sandbox)
	if got := must(t, found, "cat file a.txt"); got != "first\na\n" {
		t.Errorf("%q", got)
	}
	if _, err := found.podman.call(t.Context(), "kill", "--signal=KILL", found.name()); err != nil {
		t.Fatal(err)
	}
	<-found.agent.Done()
	third := newBackend()
	if sb, err = third.Attach(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	stopped := sb.(*sandbox)
	if st, err := stopped.Inspect(t.Context()); err != nil || st.State != sdk.StateStopped {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := run(t.Context(), stopped, &sdk.Command{Argv: []string{"true"}}); sdk.ReasonOf(err) != sdk.ReasonUnavailable {
		t.Errorf("exec in a stopped sandbox: %v", err)
	}
	if err := stopped.Reset(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := must(t, stopped, "cat file a.txt"); got != "first\na\n" {
		t.Errorf("after a reset: %q", got)
	}
	stopped.leave()
}
