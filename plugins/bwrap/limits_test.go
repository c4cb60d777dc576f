package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// inCgroup says whether this machine holds l for all processes together.
func inCgroup(l limits.Limit) bool { return limits.Probe().Limits[l].Scope == limits.WholeGroup }

// heldBy returns how the sandbox says that it holds l.
func heldBy(t testing.TB, s *sandbox, l sdk.Limit) string {
	t.Helper()
	for _, h := range s.Ready().Holds {
		if h.Limit == l {
			return h.HeldBy
		}
	}
	t.Fatalf("nothing is said about %s", l)
	return ""
}

func TestSandboxHoldsPIDs(t *testing.T) {
	const script = `
import os, time, sys
n = 0
try:
    while n < 500:
        if os.fork() == 0: time.sleep(1000)
        n += 1
except OSError as e:
    print(n); sys.exit(3)
print("no limit"); sys.exit(0)`
	for _, c := range []struct {
		asked int64
		want  string // processes besides the first
	}{{8, "7"}, {50, "49"}} {
		s := newSandbox(t, sdk.Spec{Limits: sdk.Limits{PIDs: c.asked}})
		r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"python3", "-c", script}})
		if strings.TrimSpace(r.out) != c.want || r.Code != 3 {
			t.Errorf("asked for %d: %q %q, %+v", c.asked, r.out, r.err, r.Exit)
		}
		wantCause := sdk.CauseExited
		if inCgroup(limits.Pids) {
			wantCause = sdk.CausePIDs
			if r.Usage.PIDs != c.asked {
				t.Errorf("asked for %d, and %d ran", c.asked, r.Usage.PIDs)
			}
		}
		if r.Cause != wantCause {
			t.Errorf("cause is %s (%s) with %s", r.Cause, r.Evidence, heldBy(t, s, sdk.LimitPIDs))
		}
	}
	s := newSandbox(t, sdk.Spec{})
	if r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"bash", "-c", "ulimit -u; ulimit -n"}}); r.out != "1025\n1024\n" {
		t.Errorf("the defaults are %q", r.out)
	}
}

func TestSandboxHoldsMemory(t *testing.T) {
	s := newSandbox(t, sdk.Spec{Limits: sdk.Limits{Memory: 128 << 20}})
	if r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"python3", "-c", "print(len(bytearray(32 << 20)))"}}); r.Code != 0 {
		t.Errorf("within the limit: %+v %q", r.Exit, r.err)
	}
	r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"python3", "-c", "print(len(bytearray(512 << 20)))"}})
	if inCgroup(limits.Memory) {
		if r.Cause != sdk.CauseOOM || r.Code != 137 || r.Signal != "SIGKILL" {
			t.Errorf("beyond the limit: %+v", r.Exit)
		}
		if r.Usage.PeakMemory < 100<<20 || r.Usage.PeakMemory > 129<<20 {
			t.Errorf("peak memory %d", r.Usage.PeakMemory)
		}
		// A later command is not blamed for an earlier one.
		if r := sh(t, s, "exit 4"); r.Cause != sdk.CauseExited || r.Code != 4 {
			t.Errorf("the next command: %+v", r.Exit)
		}
		// The same when it is a child that is killed.
		if r := sh(t, s, "python3 -c 'bytearray(512 << 20)'; exit 5"); r.Cause != sdk.CauseOOM || r.Code != 5 {
			t.Errorf("a killed child: %+v", r.Exit)
		}
	} else if r.Code == 0 || !strings.Contains(r.err, "MemoryError") || !strings.Contains(heldBy(t, s, sdk.LimitMemory), "each process") {
		t.Errorf("beyond the limit: %+v %q, held by %s", r.Exit, r.err, heldBy(t, s, sdk.LimitMemory))
	}
}

func TestSandboxHoldsCPUs(t *testing.T) {
	req := sdk.Spec{Limits: sdk.Limits{CPUs: 0.2}}
	if !inCgroup(limits.CPUs) {
		needBwrap(t)
		_, err := create(t.Context(), request(t, req), limits.Probe(), nil)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Reason != sdk.ReasonLimit || e.Limit != sdk.LimitCPUs || e.Summary == "" {
			t.Errorf("a limit that nothing holds gave %v", err)
		}
		return
	}
	s := newSandbox(t, req)
	began := time.Now()
	r := sh(t, s, "timeout 1 sh -c 'while :; do :; done'")
	took := time.Since(began) // a busy machine makes it longer than a second, and the share of it smaller
	if used := r.Usage.User + r.Usage.Sys; used > took/5+200*time.Millisecond || used == 0 {
		t.Errorf("used %v of %v with 0.2 cpus", used, took)
	}
}

