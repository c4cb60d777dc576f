//go:build linux

package gate

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
)

// FuzzAnswer sends any bytes as a lookup: the reply is one to that query, an address is given to an allowed name alone,
// and what is recorded fits on one line.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"www.example.org.", "evil.example.", "a\nb.example.org.", "."} {
		for _, t := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeALL} {
			q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
				Questions:   []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: t, Class: dnsmessage.ClassINET}},
				Additionals: []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT, Class: 1232}, Body: &dnsmessage.OPTResource{}}}}
			b, err := q.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	rules := sdk.NetworkRules{Allow: []string{"*.example.org", "api.example.com:443"}, Deny: []string{"no.example.org"}}
	f.Fuzz(func(t *testing.T, query []byte) {
		g := &Gate{o: Options{Network: sdk.NetworkFiltered, Rules: rules}}
		if err := g.prepare(); err != nil {
			t.Fatal(err)
		}
		b := g.answer(query)
		if b == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(b); err != nil {
			t.Fatalf("the reply cannot be read: %v\n%x", err, b)
		}
		if len(b) > 65535 || !m.Response || m.ID != uint16(query[0])<<8|uint16(query[1]) {
			t.Errorf("%d bytes are no reply to the query: %+v", len(b), m.Header)
		}
		for _, a := range m.Answers {
			if v := g.rules.Load().Lookup(network.Canonical(a.Header.Name.String())); !v.Allowed {
				t.Errorf("%q has an address: %s", a.Header.Name, v.Reason)
			}
		}
		for name := range g.names.addr {
			if strings.ContainsAny(name, "\n\x00") {
				t.Errorf("%q has more than one line", name)
			}
		}
	})
}

// FuzzRefusal begins denied connections with any bytes, to any name: HTTP gets a whole response of status 403.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "x.example")
	f.Add([]byte("CONNECT x:443 HTTP/1.1"), "a\r\nb")
	f.Add([]byte{22, 3, 1, 2, 0}, "")
	f.Add([]byte("SSH-2.0-x"), "*")
	rules, err := network.Parse(sdk.NetworkFiltered, sdk.NetworkRules{Allow: []string{"example.org:443"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first []byte, name string) {
		v := rules.Lookup(network.Canonical(name))
		answer := refusal(first, v)
		if answer == nil || answer[0] == 21 {
			return
		}
		in := bufio.NewReader(bytes.NewReader(answer))
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%v\n%q", err, answer)
		}
		defer r.Body.Close()
		var body bytes.Buffer
		if _, err := body.ReadFrom(r.Body); err != nil || r.StatusCode != http.StatusForbidden || in.Buffered() > 0 || r.Header.Get("X-Hutch-Denied") != strings.TrimSpace(v.Reason) {
			t.Errorf("%v: status %d, %d bytes after it, %v\n%q", err, r.StatusCode, in.Buffered(), r.Header, answer)
		}
	})
}
