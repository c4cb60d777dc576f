#include "textflag.h"

// func program()
//
// The command's init or reaper; see the package comment and the same program for
// amd64, which carries the remarks.
//
// Above the command: R22 command   R20 end of the list   R21 the list's descriptor   R24 1 for a reaper, 0 for pid 1
// R23 1 to kill what is left, 2 when the command has ended, 4 when something was left
// In the command: R19 the block's vector   R20 its envp   R21 its argv   R22 cursor   R23 errno
TEXT ·program(SB), NOSPLIT|NOFRAME, $0-0
	MOVD RSP, R9
	SUB  $4352, R9            // as a register, or the linker takes it for a frame of Go
	MOVD R9, RSP
	MOVD $0, R23

	MOVD $167, R8             // prctl(PR_SET_DUMPABLE, 0)
	MOVD $4, R0
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SVC

	MOVD $0, R24
	MOVD $172, R8             // getpid
	SVC
	CMP  $1, R0
	BEQ  init
	MOVD $1, R24
	MOVD $167, R8             // prctl(PR_SET_CHILD_SUBREAPER, 1)
	MOVD $36, R0
	MOVD $1, R1
	SVC

init:
	MOVD $7, R9
	MOVD R9, 0(RSP)
	MOVD $64, R8              // write(3, RSP, 8)
	MOVD $3, R0
	MOVD RSP, R1
	MOVD $8, R2
	SVC
	CMP  $8, R0
	BNE  quit

	MOVD $-1, R9
	MOVD R9, 8(RSP)
	MOVD $135, R8             // rt_sigprocmask(SIG_SETMASK, set, NULL, 8)
	MOVD $2, R0
	ADD  $8, RSP, R1
	MOVD $0, R2
	MOVD $8, R3
	SVC
	MOVD $0x10000, R9
	MOVD R9, 8(RSP)
	MOVD $74, R8              // signalfd4(-1, set, 8, SFD_CLOEXEC|SFD_NONBLOCK)
	MOVD $-1, R0
	ADD  $8, RSP, R1
	MOVD $8, R2
	MOVD $0x80800, R3
	SVC
	CMP  $0, R0
	BLT  nofork
	MOVD $3, R9
	MOVW R9, 16(RSP)
	MOVD $0x2000, R9
	MOVW R9, 20(RSP)
	MOVW R0, 24(RSP)
	MOVD $1, R9
	MOVW R9, 28(RSP)

	MOVD $0x4007f1, R9        // waitsAt
	MOVBU 0(R9), R9
	CBZ  R9, fork
	MOVD ZR, 256(RSP)
	MOVD ZR, 264(RSP)
	ADD  $312, RSP, R9
	MOVD R9, 272(RSP)
	MOVD $1, R9
	MOVD R9, 280(RSP)
	ADD  $336, RSP, R9
	MOVD R9, 288(RSP)
	MOVD $40, R9
	MOVD R9, 296(RSP)
	MOVD ZR, 304(RSP)
	ADD  $328, RSP, R9
	MOVD R9, 312(RSP)
	MOVD $8, R9
	MOVD R9, 320(RSP)
	MOVD ZR, 336(RSP)
	MOVD $212, R8             // recvmsg(3, 256(RSP), 0)
	MOVD $3, R0
	ADD  $256, RSP, R1
	MOVD $0, R2
	SVC
	CMP  $1, R0
	BLT  quit
	MOVD 336(RSP), R9
	CMP  $36, R9
	BNE  quit
	ADD  $352, RSP, R20
	MOVD $0x0706010008, R21
	MOVD $5, R22

take:
	MOVD $24, R8              // dup3(0(R20), low byte of R21, 0)
	MOVWU 0(R20), R0
	AND  $255, R21, R1
	MOVD $0, R2
	SVC
	MOVD $57, R8              // close(0(R20))
	MOVWU 0(R20), R0
	SVC
	LSR  $8, R21, R21
	ADD  $4, R20, R20
	SUB  $1, R22, R22
	CBNZ R22, take

