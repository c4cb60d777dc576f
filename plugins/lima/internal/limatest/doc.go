// Package limatest is a stand-in for limactl and its virtual machines, for tests where neither can be: without KVM,
// without an image, without a network.
//
// The program that stands in is the test binary itself, under the name limactl ([Run] sees to that). What it prints,
// how it exits, and what it does with what nobody expects was taken from Lima 2.2: the errors that are warnings, the
// start of a VM that does not exist, the state Running that says nothing of readiness. Its "VMs" are namespaces of this
// machine, with a disk that outlives a stop, the shared directory, and a login by a real sshd with a real ssh.config
// and a control master. Root in there is root of the namespaces only as far as the tests' user is. Each has a network
// of its own, whose ports come to this machine by the instance's rules and Lima's own one behind them, which is for
// every port.
//
// What it cannot stand in for: a kernel of the guest's own, the mounts of 9p and their times, images, cloud-init.
//
// # Users
//
// limactl refuses root, and so does the stand-in. Where root runs the tests, [Run] runs them as an ordinary user
// instead, and stays itself as what a hypervisor is: who starts guests that have rights which their owner has not, such
// as cgroups. For an ordinary user guests are user namespaces, without cgroups.
package limatest
