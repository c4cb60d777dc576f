package runfile

import (
	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/sdk"
	rules "github.com/hutch-run/hutch/sdk/network"
)

var networkSchema = &hcl.BodySchema{
	Attributes: []hcl.AttributeSchema{{Name: "mode"}, {Name: "allow"}, {Name: "deny"}},
	Blocks:     []hcl.BlockHeaderSchema{{Type: "secret", LabelNames: []string{"name"}}},
}

// network reads the network block. With allow or deny its mode is filtered.
func (s *scope) network(d *Definition, blocks hcl.Blocks) {
	b := s.single(blocks)
	if b == nil {
		return
	}
	in := s.in("network")
	c, ok := in.body(s.expand(b.Body), networkSchema, "a network block", b.DefRange)
	if c == nil {
		return
	}
	mode, allow, deny := c.Attributes["mode"], c.Attributes["allow"], c.Attributes["deny"]
	n := network.Network{Mode: sdk.NetworkFiltered, Allow: in.rules(c, "allow"), Deny: in.rules(c, "deny")}
	switch {
	case mode == nil && allow == nil && deny == nil:
		if ok {
			in.error(b.DefRange, "a network block says neither what is allowed nor a mode", "", `add allow = ["example.org:443"], or mode = "none"`)
		}
		return
	case allow == nil && mode == nil:
		in.error(deny.NameRange, "deny without allow has no effect", "A network with rules reaches only what allow names, and deny takes some of it out again.",
			`add allow = ["*.example.org"]`)
	}
	if mode != nil {
		words := []string{string(sdk.NetworkNone), string(sdk.NetworkFiltered), string(sdk.NetworkFull)}
		got, ok := in.oneOf(c, "mode", "network.mode", words...)
		if !ok {
			return
		}
		n.Mode = sdk.NetworkMode(got)
	}
	switch {
	case n.Mode == sdk.NetworkFiltered && allow == nil && deny == nil:
		in.error(mode.Expr.Range(), "a filtered network needs rules", "", `add allow = ["example.org:443"]`)
	case n.Mode == sdk.NetworkNone && (allow != nil || deny != nil):
		in.error(mode.NameRange, `mode = "none" and rules exclude each other`, "Mode none reaches nothing.", "take mode out, for a network that reaches only what allow names")
	}
	n.Secrets = in.secrets(d, n, c.Blocks)
	d.Network = n
}

// rules reads a list of rules, and reports those that are wrong.
func (s *scope) rules(c *hcl.BodyContent, name string) []string {
	path := "network." + name
	list, _ := s.plainTexts(c, name, path)
	for i, text := range list {
		if _, err := rules.ParseRule(text); err != nil {
			s.error(s.origin.rangeOf(element(path, i), c.Attributes[name].Expr), name+": "+err.Error(), "", "")
		}
	}
	return list
}
