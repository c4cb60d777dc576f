// Package limits holds memory, processor time and the number of processes of a set of processes by what this machine
// offers: cgroup v2 (as root, or in a subtree delegated to the user), cgroup v1 (controllers mounted apart, as on
// hybrid systems), or else rlimits. It says before a run which limit would be held by what, and for a limit that
// cannot be held, why not and which command makes it possible.
//
//	support := limits.Probe()                    // looks, changes nothing
//	for _, h := range support.Plan(request) { }  // one line per limit asked for
//	group, err := support.New(id, request)       // makes the kernel objects
//	err = group.Start(cmd)                       // the child is inside before its first instruction
//	stats, err := group.Stats()                  // the kernel's own counters: why did it end?
//	err = group.Kill(ctx); err = group.Destroy(ctx)
//
// # Why not containerd/cgroups
//
// The cgroup files are read and written here directly. The library the field trusts was tried first and does not fit:
// it cannot put a child into a v1 group before the child runs, nor hand out the descriptor that clone3 needs for v2;
// it waits for an empty group with fixed sleeps; it makes a directory in every hierarchy that is mounted, wanted or
// not; it reads neither pids.events nor v1's oom_kill; and its eBPF and D-Bus dependencies double the start time
// of a small Go program (1.2 to 2.5 ms) and add 6 MB to it, which every single run would pay.
package limits
