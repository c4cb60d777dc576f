package limatest

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// network makes the guest's network what a VM's is without the outside: its own loopback, and a default route,
// which leads nowhere here.
func network() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	i, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	return defaultRoute(uint32(i.Index))
}

// defaultRoute is `ip route add default dev DEVICE`, as a netlink message.
func defaultRoute(device uint32) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	le := binary.NativeEndian
	m := le.AppendUint32(nil, unix.SizeofNlMsghdr+unix.SizeofRtMsg+8)
	m = le.AppendUint16(m, unix.RTM_NEWROUTE)
	m = le.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK)
	m = le.AppendUint32(le.AppendUint32(m, 1), 0)
	m = append(m, unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_LINK, unix.RTN_UNICAST)
	m = le.AppendUint32(m, 0)
	m = le.AppendUint32(le.AppendUint16(le.AppendUint16(m, 8), unix.RTA_OIF), device)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("the kernel answers with %d bytes", n)
	}
	if code := int32(le.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("add a default route: %w", unix.Errno(-code))
	}
	return nil
}
