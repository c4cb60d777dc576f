package visible

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/limits"
)

func TestS9FilesShowWhatIsHeld(t *testing.T) {
	held := limits.Request{Memory: 256 << 20, CPUs: 1.5, Files: 10}
	got := map[string]string{}
	for _, f := range Files(held, []int{3, 4, 7}) {
		got[f.Path] = string(f.Data)
	}
	for path, want := range map[string]string{
		"/sys/fs/cgroup/memory.max": "268435456\n", "/sys/fs/cgroup/cpu.max": "150000 100000\n", "/sys/fs/cgroup/pids.max": "max\n",
		"/sys/devices/system/cpu/online": "3-4,7\n",
	} {
		if got[path] != want {
			t.Errorf("%s has %q; want %q", path, got[path], want)
		}
	}
	for path, want := range map[string]string{"/proc/meminfo": "MemTotal:         262144 kB\n", "/proc/stat": "\ncpu7 "} {
		if !strings.Contains(got[path], want) {
			t.Errorf("%s lacks %q:\n%s", path, want, got[path])
		}
	}
	if strings.Contains(got["/proc/stat"], "cpu0") {
		t.Errorf("/proc/stat shows other processors:\n%s", got["/proc/stat"])
	}
	if f := Files(limits.Request{Memory: 1 << 50}, nil); slices.ContainsFunc(f, func(f File) bool { return f.Path == "/proc/meminfo" }) {
		t.Error("a limit above the machine's memory is shown as the memory")
	}
	if f := Files(limits.Request{}, Processors(0)); f != nil {
		t.Errorf("without limits there are %d files", len(f))
	}
}

func TestS9CPUInfoIsCut(t *testing.T) {
	const host = "processor\t: 0\nsiblings\t: 8\n\nprocessor\t: 1\nsiblings\t: 8\ncpu cores\t: 4\nflags\t\t: fpu\n\nprocessor\t: 2\n\nHardware\t: X\n"
	const want = "processor\t: 1\nsiblings\t: 1\ncpu cores\t: 1\nflags\t\t: fpu\n\nHardware\t: X\n\n"
	if got := cpuinfo([]byte(host), []int{1}); got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestS9ProcessorsTakeTurns(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	seen := map[int]int{}
	for range all.Count() {
		p := Processors(0.5)
		if len(p) != 1 || !all.IsSet(p[0]) {
			t.Fatalf("half a processor is %v", p)
		}
		seen[p[0]]++
	}
	if len(seen) != all.Count() {
		t.Errorf("sandboxes crowd: %v", seen)
	}
	if p := Processors(1 << 20); len(p) != all.Count() || !slices.IsSorted(p) {
		t.Errorf("all processors are %v", p)
	}
}

func TestS9Pin(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read x; grep Cpus_allowed_list /proc/self/status")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cpus := Processors(1)
	err = Pin(cmd.Process.Pid, cpus)
	in.Close()
	if werr := cmd.Wait(); err != nil || werr != nil || out.String() != fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpus[0]) {
		t.Errorf("on %v: %q, %v, %v", cpus, out.String(), err, werr)
	}
}
