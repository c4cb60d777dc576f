package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/visible"
)

// TestIsolation shares one project between sandboxes.
func TestIsolation(t *testing.T) {
	dir := project(t)
	b := newBackend()
	one, two := newSandbox(t, b, private(t, dir)), newSandbox(t, b, private(t, dir))
	must(t, one, "echo mine > mine; echo changed > a.txt; rm b.txt; rm -r dir; mkdir dir; echo new > dir/e")
	if got := must(t, two, "cat a.txt b.txt dir/c.txt; ls; ls dir"); got != "a\nb\nc\na.txt\nb.txt\ndir\nc.txt\nd.txt\n" {
		t.Errorf("the other sandbox sees %q", got)
	}
	if got := must(t, one, "cat mine a.txt; ls; ls dir"); got != "mine\nchanged\na.txt\ndir\nmine\ne\n" {
		t.Errorf("the sandbox itself sees %q", got)
	}
	// What is written is in the upper layer, and never in the lower.
	if data, err := os.ReadFile(filepath.Join(one.dirs.upper(), "mine")); err != nil || string(data) != "mine\n" {
		t.Errorf("the upper layer has %q, %v", data, err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "a.txt b.txt dir" {
		t.Errorf("the project has %s", got)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(data) != "a\n" {
		t.Errorf("the project's file became %q, %v", data, err)
	}
	// A reset keeps the upper layer, a hard one does not.
	if err := one.Reset(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := must(t, one, "cat mine a.txt; ls dir; test ! -e b.txt"); got != "mine\nchanged\ne\n" {
		t.Errorf("after a reset the sandbox sees %q", got)
	}
	if err := one.Reset(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := must(t, one, "cat a.txt; ls"); got != "a\na.txt\nb.txt\ndir\n" {
		t.Errorf("after a hard reset the sandbox sees %q", got)
	}
}

// TestS16 reads what the kernel says of the machine and not of the sandbox.
func TestS16(t *testing.T) {
	s := newSandbox(t, newBackend(), private(t, project(t)))
	if got := sh(t, s, "for p in "+strings.Join(visible.Masked, " ")+"; do test -d $p && ls -A $p || cat $p; done 2>/dev/null"); got.out != "" {
		t.Errorf("it reads %.200q", got.out)
	}
}

// TestTwentySandboxes are on one project at once.
func TestTwentySandboxes(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty containers take their time")
	}
	dir, b := project(t), newBackend()
	const n = 20
	var wg sync.WaitGroup
	places := make(chan struct{}, 4)
	all := make([]*sandbox, n)
	for i := range n {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			s, h, err := makeSandbox(t, b, private(t, dir))
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			t.Cleanup(func() {
				if err := b.Destroy(context.Background(), h); err != nil {
					t.Error(err)
				}
			})
			all[i] = s
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for round := range 2 {
		for i, s := range all {
			wg.Go(func() {
				r, err := run(t.Context(), s, &sdk.Command{Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo %d >> number; cat a.txt number", i)}})
				if want := "a\n" + strings.Repeat(fmt.Sprintln(i), round+1); err != nil || r.out != want {
					t.Errorf("sandbox %d printed %q, %v; want %q", i, r.out, err, want)
				}
			})
		}
		wg.Wait()
	}
}

// TestNothingIsLeft of a sandbox that was removed: no container, mount, volume, process and directory.
func TestNothingIsLeft(t *testing.T) {
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

// TestList finds sandboxes by their labels, from another process, and that one removes them.
func TestList(t *testing.T) {
	b := newBackend()
	s, h, err := makeSandbox(t, b, private(t, project(t)), kept)
	if err != nil {
		t.Fatal(err)
	}
	s.leave() // as if this process had died
	other := newBackend()
	list, err := other.List(t.Context(), s.owner)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, l := range list {
		if l.ID == s.id {
			found = true
			if string(l.Data) != string(h.Data) {
				t.Errorf("the handle is %s; want %s", l.Data, h.Data)
			}
		}
	}
	if !found {
		t.Errorf("%s is not in %v", s.id, list)
	}
	if none, err := other.List(t.Context(), "nobody-"+s.id); err != nil || len(none) > 0 {
		t.Errorf("another owner's: %v, %v", none, err)
	}
	if err := other.Destroy(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if again, err := other.List(t.Context(), s.owner); err != nil || len(again) != len(list)-1 {
		t.Errorf("after its removal: %v, %v", again, err)
	}
}

// TestAttach goes on with a kept sandbox from another process, while it runs and after its container was stopped.
func TestAttach(t *testing.T) {
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
