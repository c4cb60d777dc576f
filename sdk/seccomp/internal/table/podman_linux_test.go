package table

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/internal/podmantest"
)

// loaded starts a container with a profile and returns the filter that the kernel has for it.
func loaded(t *testing.T, p *Profile) *bpf.VM {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seccomp.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--detach", "--rm", "--network=none", "--security-opt=no-new-privileges", "--cap-drop=all", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
		"--security-opt=seccomp=" + file,
		podmantest.Busybox(t), "sleep", "60"}
	var stderr strings.Builder
	run := exec.Command("podman", args...)
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("podman run: %v %s", err, stderr.String())
	}
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("podman", "rm", "--force", "--time=0", id).Run() })
	out, err = exec.Command("podman", "inspect", "--format={{.State.Pid}}", id).Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	defer unix.PtraceDetach(pid)
	const getFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER
	var raw [4096]struct {
		op     uint16
		jt, jf uint8
		k      uint32
	}
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(pid), 0, uintptr(unsafe.Pointer(&raw)), 0, 0)
	if errno != 0 {
		t.Skipf("this kernel does not show filters: %v", errno)
	}
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(pid), 1, 0, 0, 0); errno != unix.ENOENT {
		t.Fatalf("there is a second filter: %v", errno)
	}
	var program []bpf.RawInstruction
	for _, in := range raw[:n] {
		program = append(program, bpf.RawInstruction{Op: in.op, Jt: in.jt, Jf: in.jf, K: in.k})
	}
	instructions, ok := bpf.Disassemble(program)
	if !ok {
		t.Fatal("the filter cannot be taken apart")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instructions", n)
	return vm
}

// TestS5FilterOfContainers holds the filter that Podman's OCI runtime makes of the profile to the table.
func TestS5FilterOfContainers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may read the filter of a process")
	}
	podmantest.Need(t)
	all := arches(t)
	a := all[slices.IndexFunc(all, func(a *Arch) bool { return a.Name == runtime.GOARCH })]
	f := &filter{a, Groups(), loaded(t, OCI(a.SCMP, nil))}
	t.Logf("a 32-bit call answers %#x, one of x32 %#x", f.answer(t, 0x40000003, 20, [2 * high]uint32{}), f.answer(t, a.Audit, x32Bit, [2 * high]uint32{}))
	f.answersAsTheTable(t, 450)                                 // the newest call of the libseccomp of Debian 12
	for _, audit := range []uint32{0x40000003, 0x40000028, 0} { // i386, arm
		for nr := range uint32(500) {
			if got := f.answer(t, audit, nr, [2 * high]uint32{}); got != RetKillProcess && got != retKillThread && got != ret(ENOSYS) {
				t.Errorf("call %d of architecture %#x answers %#x", nr, audit, got)
			}
		}
	}
	for _, nr := range a.Numbers {
		if got := f.answer(t, a.Audit, x32Bit|uint32(nr), [2 * high]uint32{}); got != RetKillProcess && got != retKillThread && got != ret(ENOSYS) {
			t.Errorf("call %d of x32 answers %#x", nr, got)
		}
	}
}

const retKillThread = 0
