package deps

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/network"
)

// registries are what the installers of a language reach by themselves, on port 443.
var registries = map[string][]string{
	"python":     {"pypi.org", "files.pythonhosted.org"},
	"javascript": {"registry.npmjs.org"},
}

// lookupTime bounds the lookups of the hosts that the user's settings name.
const lookupTime = 10 * time.Second

// Reach lists the rules of package sdk/network by which the installers of a language reach what they need, and nothing
// else: its registries, and what the user's settings and the packages name by URL. A registry or a host of the settings
// that this machine finds in a private network, such as a mirror, is allowed there.
func (s Settings) Reach(ctx context.Context, lang string, packages []string) []string {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var rules []string
	for _, name := range registries[lang] {
		rules = append(rules, reach(ctx, name, "443")...)
	}
	for name, value := range s.Env {
		if strings.HasPrefix(strings.ToUpper(name), "NPM_CONFIG_//") {
			continue
		}
		for _, text := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
			if host, port := destination(text); host != "" {
				rules = append(rules, reach(ctx, host, port)...)
			}
		}
	}
	for _, p := range packages {
		for text := range strings.FieldsSeq(p) {
			if host, port := destination(text); host != "" {
				rules = append(rules, host+":"+port)
			}
		}
	}
	slices.Sort(rules)
	return slices.DeleteFunc(slices.Compact(rules), func(rule string) bool {
		_, err := network.ParseRule(rule)
		return err != nil
	})
}

// ports are those of the schemes that installers know.
var ports = map[string]string{"http": "80", "https": "443", "ssh": "22", "git": "9418", "socks5": "1080",
	"socks5h": "1080"}

// destination returns host and port of a URL, such as git+https://example.org/x.git; "" of anything else.
func destination(text string) (host, port string) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", ""
	}
	scheme := u.Scheme
	if _, transport, ok := strings.Cut(scheme, "+"); ok {
		scheme = transport
	}
	if port = u.Port(); port == "" {
		port = ports[scheme]
	}
	if port == "" {
		return "", ""
	}
	return u.Hostname(), port
}

// reach lists the rules for a trusted host: itself, and the addresses of it that are not public.
func reach(ctx context.Context, host, port string) []string {
	rules := []string{host + ":" + port}
	if _, err := netip.ParseAddr(host); err == nil {
		return rules
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return rules
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return rules
	}
	for _, a := range addrs {
		if !network.Public(a) {
			rules = append(rules, netip.AddrPortFrom(a.Unmap(), uint16(n)).String())
		}
	}
	return rules
}