fork:
	MOVD $220, R8             // clone(SIGCHLD, 0, 0, 0, 0)
	MOVD $17, R0
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SVC
	CBZ  R0, child
	CMP  $0, R0
	BLT  nofork
	MOVD R0, R22
	MOVD $436, R8             // close_range(0, 2, 0)
	MOVD $0, R0
	MOVD $2, R1
	MOVD $0, R2
	SVC
	MOVD $436, R8             // close_range(6, 7, 0)
	MOVD $6, R0
	MOVD $7, R1
	MOVD $0, R2
	SVC

wait:
	MOVD $73, R8              // ppoll(set, 2, NULL, NULL, 8)
	ADD  $16, RSP, R0
	MOVD $2, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $8, R4
	SVC
	MOVHU 22(RSP), R9
	CBZ  R9, drain
	CBZ  R24, quit
	ORR  $1, R23
	MOVD $-1, R9
	MOVW R9, 16(RSP)
	MOVW ZR, 20(RSP)

drain:
	MOVD $63, R8              // read(signalfd, RSP+64, 128)
	MOVW 24(RSP), R0
	ADD  $64, RSP, R1
	MOVD $128, R2
	SVC

reap:
	MOVD $260, R8             // wait4(-1, RSP+4, WNOHANG, NULL)
	MOVD $-1, R0
	ADD  $4, RSP, R1
	MOVD $1, R2
	MOVD $0, R3
	SVC
	CMP  R22, R0
	BEQ  ended
	CMP  $0, R0
	BGT  reap
	BLT  quit
	TBZ  $0, R23, wait
	TBZ  $1, R23, kill
	ORR  $4, R23

kill:
	MOVD $56, R8              // openat(AT_FDCWD, "/proc/thread-self/children", O_CLOEXEC)
	MOVD $-100, R0
	MOVD $0x4007d0, R1
	MOVD $0x80000, R2
	MOVD $0, R3
	SVC
	CMP  $0, R0
	BLT  quit
	MOVD R0, R21
	MOVD $63, R8              // read(R21, RSP+256, 4096)
	ADD  $256, RSP, R1
	MOVD $4096, R2
	SVC
	ADD  $256, RSP, R9
	ADD  R0, R9, R20
	MOVD $57, R8              // close(R21)
	MOVD R21, R0
	SVC

number:
	MOVD $0, R10

digit:
	CMP  R20, R9
	BGE  wait
	MOVBU 0(R9), R11
	ADD  $1, R9
	CMP  $0x30, R11
	BLT  space
	SUB  $0x30, R11
	MOVD $10, R12
	MUL  R12, R10
	ADD  R11, R10
	JMP  digit

space:
	CMP  $1, R10
	BLE  number
	MOVD $129, R8             // kill(R10, SIGKILL)
	MOVD R10, R0
	MOVD $9, R1
	SVC
	JMP  number

ended:
	MOVD $1, R9
	MOVW R9, 0(RSP)
	CBZ  R24, report
	MOVD $-1, R22
	ORR  $3, R23
	MOVD $64, R8              // write(3, RSP, 8)
	MOVD $3, R0
	MOVD RSP, R1
	MOVD $8, R2
	SVC
	JMP  reap

nofork:
	NEG  R0, R0
	MOVD $4, R9
	MOVW R9, 0(RSP)
	MOVW R0, 4(RSP)

report:
	MOVD $64, R8              // write(3, RSP, 8)
	MOVD $3, R0
	MOVD RSP, R1
	MOVD $8, R2
	SVC

quit:
	MOVD $94, R8              // exit_group(1 when something was left)
	LSR  $2, R23, R0
	SVC
	JMP  quit

child:
	MOVD ZR, 64(RSP)
	MOVD ZR, 72(RSP)
	MOVD ZR, 80(RSP)
	MOVD ZR, 88(RSP)
	MOVD $135, R8             // rt_sigprocmask(SIG_SETMASK, none, NULL, 8)
	MOVD $2, R0
	ADD  $64, RSP, R1
	MOVD $0, R2
	MOVD $8, R3
	SVC
	MOVD $64, R22

signal:
	MOVD $134, R8             // rt_sigaction(R22, default, NULL, 8)
	MOVD R22, R0
	ADD  $64, RSP, R1
	MOVD $0, R2
	MOVD $8, R3
	SVC
	SUB  $1, R22
	CBNZ R22, signal

	MOVD $0x4007f0, R9
	MOVWU 0(R9), R9
	CBZ  R9, session
	MOVD $167, R8             // prctl(PR_SET_PDEATHSIG, SIGKILL)
	MOVD $1, R0
	MOVD $9, R1
	SVC

