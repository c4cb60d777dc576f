// Package hold decides how a backend that shares the kernel of this host holds the limits of a sandbox: by a cgroup, a
// file system in memory, an rlimit or sampling, and with which defaults. A backend asks it in Plan and in Create, so
// that both give one answer.
package hold
