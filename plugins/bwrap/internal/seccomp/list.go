package seccomp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// setID are the mode bits that make a program run as its owner. In a shared
// workspace started by root such a file would be root's on the host.
const setID = unix.S_ISUID | unix.S_ISGID

// deviceBit is in the type of character and block devices and of nothing else
// that mknod makes.
const deviceBit = 0o020000

// rules is the whole list.
func rules() []rule {
	var out []rule
	deny := func(errno unix.Errno, numbers ...int) {
		for _, n := range numbers {
			out = append(out, rule{nr: n, errno: errno})
		}
	}
	when := func(errno unix.Errno, nr int, tests ...test) {
		out = append(out, rule{nr: nr, errno: errno, when: tests})
	}
	set := func(arg int, bits uint32) test { return test{arg, bpf.JumpBitsSet, bits} }
	equal := func(arg int, v uint32) test { return test{arg, bpf.JumpEqual, v} }
	not := func(arg int, v uint32) test { return test{arg, bpf.JumpNotEqual, v} }

	// Namespaces and mounts: the sandbox is made of them. clone3 passes its flags in
	// memory, where no filter sees them; C libraries fall back to clone.
	deny(unix.EPERM, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT)
	deny(unix.ENOSYS, unix.SYS_CLONE3, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
		unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, sysStatmount, sysListmount, sysOpenTreeAttr)
	when(unix.EPERM, unix.SYS_CLONE, set(0, newNamespaces))

	// The kernel's own business.
	deny(unix.EPERM, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD,
		unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL,
		unix.SYS_LOOKUP_DCOOKIE)

	// The host's keyrings are not in any namespace that bwrap unshares.
	deny(unix.EPERM, unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY)

	// Much code, many holes, little use inside a sandbox.
	deny(unix.EPERM, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_MOVE_PAGES, unix.SYS_MBIND, unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY, unix.SYS_MIGRATE_PAGES, unix.SYS_SET_MEMPOLICY_HOME_NODE)
	deny(unix.ENOSYS, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER)

	// Other processes' memory and descriptors.
	deny(unix.EPERM, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE)

	// Pushing keystrokes into a terminal (CVE-2017-5226, CVE-2023-28100).
	when(unix.EPERM, unix.SYS_IOCTL, equal(1, unix.TIOCSTI))
	when(unix.EPERM, unix.SYS_IOCTL, equal(1, 0x541c)) // TIOCLINUX

	// Personalities turn protections off; asking for the present one is fine.
	when(unix.EPERM, unix.SYS_PERSONALITY, not(0, 0), not(0, 0xffffffff))

	// Socket families beyond the everyday ones: AF_ALG, AF_VSOCK, AF_PACKET and a
	// long tail of protocols that nobody looks after.
	for _, nr := range []int{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		when(unix.EAFNOSUPPORT, nr, not(0, unix.AF_UNSPEC), not(0, unix.AF_UNIX), not(0, unix.AF_INET), not(0, unix.AF_INET6), not(0, unix.AF_NETLINK))
	}

	// Device nodes (an overlay's whiteouts among them), and programs that run as
	// their owner. openat2 passes its mode in memory; callers fall back to openat.
	when(unix.EINVAL, unix.SYS_RENAMEAT2, set(4, unix.RENAME_WHITEOUT))
	when(unix.EPERM, unix.SYS_MKNODAT, set(2, deviceBit|setID))
	when(unix.EPERM, unix.SYS_FCHMOD, set(1, setID))
	when(unix.EPERM, unix.SYS_FCHMODAT, set(2, setID))
	when(unix.EPERM, unix.SYS_FCHMODAT2, set(2, setID))
	when(unix.EPERM, unix.SYS_OPENAT, set(2, unix.O_CREAT|tmpfileBit), set(3, setID))
	deny(unix.ENOSYS, unix.SYS_OPENAT2)

	return append(out, archRules(set)...)
}

// tmpfileBit is the part of O_TMPFILE that is not O_DIRECTORY.
const tmpfileBit = unix.O_TMPFILE &^ unix.O_DIRECTORY

// Numbers newer than x/sys; the same on both architectures.
const (
	sysStatmount    = 457
	sysListmount    = 458
	sysOpenTreeAttr = 467
)
