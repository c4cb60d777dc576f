//go:build linux

package gate

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hutch-run/hutch/sdk/network"
)

// firstTime is how long a denied connection may take to show its protocol. One whose server speaks first never does.
const firstTime = 300 * time.Millisecond

// refuse ends a denied connection in the way that its protocol has for it: a 403 with the reason, a TLS alert, or a
// reset.
func refuse(conn *net.TCPConn, v network.Verdict) {
	var first [512]byte
	_ = conn.SetDeadline(time.Now().Add(firstTime))
	n, _ := conn.Read(first[:])
	answer := refusal(first[:n], v)
	if answer == nil {
		reset(conn)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(lastTime))
	if _, err := conn.Write(answer); err != nil {
		return
	}
	_ = conn.CloseWrite()
	for { // until the command has read it: a reset would take it away
		if _, err := conn.Read(first[:]); err != nil {
			return
		}
	}
}

// refusal returns what a client that began with first is answered when its destination is denied; nil when it speaks
// neither HTTP nor TLS.
func refusal(first []byte, v network.Verdict) []byte {
	if len(first) > 2 && first[0] == 22 && first[1] == 3 { // a TLS handshake (RFC 8446, 5.1)
		return []byte{21, 3, 3, 0, 2, 2, 49} // fatal, access_denied (6)
	}
	method, _, _ := bytes.Cut(first, []byte(" "))
	switch string(method) {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
	default:
		return nil
	}
	body := fmt.Sprintf("hutch: denied: %s\n%s\n", v.Reason, v.Hint())
	return fmt.Appendf(nil,
		"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nX-Hutch-Denied: "+
			"%s\r\nConnection: close\r\n\r\n%s",
		len(body), v.Reason, body)
}
