//go:build linux

package gate

import (
	"net"
	"net/netip"
	"testing"
)

// TestOwn asks the kernel for every address of this machine, and for one that it does not have.
func TestOwn(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		addr := netip.MustParsePrefix(a.String()).Addr()
		if !addr.IsLinkLocalUnicast() && !own(addr) { // which are not public anyway, and need a zone
			t.Errorf("%s is not one of this machine", addr)
		}
	}
	for _, a := range []string{"9.9.9.9", "2620:fe::fe"} {
		if own(netip.MustParseAddr(a)) {
			t.Errorf("%s is one of this machine", a)
		}
	}
}
