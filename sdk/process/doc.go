// Package process runs a command as the leader of a process group or session of its own and makes sure that nothing of
// it is left when it is over: not the children, not those that forked twice, not those that made a session of their
// own.
//
//	p, err := process.Start(cmd, process.Options{Grace: 2 * time.Second, Group: group})
//	res := p.Wait(ctx) // when ctx ends: TERM, grace, KILL, and only then back
//
// With a Group (a cgroup, see package limits) the kernel itself knows the whole tree. Without one, on Linux, every
// command has a keeper: a second process of the same program which is the reaper of the command's orphans, and which
// ends them all when the host is gone. Elsewhere there is only the process group.
//
// The package also opens the FIFOs by which a host hands over standard streams, makes terminals, and tells a process
// that its host has died.
package process
