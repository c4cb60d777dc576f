// Package table is the list of system calls that hutch's sandboxes allow, with a reason and a source for each group,
// and what is made from it: the BPF program that bwrap loads, the OCI profile that Podman takes, and the page of the
// reference.
package table

import "strings"

// Errno is what a refused call returns; 0 allows it. The numbers are those of Linux on every architecture hutch runs
// on.
type Errno uint16

// The answers.
const (
	Allow        Errno = 0
	EPERM        Errno = 1  // the call is forbidden
	ENOSYS       Errno = 38 // callers fall back to an older call
	EOPNOTSUPP   Errno = 95 // callers do without
	EAFNOSUPPORT Errno = 97 // callers try the next address family

	Ask    Errno = 0xffff // the backend decides: see Shared
	Ignore Errno = 0xfffe // the call returns 0 and does nothing
)

// Group is calls that get the same answer for the same reason.
type Group struct {
	Title  string
	Calls  string // names, separated by white space; those that an architecture does not have are left out there
	Answer Errno
	// When limits the answer to arguments that the condition refuses; it allows the others. Nil answers always.
	When   *Condition
	Reason string
	Source string
}

// Names returns the calls of the group.
func (g *Group) Names() []string { return strings.Fields(g.Calls) }

const (
	docker    = "https://github.com/moby/profiles/blob/main/seccomp/default.json"
	dockerDoc = "https://docs.docker.com/engine/security/seccomp/"
	podman    = "https://github.com/containers/common/blob/main/pkg/seccomp/seccomp.json"
	flatpak   = "https://github.com/flatpak/flatpak/blob/main/common/flatpak-run.c"
)

// Bits and values of arguments.
const (
	setID        = 0o6000     // S_ISUID and S_ISGID
	deviceBit    = 0o020000   // in the type of character and block devices, and of nothing else that mknod makes
	creates      = 0x400040   // O_CREAT, and the part of O_TMPFILE that is not O_DIRECTORY
	newNamespace = 0x7e020000 // CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
	whiteout     = 4          // RENAME_WHITEOUT
	rlimitCore   = 4          // RLIMIT_CORE
	setLease     = 1024       // F_SETLEASE

	tiocsti, tiocsetd, tioclinux = 0x5412, 0x5423, 0x541c

	afUnix, afInet, afInet6, afNetlink, netlinkRoute = 1, 2, 10, 16, 0
)

