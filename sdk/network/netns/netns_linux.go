package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Resolver is the address of the name server for the resolv.conf of the sandbox. Queries to any other address arrive at
// the same listener.
const Resolver = "127.0.0.1"

// Fix is what to do where [Filter] fails, for an [sdk.Error].
const Fix = "sudo modprobe -a nf_tables nft_chain_nat nft_redir nft_reject_ipv4, or run without a network"

// source is the address of the loopback from which connections begin; none that means a name (see package gate).
const source = "198.18.0.1"

// Listeners are the ends of a filtered namespace: their descriptors, which belong to the caller.
type Listeners struct {
	TCP    int // every connection; SO_ORIGINAL_DST has its destination
	DNS    int // UDP
	DNSTCP int // the same over TCP
}

// Send sends l over a unix socket, from the process that made the listeners to the one that serves them: see [Receive].
func Send(socket int, l Listeners) error {
	return os.NewSyscallError("sendmsg", unix.Sendmsg(socket, []byte{0}, unix.UnixRights(l.FDs()...), nil, 0))
}

// Receive returns the listeners that [Send] sent.
func Receive(socket int) (l Listeners, err error) {
	data, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*4))
	_, n, _, _, err := unix.Recvmsg(socket, data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return l, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return l, errors.New("no listeners came")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return l, err
	}
	if l, err = FromFDs(fds); err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	return l, err
}

// FDs returns the descriptors in a fixed order: see [FromFDs].
func (l Listeners) FDs() []int { return []int{l.TCP, l.DNS, l.DNSTCP} }

// FromFDs is the opposite of [Listeners.FDs].
func FromFDs(fds []int) (Listeners, error) {
	if len(fds) != 3 {
		return Listeners{}, fmt.Errorf("a filtered network came with %d listeners, not 3", len(fds))
	}
	return Listeners{TCP: fds[0], DNS: fds[1], DNSTCP: fds[2]}, nil
}

// Close closes the descriptors.
func (l Listeners) Close() {
	for _, fd := range l.FDs() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Filter makes a filtered network of a fresh network namespace, before anything runs in it, and returns its listeners.
// Once more, it returns further listeners of the same network, for a process that takes over from an earlier one; both
// must have the same user id. ns is a descriptor of the namespace, or of a process in it (a pidfd). The caller needs
// CAP_SYS_ADMIN in its own user namespace and over the namespace, such as its maker has. Of the namespace's loopback,
// connections to the ports in loopback arrive at the listeners too.
func Filter(ns int, loopback []int) (Listeners, error) {
	var l Listeners
	err := Do(ns, func() (err error) {
		l, err = filter(loopback)
		return err
	})
	return l, err
}

// Probe reports why this process cannot make filtered networks; nil when it can.
func Probe() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		l, err := filter(nil)
		l.Close()
		done <- err
	}()
	return <-done
}

// Do calls fn in the network namespace ns, a descriptor as that of [Filter], on a thread that ends with it.
func Do(ns int, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine gets this thread
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// filter works on the network namespace of its thread.
func filter(ports []int) (l Listeners, err error) {
	l = Listeners{TCP: -1, DNS: -1, DNSTCP: -1}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := loopback(); err != nil {
		return l, err
	}
	if l.TCP, err = listen(unix.SOCK_STREAM, tcpPort); err != nil {
		return l, err
	}
	if l.DNS, err = listen(unix.SOCK_DGRAM, dnsPort); err != nil {
		return l, err
	}
	if l.DNSTCP, err = listen(unix.SOCK_STREAM, dnsPort); err != nil {
		return l, err
	}
	return l, redirect(ports)
}

// loopback brings up lo and gives it an address, and a route to everywhere.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	addr, err := netlink.ParseAddr(source + "/32")
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(lo, addr); err != nil {
		return fmt.Errorf("give the loopback %s: %w", source, err)
	}
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere, Src: net.ParseIP(source),
		Scope: netlink.SCOPE_LINK}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route to the loopback: %w", err)
	}
	return nil
}

// The ports of the listeners are privileged: no command can listen there while nobody else does.
const (
	tcpPort = 19
	dnsPort = 53
	backlog = 4096 // the kernel's own bound of a fresh namespace
)

func listen(kind, port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("make a listener: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(Resolver).As4()})
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen on %s:%d: %w", Resolver, port, err)
	}
	return fd, nil
}

// redirect sends what leaves the namespace's own loopback to the listeners, or rejects it. IPv6 needs no rule: nothing
// but ::1 has a route.
func redirect(loopback []int) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reach nf_tables: %w", err)
	}
	// A table that is there has the same rules. To replace it would wait for an RCU grace period, of 5 ms and more.
	table := c.CreateTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "hutch"})
	nat := c.AddChain(&nftables.Chain{Name: "redirect", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	outside := []expr.Any{ // ip daddr != 127.0.0.0/8
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{127}},
	}
	add := func(match []expr.Any, protocol byte, port, to int) { // port 0: all
		match = append(match[:len(match):len(match)], &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}})
		if port != 0 {
			match = append(match, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))})
		}
		match = append(match, &expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(to))},
			&expr.Redir{RegisterProtoMin: 1})
		c.AddRule(&nftables.Rule{Table: table, Chain: nat, Exprs: match})
	}
	add(outside, unix.IPPROTO_UDP, dnsPort, dnsPort)
	add(outside, unix.IPPROTO_TCP, dnsPort, dnsPort)
	add(outside, unix.IPPROTO_TCP, 0, tcpPort)
	for _, port := range loopback {
		add(nil, unix.IPPROTO_TCP, port, tcpPort) // of 127.0.0.0/8: the rest is redirected by now
	}
	out := c.AddChain(&nftables.Chain{Name: "reject", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	own := netip.MustParseAddr(source).As4() // answers to redirected connections go there
	const administratively = 13              // ICMP code of destination unreachable
	c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: append(outside,
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: own[:]},
		&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: administratively})})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("set the rules of nf_tables: %w", err)
	}
	return nil
}

// Destination returns where the command wanted a connection to go that a [Listeners.TCP] accepted.
func Destination(fd int) (netip.AddrPort, error) {
	raw, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST) // for its size: a sockaddr_in is in it
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockopt SO_ORIGINAL_DST", err)
	}
	b := raw.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3])), nil
}