session:
	MOVD $157, R8             // setsid
	SVC
	MOVD $24, R8              // dup3(6, 2, 0)
	MOVD $6, R0
	MOVD $2, R1
	MOVD $0, R2
	SVC

	MOVD $222, R8             // mmap(blockAddr, maxBlock, READ|WRITE, PRIVATE|FIXED, 8, 0)
	MOVD $0x10000000, R0
	MOVD $0x1000000, R1
	MOVD $3, R2
	MOVD $0x12, R3
	MOVD $8, R4
	MOVD $0, R5
	SVC
	MOVD R0, R19
	MOVD $0x10000000, R9
	CMP  R9, R19
	BEQ  flags
	MOVD $8, R9
	MOVW R9, 0(RSP)
	JMP  failed

flags:
	MOVD 8(R19), R9
	MOVBU 0(R9), R9
	CMP  $0x74, R9
	BNE  limits
	MOVD $29, R8              // ioctl(0, TIOCSCTTY, 0)
	MOVD $0, R0
	MOVD $0x540e, R1
	MOVD $0, R2
	SVC

limits:
	MOVD $0x400800, R22
	MOVD 0(R22), R23
	ADD  $8, R22

limit:
	CBZ  R23, started
	MOVD $261, R8             // prlimit64(0, resource, &limit, NULL)
	MOVD $0, R0
	MOVD 0(R22), R1
	ADD  $8, R22, R2
	MOVD $0, R3
	SVC
	CBNZ R0, badlimit
	ADD  $24, R22
	SUB  $1, R23
	JMP  limit

badlimit:
	MOVD $6, R9
	MOVW R9, 0(RSP)
	JMP  failed

started:
	MOVD $172, R8             // getpid
	SVC
	MOVD $2, R9
	MOVW R9, 0(RSP)
	MOVW R0, 4(RSP)
	MOVD $64, R8
	MOVD $3, R0
	MOVD RSP, R1
	MOVD $8, R2
	SVC

	MOVD $436, R8             // close_range(3, -1, CLOSE_RANGE_CLOEXEC)
	MOVD $3, R0
	MOVD $0xffffffff, R1
	MOVD $4, R2
	SVC

	MOVD $49, R8              // chdir
	MOVD 16(R19), R0
	SVC
	CBZ  R0, environment
	MOVD $5, R9
	MOVW R9, 0(RSP)
	JMP  failed

environment:
	ADD  $24, R19, R20

skipcandidates:
	MOVD 0(R20), R9
	ADD  $8, R20
	MOVBU 0(R9), R9
	CBNZ R9, skipcandidates
	MOVD R20, R21

skipenvironment:
	MOVD 0(R21), R9
	ADD  $8, R21
	MOVBU 0(R9), R9
	CBNZ R9, skipenvironment
	MOVD ZR, -8(R21)

	ADD  $24, R19
	MOVD $-2, R23

candidate:
	MOVD 0(R19), R0
	ADD  $8, R19
	MOVBU 0(R0), R9
	CBZ  R9, noexec
	MOVD $221, R8             // execve
	MOVD R21, R1
	MOVD R20, R2
	SVC
	CMN  $2, R0               // ENOENT
	BEQ  candidate
	CMN  $20, R0              // ENOTDIR
	BEQ  candidate
	MOVD R0, R23
	CMN  $13, R0              // EACCES
	BEQ  candidate

noexec:
	MOVD R23, R0
	MOVD $3, R9
	MOVW R9, 0(RSP)

failed:
	NEG  R0, R0
	MOVW R0, 4(RSP)
	MOVD $64, R8
	MOVD $3, R0
	MOVD RSP, R1
	MOVD $8, R2
	SVC
	MOVD $94, R8
	MOVD $127, R0
	SVC
	JMP  failed

// func programEnd()
TEXT ·programEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func bounds() (start, end unsafe.Pointer)
TEXT ·bounds(SB), NOSPLIT, $0-16
	MOVD $·program(SB), R0
	MOVD R0, start+0(FP)
	MOVD $·programEnd(SB), R0
	MOVD R0, end+8(FP)
	RET
