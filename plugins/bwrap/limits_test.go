package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
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
		if inCgroup(limits.PIDs) {
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
	} else if r.Cause != sdk.CauseOOM || r.Code != 137 {
		t.Errorf("beyond the limit: %+v", r.Exit)
	}
}

// noCgroup is a machine that holds nothing by cgroups.
var noCgroup = &limits.Support{Mechanism: limits.Rlimit, Limits: map[limits.Limit]limits.How{
	limits.CPUs: {Reason: "no cgroup", Fix: "systemd-run"}, limits.Memory: {Reason: "no cgroup", Fix: "systemd-run"}, limits.PIDs: {By: "x", Scope: limits.EachUser, Reason: "no cgroup"}}}

// without makes a sandbox on such a machine.
func without(t testing.TB, spec sdk.Spec, keep bool) *sandbox {
	t.Helper()
	needBwrap(t)
	req := request(t, spec)
	req.Keep = keep
	s, err := create(t.Context(), req, noCgroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TestS7SampledMemory fills memory in every way that a program has, where no cgroup holds it.
func TestS7SampledMemory(t *testing.T) {
	s := without(t, sdk.Spec{Limits: sdk.Limits{Memory: 256 << 20}}, false)
	// A segment of System V that no process has attached is seen by nobody.
	const segments = `import ctypes; c = ctypes.CDLL(None); c.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
print([c.shmget(0, size, 0o1600) >= 0 for size in (56, 1 << 16, 1 << 17, 1 << 32, (1 << 32) + 56)])`
	if r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"/usr/bin/python3", "-c", segments}}); r.out != "[True, True, False, False, False]\n" {
		t.Errorf("segments: %s %s", r.out, r.err)
	}
	const head = "import os, mmap, socket, array, time\nM = 1 << 20\n"
	for name, script := range map[string]string{
		"malloc":            "x = b'x' * (2 << 30); time.sleep(60)",
		"malloc, slowly":    "x = [b'x' * M for i in range(100) for j in [time.sleep(0.01)]]; x += [b'x' * M for i in range(2000)]; time.sleep(60)",
		"memfd":             "f = os.memfd_create('x')\nfor i in range(4096): os.write(f, b'x' * M)\ntime.sleep(60)",
		"memfd of a thread": "import threading, ctypes\ndef f():\n ctypes.CDLL(None).unshare(0x400)\n f = os.memfd_create('x')\n for i in range(1500): os.write(f, b'x' * M)\n time.sleep(60)\nt = threading.Thread(target=f); t.start(); t.join()",
		"memfds in flight": `a, b = socket.socketpair()
for i in range(100):
    f = os.memfd_create('x'); os.write(f, b'x' * 16 * M)
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [f]))]); os.close(f)
time.sleep(60)`,
		"shared mapping": `m = mmap.mmap(-1, 1 << 30)
for i in range(1024):
    if os.fork() == 0: m[i * M:(i + 1) * M] = b'x' * M; os._exit(0)
    os.wait()
time.sleep(60)`,
		"sixteen processes": "for i in range(16):\n  if os.fork() == 0: x = b'x' * 200 * M; time.sleep(60); os._exit(0)\ntime.sleep(60)",
		"files in memory":   "f = open('/dev/shm/x', 'wb')\nfor i in range(900): f.write(b'x' * M)\ntime.sleep(60)",
		"removed files":     "f = open('/tmp/x', 'wb'); os.unlink('/tmp/x')\nfor i in range(900): f.write(b'x' * M)\ntime.sleep(60)",
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"/usr/bin/python3", "-c", head + script}})
			if r.Cause != sdk.CauseOOM || r.Code != 137 || !strings.Contains(r.Evidence, "sampled memory use") {
				t.Errorf("%+v %s", r.Exit, r.err)
			}
			t.Log(r.Evidence)
			sh(t, s, "rm -f /dev/shm/x")
		})
	}
	if by := heldBy(t, s, sdk.LimitMemory); !strings.HasPrefix(by, "sampled every") {
		t.Errorf("held by %q", by)
	}
}

