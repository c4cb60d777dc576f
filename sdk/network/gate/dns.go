//go:build linux

package gate

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/network/intercept"
)

// serveDNS answers lookups over UDP.
func (g *Gate) serveDNS() {
	buf := make([]byte, 4096)
	for {
		n, from, err := g.dns.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if !g.enter() {
			return
		}
		query := slices.Clone(buf[:n])
		g.conns.Go(func() {
			defer g.leave()
			if reply := g.answer(query); reply != nil {
				_, _ = g.dns.WriteToUDPAddrPort(reply, from)
			}
		})
	}
}

// dnsTime bounds how long a connection for lookups may be idle.
const dnsTime = 10 * time.Second

// lookups answers the lookups of one connection, each with its length before it (RFC 1035, 4.2.2).
func (g *Gate) lookups(conn *net.TCPConn) {
	var size [2]byte
	for {
		select {
		case <-g.closing:
			return
		default:
		}
		_ = conn.SetDeadline(time.Now().Add(dnsTime))
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply := g.answer(query)
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

const (
	answerTTL = 60 // seconds; an address means its name as long as the command runs
	// Extended DNS errors (RFC 8914): the option and "Blocked".
	optionEDE  = 15
	edeBlocked = 15
)

// answer returns the reply to one query; nil to what is not a query. Only a full network asks others.
func (g *Gate) answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired,
		RecursionAvailable: true}}
	questions, err := p.AllQuestions()
	switch {
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
	case h.OpCode != 0 || questions[0].Class != dnsmessage.ClassINET:
		reply.RCode = dnsmessage.RCodeNotImplemented
	default:
		reply.Questions = questions
		why := g.resolve(&reply, questions[0])
		if opt, ok := extended(&p); ok {
			if why != "" {
				data := append(binary.BigEndian.AppendUint16(nil, edeBlocked), why...)
				opt.Body = &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: optionEDE, Data: data}}}
			}
			reply.Additionals = []dnsmessage.Resource{opt}
		}
	}
	out, err := reply.Pack()
	if err != nil {
		return nil
	}
	return out
}

// resolve fills in the answer to q, and returns why a name is denied. A name that is allowed has an IPv4 address and
// nothing else: no IPv6 address, and no record that offers another port or an encrypted hello.
func (g *Gate) resolve(reply *dnsmessage.Message, q dnsmessage.Question) (why string) {
	name := network.Canonical(q.Name.String())
	v := g.rules.Load().Lookup(name)
	if !v.Allowed {
		reply.RCode = dnsmessage.RCodeNameError
		if q.Type != dnsmessage.TypePTR { // which programs ask for addresses that they only show
			g.record.add(dest{name: name, rule: v.Rule, reason: v.Reason, add: v.Add}, intercept.Outcome{})
		}
		return v.Reason
	}
	if q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeALL {
		return ""
	}
	if g.o.Network == sdk.NetworkFull { // names of rules are there, and a lookup of them carries nothing out
		if reply.RCode = g.exists(name); reply.RCode != dnsmessage.RCodeSuccess {
			return ""
		}
	}
	addr, ok := g.names.give(name)
	if !ok {
		reply.RCode = dnsmessage.RCodeServerFailure
		return "too many names"
	}
	reply.Answers = []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: answerTTL},
		Body:   &dnsmessage.AResource{A: addr.As4()},
	}}
	return ""
}

// exists reports whether a name has an address, so that one that has none is no such name to the command too.
func (g *Gate) exists(name string) dnsmessage.RCode {
	if name == network.Host {
		return dnsmessage.RCodeSuccess
	}
	_, err := g.addresses(g.ctx, name)
	var e *net.DNSError
	switch {
	case err == nil:
		return dnsmessage.RCodeSuccess
	case errors.As(err, &e) && e.IsNotFound:
		return dnsmessage.RCodeNameError
	}
	return dnsmessage.RCodeServerFailure
}

// extended returns the resource that a reply to a query with EDNS has, and false when the query has none.
func extended(p *dnsmessage.Parser) (opt dnsmessage.Resource, ok bool) {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return opt, false
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return opt, false
		}
		if h.Type == dnsmessage.TypeOPT {
			opt.Body = &dnsmessage.OPTResource{}
			return opt, opt.Header.SetEDNS0(1232, dnsmessage.RCodeSuccess, false) == nil
		}
		if p.SkipAdditional() != nil {
			return opt, false
		}
	}
}
