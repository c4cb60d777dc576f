//go:build linux

package gate

import (
	"encoding/binary"
	"net/netip"
	"sync"
)

// names gives each name that resolves an address of its own. Its methods may be called concurrently.
type names struct {
	mu   sync.Mutex
	addr map[string]netip.Addr
	name map[netip.Addr]string
}

// The addresses are those of 198.18.0.0/15 from 198.18.1.0 on: what is below belongs to the loopback.
const (
	firstAddress = 198<<24 | 18<<16 | 1<<8
	mostNames    = 1<<17 - 1<<8
)

// give returns the address of a name; false when there is none left.
func (n *names) give(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.addr[name]; ok {
		return a, true
	}
	if len(n.addr) == mostNames {
		return netip.Addr{}, false
	}
	if n.addr == nil {
		n.addr, n.name = map[string]netip.Addr{}, map[netip.Addr]string{}
	}
	a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, firstAddress+uint32(len(n.addr)))))
	n.addr[name], n.name[a] = a, name
	return a, true
}

// of returns the name that an address was given to.
func (n *names) of(a netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.name[a]
	return name, ok
}
