// Package network decides what a filtered network reaches, for backends that hold [sdk.NetworkFiltered] by way of this
// host, and for hosts that check rules before anything runs.
//
//   - [Parse] reads rules; [Rules.Name] and [Rules.Address] decide. Both are pure.
//
//     network, copies, and counts. The sandbox has no other way out.
//
//   - Package netns makes the sandbox's end of it: a network namespace whose every TCP connection and lookup arrives at
//     the gate's listeners.
//
// A name that is allowed gets an address in 198.18.0.0/15 (RFC 2544), which means this name to the gate and nothing to
// anybody else. So a rule about a name opens no address that other names share, and the name is resolved by the host
// when the connection is made.
package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// Host is the name of the machine that hutch runs on: in a rule its loopback, 127.0.0.1.
const Host = "host"

// Rule is one destination: a name with or without the names below it, or a range of addresses, on one port or all.
type Rule struct {
	text   string
	name   string       // lower case, without a final dot; "" for addresses
	below  bool         // *.name
	prefix netip.Prefix // of addresses
	port   uint16       // 0: all
}

// String returns the rule as it was written.
func (r Rule) String() string { return r.text }

// ParseRule reads NAME, *.NAME, ADDRESS or CIDR, each with an optional :PORT. [Host] is a name; 127.0.0.1:PORT, or
// localhost:PORT, is the loopback of this machine at the same address: see [Rules.Loopback]. The error says what is
// wrong with text and names the part.
func ParseRule(text string) (Rule, error) {
	r := Rule{text: text}
	what, port, found := strings.Cut(text, ":")
	switch {
	case text == "":
		return r, fmt.Errorf("a rule is empty: want a name, such as example.org or *.example.org:443, or an address")
	case strings.Contains(text, "://"):
		_, rest, _ := strings.Cut(text, "://")
		rest, _, _ = strings.Cut(rest, "/")
		return r, fmt.Errorf("%q is a URL: want the name alone, %q", text, rest)
	case strings.Count(text, ":") > 1:
		return r, fmt.Errorf("%q: IPv6 addresses cannot be in a rule; a name that has one can", text)
	case found:
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return r, fmt.Errorf("%q: invalid port %q: want 1 to 65535", text, port)
		}
		r.port = uint16(n)
	}
	if Canonical(what) == "localhost" {
		what = "127.0.0.1"
	}
	if addr, err := netip.ParseAddr(what); err == nil {
		if addr.IsLoopback() && r.port == 0 {
			return r, fmt.Errorf("%q: the loopback of this machine needs a port, such as 127.0.0.1:8080", text)
		}
		r.prefix = netip.PrefixFrom(addr, addr.BitLen())
		return r, nil
	}
	if strings.Contains(what, "/") {
		prefix, err := netip.ParsePrefix(what)
		if err != nil {
			return r, fmt.Errorf("%q: want a name without a path, or a range of addresses such as 10.1.2.0/24", text)
		}
		if prefix != prefix.Masked() {
			return r, fmt.Errorf("%q: %s is inside of a range, not its first address: did you mean %q?", text, prefix.Addr(),
				prefix.Masked())
		}
		r.prefix = prefix
		return r, nil
	}
	r.name, r.below = strings.CutPrefix(Canonical(what), "*.")
	if err := checkName(r.name); err != nil {
		return r, fmt.Errorf("%q: %w", text, err)
	}
	return r, nil
}

