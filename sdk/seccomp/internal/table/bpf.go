package table

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
)

// What a filter returns to the kernel; an errno is in the low 16 bits.
const (
	RetKillProcess = 0x80000000
	RetErrno       = 0x00050000
	RetAsk         = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	RetAllow       = 0x7fff0000
)

// Arch is an architecture that programs are made for.
type Arch struct {
	Name    string // as Go calls it
	Audit   uint32 // AUDIT_ARCH_*
	SCMP    string // as an OCI profile calls it
	Numbers map[string]int
}

// Prelude is how many instructions a program begins with that check the architecture. The number of the call is loaded
// after them.
const Prelude = 6

// x32Bit marks the system calls of the x32 ABI, which shares amd64's audit value.
const x32Bit = 0x40000000

// Offsets in struct seccomp_data, of which the machine must be little-endian.
const offNr, offArch, offArgs = 0, 4, 16

// Assemble makes the program of a table for an architecture: a binary search for the number of the call among the
// ranges of numbers with one answer.
func Assemble(a *Arch, groups []Group) ([]bpf.RawInstruction, error) {
	last := 0
	for _, nr := range a.Numbers {
		last = max(last, nr)
	}
	answers := make([]*Group, last+2) // the last one for all greater numbers; nil is ENOSYS
	for i := range groups {
		for _, name := range groups[i].Names() {
			if nr, ok := a.Numbers[name]; ok {
				answers[nr] = &groups[i]
			}
		}
	}
	var ranges []span
	for nr, g := range answers {
		if n := len(ranges); n == 0 || !same(ranges[n-1].group, g) {
			ranges = append(ranges, span{uint32(nr), g})
		}
	}
	program := slices.Concat([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: a.Audit, SkipTrue: 1},
		bpf.RetConstant{Val: RetKillProcess}, // a 32-bit call would be another one by the same number
		bpf.LoadAbsolute{Off: offNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: ret(ENOSYS)},
	}, search(ranges))
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble the system call filter for %s: %w", a.Name, err)
	}
	return raw, nil
}

// Bytes returns a program as an array of struct sock_filter. Both architectures are little-endian.
func Bytes(program []bpf.RawInstruction) (b []byte) {
	for _, in := range program {
		b = binary.LittleEndian.AppendUint16(b, in.Op)
		b = append(b, in.Jt, in.Jf)
		b = binary.LittleEndian.AppendUint32(b, in.K)
	}
	return b
}

// span is numbers from first up to the next span's that have one answer.
type span struct {
	first uint32
	group *Group
}

// same says whether two groups, of which nil is the unknown calls, get the same answer without a look at arguments.
func same(a, b *Group) bool {
	answer := func(g *Group) Errno {
		if g == nil {
			return ENOSYS
		}
		return g.Answer
	}
	conditional := a != nil && a.When != nil || b != nil && b.When != nil
	return a == b && a != nil || !conditional && answer(a) == answer(b)
}

func search(ranges []span) []bpf.Instruction {
	if len(ranges) == 1 {
		return decide(ranges[0].group)
	}
	half := len(ranges) / 2
	left, right := search(ranges[:half]), search(ranges[half:])
	return slices.Concat([]bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: ranges[half].first, SkipFalse: 1},
		bpf.Jump{Skip: uint32(len(left))}, // conditional jumps are too short
	}, left, right)
}

// decide answers a call of a group. It looks for the side of the condition that takes fewer tests.
func decide(g *Group) []bpf.Instruction {
	if g == nil {
		return []bpf.Instruction{bpf.RetConstant{Val: ret(ENOSYS)}}
	}
	if g.When == nil {
		return []bpf.Instruction{bpf.RetConstant{Val: ret(g.Answer)}}
	}
	cubes, match, otherwise := g.When.Allow, ret(Allow), ret(g.Answer)
	if len(g.When.Refuse) < len(cubes) {
		cubes, match, otherwise = g.When.Refuse, otherwise, match
	}
	var out []bpf.Instruction
	for _, cube := range cubes {
		const width = 3 // instructions of a test
		for i, t := range cube {
			out = append(out,
				bpf.LoadAbsolute{Off: uint32(offArgs + 8*(t.Arg%high) + 4*(t.Arg/high)), Size: 4},
				bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: t.Mask},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: t.Value, SkipFalse: uint8(width*(len(cube)-i-1) + 1)})
		}
		out = append(out, bpf.RetConstant{Val: match})
	}
	return append(out, bpf.RetConstant{Val: otherwise})
}

func ret(e Errno) uint32 {
	switch e {
	case Allow:
		return RetAllow
	case Ask:
		return RetAsk
	case Ignore:
		return RetErrno
	}
	return RetErrno | uint32(e)
}
