package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
)

const (
	maxDenials = 5  // destinations below a run
	maxTraffic = 20 // destinations that hutch show lists
)

// Denials says what of the network was denied to a run, and how to allow it: a line for each of the first destinations,
// and one for all others. A run that failed and has no network may have looked for one.
func Denials(r *result.Result) []string {
	var lines []string
	if r.Network.Missed && !r.OK {
		lines = append(lines, missed(r))
	}
	denied := r.Network.Denied()
	for i, t := range denied {
		if i == maxDenials {
			return append(lines, fmt.Sprintf("and %d more: hutch show %s", len(denied)-i, r.ID))
		}
		text, fix := network.Denial(t)
		switch line := "denied: " + text; {
		case fix == "" && t.Rule != "" && !strings.HasPrefix(t.Rule, "secret "):
			lines = append(lines, fmt.Sprintf("%s; to allow it, take %q out of network.deny", line, t.Rule))
		case fix == "":
			lines = append(lines, line)
		case r.Sandbox != nil && !r.Kept: // its rules are those that it was created with, and those of the command
			lines = append(lines, line+"; to allow it: hutch exec "+fix+", or create the sandbox with that")
		default:
			lines = append(lines, line+"; to allow it: "+fix)
		}
	}
	return lines
}

// missed says how to allow a name to a run that had no network.
func missed(r *result.Result) string {
	const text = "the program looked for a network, which the sandbox lacks; to allow a name, "
	if r.Sandbox != nil && !r.Kept {
		return text + "create the sandbox with --allow-host NAME"
	}
	return text + "add --allow-host NAME; hutch observe -- COMMAND lists the names that it needs"
}

// network says what was denied, or in a verbose summary what became of every destination.
func (p *printer) network(r *result.Result) {
	n := &r.Network
	if !p.style.Verbose {
		for _, line := range Denials(r) {
			p.line("network", "%s", line)
		}
		return
	}
	switch {
	case n.Missed:
		p.line("network", "%s", missed(r))
		return
	case len(n.Publish) == 0 && (n.Mode == sdk.NetworkNone || n.Mode == ""):
		return
	}
	p.line("network", "%s", network.Network{Mode: n.Mode, Allow: n.Allow, Deny: n.Deny, Publish: n.Publish}.String())
	all := slices.Clone(n.Traffic)
	slices.SortStableFunc(all, func(a, b sdk.Traffic) int { return cmp.Compare(rank(a), rank(b)) })
	for i, t := range all {
		if i == maxTraffic {
			break
		}
		switch rank(t) {
		case 0:
			text, _ := network.Denial(t)
			p.line("  "+p.paint(termsafe.Red, "denied"), "%s", text)
		case 1:
			p.line("  failed", "%s", network.Destination(t)+": "+t.Reason)
		default:
			p.line("  allowed", "%s", network.Destination(t)+": "+used(t))
		}
	}
	if more := int64(len(all)-min(len(all), maxTraffic)) + n.TrafficMore; more > 0 {
		p.line("  and", "%d more destinations: hutch show %s -o json", more, r.ID)
	}
}

// rank sorts destinations: denied, allowed and not reached, reached.
func rank(t sdk.Traffic) int {
	switch {
	case !t.Allowed:
		return 0
	case t.Reason != "":
		return 1
	}
	return 2
}

// used says what went to and fro.
func used(t sdk.Traffic) string {
	if t.Port == 0 {
		return plural(int(t.Connections), "lookup")
	}
	s := fmt.Sprintf("%s, %s sent, %s received", plural(int(t.Connections), "connection"), size(t.Sent), size(t.Received))
	if len(t.Secrets) > 0 {
		s += ", with " + strings.Join(t.Secrets, ", ")
	}
	if t.Used != nil {
		s += "; " + Used(*t.Used)
	}
	return s
}

// Used says in one line what requests used.
func Used(u sdk.Used) string {
	s := plural(int(u.Requests), "request")
	if u.Refused > 0 {
		s += fmt.Sprintf(" and %d refused", u.Refused)
	}
	if t := u.Tokens; t.Total() > 0 {
		about := ""
		if t.Estimated {
			about = "about "
		}
		s += fmt.Sprintf(", %s%d tokens (%d input, %d output, %d from and %d to a cache)", about, t.Total(), t.Input,
			t.Output, t.CacheRead, t.CacheWrite)
	}
	if u.Cost > 0 {
		s += fmt.Sprintf(", cost %.4g", u.Cost)
	}
	return s
}
