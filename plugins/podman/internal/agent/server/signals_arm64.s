#include "textflag.h"

// func terminate(sig int, info *siginfo, context unsafe.Pointer)
//
// The handler of SIGTERM. The kernel calls it, on a stack of its own, so it is called as in C: info is in R1.
TEXT ·terminate(SB), NOSPLIT|NOFRAME, $0-0
	MOVWU 16(R1), R9          // si_pid: none, when it comes from outside the container
	CBNZ  R9, ignore
	MOVD  $94, R8             // exit_group(0)
	MOVD  $0, R0
	SVC

ignore:
	RET

// func restore()
//
// What the handler returns to.
TEXT ·restore(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $139, R8             // rt_sigreturn
	SVC
	BRK                       // not reached

// func handler() (terminate, restore uintptr)
TEXT ·handler(SB), NOSPLIT, $0-16
	MOVD $·terminate(SB), R0
	MOVD R0, terminate+0(FP)
	MOVD $·restore(SB), R0
	MOVD R0, restore+8(FP)
	RET
