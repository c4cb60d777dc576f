// Package network has what a run may reach of the network, as run files, flags, plans, records and results hold it, and
// what there is to say of a denied destination. Package sdk/network has the rules themselves.
package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	rules "github.com/hutch-run/hutch/sdk/network"
)

// Network is what a run may reach. The zero value is that of a run that does not say: nothing.
type Network struct {
	Mode  sdk.NetworkMode `json:"mode"`
	Allow []string        `json:"allow,omitzero"` // rules: all that mode filtered reaches, and what mode full reaches besides
	Deny  []string        `json:"deny,omitempty"` // rules that win over those of Allow

	Secrets []Secret `json:"secrets,omitempty"` // with mode filtered
	Publish []string `json:"publish,omitempty"` // ports of the sandbox's loopback that this machine reaches: see [ParsePort]
}

// OrNone returns n with the mode none where it has no mode.
func (n Network) OrNone() Network {
	if n.Mode == "" {
		n.Mode = sdk.NetworkNone
	}
	return n
}

// Reaches reports whether there is any destination at all.
func (n Network) Reaches() bool {
	return n.Mode == sdk.NetworkFull || n.Mode == sdk.NetworkFiltered && len(n.Allow) > 0
}

// With returns what a run reaches whose file says n and whose flags say over: rules of flags are added to rules of the
// file, a secret replaces the one of the same name, and everything else replaces what the file says.
func (n Network) With(over Network) Network {
	secrets := slices.DeleteFunc(slices.Clone(n.Secrets), func(s Secret) bool {
		return slices.ContainsFunc(over.Secrets, func(o Secret) bool { return o.Name == s.Name })
	})
	secrets = append(secrets, over.Secrets...)
	n.Publish = append(n.Publish[:len(n.Publish):len(n.Publish)], over.Publish...)
	switch {
	case over.Mode == "":
		return n
	case over.Mode == sdk.NetworkFiltered && (n.Mode == sdk.NetworkFiltered || n.Mode == sdk.NetworkFull):
		n.Allow = append(n.Allow[:len(n.Allow):len(n.Allow)], over.Allow...)
		n.Secrets = secrets
		return n
	}
	over.Secrets, over.Publish = secrets, n.Publish
	return over
}

// Rules are the rules for a backend.
func (n Network) Rules() sdk.NetworkRules {
	return sdk.NetworkRules{Allow: n.Allow, Deny: n.Deny}
}

// String returns the mode, and the rules in one line.
func (n Network) String() string {
	s := string(n.OrNone().Mode)
	switch {
	case len(n.Allow) > 0:
		s += ", allow " + strings.Join(n.Allow, ", ")
	case n.Mode == sdk.NetworkFiltered:
		s += ", nothing allowed"
	}
	if len(n.Deny) > 0 {
		s += "; deny " + strings.Join(n.Deny, ", ")
	}
	if len(n.Publish) > 0 {
		s += "; publish " + strings.Join(n.Publish, ", ")
	}
	return s
}

// Sentence describes the network of a sandbox to a model.
func (n Network) Sentence() string {
	if !n.Reaches() {
		return "The sandbox has no network at all."
	}
	s := "The sandbox reaches these destinations only, over TCP: " + strings.Join(n.Allow, ", ")
	if n.Mode == sdk.NetworkFull {
		s = "The sandbox reaches public names and addresses, over TCP"
		if len(n.Allow) > 0 {
			s += ", and " + strings.Join(n.Allow, ", ")
		}
	}
	if len(n.Deny) > 0 {
		s += "; but not " + strings.Join(n.Deny, ", ")
	}
	s += ". Anything else is denied at once, and trying again does not help."
	for _, x := range n.Secrets {
		s += fmt.Sprintf(" The variable %s has a placeholder, which becomes the real value in the headers and the query "+
			"of requests to %s.", x.Name, strings.Join(x.Hosts, ", "))
	}
	return s
}

// Filtered is a network that reaches what rules allow. The error is that of the first rule that is wrong.
func Filtered(allow []string) (Network, error) {
	for _, rule := range allow {
		if _, err := rules.ParseRule(rule); err != nil {
			return Network{}, err
		}
	}
	return Network{Mode: sdk.NetworkFiltered, Allow: allow}, nil
}

// FromFlags reads the values of --network, which may be "", and of --allow-host. Without either, the result has no
// mode.
func FromFlags(mode string, hosts []string) (Network, error) {
	var n Network
	var err error
	list, filtered := strings.CutPrefix(mode, "allow=")
	switch {
	case filtered:
		if n, err = Filtered(strings.Split(list, ",")); err != nil {
			return n, fmt.Errorf("--network: %w", err)
		}
	case mode == string(sdk.NetworkFiltered):
		return n, fmt.Errorf("--network filtered: name what is allowed, such as --allow-host example.org:443")
	case mode == string(sdk.NetworkNone) && len(hosts) > 0:
		return n,
			fmt.Errorf("--network none and --allow-host exclude each other: leave out --network to reach nothing but %s",
				strings.Join(hosts, ", "))
	case mode == string(sdk.NetworkNone), mode == string(sdk.NetworkFull):
		n.Mode = sdk.NetworkMode(mode)
	case mode != "":
		return n,
			fmt.Errorf("--network %q is not a mode: want none, full, or allow=RULE,RULE, such as allow=example.org:443", mode)
	}
	if len(hosts) == 0 {
		return n, nil
	}
	more, err := Filtered(hosts)
	if err != nil {
		return n, fmt.Errorf("--allow-host: %w", err)
	}
	return n.With(more), nil
}

// Denial says in one line of printable text what became of a denied destination, and how to allow it; fix is "" where
// a single rule would not.
func Denial(t sdk.Traffic) (text, fix string) {
	what := Destination(t)
	_, err := rules.ParseRule(what)
	if err != nil { // no name at all: anything can be asked for
		what = strconv.QuoteToASCII(what)
	}
	switch text = termsafe.Line(t.Reason); {
	case t.Rule == "" && (text == "" || strings.HasSuffix(text, unlisted)):
		text = what + unlisted
		if err == nil {
			fix = "--allow-host " + what
		}
	case text == "":
		text = fmt.Sprintf("%s is denied by %q in network.deny", what, t.Rule)
	case !strings.HasPrefix(text, t.Name):
		text = what + ": " + text
	}
	if r, err := rules.ParseRule(t.Add); err == nil { // which has no blanks and nothing that a shell reads
		fix = "--allow-host " + r.String()
	}
	if t.Connections > 1 {
		text += fmt.Sprintf(" (%d times)", t.Connections)
	}
	return text, fix
}

// unlisted ends what is said of a destination that no rule is about.
const unlisted = " is not in network.allow"

// Destination is NAME:PORT, or NAME of a destination that was looked up only.
func Destination(t sdk.Traffic) string {
	if t.Port == 0 {
		return t.Name
	}
	return fmt.Sprintf("%s:%d", t.Name, t.Port)
}
