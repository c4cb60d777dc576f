//go:build linux

// Package seccomp is the system call filter of sandboxes on this host's kernel. It is a list of what is allowed, made
// from one table in two forms: the program that bwrap and the kernel take, and the OCI profile that Podman and other
// container engines take. docs/reference/syscalls.md shows the table.
//
// Both forms kill or refuse every call of another architecture, 32-bit and x32 calls included.
package seccomp

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/seccomp/internal/table"
)

// Options adapt the filter to a sandbox.
type Options struct {
	// FixedCPUs refuses to change the processors that a process runs on, because they are how the cpus limit is held.
	FixedCPUs bool
	// SmallShm refuses System V shared memory of more than 64 KiB a segment, because memory is sampled: a segment that no
	// process has attached is counted nowhere. Databases take their lock from a small one.
	SmallShm bool
	// Shared takes the table for commands without namespaces, confined by Landlock, some of whose calls the kernel
	// passes on to the listener of the filter. Only Program takes it.
	Shared bool
	// Network allows internet sockets with Shared; without it they depend on the network namespace.
	Network bool
}

// smallShm is the most bytes of a segment with SmallShm.
const smallShm = 64 << 10

// Program returns the filter as an array of struct sock_filter, which is what bwrap's --seccomp reads. It was assembled
// when hutch was built.
func Program(o Options) []byte {
	const size = 8 // of an instruction
	at := table.Prelude * size
	base := program
	if o.Shared {
		base = shared
	}
	out := append([]byte{}, base[:at]...)
	answer := func(nr, ret uint32) {
		out = append(instruction(out, unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, nr),
			instruction(nil, unix.BPF_RET|unix.BPF_K, 0, ret)...)
	}
	if o.FixedCPUs {
		answer(unix.SYS_SCHED_SETAFFINITY, table.RetErrno|uint32(unix.EPERM))
	}
	if o.Shared && !o.Network {
		answer(unix.SYS_SOCKET, table.RetErrno|uint32(unix.EPERM))
	}
	if o.SmallShm {
		const size, high = 16 + 8, 16 + 8 + 4 // where the words of the second argument lie
		out = instruction(out, unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 6, unix.SYS_SHMGET)
		out = instruction(out, unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, high)
		out = instruction(out, unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 2, 0)
		out = instruction(out, unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, size)
		out = instruction(out, unix.BPF_JMP|unix.BPF_JGT|unix.BPF_K, 1, smallShm)
		out = instruction(out, unix.BPF_RET|unix.BPF_K, 0, table.RetErrno|uint32(unix.ENOSYS))
		out = instruction(out, unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0) // the number of the call again
	}
	return append(out, base[at:]...)
}

// instruction appends one; those that jump skip the next number of instructions when their test fails.
func instruction(b []byte, op uint16, skipFalse byte, k uint32) []byte {
	b = binary.LittleEndian.AppendUint16(b, op)
	return binary.LittleEndian.AppendUint32(append(b, 0, skipFalse), k)
}

// OCI returns the filter as the JSON that podman's --security-opt seccomp=FILE reads.
func OCI(o Options) ([]byte, error) {
	var never []string
	if o.FixedCPUs {
		never = []string{"sched_setaffinity"}
	}
	p := table.OCI(scmpArch, never)
	if o.SmallShm {
		for i := range p.Syscalls {
			p.Syscalls[i].Names = slices.DeleteFunc(p.Syscalls[i].Names, func(name string) bool { return name == "shmget" })
		}
		p.Syscalls = append(p.Syscalls, table.Rule{Names: []string{"shmget"}, Action: "SCMP_ACT_ALLOW",
			Args: []table.Arg{{Index: 1, Value: smallShm, Op: "SCMP_CMP_LE"}}})
	}
	return json.Marshal(p)
}
