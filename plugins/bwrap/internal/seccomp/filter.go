// Package seccomp assembles the system call filter of every command: what it
// refuses is what containers and flatpak refuse, and what has been used to get out
// of sandboxes before. The list is in list.go, with a word on each group.
//
// The filter is classic BPF, assembled here rather than by libseccomp so that the
// plugin needs no C library.
package seccomp

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Arguments are compared by their low 32 bits,
// as the kernel does for the ones looked at here: a filter that compares all 64
// is passed by setting a high bit (CVE-2019-10063).
const (
	offNr   = 0
	offArch = 4
)

func offArg(i int) uint32 { return uint32(16 + 8*i) }

const (
	retAllow       = 0x7fff0000 // SECCOMP_RET_ALLOW
	retErrno       = 0x00050000 // SECCOMP_RET_ERRNO, with the number in the low 16 bits
	retKillProcess = 0x80000000 // SECCOMP_RET_KILL_PROCESS
)

// x32Bit marks the system calls of the x32 ABI, which shares amd64's arch value.
const x32Bit = 0x40000000

// rule refuses one system call, always or when its condition holds.
type rule struct {
	nr    int
	errno unix.Errno
	when  []test // all must hold; empty refuses always
}

// test looks at one argument.
type test struct {
	arg  int
	cond bpf.JumpTest
	val  uint32
}

// Options adapt the filter to a sandbox.
type Options struct {
	// FixedCPUs refuses to change the processors that a process runs on, because
	// they are how the cpus limit is held.
	FixedCPUs bool
}

// Filter returns the program as bwrap's --seccomp reads it: an array of struct
// sock_filter in the machine's byte order.
func Filter(o Options) ([]byte, error) {
	list := rules()
	if o.FixedCPUs {
		list = append(list, rule{nr: unix.SYS_SCHED_SETAFFINITY, errno: unix.EPERM})
	}
	program, err := assemble(auditArch, list)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 8*len(program))
	for _, in := range program {
		b = binary.NativeEndian.AppendUint16(b, in.Op)
		b = append(b, in.Jt, in.Jf)
		b = binary.NativeEndian.AppendUint32(b, in.K)
	}
	return b, nil
}

// assemble turns rules into a program.
func assemble(arch uint32, rules []rule) ([]bpf.RawInstruction, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: retKillProcess}, // a 32-bit call would be another one by the same number
		bpf.LoadAbsolute{Off: offNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: retErrno | uint32(unix.ENOSYS)},
	}
	for _, r := range rules {
		var body []bpf.Instruction
		for i, t := range r.when {
			// Past the remaining tests (two instructions each) and the return, on to
			// the reload of the number.
			skip := uint8(2*(len(r.when)-i-1) + 1)
			body = append(body, bpf.LoadAbsolute{Off: offArg(t.arg), Size: 4}, bpf.JumpIf{Cond: t.cond, Val: t.val, SkipFalse: skip})
		}
		body = append(body, bpf.RetConstant{Val: retErrno | uint32(r.errno)})
		if len(r.when) > 0 {
			body = append(body, bpf.LoadAbsolute{Off: offNr, Size: 4})
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(r.nr), SkipFalse: uint8(len(body))})
		program = append(program, body...)
	}
	program = append(program, bpf.RetConstant{Val: retAllow})
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble the system call filter: %w", err)
	}
	return raw, nil
}
