package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// TestSandboxHolderIsUsedAgain makes one sandbox after the other and looks for
// anything that one leaves to the next: files, mounts, descriptors, processors.
func TestSandboxHolderIsUsedAgain(t *testing.T) {
	needBwrap(t)
	b := newBackend()
	defer b.spares.close()
	const look = "ls -A /tmp /dev/shm /workspace /output 2>&1; cat /proc/self/mountinfo; grep Cpus_allowed_list /proc/self/status; umask; ulimit -a"
	var first, seen string
	var holder, descriptors int
	for i := range 4 {
		ws := write(t, t.TempDir(), map[string]string{fmt.Sprintf("of-%d", i): "x"})
		spec := sdk.Spec{Workspace: sdk.Workspace{Source: ws, Mode: sdk.WorkspacePrivate}}
		if i == 1 { // one that is quite different, in between
			spec = sdk.Spec{Limits: sdk.Limits{CPUs: 1, Disk: 8 << 20, Files: 100}, Network: sdk.NetworkFull,
				Workspace: sdk.Workspace{Source: ws, Mode: sdk.WorkspaceReadOnly}, Mounts: []sdk.Mount{{Source: ws, Target: "/extra", ReadOnly: true}}}
		}
		req := request(t, spec)
		made, err := b.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		s := made.(*sandbox)
		if i == 0 {
			holder = s.holder.PID()
		} else if pid := s.holder.PID(); pid != holder {
			t.Errorf("sandbox %d has the holder %d, not %d", i, pid, holder)
		}
		r := sh(t, s, look)
		// What must differ is made the same: the ids of mounts and devices, the directories' names, which begin below
		// the mount where the temporary directory is one.
		short := func(dir string) string { return strings.TrimPrefix(dir, os.TempDir()) }
		text := strings.NewReplacer(ws, "WS", req.StateDir, "STATE", short(ws), "WS", short(req.StateDir), "STATE", fmt.Sprintf("of-%d", i), "OWN").Replace(stripIDs(r.out))
		switch i {
		case 0:
			first = text
		case 1: // looks different
		default:
			if text != first {
				t.Errorf("sandbox %d sees\n%s\nand the first one saw\n%s", i, text, first)
			}
		}
		seen += r.out
		sh(t, s, "umask 077; echo left-over > /tmp/left-over; echo x > /dev/shm/left-over; echo x > /workspace/left-over; (setsid sleep 1000 &)")
		if err := b.Destroy(t.Context(), sdk.Handle{ID: req.ID}); err != nil {
			t.Fatal(err)
		}
		if users := childrenOf(t, req.StateDir); len(users) > 0 {
			t.Errorf("after sandbox %d its layer is still mounted in %v", i, users)
		}
		if left, _ := os.ReadDir(req.StateDir); len(left) > 0 {
			t.Errorf("sandbox %d left %v", i, left)
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", holder))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			descriptors = len(open)
		} else if len(open) != descriptors {
			t.Errorf("the holder has %d descriptors after sandbox %d, and had %d", len(open), i, descriptors)
		}
	}
	if strings.Contains(seen, "left-over") {
		t.Errorf("a sandbox saw the files of another:\n%s", seen)
	}
}

// stripIDs takes the numbers of mounts and devices out of a mountinfo.
func stripIDs(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if f := strings.Fields(l); len(f) > 8 && strings.Contains(l, " - ") {
			lines[i] = strings.Join(f[3:], " ")
		}
	}
	return strings.Join(lines, "\n")
}

// TestSandboxAfterItsSpareHolderDied kills the holder that waits for a next sandbox.
func TestSandboxAfterItsSpareHolderDied(t *testing.T) {
	needBwrap(t)
	b := newBackend()
	defer b.spares.close()
	var last int
	for range 2 {
		req := request(t, sdk.Spec{})
		made, err := b.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		s := made.(*sandbox)
		if pid := s.holder.PID(); pid == last {
			t.Errorf("the holder %d is dead and was used again", pid)
		}
		last = s.holder.PID()
		gone := s.holder.Gone()
		if r := sh(t, s, "echo works"); r.out != "works\n" {
			t.Errorf("%q %q", r.out, r.err)
		}
		if err := b.Destroy(t.Context(), sdk.Handle{ID: req.ID}); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(last, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-gone:
		case <-time.After(time.Minute):
			t.Fatal("the holder does not die")
		}
	}
}

// TestSandboxSpareHoldersEnd sees to it that no holder is kept for long after the host's mounts changed, nor too many.
func TestSandboxSpareHoldersEnd(t *testing.T) {
	needBwrap(t)
	b := newBackend()
	var made []sdk.Handle
	for range 5 {
		req := request(t, sdk.Spec{})
		if _, err := b.Create(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		made = append(made, sdk.Handle{ID: req.ID})
	}
	for _, h := range made {
		if err := b.Destroy(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	b.spares.mu.Lock()
	idle := append([]*started(nil), b.spares.idle...)
	b.spares.mu.Unlock()
	if len(idle) == 0 {
		t.Fatal("no holder is kept")
	}
	unchanged, w, err := os.Pipe() // reports no change of mounts
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer unchanged.Close()
	for _, x := range idle {
		x.id.mounts.Close()
		x.id.mounts = unchanged
		b.spares.expire(x)
		if _, err := os.Stat(filepath.Join("/proc", itoa(x.h.PID()))); err != nil {
			t.Errorf("the holder %d ended, and the mounts are as it saw them: %v", x.h.PID(), err)
		}
		x.id.mounts = nil // as after a change
		b.spares.expire(x)
		b.spares.expire(x) // as a late timer would
		if _, err := os.Stat(filepath.Join("/proc", itoa(x.h.PID()))); err == nil {
			t.Errorf("the holder %d lives on", x.h.PID())
		}
	}
	if s := b.spares.spare(); s != nil {
		t.Errorf("an expired holder is given away: %v", s)
	}
	b.spares.close()
}
