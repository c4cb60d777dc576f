package runfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

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

var (
	secretSchema     = schemaOf("from command ttl hosts!", "rule")
	secretRuleSchema = schemaOf("methods paths")
)

// sourceType is what env() and file() give in from: where a value is, instead of the value.
var sourceType = cty.Object(map[string]cty.Type{"secret_env": cty.String, "secret_file": cty.String})

func sourceFunction(field, param string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: param, Type: cty.String}},
		Type:   function.StaticReturnType(sourceType),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if s := args[0].AsString(); s == "" || strings.ContainsAny(s, "\x00") ||
				field == "secret_env" && strings.Contains(s, "=") {
				return cty.NilVal, function.NewArgErrorf(0, "%s cannot be the name of a %s", quote(s), param)
			}
			source := map[string]cty.Value{"secret_env": cty.StringVal(""), "secret_file": cty.StringVal("")}
			source[field] = args[0]
			return cty.ObjectVal(source), nil
		},
	})
}

var sourceFunctions = map[string]function.Function{"env": sourceFunction("secret_env", "variable"),
	"file": sourceFunction("secret_file", "file")}

// secrets reads the secret blocks of a network block. Their values are not read: only where they are.
func (b *block) secrets(d *Definition, n network.Network) (list []network.Secret) {
	first := map[string]hcl.Range{}
	for _, nested := range b.nested {
		name, r := nested.Labels[0], nested.LabelRanges[0]
		if was, twice := first[name]; twice {
			b.duplicate(r, was, fmt.Sprintf("the secret %s is declared twice", quote(name)))
			continue
		}
		first[name] = r
		path := member("network.secret", name)
		b.origin.ranges.set(path, r)
		in := b.openNested(nested, secretSchema, path)
		secret, ok := in.secret(name)
		if !ok {
			continue
		}
		if path, summary, fix := n.Misfit(secret, d.Env); summary != "" {
			in.errorf(in.origin.rangeAt(path, r), "%s", summary).fix("%s", fix)
			continue
		}
		list = append(list, secret)
	}
	return list
}

func (b *block) secret(name string) (secret network.Secret, ok bool) {
	if !b.good {
		return secret, false
	}
	before := len(b.diags)
	secret = network.Secret{Name: name, From: b.secretSource()}
	secret.Hosts, ok = b.texts("hosts")
	for i, nested := range b.nested {
		in := b.openNested(nested, secretRuleSchema, element(b.pathOf("rule"), i))
		var rule sdk.SecretRule
		rule.Methods, _ = in.texts("methods")
		rule.Paths, _ = in.texts("paths")
		if len(in.attrs) == 0 {
			b.errorf(in.header, "a rule says neither methods nor paths").
				fix(`add methods = ["GET"], or paths = ["/repos/acme/*"]`)
		}
		secret.Rules = append(secret.Rules, rule)
	}
	if len(b.diags) > before || !ok {
		return secret, false
	}
	if err := secret.Check(); err != nil {
		b.errorf(b.header, "secret %s: %s", quote(name), err)
		return secret, false
	}
	return secret, true
}

// secretSource reads from or command.
func (b *block) secretSource() (source network.Source) {
	given, ok := b.only("a secret", "from", "command")
	switch {
	case !ok:
	case given == "":
		b.errorf(b.header, "nothing says where the value of the secret is").
			fix(`add from = env("NAME"), from = file("PATH"), or command = ["gh", "auth", "token"]`)
	case given == "command":
		source.Command, _ = b.texts("command")
		if len(source.Command) == 0 || source.Command[0] == "" {
			b.errorf(b.at("command"), "command needs the name of a program")
		}
		source.TTL = b.duration("ttl")
	default:
		if b.has("ttl") {
			b.errorf(b.nameAt("ttl"), "ttl is for the output of command").
				detail("Variables and files are read whenever a command starts.").fix("remove it")
		}
		reported := len(b.diags)
		source = b.secretFrom()
		b.withholdSince(reported) // a user may have written the value itself
	}
	return source
}

func (b *block) secretFrom() (source network.Source) {
	ctx := b.ctx.NewChild()
	ctx.Functions = sourceFunctions
	v, ok := b.eval(b.attrs["from"].Expr, ctx, b.context)
	v, _ = v.UnmarkDeep()
	switch {
	case !ok || !v.IsKnown():
	case !v.Type().Equals(sourceType) || v.IsNull():
		b.errorf(b.at("from"), "from must be env(…) or file(…)").
			detail("hutch reads the value whenever a command starts, and keeps only where it is.").
			fix(`write from = env("NAME"), or from = file("PATH")`)
	default:
		source.Env = v.GetAttr("secret_env").AsString()
		if file := v.GetAttr("secret_file").AsString(); file != "" {
			var err error
			if source.File, err = b.secretFile(file); err != nil {
				b.errorf(b.at("from"), "%s", err)
			}
		}
	}
	return source
}

// secretFile returns the absolute path of a file, which is relative to the run file, and may begin with ~ for the home
// directory of the user: the value is personal.
func (s *scope) secretFile(name string) (string, error) {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("the home directory is not known: " + err.Error())
		}
		return filepath.Join(home, rest), nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(s.file.Dir, name)
	}
	return filepath.Clean(name), nil
}
