// Package guest is the program that the Lima backend has in its virtual machines. It runs as root there, one process
// for each backend that is connected, and ends with the ssh session that it speaks over.
//
// # A sandbox in the guest
//
// All sandboxes of a VM share its kernel. What keeps them apart, and keeps the VM itself as it was, is that every
// command has namespaces of its own: of processes, of mounts, of shared memory, and without a network one of that too.
// It sees of /workspace, /exchange, /input, /output, /tmp and its home what belongs to its own sandbox; the home is an
// overlay over the one that the VM's user has, so tools that were installed there work and what a command writes there
// stays in the sandbox. It has the uid of the VM's user, no capability, and cannot gain any: sudo does not work in a
// sandbox.
//
//	/workspace/ID              the workspace, an ordinary directory
//	/exchange/ID               what the host shares
//	/var/lib/hutch/ID/         the rest of it: what it is like, input, output, tmp, what it wrote to its home, the base
//	/run/hutch/ID/             which commands run, and the handle of its cgroup; gone after a reboot
//
// # A command
//
// This program starts itself once more as the first process of the command's namespaces. That one mounts what the
// command shall see, and starts the command, inside the sandbox's cgroup; it reaps, says how the command ended, and
// with its own end the kernel kills whatever is left. It is outside the cgroup, so no limit of the sandbox can hinder
// it. When this process dies, it ends too.
package guest
