package table

import (
	"slices"
	"strings"
)

const (
	landlockDoc = "https://docs.kernel.org/userspace-api/landlock.html#current-limitations"
	sockStream  = 1
	sockSeq     = 5
	sockKinds   = 0xf // the bits of a socket's type that are no flags
)

// Shared returns the table for commands that share all namespaces with this machine and are confined by Landlock, which
// knows no modes, owners, times and attributes of files, no sockets with a name, and no scheduling. The network is that
// of this machine.
func Shared() []Group {
	changes := SharedChanges()
	changed := map[string]bool{}
	for i := range changes {
		for _, name := range changes[i].Names() {
			changed[name] = true
		}
	}
	out := changes
	for _, g := range Groups() {
		g.Calls = strings.Join(slices.DeleteFunc(g.Names(), func(name string) bool { return changed[name] }), " ")
		if g.Calls != "" {
			out = append(out, g)
		}
	}
	return out
}

// SharedChanges are the groups of [Shared] that differ from those of [Groups].
func SharedChanges() []Group {
	return []Group{
		{
			Title: "Modes and times of files", Answer: Ask, Calls: "chmod fchmod fchmodat fchmodat2 utimensat",
			Source: landlockDoc,
			Reason: "Landlock lets a command change them on every file of the user. The backend makes the change itself, and " +
				"only below the sandbox's own directories.",
		},
		{
			Title: "Owners, and older calls for times", Answer: EPERM,
			Calls: "chown lchown fchown fchownat utime utimes futimesat", Source: landlockDoc,
			Reason: "As for modes. An ordinary user can give a file to another of its groups only, and C libraries set times " +
				"by utimensat.",
		},
		{
			Title: "Extended attributes", Answer: EOPNOTSUPP,
			Calls: "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr", Source: landlockDoc,
			Reason: "As for modes. Programs know file systems without attributes.",
		},
		{
			Title: "Flags of files, and typing into terminals", Answer: EPERM, Calls: "ioctl", Source: landlockDoc,
			When: noneOf("any request but FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION, "+
				"FS_IOC_SET_ENCRYPTION_POLICY, FS_IOC_ENABLE_VERITY, "+
				"FAT_IOCTL_SET_ATTRIBUTES, those of Btrfs that make, remove or change subvolumes, TIOCSTI, TIOCLINUX and TIOCSETD",
				1,
				0x40086602, 0x401c5820, 0x40087602, 0x800c6613, 0x40806685, 0x40047211,
				0x50009401, 0x5000940e, 0x5000940f, 0x50009417, 0x50009418, 0x5000943f, 0x4008941a, tiocsti, tioclinux, tiocsetd),
			Reason: "A command may set flags of every file that it can open for reading, which then stay, and make " +
				"subvolumes in such a directory.",
		},
		{
			Title: "Watching files", Answer: ENOSYS, Calls: "inotify_add_watch", Source: landlockDoc,
			Reason: "Landlock lets a command watch every directory of the user, and so learn the names in it.",
		},
		{
			Title: "Sockets", Answer: EPERM, Calls: "socket", Source: landlockDoc,
			When: oneOf("with the full network AF_INET, AF_INET6, and AF_NETLINK with NETLINK_ROUTE; else none", 0, afInet,
				afInet6).or(0, afNetlink, 2, netlinkRoute),
			Reason: "There is no network namespace. Landlock lets a command connect to every unix socket with a name, such " +
				"as that of a container engine.",
		},
		{
			Title: "Pairs of sockets", Answer: EPERM, Calls: "socketpair",
			Source: "https://man7.org/linux/man-pages/man7/unix.7.html",
			When:   kinds("SOCK_STREAM and SOCK_SEQPACKET", sockStream, sockSeq),
			Reason: "Sockets for datagrams can send to any other one.",
		},
		{
			Title: "System V and POSIX IPC", Answer: EPERM, Source: "https://man7.org/linux/man-pages/man7/sysvipc.7.html",
			Calls: `shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_notify
				mq_getsetattr mq_timedsend mq_timedreceive`,
			Reason: "There is no IPC namespace.",
		},
		{
			Title: "Scheduling of others, by process", Answer: EPERM,
			Source: "https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html",
			Calls:  "sched_setaffinity sched_setattr sched_setparam sched_setscheduler",
			When:   oneOf("of the calling thread or process, as 0", 0, 0),
			Reason: "A command could slow down other processes of the user, hutch included.",
		},
		{
			Title: "Limits of others", Answer: ENOSYS, Source: "https://man7.org/linux/man-pages/man2/prlimit.2.html",
			Calls: "prlimit64", When: unlessCore("of the calling process, as 0; RLIMIT_CORE can only be read").and(0, 0),
			Reason: "A command could end other processes of the user. Core dumps are as above; programs know kernels without " +
				"the call.",
		},
		{
			Title: "Priorities of others", Answer: EPERM, Calls: "setpriority", When: pair("PRIO_PROCESS with 0", 0, 0, 1, 0),
			Reason: "As above.", Source: "https://man7.org/linux/man-pages/man2/setpriority.2.html",
		},
		{
			Title: "Priorities of others for disks", Answer: EPERM, Calls: "ioprio_set",
			When:   pair("IOPRIO_WHO_PROCESS with 0", 0, 1, 1, 0),
			Reason: "As above.", Source: "https://man7.org/linux/man-pages/man2/ioprio_set.2.html",
		},
	}
}

// kinds allows types of sockets, with any flags.
func kinds(text string, allowed ...uint32) *Condition {
	c := &Condition{Text: text}
	for kind := uint32(0); kind <= sockKinds; kind++ {
		side := &c.Refuse
		if slices.Contains(allowed, kind) {
			side = &c.Allow
		}
		*side = append(*side, Cube{{1, sockKinds, kind}})
	}
	return c
}

// pair allows one value of one argument together with one value of another.
func pair(text string, arg int, value uint32, other int, otherValue uint32) *Condition {
	c := &Condition{Text: text, Allow: []Cube{{{arg, all, value}, {other, all, otherValue}}},
		Refuse: others(arg, []uint32{value})}
	for _, cube := range others(other, []uint32{otherValue}) {
		c.Refuse = append(c.Refuse, Cube{{arg, all, value}, cube[0]})
	}
	return c
}