// TestDiskAndWritableMount: nothing bounds what commands write to a directory of the host.
func TestDiskAndWritableMount(t *testing.T) {
	spec := &sdk.Spec{Limits: sdk.Limits{Disk: 8 << 20}, Mounts: []sdk.Mount{{Source: "/x", Target: "/extra"}}}
	var e *sdk.Error
	if err := planLimits(spec, false, "/", noCgroup, 0).Err(); !errors.As(err, &e) || e.Limit != sdk.LimitDisk || !strings.Contains(e.Error(), "/extra") {
		t.Errorf("a disk limit beside it: %v", err)
	}
	spec.Limits.Disk = 0
	if notes := planLimits(spec, false, "/", noCgroup, 0).Notes(); len(notes) != 1 || !strings.Contains(notes[0], "no disk limit is held by default: /extra") {
		t.Errorf("the notes are %q", notes)
	}
	spec.Limits.Disk, spec.Mounts[0].ReadOnly = 8<<20, true
	if err := planLimits(spec, false, "/", noCgroup, 0).Err(); err != nil {
		t.Errorf("beside a read-only mount: %v", err)
	}
}

// TestFilesInMemoryFillTheLimit kills every command in the sandbox until they are removed, and says so.
func TestFilesInMemoryFillTheLimit(t *testing.T) {
	spec := sdk.Spec{Limits: sdk.Limits{Memory: 64 << 20}}
	for name, s := range map[string]*sandbox{"sampled": without(t, spec, false), "cgroup": newSandbox(t, spec)} {
		t.Run(name, func(t *testing.T) {
			if !t.Run("fill", func(t *testing.T) {
				sh(t, s, "head -c 200M /dev/zero > /tmp/x; sleep 60")
			}) {
				return
			}
			const says = "remove them with hutch fs rm, or empty /tmp and /dev/shm with hutch reset"
			if r := sh(t, s, "python3 -c 'bytearray(48 << 20)' && sleep 60"); r.Cause != sdk.CauseOOM || !strings.Contains(r.Evidence, says) {
				t.Errorf("%s, code %d: %s", r.Cause, r.Code, r.Evidence)
			}
			if err := s.Remove(t.Context(), "/tmp/x", false); err != nil {
				t.Fatal(err)
			}
			if r := sh(t, s, "python3 -c 'bytearray(8 << 20)'"); r.Cause != sdk.CauseExited || r.Code != 0 {
				t.Errorf("after the removal: %s, code %d: %s", r.Cause, r.Code, r.Evidence)
			}
		})
	}
}

// TestS7InnocentPrograms are not taken for ones that use much: neither reserved address space nor pages that processes
// share after a fork count.
func TestS7InnocentPrograms(t *testing.T) {
	s := without(t, sdk.Spec{Limits: sdk.Limits{Memory: 512 << 20}}, false)
	for name, argv := range map[string][]string{
		"sparse": {"/usr/bin/python3", "-c", "import mmap, time; m = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000); m[0] = 1; time.sleep(0.5)"},
		"fork":   {"/usr/bin/python3", "-c", "import os, time\nx = b'x' * (150 << 20)\nfor i in range(8):\n  if os.fork() == 0: time.sleep(0.7); os._exit(len(x) & 1)\nfor i in range(8): os.wait()"},
		"node":   {"node", "-e", "let a=[]; for (let i=0;i<1e6;i++) a.push({i}); console.log(a.length)"},
		"java":   {"java", "-version"},
		"go":     {"/usr/local/go/bin/go", "version"},
	} {
		t.Run(name, func(t *testing.T) {
			if argv[0] != "/usr/bin/python3" {
				if _, err := exec.LookPath(argv[0]); err != nil {
					t.Skip(err)
				}
			}
			if r := run(t, t.Context(), s, &sdk.Command{Argv: argv}); r.Code != 0 {
				t.Errorf("%+v %s", r.Exit, r.err)
			}
		})
	}
}

