package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

func TestParseRule(t *testing.T) {
	for text, want := range map[string]string{
		"example.org": "", "*.example.org:443": "", "Example.ORG.": "", "10.1.2.3": "", "10.1.2.0/24:8080": "", "host:11434": "", "_dmarc.example.org": "", "xn--bcher-kva.example": "",
		"":                         "a rule is empty",
		"https://example.org/x":    `want the name alone, "example.org"`,
		"example.org/x":            "want a name without a path",
		"example.org:0":            `invalid port "0"`,
		"example.org:70000":        `invalid port "70000"`,
		"example.org:":             `invalid port ""`,
		"::1":                      "IPv6 addresses cannot be in a rule",
		"[::1]:80":                 "IPv6 addresses cannot be in a rule",
		"10.1.2.3/24":              `did you mean "10.1.2.0/24"?`,
		"10.1.2.0/33":              "want a name without a path",
		"*":                        "* would allow every name",
		"*.*.example.org":          "* can only stand for whole names below another",
		"pack*.example.org":        "* can only stand for whole names below another",
		"exa mple.org":             `invalid character " "`,
		"bücher.example":           `invalid character "ü"`,
		"-a.example":               "neither begins nor ends with -",
		"a..example":               "each part has 1 to 63 characters",
		"127.0.0.1:8080":           "",
		"localhost:8080":           "",
		"localhost":                "needs a port",
		"1.2.3":                    "neither a name nor an IPv4 address",
		"0x7f000001.1":             "neither a name nor an IPv4 address",
		strings.Repeat("a.", 130):  "more than 253",
		"user@example.org":         `invalid character "@"`,
		"example.org\x00.evil.org": `invalid character`,
	} {
		_, err := ParseRule(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "93.184.216.34": true, "2606:4700::1111": true, "192.88.100.1": true,
		"0.0.0.0": false, "10.0.0.1": false, "100.64.0.1": false, "127.0.0.1": false, "169.254.169.254": false, "172.16.0.1": false, "192.0.0.8": false, "192.168.0.1": false,
		"198.18.0.5": false, "203.0.113.1": false, "224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false,
		"::": false, "::1": false, "::ffff:10.0.0.1": false, "fe80::1": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "64:ff9b::7f00:1": false,
		"2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false, "fec0::1": false,
	} {
		if got := Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: public %v, want %v", text, got, want)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"example.org", "*.example.org:443", "10.1.2.0/24:8080", "host:1", "a.b:", "*", "1.2.3.4.", "x:y:z"} {
		f.Add(s, "www.example.org")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		rules, err := Parse(sdk.NetworkFiltered, sdk.NetworkRules{Allow: []string{text}, Deny: []string{text}})
		if err != nil {
			t.Fatalf("%q is a rule alone and not in a list: %v", text, err)
		}
		if v := rules.Name(Canonical(name), 443); v.Allowed {
			t.Errorf("%q both allows and denies %q", text, name)
		}
		only, _ := Parse(sdk.NetworkFiltered, sdk.NetworkRules{Allow: []string{text}})
		if only.Name(Canonical(name), 443).Allowed && !strings.HasSuffix(Canonical(name), r.name) {
			t.Errorf("%q allows %q", text, name)
		}
		if r.prefix.IsValid() == (r.name != "") {
			t.Errorf("%q is neither a name nor addresses, or both: %+v", text, r)
		}
	})
}
