package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// TestGuards looks at the guards of commands from the inside, in one sandbox.
func TestGuards(t *testing.T) {
	t.Parallel()
	b := newBackend()
	memory := b.machine().limits[limits.Memory]
	spec := private(t, project(t))
	if memory.By != "" {
		spec.Limits.Memory = 64 << 20
	}
	s := newSandbox(t, b, spec)
	t.Run("status", func(t *testing.T) {
		contains(t, "a command's status", must(t, s, "cat /proc/self/status"),
			"\nCapEff:\t0000000000000000\n", "\nCapBnd:\t0000000000000000\n", "\nCapPrm:\t0000000000000000\n", "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n")
	})
	t.Run("attempts", func(t *testing.T) {
		for _, script := range []string{
			"echo x > /etc/new", "echo x > /usr/new", "mkdir /new", "echo core > /proc/sys/kernel/core_pattern", "mount -t tmpfs x /tmp", "mknod /tmp/d b 8 0",
			"chroot / true", "unshare -U true", "unshare -n true", "test -e /run/podman", "cat /run/hutch-agent > /tmp/a && echo x >> /run/hutch-agent",
		} {
			if r := sh(t, s, script); r.Code == 0 {
				t.Errorf("%q succeeded: %s%s", script, r.out, r.err)
			}
		}
		if got := must(t, s, "ls /run /workspace; cat /proc/net/dev | wc -l; cat /proc/1/comm"); strings.Contains(got, "sock") {
			t.Errorf("a socket is to be seen: %s", got)
		}
	})
	t.Run("S16", func(t *testing.T) { // what the kernel says of the machine and not of the sandbox
		if got := sh(t, s, "for p in "+strings.Join(visible.Masked, " ")+"; do test -d $p && ls -A $p || cat $p; done 2>/dev/null"); got.out != "" {
			t.Errorf("it reads %.200q", got.out)
		}
	})
	t.Run("other user", func(t *testing.T) { otherUser(t, s) })
	t.Run("out of memory", func(t *testing.T) {
		if memory.By == "" {
			t.Skip("this machine cannot hold the memory of a container for this user: " + memory.Reason)
		}
		r := sh(t, s, "head -c 600M /dev/zero | tail -n 1 | wc -c; exit 9")
		if r.Cause != sdk.CauseOOM || r.Evidence == "" {
			t.Errorf("%+v", r.Exit)
		}
		if got := must(t, s, "ls"); got != "a.txt\nb.txt\ndir\n" {
			t.Errorf("the workspace has %q", got)
		}
	})
	// An out-of-memory killer's note would be a file in the working directory of conmon.
	for _, dir := range []string{s.spec.Workspace.Source, s.dirs.upper(), s.dirs.state} {
		if _, err := os.Lstat(filepath.Join(dir, "oom")); err == nil {
			t.Errorf("conmon dropped a file into %s", dir)
		}
	}
}