// TestS9Workers asks the languages of this machine how many processors they may use, which is how many workers they
// start. Others count as one of the rows does: Rust and OpenBLAS as nproc, R in /proc/cpuinfo.
func TestS9Workers(t *testing.T) {
	const inner = "HUTCH_TEST_PRINT_PROCESSORS"
	if os.Getenv(inner) != "" {
		fmt.Println(runtime.GOMAXPROCS(0))
		os.Exit(0)
	}
	if runtime.NumCPU() < 2 {
		t.Skip("this machine has one processor")
	}
	s := without(t, sdk.Spec{Limits: sdk.Limits{CPUs: 1}}, false)
	for name, argv := range map[string][]string{
		"nproc":   {"nproc"},
		"getconf": {"getconf", "_NPROCESSORS_ONLN"},
		"cpuinfo": {"grep", "-c", "^processor", "/proc/cpuinfo"},
		"python3": {"/usr/bin/python3", "-c", "import os; print(os.cpu_count())"},
		"node":    {"node", "-p", "os.cpus().length"},
		"java": {"sh", "-c", "java -XX:+UseParallelGC -XX:+PrintFlagsFinal -version 2>/dev/null |" +
			" awk '$2 == \"ParallelGCThreads\" {print $4}'"},
		"go": {"sh", "-c", "cat >/tmp/test && chmod +x /tmp/test && " + inner + "=1 /tmp/test -test.run=^TestS9Workers$"},
	} {
		t.Run(name, func(t *testing.T) {
			command := &sdk.Command{Argv: argv}
			if name == "go" { // this program
				self, err := os.Open("/proc/self/exe")
				if err != nil {
					t.Fatal(err)
				}
				defer self.Close()
				command.Stdin = self
			}
			if name == "node" || name == "java" {
				if _, err := exec.LookPath(name); err != nil {
					t.Skip(err)
				}
			}
			if r := run(t, t.Context(), s, command); r.out != "1\n" {
				t.Errorf("it counts %q processors, want 1; %+v %s", r.out, r.Exit, r.err)
			}
		})
	}
}

// TestS7MemoryOfOthers is not charged to a command that passes descriptors, which hide what they hold while they are in
// flight. On a machine that is busy enough they are in flight at most looks, so one of a few commands must do.
func TestS7MemoryOfOthers(t *testing.T) {
	s := without(t, sdk.Spec{Limits: sdk.Limits{Memory: 128 << 20}}, false)
	for attempt := 1; ; attempt++ {
		r, size := beside(t, s)
		if r.Cause == sdk.CauseExited && r.Code == 0 && size >= 256<<20 {
			return
		}
		if attempt == 5 {
			t.Fatalf("others filled %d bytes: %+v %s", size, r.Exit, r.err)
		}
	}
}

