#include "textflag.h"

// func program()
//
// The command's init or reaper; see the package comment. Never called: Image and
// Reaper copy it. It may use no address but its own, the stack's, the mode's and the
// limits' at limitsAddr.
//
// R12 the block's vector   R13 envp of the command   R14 the mode, then argv of the command   BX child
TEXT ·program(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $256, SP             // 0 report  8 signal set  16 poll set  64 signalfd's words

	// prctl(PR_SET_DUMPABLE, 0): nobody in the sandbox reads pid 1's descriptors
	MOVL $157, AX
	MOVL $4, DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYSCALL

	MOVL $0x4007f8, R14       // modeAt: 1 for a reaper
	MOVL 0(R14), R14
	TESTL R14, R14
	JEQ  init
	MOVL $157, AX             // prctl(PR_SET_CHILD_SUBREAPER, 1)
	MOVL $36, DI
	MOVL $1, SI
	SYSCALL

init:
	MOVL $7, 0(SP)            // kindInit: the credentials of the message tell our pid
	MOVL $0, 4(SP)
	MOVL $1, AX               // write(3, SP, 8)
	MOVL $3, DI
	MOVQ SP, SI
	MOVL $8, DX
	SYSCALL

	CMPQ AX, $8               // the plugin is gone already
	JNE  quit

	MOVQ $0x10000, 8(SP)      // SIGCHLD comes through a descriptor
	MOVL $14, AX              // rt_sigprocmask(SIG_BLOCK, set, NULL, 8)
	XORL DI, DI
	LEAQ 8(SP), SI
	XORL DX, DX
	MOVL $8, R10
	SYSCALL
	MOVL $289, AX             // signalfd4(-1, set, 8, SFD_CLOEXEC|SFD_NONBLOCK)
	MOVQ $-1, DI
	LEAQ 8(SP), SI
	MOVL $8, DX
	MOVL $0x80800, R10
	SYSCALL
	TESTQ AX, AX
	JLT  nofork
	MOVL $3, 16(SP)           // {3, 0} and {signalfd, POLLIN}
	MOVL $0, 20(SP)
	MOVL AX, 24(SP)
	MOVL $1, 28(SP)

	MOVL $56, AX              // clone(SIGCHLD, 0, 0, 0, 0)
	MOVL $17, DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYSCALL
	TESTQ AX, AX
	JEQ  child
	JLT  nofork
	MOVQ AX, BX
	MOVL $3, AX               // close(7): the child's copy closes when it is executed
	MOVL $7, DI
	SYSCALL

wait:
	MOVL $271, AX             // ppoll(set, 2, NULL, NULL, 8)
	LEAQ 16(SP), DI
	MOVL $2, SI
	XORL DX, DX
	XORL R10, R10
	MOVL $8, R8
	SYSCALL
	CMPW 22(SP), $0           // the plugin is gone: so shall everything here
	JNE  quit
	XORL AX, AX               // read(signalfd, 64(SP), 128)
	MOVL 24(SP), DI
	LEAQ 64(SP), SI
	MOVL $128, DX
	SYSCALL

reap:
	MOVL $61, AX              // wait4(-1, 4(SP), WNOHANG, NULL)
	MOVQ $-1, DI
	LEAQ 4(SP), SI
	MOVL $1, DX
	XORL R10, R10
	SYSCALL
	CMPQ AX, BX
	JEQ  ended
	TESTQ AX, AX
	JGT  reap
	CMPQ AX, $-10             // ECHILD: a reaper has nothing left to reap
	JNE  wait
	JMP  quit

ended:
	MOVL $1, 0(SP)            // kindEnded, status
	TESTL R14, R14
	JEQ  report
	MOVQ $-1, BX              // which is nobody's
	MOVL $1, AX               // write(3, SP, 8)
	MOVL $3, DI
	MOVQ SP, SI
	MOVL $8, DX
	SYSCALL
	JMP  reap

nofork:
	NEGQ AX
	MOVL $4, 0(SP)            // kindNoFork, errno
	MOVL AX, 4(SP)

report:
	MOVL $1, AX               // write(3, SP, 8)
	MOVL $3, DI
	MOVQ SP, SI
	MOVL $8, DX
	SYSCALL

quit:
	MOVL $231, AX             // exit_group(0)
	XORL DI, DI
	SYSCALL
	JMP  quit

child:
	XORL AX, AX               // no signal blocked or ignored, whatever hutch was started with
	MOVQ AX, 64(SP)
	MOVQ AX, 72(SP)
	MOVQ AX, 80(SP)
	MOVQ AX, 88(SP)
	MOVL $14, AX              // rt_sigprocmask(SIG_SETMASK, none, NULL, 8)
	MOVL $2, DI
	LEAQ 64(SP), SI
	XORL DX, DX
	MOVL $8, R10
	SYSCALL
	MOVL $64, BX

signal:
	MOVL $13, AX              // rt_sigaction(BX, default, NULL, 8)
	MOVL BX, DI
	LEAQ 64(SP), SI
	XORL DX, DX
	MOVL $8, R10
	SYSCALL
	DECL BX
	JNE  signal

	MOVL $112, AX             // setsid
	SYSCALL
	MOVL $292, AX             // dup3(6, 2, 0): up to now stderr was bwrap's
	MOVL $6, DI
	MOVL $2, SI
	XORL DX, DX
	SYSCALL

	MOVL $9, AX               // mmap(blockAddr, maxBlock, READ|WRITE, PRIVATE|FIXED, 8, 0)
	MOVL $0x10000000, DI
	MOVL $0x1000000, SI
	MOVL $3, DX
	MOVL $0x12, R10
	MOVL $8, R8
	XORL R9, R9
	SYSCALL
	MOVQ AX, R12
	CMPQ R12, $0x10000000
	JEQ  flags
	MOVL $8, 0(SP)            // kindNoBlock
	JMP  failed

flags:
	MOVQ 8(R12), DI           // flags: 't' means take the terminal
	CMPB 0(DI), $0x74
	JNE  limits
	MOVL $16, AX              // ioctl(0, TIOCSCTTY, 0)
	XORL DI, DI
	MOVL $0x540e, SI
	XORL DX, DX
	SYSCALL

limits:
	MOVL $0x400800, BX        // limitsAddr: count, then resource, soft, hard
	MOVQ 0(BX), R15
	ADDQ $8, BX

limit:
	TESTQ R15, R15
	JEQ  started
	MOVL $302, AX             // prlimit64(0, resource, &limit, NULL)
	XORL DI, DI
	MOVQ 0(BX), SI
	LEAQ 8(BX), DX
	XORL R10, R10
	SYSCALL
	TESTQ AX, AX
	JNE  badlimit
	ADDQ $24, BX
	DECQ R15
	JMP  limit

badlimit:
	MOVL $6, 0(SP)            // kindLimit
	JMP  failed

started:
	MOVL $2, 0(SP)            // kindStarted: the credentials of the message tell our pid
	MOVL $0, 4(SP)
	MOVL $1, AX
	MOVL $3, DI
	MOVQ SP, SI
	MOVL $8, DX
	SYSCALL

	MOVL $436, AX             // close_range(3, -1, CLOSE_RANGE_CLOEXEC)
	MOVL $3, DI
	MOVL $-1, SI
	MOVL $4, DX
	SYSCALL

	MOVL $80, AX              // chdir
	MOVQ 16(R12), DI
	SYSCALL
	TESTQ AX, AX
	JEQ  environment
	MOVL $5, 0(SP)            // kindNoDir
	JMP  failed

environment:
	LEAQ 24(R12), R13         // candidates, "", environment, "", command

skipcandidates:
	MOVQ 0(R13), AX
	ADDQ $8, R13
	CMPB 0(AX), $0
	JNE  skipcandidates
	MOVQ R13, R14

skipenvironment:
	MOVQ 0(R14), AX
	ADDQ $8, R14
	CMPB 0(AX), $0
	JNE  skipenvironment
	MOVQ $0, -8(R14)          // the empty string ends the environment's array

	ADDQ $24, R12
	MOVQ $-2, R15             // the error to tell: ENOENT until a better one shows

candidate:
	MOVQ 0(R12), DI
	ADDQ $8, R12
	CMPB 0(DI), $0
	JEQ  noexec
	MOVL $59, AX              // execve
	MOVQ R14, SI
	MOVQ R13, DX
	SYSCALL
	CMPQ AX, $-2              // ENOENT
	JEQ  candidate
	CMPQ AX, $-20             // ENOTDIR
	JEQ  candidate
	MOVQ AX, R15
	CMPQ AX, $-13             // EACCES: a later one may do
	JEQ  candidate

noexec:
	MOVQ R15, AX
	MOVL $3, 0(SP)            // kindNoExec

failed:
	NEGQ AX
	MOVL AX, 4(SP)
	MOVL $1, AX
	MOVL $3, DI
	MOVQ SP, SI
	MOVL $8, DX
	SYSCALL
	MOVL $231, AX
	MOVL $127, DI
	SYSCALL
	JMP  failed

// func programEnd()
TEXT ·programEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func bounds() (start, end unsafe.Pointer)
TEXT ·bounds(SB), NOSPLIT, $0-16
	LEAQ ·program(SB), AX
	MOVQ AX, start+0(FP)
	LEAQ ·programEnd(SB), AX
	MOVQ AX, end+8(FP)
	RET
