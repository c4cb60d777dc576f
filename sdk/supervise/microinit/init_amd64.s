#include "textflag.h"

// func program()
//
// The command's init or reaper; see the package comment. Never called: Image copies it.
// It may use no address but its own, the stack's, and those of the data at pathAt.
//
// Above the command: BX command   R12 end of the list   R13 the list's descriptor   R14 1 for a reaper, 0 for pid 1
// R15 1 to kill what is left, 2 when the command has ended, 4 when something was left
// In the command: R12 the block's vector   R13 its envp   R14 its argv   R15 errno
TEXT ·program(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $4352, SP            // 0 report  8 signal set  16 poll set  64 signalfd's words  256 list of children
	XORL R15, R15

	// prctl(PR_SET_DUMPABLE, 0): nobody in the sandbox reads this process's descriptors
	MOVL $157, AX
	MOVL $4, DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYSCALL

	XORL R14, R14
	MOVL $39, AX              // getpid
	SYSCALL
	CMPL AX, $1               // with pid 1 the kernel kills the namespace
	JEQ  init
	MOVL $1, R14
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
	CMPQ AX, $8               // nobody is there any more
	JNE  quit

	MOVQ $-1, 8(SP)           // no signal but KILL and STOP has an effect
	MOVL $14, AX              // rt_sigprocmask(SIG_SETMASK, set, NULL, 8)
	MOVL $2, DI
	LEAQ 8(SP), SI
	XORL DX, DX
	MOVL $8, R10
	SYSCALL
	MOVQ $0x10000, 8(SP)      // SIGCHLD comes through a descriptor
	MOVL $289, AX             // signalfd4(-1, set, 8, SFD_CLOEXEC|SFD_NONBLOCK)
	MOVQ $-1, DI
	LEAQ 8(SP), SI
	MOVL $8, DX
	MOVL $0x80800, R10
	SYSCALL
	TESTQ AX, AX
	JLT  nofork
	MOVL $3, 16(SP)           // {3, POLLRDHUP} and {signalfd, POLLIN}
	MOVL $0x2000, 20(SP)
	MOVL AX, 24(SP)
	MOVL $1, 28(SP)

	MOVL $0x4007f1, AX        // waitsAt
	CMPB 0(AX), $0
	JEQ  fork
	MOVQ $0, 256(SP)          // a struct msghdr, with 8 bytes of data and room for a header and five descriptors
	MOVQ $0, 264(SP)
	LEAQ 312(SP), AX
	MOVQ AX, 272(SP)
	MOVQ $1, 280(SP)
	LEAQ 336(SP), AX
	MOVQ AX, 288(SP)
	MOVQ $40, 296(SP)
	MOVQ $0, 304(SP)
	LEAQ 328(SP), AX          // its struct iovec
	MOVQ AX, 312(SP)
	MOVQ $8, 320(SP)
	MOVQ $0, 336(SP)
	MOVL $47, AX              // recvmsg(3, 256(SP), 0)
	MOVL $3, DI
	LEAQ 256(SP), SI
	XORL DX, DX
	SYSCALL
	CMPQ AX, $1               // who started this wants its end, or is gone
	JLT  quit
	CMPQ 336(SP), $36         // the length of a control message with five descriptors
	JNE  quit
	LEAQ 352(SP), R12
	MOVQ $0x0706010008, R13   // what they become, the first one in the lowest byte: never one of the others
	MOVL $5, BX

take:
	MOVL $292, AX             // dup3(0(R12), low byte of R13, 0)
	MOVL 0(R12), DI
	MOVL R13, SI
	ANDL $255, SI
	XORL DX, DX
	SYSCALL
	MOVL $3, AX               // close(0(R12))
	MOVL 0(R12), DI
	SYSCALL
	SHRQ $8, R13
	ADDQ $4, R12
	DECL BX
	JNE  take

fork:
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
	MOVL $436, AX             // close_range(0, 2, 0): the streams are the command's
	XORL DI, DI
	MOVL $2, SI
	XORL DX, DX
	SYSCALL
	MOVL $436, AX             // close_range(6, 7, 0): its stderr, and what closes when it is executed
	MOVL $6, DI
	MOVL $7, SI
	XORL DX, DX
	SYSCALL

wait:
	MOVL $271, AX             // ppoll(set, 2, NULL, NULL, 8)
	LEAQ 16(SP), DI
	MOVL $2, SI
	XORL DX, DX
	XORL R10, R10
	MOVL $8, R8
	SYSCALL
	CMPW 22(SP), $0
	JEQ  drain
	TESTL R14, R14            // who started this wants its end, or is gone
	JEQ  quit
	ORL  $1, R15
	MOVL $-1, 16(SP)          // poll it no more
	MOVL $0, 20(SP)

drain:
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
	JLT  quit                 // ECHILD: nothing is left
	TESTL $1, R15
	JEQ  wait
	TESTL $2, R15
	JEQ  kill
	ORL  $4, R15

kill:
	// Every child dies; those of the dead become children of this process before their death is signalled to it.
	// None can be another process meanwhile: only this one reaps them.
	MOVL $257, AX             // openat(AT_FDCWD, "/proc/thread-self/children", O_CLOEXEC)
	MOVQ $-100, DI
	MOVL $0x4007d0, SI
	MOVL $0x80000, DX
	XORL R10, R10
	SYSCALL
	TESTQ AX, AX
	JLT  quit
	MOVQ AX, R13
	XORL AX, AX               // read(R13, 256(SP), 4096)
	MOVQ R13, DI
	LEAQ 256(SP), SI
	MOVL $4096, DX
	SYSCALL
	LEAQ 256(SP), R9
	LEAQ (R9)(AX*1), R12
	MOVL $3, AX               // close(R13)
	MOVQ R13, DI
	SYSCALL

number:
	XORL R8, R8

digit:
	CMPQ R9, R12              // a number that is cut off is for the next round
	JGE  wait
	MOVBLZX 0(R9), AX
	INCQ R9
	SUBL $0x30, AX
	JLT  space
	LEAQ (R8)(R8*4), R8
	LEAQ (AX)(R8*2), R8
	JMP  digit

space:
	CMPQ R8, $1
	JLE  number
	MOVL $62, AX              // kill(R8, SIGKILL)
	MOVQ R8, DI
	MOVL $9, SI
	SYSCALL
	JMP  number

ended:
	MOVL $1, 0(SP)            // kindEnded, status
	TESTL R14, R14
	JEQ  report
	MOVQ $-1, BX              // which is nobody's
	ORL  $3, R15
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
	MOVL $231, AX             // exit_group(1 when something was left)
	MOVL R15, DI
	SHRL $2, DI
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

	MOVL $0x4007f0, AX        // tiedAt
	CMPL 0(AX), $0
	JEQ  session
	MOVL $157, AX             // prctl(PR_SET_PDEATHSIG, SIGKILL)
	MOVL $1, DI
	MOVL $9, SI
	SYSCALL

session:
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
	MOVL $2, 0(SP)            // kindStarted, our pid here; the credentials of the message tell it there
	MOVL $39, AX              // getpid
	SYSCALL
	MOVL AX, 4(SP)
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
