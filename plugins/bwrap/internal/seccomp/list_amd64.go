package seccomp

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archRules are the system calls that only amd64 has: older forms of others, and
// direct access to the machine.
func archRules(set func(int, uint32) test) []rule {
	var out []rule
	for _, nr := range []int{unix.SYS_USELIB, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USTAT, unix.SYS_SYSFS,
		unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE} {
		out = append(out, rule{nr: nr, errno: unix.EPERM})
	}
	return append(out,
		rule{unix.SYS_MKNOD, unix.EPERM, []test{set(1, deviceBit|setID)}},
		rule{unix.SYS_CHMOD, unix.EPERM, []test{set(1, setID)}},
		rule{unix.SYS_CREAT, unix.EPERM, []test{set(1, setID)}},
		rule{unix.SYS_OPEN, unix.EPERM, []test{set(1, unix.O_CREAT|tmpfileBit), set(2, setID)}},
	)
}
