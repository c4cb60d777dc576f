#include "textflag.h"

// func terminate(sig int, info *siginfo, context unsafe.Pointer)
//
// The handler of SIGTERM. The kernel calls it, on a stack of its own, so it is called as in C: info is in SI.
TEXT ·terminate(SB), NOSPLIT|NOFRAME, $0-0
	CMPL 16(SI), $0           // si_pid: none, when it comes from outside the container
	JNE  ignore
	MOVL $231, AX             // exit_group(0)
	XORL DI, DI
	SYSCALL

ignore:
	RET

// func restore()
//
// What the handler returns to.
TEXT ·restore(SB), NOSPLIT|NOFRAME, $0-0
	MOVL $15, AX              // rt_sigreturn
	SYSCALL
	INT  $3                   // not reached

// func handler() (terminate, restore uintptr)
TEXT ·handler(SB), NOSPLIT, $0-16
	LEAQ ·terminate(SB), AX
	MOVQ AX, terminate+0(FP)
	LEAQ ·restore(SB), AX
	MOVQ AX, restore+8(FP)
	RET
