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
)

var (
	secretSchema = &hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{{Name: "from"}, {Name: "command"}, {Name: "ttl"}, {Name: "hosts", Required: true}},
		Blocks:     []hcl.BlockHeaderSchema{{Type: "rule"}},
	}
	secretRuleSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "methods"}, {Name: "paths"}}}
)

// sourceType is what env() and file() give in from: where a value is, instead of the value.
var sourceType = cty.Object(map[string]cty.Type{"secret_env": cty.String, "secret_file": cty.String})

func sourceFunction(field, param string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: param, Type: cty.String}},
		Type:   function.StaticReturnType(sourceType),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if s := args[0].AsString(); s == "" || strings.ContainsAny(s, "\x00") || field == "secret_env" && strings.Contains(s, "=") {
				return cty.NilVal, function.NewArgErrorf(0, "%s cannot be the name of a %s", quote(s), param)
			}
			source := map[string]cty.Value{"secret_env": cty.StringVal(""), "secret_file": cty.StringVal("")}
			source[field] = args[0]
			return cty.ObjectVal(source), nil
		},
	})
}

var sourceFunctions = map[string]function.Function{"env": sourceFunction("secret_env", "variable"), "file": sourceFunction("secret_file", "file")}

// secrets reads the secret blocks of a network block. Their values are not read: only where they are.
func (s *scope) secrets(d *Definition, n network.Network, blocks hcl.Blocks) []network.Secret {
	var list []network.Secret
	first := map[string]hcl.Range{}
	for _, b := range blocks {
		name, r := b.Labels[0], b.LabelRanges[0]
		if was, twice := first[name]; twice {
			s.duplicate(r, was, fmt.Sprintf("the secret %s is declared twice", quote(name)))
			continue
		}
		first[name] = r
		in := s.in("secret " + quote(name))
		in.origin.ranges.set(member("network.secret", name), r)
		secret, ok := in.secret(b)
		if !ok {
			continue
		}
		if path, summary, fix := n.Misfit(secret, d.Env); summary != "" {
			in.error(in.origin.rangeAt(path, r), summary, "", fix)
			continue
		}
		list = append(list, secret)
	}
	return list
}

func (s *scope) secret(b *hcl.Block) (secret network.Secret, ok bool) {
	secret.Name = b.Labels[0]
	path := member("network.secret", secret.Name)
	c, ok := s.body(s.expand(b.Body), secretSchema, "a secret block", b.DefRange)
	if c == nil || !ok {
		return secret, false
	}
	before := len(s.diags)
	secret.From = s.secretSource(c, path, b.DefRange)
	secret.Hosts, ok = s.plainTexts(c, "hosts", path+".hosts")
	for i, rb := range c.Blocks {
		at := element(path+".rule", i)
		rc, _ := s.body(s.expand(rb.Body), secretRuleSchema, "a rule block", rb.DefRange)
		if rc == nil {
			continue
		}
		var rule sdk.SecretRule
		rule.Methods, _ = s.plainTexts(rc, "methods", at+".methods")
		rule.Paths, _ = s.plainTexts(rc, "paths", at+".paths")
		if len(rc.Attributes) == 0 {
			s.error(rb.DefRange, "a rule says neither methods nor paths", "", `add methods = ["GET"], or paths = ["/repos/acme/*"]`)
		}
		secret.Rules = append(secret.Rules, rule)
	}
	if len(s.diags) > before || !ok {
		return secret, false
	}
	if err := secret.Check(); err != nil {
		s.error(b.DefRange, "secret "+quote(secret.Name)+": "+err.Error(), "", "")
		return secret, false
	}
	return secret, true
}

// secretSource reads from or command.
func (s *scope) secretSource(c *hcl.BodyContent, path string, header hcl.Range) (source network.Source) {
	from, command, ttl := c.Attributes["from"], c.Attributes["command"], c.Attributes["ttl"]
	switch {
	case from == nil && command == nil:
		s.error(header, "nothing says where the value of the secret is", "", `add from = env("NAME"), from = file("PATH"), or command = ["gh", "auth", "token"]`)
	case from != nil && command != nil:
		s.error(command.NameRange, "a secret has either from or command", "", "keep one of them")
	case from != nil:
		if ttl != nil {
			s.error(ttl.NameRange, "ttl is for the output of command", "Variables and files are read whenever a command starts.", "remove it")
		}
		inner := *s
		inner.ctx = s.ctx.NewChild()
		inner.ctx.Functions = sourceFunctions
		reported := len(s.diags)
		v, ok := inner.eval(from.Expr, inner.ctx, s.context)
		v, _ = v.UnmarkDeep()
		switch {
		case ok && !v.IsKnown():
		case ok && v.Type().Equals(sourceType) && !v.IsNull():
			source.Env = v.GetAttr("secret_env").AsString()
			if source.File = v.GetAttr("secret_file").AsString(); source.File != "" {
				var err error
				if source.File, err = s.secretFile(source.File); err != nil {
					s.error(from.Expr.Range(), err.Error(), "", "")
				}
			}
		case ok:
			s.error(from.Expr.Range(), "from must be env(…) or file(…)", "hutch reads the value whenever a command starts, and keeps only where it is.", `write from = env("NAME"), or from = file("PATH")`)
		}
		for i := reported; i < len(s.diags); i++ {
			s.diags[i].Snippet, s.diags[i].Values = nil, nil // somebody may have written the value itself
		}
	default:
		source.Command, _ = s.plainTexts(c, "command", path+".command")
		if len(source.Command) == 0 || source.Command[0] == "" {
			s.error(command.Expr.Range(), "command needs the name of a program", "", "")
		}
		if ttl != nil {
			d, _ := s.duration(c, "ttl", path+".ttl")
			source.TTL = network.Duration(d)
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
