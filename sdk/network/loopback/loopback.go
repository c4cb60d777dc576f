// Package loopback reaches servers on the loopback of a sandbox, for backends that are an [sdk.Dialer], and passes the
// bytes of such connections on. It depends on little: an agent inside of a sandbox may have it too.
package loopback

import (
	"io"
	"net"
	"sync"
)

// Relay passes bytes between a and b, both ways, until both have ended, and closes them. The end of one direction is
// passed on alone, where the connection can; an error ends both.
func Relay(a, b net.Conn) {
	var both sync.WaitGroup
	one := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			reset(to)
			reset(from)
			return
		}
		if w, ok := to.(interface{ CloseWrite() error }); !ok || w.CloseWrite() != nil {
			to.Close()
		}
	}
	both.Go(func() { one(a, b) })
	one(b, a)
	both.Wait()
	a.Close()
	b.Close()
}

// reset closes a connection so that the other end gets an error, where it is one of TCP.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}