// Without a cgroup a whole number of processors is what commands may use.
func TestSandboxHoldsWholeCPUs(t *testing.T) {
	needBwrap(t)
	if runtime.NumCPU() < 2 {
		t.Skip("this machine has one processor")
	}
	none := &limits.Support{Mechanism: limits.Rlimit, Limits: map[limits.Limit]limits.How{limits.CPUs: {Reason: "no cgroup"}}}
	s, err := create(t.Context(), request(t, sdk.Spec{Limits: sdk.Limits{CPUs: 1}}), none, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	all := strings.Trim(strings.ReplaceAll(fmt.Sprint(visible.Processors(1<<20)), " ", ","), "[]")
	began := time.Now()
	r := sh(t, s, "nproc; taskset -pc "+all+" $$ 2>/dev/null >/dev/null; nproc; timeout 1 sh -c '(while :; do :; done) & while :; do :; done'")
	if r.out != "1\n1\n" {
		t.Errorf("the command may use %q processors", r.out)
	}
	took := time.Since(began)
	if used := r.Usage.User + r.Usage.Sys; used > took*6/5 {
		t.Errorf("used %v in %v", used, took)
	}
	if by := heldBy(t, s, sdk.LimitCPUs); !strings.Contains(by, "1 of the") {
		t.Errorf("held by %q", by)
	}
}

func TestSandboxHoldsDisk(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n"})
	s := newSandbox(t, sdk.Spec{Limits: sdk.Limits{Disk: 8 << 20}, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
	if r := sh(t, s, "echo more >> a.txt && dd if=/dev/zero of=f bs=1M count=4 2>/dev/null && echo o > output/o && cat a.txt"); r.Code != 0 || r.out != "hello\nmore\n" {
		t.Errorf("within the limit: %+v %q %q", r.Exit, r.out, r.err)
	}
	changes, err := s.Changes(t.Context())
	if err != nil || len(changes) != 2 || changes[0].Path != "a.txt" {
		t.Errorf("changes in memory: %v %v", changes, err)
	}
	for _, where := range []string{"big", "output/big", "/tmp/big", "/dev/shm/big"} {
		r := sh(t, s, "exec dd if=/dev/zero of="+where+" bs=1M count=64 2>/dev/null")
		if r.Cause != sdk.CauseDisk || r.Code != 1 {
			t.Errorf("%s: %+v", where, r.Exit)
		}
		sh(t, s, "rm "+where)
	}
	if _, err := os.Stat(dir + "/f"); err == nil {
		t.Error("the host got a file")
	}
}

func TestSandboxHoldsFiles(t *testing.T) {
	s := newSandbox(t, sdk.Spec{Limits: sdk.Limits{Files: 16}})
	if r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"perl", "-e", `$n = 3; while (open($f[$n], "<", "/dev/null")) { $n++ } print $n`}}); r.out != "16" {
		t.Errorf("%q descriptors, %+v %q", r.out, r.Exit, r.err)
	}
}

func TestSandboxTmpHasASize(t *testing.T) {
	s := newSandbox(t, sdk.Spec{Config: &Config{TmpSize: 4 << 20, UID: 1000}})
	if r := sh(t, s, "dd if=/dev/zero of=/tmp/f bs=1M count=64 2>/dev/null; stat -c %s /tmp/f"); strings.TrimSpace(r.out) >= "5" {
		t.Errorf("wrote %s bytes", r.out)
	}
}

func TestPlanRefuses(t *testing.T) {
	none := &limits.Support{Mechanism: limits.Rlimit, Limits: map[limits.Limit]limits.How{
		limits.CPUs: {Reason: "no cgroup", Fix: "systemd-run"}, limits.Memory: {By: "x", Scope: limits.EachProcess}, limits.Pids: {By: "x", Scope: limits.EachUser}}}
	for name, c := range map[string]struct {
		l    sdk.Limits
		want sdk.Limit
	}{
		"cpus without a cgroup": {sdk.Limits{CPUs: 1.5}, sdk.LimitCPUs},
		"disk beyond memory":    {sdk.Limits{Disk: 1 << 60}, sdk.LimitDisk},
		"too few files":         {sdk.Limits{Files: 3}, sdk.LimitFiles},
	} {
		var e *sdk.Error
		if err := planLimits(c.l, none).Err(); !errors.As(err, &e) || e.Limit != c.want || e.Reason != sdk.ReasonLimit || e.Fix == "" {
			t.Errorf("%s gave %v", name, err)
		}
	}
	if err := planLimits(sdk.Limits{Memory: 1 << 30, PIDs: 5, Files: 64, Disk: 1 << 20, Timeout: time.Second}, none).Err(); err != nil {
		t.Errorf("what rlimits hold was refused: %v", err)
	}
}