// Groups returns the table. A call that is in no group is unknown, and returns ENOSYS.
func Groups() []Group {
	return []Group{
		{
			Title: "Files and directories", Answer: Allow, Source: docker,
			Reason: "Programs read and write what their mounts show them; permissions and read-only mounts decide.",
			Calls: `access chdir chown close close_range copy_file_range dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate
				fchdir fchown fchownat
				fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents
				getdents64 getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch lchown lgetxattr link linkat
				listxattr llistxattr
				lremovexattr lseek lsetxattr lstat mkdir mkdirat newfstatat pread64 preadv preadv2 pwrite64 pwritev pwritev2 read
				readahead
				readlink readlinkat readv removexattr rename renameat rmdir sendfile setxattr splice stat statfs statx symlink
				symlinkat sync
				sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes write writev cachestat`,
		},
		{
			Title: "Waiting for events", Answer: Allow, Source: docker,
			Reason: "Event loops, and the kernel's older asynchronous reads and writes, which databases use.",
			Calls: `epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 io_cancel
				io_destroy io_getevents
				io_pgetevents io_setup io_submit poll ppoll pselect6 select signalfd signalfd4`,
		},
		{
			Title: "Memory", Answer: Allow, Source: docker,
			Reason: "A process's own memory, and random numbers. Limits hold memory, not the filter.",
			Calls: `brk getrandom madvise memfd_create memfd_secret membarrier mincore mlock mlock2 mlockall mmap mprotect mremap
				mseal msync munlock
				munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages map_shadow_stack`,
		},
		{
			Title: "Processes, threads and signals", Answer: Allow, Source: docker,
			Reason: "Processes of the sandbox only: its process namespace has no others. arch_prctl sets a thread's own " +
				"registers.",
			Calls: `alarm arch_prctl execve execveat exit exit_group fork futex futex_wait futex_waitv futex_wake futex_requeue
				get_robust_list
				get_thread_area getcpu getpgid getpgrp getpid getppid getpriority getrlimit getrusage getsid gettid ioprio_get
				ioprio_set kill pause
				pidfd_open pidfd_send_signal prctl process_mrelease restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask
				rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
				sched_get_priority_min
				sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
				sched_setattr
				sched_setparam sched_setscheduler sched_yield set_robust_list set_thread_area set_tid_address setpgid setpriority
				setsid
				sigaltstack sysinfo tgkill times tkill uname vfork wait4 waitid`,
		},
		{
			Title: "Users and capabilities", Answer: Allow, Source: docker,
			Reason: "Without a capability and with no-new-privileges nothing is gained by them; programs that give up rights " +
				"call them.",
			Calls: `capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid setgroups
				setregid setresgid
				setresuid setreuid setuid`,
		},
		{
			Title: "Time", Answer: Allow, Source: docker,
			Reason: "Reading clocks and setting timers. Without CAP_SYS_TIME adjtimex and clock_adjtime only read.",
			Calls: `adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer
				time timer_create
				timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime`,
		},
		{
			Title: "Pipes, sockets and IPC", Answer: Allow, Source: docker,
			Reason: "The network and IPC namespaces decide what can be reached; which sockets can be made is below.",
			Calls: `accept accept4 bind connect getpeername getsockname getsockopt listen mq_getsetattr mq_notify mq_open
				mq_timedreceive
				mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd pipe pipe2 recvfrom recvmmsg recvmsg semctl semget semop
				semtimedop
				sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown`,
		},
		{
			Title: "Further sandboxes", Answer: Allow, Source: "https://docs.kernel.org/userspace-api/landlock.html",
			Reason: "A program may only confine itself further. Browsers and test runners do.",
			Calls:  "landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp",
		},

		{
			Title: "Set-id bits by mode", Answer: EPERM, Calls: "fchmod chmod creat",
			When: clear("no S_ISUID or S_ISGID in the mode", 1, setID),
			Reason: "In a shared workspace started by root a set-id program would be root's on the host. Set-id directories " +
				"are refused with them. mkdir has no rule: the kernel ignores these bits there.",
			Source: "https://man7.org/linux/man-pages/man7/inode.7.html",
		},
		{
			Title: "Set-id bits by mode and directory", Answer: EPERM, Calls: "fchmodat fchmodat2",
			When:   clear("no S_ISUID or S_ISGID in the mode", 2, setID),
			Reason: "As above.",
			Source: "https://man7.org/linux/man-pages/man2/chmod.2.html",
		},
		{
			Title: "Files that are made with set-id bits", Answer: EPERM, Calls: "open",
			When:   clearWith("no S_ISUID or S_ISGID in the mode, or neither O_CREAT nor O_TMPFILE", 1, creates, 2, setID),
			Reason: "As above. Without O_CREAT and O_TMPFILE the mode is not read and may hold anything.",
			Source: "https://man7.org/linux/man-pages/man2/open.2.html",
		},
		{
			Title: "Files that are made with set-id bits in a directory", Answer: EPERM, Calls: "openat",
			When:   clearWith("no S_ISUID or S_ISGID in the mode, or neither O_CREAT nor O_TMPFILE", 2, creates, 3, setID),
			Reason: "As above.",
			Source: "https://man7.org/linux/man-pages/man2/open.2.html",
		},
		{
			Title: "Devices and set-id files by mknod", Answer: EPERM, Calls: "mknod",
			When:   clear("FIFOs, sockets and regular files without set-id bits", 1, setID|deviceBit),
			Reason: "Device nodes reach the machine, and character device 0:0 is an overlay's whiteout.",
			Source: "https://docs.kernel.org/filesystems/overlayfs.html#whiteouts-and-opaque-directories",
		},
		{
			Title: "Devices and set-id files by mknodat", Answer: EPERM, Calls: "mknodat",
			When:   clear("FIFOs, sockets and regular files without set-id bits", 2, setID|deviceBit),
			Reason: "As above.",
			Source: "https://docs.kernel.org/filesystems/overlayfs.html#whiteouts-and-opaque-directories",
		},
		{
			Title: "Whiteouts by rename", Answer: EPERM, Calls: "renameat2", When: clear("no RENAME_WHITEOUT", 4, whiteout),
			Reason: "A whiteout of an overlay would hide a file of the project.",
			Source: "https://man7.org/linux/man-pages/man2/rename.2.html",
		},
		{
			Title: "New processes in new namespaces", Answer: EPERM, Calls: "clone",
			When:   clear("no CLONE_NEW* flag", 0, newNamespace),
			Reason: "A user namespace gives every capability in it, with which most ways out of containers began.",
			Source: dockerDoc,
		},
		{
			Title: "Typing into terminals", Answer: EPERM, Calls: "ioctl",
			When: noneOf("any request but TIOCSTI, TIOCLINUX and TIOCSETD", 1, tiocsti, tioclinux, tiocsetd),
			Reason: "TIOCSTI and TIOCLINUX push keystrokes into the caller's terminal (CVE-2017-5226, CVE-2019-10063, " +
				"CVE-2023-28100); TIOCSETD loads line disciplines (CVE-2017-2636, CVE-2023-6546).",
			Source: "https://github.com/flatpak/flatpak/security/advisories/GHSA-7qpw-3vjv-xrqp",
		},
		{
			Title: "Leases of files", Answer: EPERM, Calls: "fcntl", When: noneOf("any request but F_SETLEASE", 1, setLease),
			Reason: "A program that opens a file to write waits up to 45 seconds for the holder of a lease, and a command " +
				"can get one on a file of the user that it may only read.",
			Source: "https://man7.org/linux/man-pages/man2/F_GETLEASE.2const.html",
		},
		{
			Title: "Personalities", Answer: EPERM, Calls: "personality",
			When:   oneOf("0, which is Linux, and 0xffffffff, which asks", 0, 0, all),
			Reason: "Others turn off address randomisation or make all readable memory executable.",
			Source: "https://man7.org/linux/man-pages/man2/personality.2.html",
		},
		{
			Title: "Limits of core dumps", Answer: Ignore, Calls: "setrlimit",
			When: noneOf("any resource but RLIMIT_CORE", 0, rlimitCore),
			Reason: "Where kernel.core_pattern is a program, the kernel runs it as root and outside of all namespaces for " +
				"every dump, also with a limit of 0, but not with 1, which every command has. " +
				"Programs with keys in their memory set 0 and end if that fails.",
			Source: "https://github.com/torvalds/linux/blob/v6.12/fs/coredump.c",
		},
		{
			Title: "Limits of core dumps by prlimit", Answer: Ignore, Calls: "prlimit64",
			When:   unlessCore("any resource but RLIMIT_CORE, which can only be read"),
			Reason: "As above.",
			Source: "https://github.com/torvalds/linux/blob/v6.12/fs/coredump.c",
		},
		{
			Title: "Address families", Answer: EAFNOSUPPORT, Calls: "socket socketpair",
			When: oneOf("AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK with NETLINK_ROUTE", 0, afUnix, afInet, afInet6).or(0,
				afNetlink, 2, netlinkRoute),
			Reason: "AF_VSOCK reaches the hypervisor and is in no network namespace before Linux 7.0; AF_ALG, AF_PACKET, " +
				"NETLINK_AUDIT, NETLINK_NETFILTER and " +
				"the protocols that nobody looks after had holes again and again (CVE-2026-31431, CVE-2021-22555). " +
				"NETLINK_ROUTE lists interfaces.",
			Source: "https://github.com/containers/container-libs/pull/575",
		},

		{
			Title: "Calls that pass their arguments in memory", Answer: ENOSYS, Calls: "clone3 openat2",
			Reason: "No filter can see their flags and modes. C libraries and programs fall back to clone and openat.",
			Source: "https://github.com/flatpak/flatpak/security/advisories/GHSA-67h7-w3jq-vh4q",
		},
		{
			Title: "io_uring", Answer: ENOSYS, Calls: "io_uring_setup io_uring_enter io_uring_register",
			Reason: "It makes other calls past the filter, and much of the kernel's holes of recent years are in it.",
			Source: "https://security.googleblog.com/2023/06/learnings-from-kctf-vrps-42-linux.html",
		},
		{
			Title: "The newer calls about mounts", Answer: ENOSYS,
			Calls:  "open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr statmount listmount",
			Reason: "The sandbox is made of mounts (CVE-2021-41133, CVE-2022-0185).",
			Source: "https://github.com/flatpak/flatpak/security/advisories/GHSA-67h7-w3jq-vh4q",
		},
		{
			Title: "Mounts", Answer: EPERM, Calls: "mount umount2 pivot_root chroot",
			Reason: "The sandbox is made of mounts.", Source: dockerDoc,
		},
		{
			Title: "Namespaces", Answer: EPERM, Calls: "unshare setns",
			Reason: "The sandbox is made of namespaces, and a new one gives capabilities.", Source: dockerDoc,
		},
		{
			Title: "Keyrings", Answer: EPERM, Calls: "add_key keyctl request_key",
			Reason: "The keyrings of the user who started hutch are in no namespace.", Source: dockerDoc,
		},
		{
			Title: "Other processes' memory and descriptors", Answer: EPERM,
			Calls:  "ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp",
			Reason: "A command could take over another one of its sandbox, or what reports its end.", Source: dockerDoc,
		},
		{
			Title: "Tracing and programs in the kernel", Answer: EPERM,
			Calls:  "bpf perf_event_open userfaultfd fanotify_init fanotify_mark",
			Reason: "Large parts of the kernel with many holes, and the means to win races in others.", Source: dockerDoc,
		},
		{
			Title: "Files by handle", Answer: EPERM, Calls: "name_to_handle_at open_by_handle_at",
			Reason: "A handle opens files that no mount of the sandbox shows.", Source: "https://github.com/gabrtv/shocker",
		},
		{
			Title: "Placement of memory", Answer: EPERM,
			Calls:  "mbind get_mempolicy set_mempolicy set_mempolicy_home_node move_pages migrate_pages vmsplice",
			Reason: "Affects other programs of the machine; pages that are given to a pipe stay writable.", Source: podman,
		},
		{
			Title: "The kernel and the machine", Answer: EPERM,
			Calls: `acct clock_settime delete_module finit_module init_module ioperm iopl kexec_file_load kexec_load
				lookup_dcookie modify_ldt quotactl
				quotactl_fd reboot setdomainname sethostname settimeofday swapoff swapon sysfs syslog uselib ustat vhangup`,
			Reason: "Nothing of it belongs to a sandbox; modify_ldt had holes (CVE-2015-5157, CVE-2017-17053) and serves " +
				"16-bit programs only.", Source: flatpak,
		},
	}
}