// beside runs a command that passes descriptors while this process fills shared memory with size bytes.
func beside(t *testing.T, s *sandbox) (r ran, size int64) {
	fd, err := unix.MemfdCreate("others", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ended, filled := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for size := int64(0); ; size += 2 << 20 {
			select {
			case <-ended:
				filled <- size
				return
			case <-tick.C:
			}
			if size < 1<<30 {
				_ = unix.Fallocate(fd, 0, size, 2<<20)
			}
		}
	}()
	r = run(t, t.Context(), s, &sdk.Command{Argv: []string{"/usr/bin/python3", "-c", `import array, os, socket, time
a, b = socket.socketpair()
end = time.monotonic() + 3
while time.monotonic() < end:
    socket.send_fds(a, [b'x'], [0]); time.sleep(0.0005)
    for f in socket.recv_fds(b, 1, 1)[1]: os.close(f)
    time.sleep(0.01)`}})
	close(ended)
	return r, <-filled
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

// TestS6DiskHolds writes beyond a disk limit wherever a program can write, in every workspace mode and kind of sandbox.
func TestS6DiskHolds(t *testing.T) {
	const big = 64 << 20
	for _, c := range []struct {
		name    string
		mode    sdk.WorkspaceMode
		source  bool
		keep    bool
		refused bool
		by      string
	}{
		{"empty", sdk.WorkspacePrivate, false, false, false, "tmpfs size, and 2048 files"},
		{"private", sdk.WorkspacePrivate, true, false, false, "tmpfs size"},
		{"read-only", sdk.WorkspaceReadOnly, true, false, false, "tmpfs size"},
		{"shared", sdk.WorkspaceShared, true, false, true, ""},
		{"persistent empty", sdk.WorkspacePrivate, false, true, false, "sampled"},
		{"persistent private", sdk.WorkspacePrivate, true, true, false, "sampled"},
		{"persistent read-only", sdk.WorkspaceReadOnly, true, true, false, "sampled"},
		{"persistent shared", sdk.WorkspaceShared, true, true, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := sdk.Spec{Limits: sdk.Limits{Disk: 8 << 20}, Workspace: sdk.Workspace{Mode: c.mode}}
			if c.source {
				spec.Workspace.Source = write(t, t.TempDir(), map[string]string{"a.txt": "hello\n"})
			}
			var e *sdk.Error
			if err := planLimits(&spec, false, "/", noCgroup, 0).Err(); (err != nil) != c.refused || c.refused && (!errors.As(err, &e) || e.Fix == "") {
				t.Fatalf("the plan says %v", err)
			}
			if c.refused {
				if _, err := create(t.Context(), request(t, spec), limits.Probe(), nil); !errors.As(err, &e) || e.Limit != sdk.LimitDisk {
					t.Errorf("create says %v", err)
				}
				return
			}
			s := without(t, spec, c.keep)
			if by := heldBy(t, s, sdk.LimitDisk); !strings.Contains(by, c.by) {
				t.Errorf("held by %q", by)
			}
			if c.mode == sdk.WorkspacePrivate && c.source {
				r := sh(t, s, "echo more >> a.txt; dd if=/dev/zero of=f bs=1M count=4 2>/dev/null && echo o > /output/o && cat a.txt")
				if changes, err := s.Changes(t.Context()); r.Code != 0 || err != nil || len(changes) != 2 {
					t.Errorf("within the limit: %+v %q, changes %v %v", r.Exit, r.out, changes, err)
				}
				sh(t, s, "rm f")
			}
			for _, where := range []string{"/workspace", s.Ready().Output, "/tmp", "/dev/shm", "$HOME"} {
				if c.mode == sdk.WorkspaceReadOnly && where == "/workspace" {
					continue
				}
				// It sleeps because what is sampled is sampled while something runs.
				for what, script := range map[string]string{
					"bytes":   fmt.Sprintf("head -c %d /dev/zero > %s/big || exit 1; sleep 60", big, where),
					"files":   fmt.Sprintf("mkdir %s/many && cd %[1]s/many && i=0; while [ $i -lt 3000 ]; do : > $i || exit 1; i=$((i+1)); done; sleep 60", where),
					"removed": fmt.Sprintf("exec 3> %s/gone && rm %[1]s/gone && { head -c %d /dev/zero >&3 || exit 1; sleep 60; }", where, big),
					"hidden":  fmt.Sprintf("mkdir %s/hid && head -c %d /dev/zero > %[1]s/hid/big || exit 1; chmod 0 %[1]s/hid; sleep 60", where, big),
				} {
					r := sh(t, s, script)
					if r.Cause != sdk.CauseDisk && what != "removed" || r.Code == 0 {
						t.Errorf("%s in %s: %+v %s", what, where, r.Exit, r.err)
					}
					// Above the limit this command, too, is killed at the next sample; each removes some more.
					for range 100 {
						r := sh(t, s, fmt.Sprintf("chmod 700 %s/hid; rm -rf %[1]s/big %[1]s/many %[1]s/hid", where))
						if r.Cause == sdk.CauseExited {
							break
						}
					}
				}
			}
		})
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
	for name, c := range map[string]struct {
		l    sdk.Limits
		want sdk.Limit
	}{
		"cpus without a cgroup":          {sdk.Limits{CPUs: 1.5}, sdk.LimitCPUs},
		"too little memory":              {sdk.Limits{Memory: 1 << 10}, sdk.LimitMemory},
		"K3 files beyond the hard limit": {sdk.Limits{Files: 1 << 40}, sdk.LimitFiles},
		"too few files":                  {sdk.Limits{Files: 3}, sdk.LimitFiles},
	} {
		var e *sdk.Error
		if err := planLimits(&sdk.Spec{Limits: c.l}, false, "/", noCgroup, 0).Err(); !errors.As(err, &e) || e.Limit != c.want || e.Reason != sdk.ReasonLimit || e.Fix == "" {
			t.Errorf("%s gave %v", name, err)
		}
	}
	if err := planLimits(&sdk.Spec{Limits: sdk.Limits{Memory: 1 << 30, PIDs: 5, Files: 64, Disk: 1 << 20, Timeout: time.Second}}, false, "/", noCgroup, 0).Err(); err != nil {
		t.Errorf("what can be held was refused: %v", err)
	}
}

// TestK3LowHardLimits runs a sandbox below hard limits as continuous integration has them: defaults shrink, and who
// asks for more is refused.
func TestK3LowHardLimits(t *testing.T) {
	const inner = "HUTCH_TEST_LOW_LIMITS"
	if os.Getenv(inner) == "" {
		needBwrap(t)
		cmd := exec.Command("prlimit", "--nofile=256:256", "--nproc=512:512", "/proc/self/exe", "-test.run=^TestK3LowHardLimits$", "-test.v")
		cmd.Args[3] = os.Args[0]
		cmd.Env = append(os.Environ(), inner+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestK3LowHardLimits") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	s := newSandbox(t, sdk.Spec{})
	if r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"bash", "-c", "ulimit -u; ulimit -n"}}); r.out != "512\n256\n" {
		t.Errorf("the defaults are %q %q", r.out, r.err)
	}
	for _, h := range s.Ready().Holds {
		if want := map[sdk.Limit]string{sdk.LimitPIDs: "511", sdk.LimitFiles: "256"}[h.Limit]; want != "" && (h.Value != want || !h.Default) {
			t.Errorf("%+v, want %s", h, want)
		}
	}
	for _, l := range []sdk.Limits{{Files: 257}, {PIDs: 512}} {
		var e *sdk.Error
		if err := planLimits(&sdk.Spec{Limits: l}, false, "/", noCgroup, 0).Err(); !errors.As(err, &e) || !strings.Contains(e.Fix, "ulimit -H") {
			t.Errorf("%+v gave %v", l, err)
		}
	}
}

// TestUsedUpDescriptors distinguishes descriptors that are used up from user namespaces that nobody can make.
func TestUsedUpDescriptors(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := holder.Start(newIdentity(0, 0).Identity)
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); e != nil {
		t.Fatal(e)
	}
	if err == nil {
		t.Fatal("a holder started without descriptors")
	}
	var e *sdk.Error
	if err := userNamespaceError(err); !errors.As(err, &e) || !strings.Contains(e.Summary, "descriptors") || !strings.Contains(e.Fix, "ulimit -n") {
		t.Errorf("%v", err)
	}
	for words, want := range map[string]string{"fork: Resource temporarily unavailable": "ulimit -u", "No permissions to create new namespace": ""} {
		if e := usedUp(words); want == "" != (e == nil) || e != nil && !strings.Contains(e.Fix, want) {
			t.Errorf("%s: %v", words, e)
		}
	}
}