// Canonical returns the form in which names are compared: lower case, without a final dot.
func Canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// checkName takes what RFC 1123 calls a host name, and underscores, which many names have.
func checkName(name string) error {
	switch {
	case name == "*":
		return fmt.Errorf("* would allow every name: use mode = \"full\" for the whole network")
	case len(name) > 253:
		return fmt.Errorf("the name has %d characters, more than 253", len(name))
	}
	digits := true // in the last label
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("invalid name: each part has 1 to 63 characters and neither begins nor ends with -")
		}
		digits = true
		for _, c := range label {
			switch {
			case c >= '0' && c <= '9':
			case c >= 'a' && c <= 'z', c == '-', c == '_':
				digits = false
			case c == '*':
				return fmt.Errorf("* can only stand for whole names below another: *.example.org")
			default:
				return fmt.Errorf("invalid character %q: want a-z, 0-9, -, _ and dots; write other letters in Punycode (xn--…)",
					string(c))
			}
		}
	}
	if digits {
		return errors.New("neither a name nor an IPv4 address")
	}
	return nil
}

// Name returns the name that the rule is about, itself or with those below it; "" when it is about addresses.
func (r Rule) Name() string { return r.name }

// Port returns the port that the rule is about, 0 for all.
func (r Rule) Port() int { return int(r.port) }

// IsLoopback reports whether the rule makes a port of the sandbox's loopback this machine's: see [Rules.Loopback].
func (r Rule) IsLoopback() bool {
	return r.prefix.IsValid() && r.prefix.Addr().IsLoopback() && r.prefix.IsSingleIP()
}

// Matches reports whether the rule is about name, which is canonical, on port.
func (r Rule) Matches(name string, port int) bool { return r.matchesName(name) && r.onPort(port) }

// onPort reports whether the rule is about port.
func (r Rule) onPort(port int) bool { return r.port == 0 || int(r.port) == port }

func (r Rule) matchesName(name string) bool {
	if r.below {
		return strings.HasSuffix(name, "."+r.name)
	}
	return r.name != "" && r.name == name
}

func (r Rule) matchesAddr(addr netip.Addr) bool { return r.prefix.IsValid() && r.prefix.Contains(addr) }

// Rules are the rules of one sandbox. They do not change, and their methods may be called concurrently.
type Rules struct {
	allow, deny []Rule
	full        bool // every public name and address is allowed
	own         func(netip.Addr) bool
}

// Of returns the rules for a machine of which own reports whether it has an address: none of those is public, so that
// only a rule that names it reaches it.
func (r Rules) Of(own func(netip.Addr) bool) Rules {
	r.own = own
	return r
}

func (r Rules) public(addr netip.Addr) bool { return Public(addr) && (r.own == nil || !r.own(addr)) }

// Parse reads the rules of a network of mode filtered or full. The error is that of the first rule that is wrong.
func Parse(mode sdk.NetworkMode, in sdk.NetworkRules) (Rules, error) {
	out := Rules{full: mode == sdk.NetworkFull}
	for _, list := range []struct {
		from []string
		to   *[]Rule
	}{{in.Allow, &out.allow}, {in.Deny, &out.deny}} {
		for _, text := range list.from {
			r, err := ParseRule(text)
			if err != nil {
				return Rules{}, err
			}
			*list.to = append(*list.to, r)
		}
	}
	return out, nil
}

// Check refuses a specification whose rules cannot be read, with [sdk.ReasonConfig]. A backend that holds filtered
// networks calls it before it makes anything.
func Check(spec *sdk.Spec) error {
	if spec.Network == sdk.NetworkNone || spec.Network == "" {
		return nil
	}
	if _, err := Parse(spec.Network, spec.Rules); err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "network: %w", err)
	}
	return nil
}

// Loopback returns the ports of the sandbox's loopback that are those of this machine, because a rule of allow names
// them at 127.0.0.1.
func (r Rules) Loopback() (ports []int) {
	for _, x := range r.allow {
		if x.IsLoopback() && !slices.Contains(ports, int(x.port)) {
			ports = append(ports, int(x.port))
		}
	}
	return ports
}

// Verdict is what rules say of a destination.
type Verdict struct {
	Allowed bool
	Rule    string // that decided; "" when no rule is about it
	Reason  string // why not, for a person; "" when it is allowed
	Add     string // the rule of allow that would allow it; "" when a rule of deny has to go
}

