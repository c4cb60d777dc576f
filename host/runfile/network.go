package runfile

import (
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/sdk"
	rules "github.com/hutch-run/hutch/sdk/network"
)

var networkSchema = schemaOf("mode allow deny publish", "secret name")

// network reads the network block. With allow or deny its mode is filtered.
func (b *block) network(d *Definition) {
	in := b.openOnly("network", networkSchema)
	if in == nil {
		return
	}
	n := network.Network{Mode: sdk.NetworkFiltered, Allow: in.rules("allow"), Deny: in.rules("deny"), Publish: in.ports()}
	hasRules := in.has("allow") || in.has("deny")
	switch {
	case !in.has("mode") && !hasRules && in.has("publish"):
		n.Mode = sdk.NetworkNone
	case !in.has("mode") && !hasRules:
		if in.good {
			in.errorf(in.header, "a network block says neither what is allowed nor a mode").
				fix(`add allow = ["example.org:443"], or mode = "none"`)
		}
		return
	case !in.has("allow") && !in.has("mode"): // so there is deny
		in.errorf(in.nameAt("deny"), "deny without allow has no effect").
			detail("A network with rules reaches only what allow names, and deny takes some of it out again.").
			fix(`add allow = ["*.example.org"]`)
	}
	if in.has("mode") {
		mode, ok := in.oneOf("mode", string(sdk.NetworkNone), string(sdk.NetworkFiltered), string(sdk.NetworkFull))
		if !ok {
			return
		}
		n.Mode = sdk.NetworkMode(mode)
	}
	switch {
	case n.Mode == sdk.NetworkFiltered && !hasRules:
		in.errorf(in.at("mode"), "a filtered network needs rules").fix(`add allow = ["example.org:443"]`)
	case n.Mode == sdk.NetworkNone && hasRules:
		in.errorf(in.nameAt("mode"), `mode = "none" and rules exclude each other`).detail("Mode none reaches nothing.").
			fix("take mode out, for a network that reaches only what allow names")
	}
	n.Secrets = in.secrets(d, n)
	d.Network = n
}

// ports reads the ports that are published, and reports the first that is wrong.
func (b *block) ports() []string {
	list, _ := b.texts("publish")
	if i, err := network.CheckPorts(list); err != nil {
		b.errorf(b.elementAt("publish", i), "publish: %s", err)
	}
	return list
}

// rules reads a list of rules, and reports those that are wrong.
func (b *block) rules(name string) []string {
	list, _ := b.texts(name)
	for i, text := range list {
		if _, err := rules.ParseRule(text); err != nil {
			b.errorf(b.elementAt(name, i), "%s: %s", name, err)
		}
	}
	return list
}
