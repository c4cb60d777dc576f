package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// network makes the guest's network what a VM's is without the outside: its own loopback, and a default route, which
// leads nowhere here.
func network() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere, Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("add a default route: %w", err)
	}
	return nil
}

// portRule is one of an instance's portForwards.
type portRule struct {
	GuestIP    string `yaml:"guestIP"`
	MustBeZero *bool  `yaml:"guestIPMustBeZero"` // nil is true
	Port       int    `yaml:"guestPort"`
	Range      [2]int `yaml:"guestPortRange"`
	Proto      string `yaml:"proto"`
	Ignore     bool   `yaml:"ignore"`
}

// fits is how Lima's hostagent compares an address of the guest with a rule.
func (r *portRule) fits(at netip.AddrPort) bool {
	if r.Proto == "udp" {
		return false
	}
	from, to := max(r.Range[0], r.Port, 1), max(r.Range[1], r.Port)
	if to == 0 {
		to = 65535
	}
	if p := int(at.Port()); p < from || p > to {
		return false
	}
	ip, err := netip.ParseAddr(r.GuestIP)
	if err != nil {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	switch is := at.Addr(); {
	case is.IsUnspecified(), is == ip, is == netip.IPv6Loopback() && ip.IsLoopback():
		return true
	}
	return ip.IsUnspecified() && r.MustBeZero != nil && !*r.MustBeZero
}

// forwards reports whether the instance's rules bring a port of the guest to this machine. Behind them is Lima's own,
// for every port of the guest's loopback.
func (c *vmConfig) forwards(at netip.AddrPort) bool {
	for _, r := range append(slices.Clone(c.PortForwards), portRule{}) {
		if r.fits(at) {
			return !r.Ignore
		}
	}
	return false
}

// portTime is the time between two looks at the guest's ports.
const portTime = 50 * time.Millisecond

// forwardPorts does what Lima's hostagent does with ports on which something listens in the guest, for as long as this
// process lives.
func (i *vm) forwardPorts(c *vmConfig) {
	open := map[netip.AddrPort]net.Listener{}
	for range time.Tick(portTime) {
		now, err := i.listening()
		if err != nil {
			continue // the guest ends
		}
		for _, at := range now {
			if _, ok := open[at]; ok {
				continue
			}
			open[at] = nil
			if !c.forwards(at) {
				fmt.Fprintf(os.Stderr, "Not forwarding TCP %s\n", at)
				continue
			}
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", at.Port()))
			if err != nil {
				fmt.Fprintf(os.Stderr, "failed to forward TCP %s: %v\n", at, err)
				continue
			}
			open[at] = l
			go i.forward(l, at)
			fmt.Fprintf(os.Stderr, "Forwarding TCP from %s to %s\n", at, l.Addr())
		}
		for at, l := range open {
			if !slices.Contains(now, at) {
				if l != nil {
					l.Close()
				}
				delete(open, at)
			}
		}
	}
}

// forward joins what connects to a port of this machine with one of the guest.
func (i *vm) forward(l net.Listener, at netip.AddrPort) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			in, err := i.ask(&sessionRequest{Dial: at.String()})
			if err != nil {
				return
			}
			defer in.Close()
			if _, err := io.ReadFull(in, make([]byte, 1)); err == nil { // it is connected
				join(c, in)
			}
		}()
	}
}

// listening asks the guest on which ports something listens.
func (i *vm) listening() (all []netip.AddrPort, err error) {
	c, err := i.ask(&sessionRequest{Listening: true})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return all, json.NewDecoder(c).Decode(&all)
}

// ask asks the guest's first process for something that is no session.
func (i *vm) ask(req *sessionRequest) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: i.file("guest.sock"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := send(c, req); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect is the guest's end of forward.
func (k *keeper) connect(c *net.UnixConn, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	if _, err := c.Write([]byte{'\n'}); err == nil {
		join(c, to)
	}
}

// join carries bytes both ways until one end closes.
func join(a, b net.Conn) {
	over := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			over <- struct{}{}
		}()
	}
	<-over
	a.Close()
	b.Close()
	<-over
}

// listeners are the TCP ports of this network on which something listens.
func listeners() ([]netip.AddrPort, error) {
	all := []netip.AddrPort{}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		in := bufio.NewScanner(f)
		for in.Scan() {
			if w := strings.Fields(in.Text()); len(w) > 3 && w[3] == "0A" {
				at, err := kernelAddress(w[1])
				if err != nil {
					f.Close()
					return nil, err
				}
				all = append(all, at)
			}
		}
		f.Close()
	}
	return all, nil
}

// kernelAddress reads an address as the kernel lists it: words of four bytes, each the wrong way round, and a port.
func kernelAddress(s string) (at netip.AddrPort, err error) {
	ip, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(ip)
	if err != nil {
		return at, err
	}
	for w := 0; w+4 <= len(b); w += 4 {
		slices.Reverse(b[w : w+4])
	}
	addr, ok := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil || !ok {
		return at, fmt.Errorf("the kernel lists the address %q", s)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}