// Name decides about a connection to a name, which is canonical: see [Canonical].
func (r Rules) Name(name string, port int) Verdict {
	return r.decide(name+":"+strconv.Itoa(port), r.full && name != Host,
		func(x Rule) bool { return x.matchesName(name) && x.onPort(port) })
}

// Lookup decides whether a name resolves at all: a rule allows at least one of its ports. A name that only rules of
// other ports are about resolves, so that the connection can be answered with the reason.
func (r Rules) Lookup(name string) Verdict {
	if err := checkName(name); err != nil { // DNS takes any byte
		return Verdict{Reason: err.Error()}
	}
	for _, x := range r.deny {
		if x.port == 0 && x.matchesName(name) {
			return denied(name, x)
		}
	}
	for _, x := range r.allow {
		if x.matchesName(name) {
			return Verdict{Allowed: true, Rule: x.text}
		}
	}
	if r.full || name == Host { // a connection to Host is then denied with its port
		return Verdict{Allowed: true}
	}
	return unlisted(name)
}

// Address decides about a connection to an address that the command named itself, or that an allowed name has and that
// is not public.
func (r Rules) Address(addr netip.Addr, port int) Verdict {
	addr = addr.Unmap()
	return r.decide(netip.AddrPortFrom(addr, uint16(port)).String(), r.full && r.public(addr),
		func(x Rule) bool { return x.matchesAddr(addr) && x.onPort(port) })
}

// decide asks the rules about a destination; open says that it is reached without a rule.
func (r Rules) decide(what string, open bool, about func(Rule) bool) Verdict {
	for _, x := range r.deny {
		if about(x) {
			return denied(what, x)
		}
	}
	for _, x := range r.allow {
		if about(x) {
			return Verdict{Allowed: true, Rule: x.text}
		}
	}
	if open {
		return Verdict{Allowed: true}
	}
	return unlisted(what)
}

// Hint says what to do about a verdict that denies.
func (v Verdict) Hint() string {
	if v.Add == "" {
		return fmt.Sprintf("to allow it, take %q out of network.deny", v.Rule)
	}
	return fmt.Sprintf("to allow it, add %q to allow in the network block of the run file, or run with --allow-host %s",
		v.Add, v.Add)
}

func denied(what string, by Rule) Verdict {
	return Verdict{Rule: by.text, Reason: fmt.Sprintf("%s is denied by %q in network.deny", what, by.text)}
}

func unlisted(what string) Verdict {
	return Verdict{Reason: what + " is not in network.allow", Add: what}
}

// special are the ranges of addresses that are not the public internet's unicast addresses (RFC 6890 and the registries
// of IANA), besides those that [netip.Addr] knows.
var special = func() (out []netip.Prefix) {
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24",
		"240.0.0.0/4", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
		"5f00::/16", "fec0::/10",
	} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}()

// Public reports whether addr is an address of the public internet: not of this machine, a private or local network,
// a metadata service, multicast, or a translation of one of those.
func Public(addr netip.Addr) bool {
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.Zone() != "" {
		return false
	}
	for _, p := range special {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}

// Reach decides about the real address of an allowed name: rules of deny that are about it win, and one that is not
// public needs a rule of allow that names the address.
func (r Rules) Reach(name string, addr netip.Addr, port int) Verdict {
	addr = addr.Unmap()
	for _, x := range r.deny {
		if x.matchesAddr(addr) && x.onPort(port) {
			return denied(fmt.Sprintf("%s, which is %s,", name, netip.AddrPortFrom(addr, uint16(port))), x)
		}
	}
	if r.public(addr) {
		return Verdict{Allowed: true}
	}
	if v := r.Address(addr, port); v.Allowed {
		return v
	}
	at := netip.AddrPortFrom(addr, uint16(port)).String()
	return Verdict{Reason: fmt.Sprintf("%s is %s, which is not a public address and not in network.allow", name, at),
		Add: at}
}