// otherUser runs commands as another user of the image, in a sandbox whose own is another one.
func otherUser(t *testing.T, s *sandbox) {
	r, err := run(t.Context(), s, &sdk.Command{Argv: []string{"/bin/sh", "-c", "id -u; exit 3"}, User: "user"})
	if err != nil || r.out != "1000\n" || r.Code != 3 || r.Cause != sdk.CauseExited {
		t.Errorf("%q %q %+v %v", r.out, r.err, r.Exit, err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, sdk.ErrTimeout)
	defer cancel()
	r, err = run(ctx, s, &sdk.Command{Argv: []string{"/bin/sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000"}, User: "user", Grace: 100 * time.Millisecond})
	if err != nil || r.Cause != sdk.CauseTimeout {
		t.Errorf("%+v %v", r.Exit, err)
	}
	for _, pid := range processes(s.pid) {
		if insideUID(pid, s.pid) == 1000 {
			t.Errorf("process %d of that user lives on", pid)
		}
	}
	// Podman sets the size of an exec's terminal when the command runs already.
	r, err = run(t.Context(), s, &sdk.Command{Argv: []string{"/bin/sh", "-c", "test -t 0 && test -t 1 && test -t 2 && until stty size 2>/dev/null; do :; done && id -u; cat; exit 4"}, User: "user", TTY: &sdk.WindowSize{Rows: 33, Cols: 77}})
	if err != nil || r.out != "33 77\r\n1000\r\n" || r.err != "" || r.Code != 4 {
		t.Errorf("with a terminal: %q %q %+v %v", r.out, r.err, r.Exit, err)
	}
	if _, err := run(t.Context(), s, &sdk.Command{Argv: []string{"true"}, User: "nobody-of-that-name"}); sdk.ReasonOf(err) != sdk.ReasonConfig {
		t.Errorf("a user that does not exist: %v", err)
	}
}

// TestLimitsAreRefused asks for limits that cannot be held.
func TestLimitsAreRefused(t *testing.T) {
	b := newBackend()
	m := b.machine()
	cases := map[sdk.Limit]sdk.Limits{sdk.LimitFiles: {Files: 1 << 40}, sdk.LimitMemory: {Memory: 1 << 10}}
	for l, how := range map[sdk.Limit]limits.Limit{sdk.LimitCPUs: limits.CPUs, sdk.LimitPIDs: limits.PIDs} {
		if m.limits[how].By == "" {
			cases[l] = map[sdk.Limit]sdk.Limits{sdk.LimitCPUs: {CPUs: 1}, sdk.LimitPIDs: {PIDs: 100}}[l]
		}
	}
	for l, ask := range cases {
		t.Run(string(l), func(t *testing.T) {
			spec := private(t, project(t))
			spec.Limits = ask
			_, _, err := makeSandbox(t, b, spec)
			var e *sdk.Error
			if !errors.As(err, &e) || e.Reason != sdk.ReasonLimit || e.Limit != l || e.Fix == "" {
				t.Errorf("create: %v; want a refusal of %s with a fix", err, l)
			}
			plan, err := b.Plan(t.Context(), &spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range plan.Holds {
				if h.Limit == l && !h.Default && h.HeldBy != "" {
					t.Errorf("the plan says that it is held by %s", h.HeldBy)
				}
			}
		})
	}
}

// TestWritableRootHasNoDiskLimit: what is written to the image's files lies in Podman's storage, which has no quota.
func TestWritableRootHasNoDiskLimit(t *testing.T) {
	b := newBackend()
	for _, c := range []struct {
		readOnly bool
		disk     int64
		holds    bool
	}{{true, 64 << 20, true}, {true, 0, true}, {false, 64 << 20, false}, {false, 0, false}} {
		spec := private(t, project(t))
		config := *spec.Config.(*Config)
		config.Root, spec.Config, spec.Limits.Disk = c.readOnly, &config, c.disk
		plan, err := b.Plan(t.Context(), &spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range plan.Holds {
			if h.Limit == sdk.LimitDisk && (h.HeldBy != "") != c.holds {
				t.Errorf("%+v: the plan says %+v", c, h)
			}
		}
		if c.holds || c.disk == 0 {
			continue
		}
		var e *sdk.Error
		if _, _, err := makeSandbox(t, b, spec); !errors.As(err, &e) || e.Limit != sdk.LimitDisk || e.Fix == "" {
			t.Errorf("%+v: create: %v", c, err)
		}
	}
}

// TestNumericUser runs commands as a number of the image's users. What they write belongs to the user who runs hutch,
// or as root to that number.
func TestNumericUser(t *testing.T) {
	t.Parallel()
	b := newBackend()
	spec := private(t, project(t))
	cfg := *spec.Config.(*Config)
	cfg.User = "1000:1000"
	spec.Config = &cfg
	s := newSandbox(t, b, spec)
	if got := must(t, s, "id -u; id -g; echo x > /output/file; cat a.txt"); got != "1000\n1000\na\n" {
		t.Errorf("%q", got)
	}
	if data, err := os.ReadFile(filepath.Join(s.dirs.output(), "file")); err != nil || string(data) != "x\n" {
		t.Errorf("what it wrote cannot be read: %q, %v", data, err)
	}
}

// TestCheck says that this machine is able, and by what.
func TestCheck(t *testing.T) {
	config(t) // there is an image
	b := newBackend()
	found, err := b.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, f := range found {
		all += fmt.Sprintln(f.Name, f.Status, f.Detail, f.Fix)
		if f.Status == sdk.SeverityError {
			t.Errorf("%s: %s (%s)", f.Name, f.Detail, f.Fix)
		}
	}
	contains(t, "the check", all, "podman ok", "container ok", "guards ok", "overlay ok", "network ok")
}

// TestMissingImage says which image is missing, at its attribute.
func TestMissingImage(t *testing.T) {
	b := newBackend()
	spec := private(t, project(t))
	cfg := *spec.Config.(*Config)
	cfg.Image = "localhost/hutch-test-not-there:1"
	spec.Config = &cfg
	_, h, err := makeSandbox(t, b, spec)
	var e *sdk.Error
	if !errors.As(err, &e) || e.Reason != sdk.ReasonMissing || e.Path != "image" || !strings.Contains(e.Fix, "podman pull "+cfg.Image) {
		t.Errorf("%v", err)
	}
	if err := b.Destroy(t.Context(), h); err != nil {
		t.Error(err)
	}
}
