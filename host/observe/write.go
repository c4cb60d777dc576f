package observe

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// Blocks returns the network, mount and limits blocks for the run block of d, in the canonical layout, with n.Notes as
// comments.
func (n Needs) Blocks(d *runfile.Definition) string {
	var b strings.Builder
	n.blocks(&b, d)
	return format(b.String())
}

// File returns a run file for a run d that has none. dir is the absolute directory in which it will lie, script the path
// of the script that d runs, relative to dir, and "" for a command; image is that of the backend, "" for none.
func (n Needs) File(d *runfile.Definition, dir, script, image string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by hutch observe.\n\nrun %s {\n", quote(d.Name))
	if image == "" {
		fmt.Fprintf(&b, "backend %s {}\n\n", quote(n.backend))
	} else {
		fmt.Fprintf(&b, "backend %s {\nimage = %s\n}\n\n", quote(n.backend), quote(image))
	}
	if script == "" {
		fmt.Fprintf(&b, "command = %s\n", list(d.Command))
	} else {
		fmt.Fprintf(&b, "file %s {\nsource = %s\n}\n", quote(d.Entrypoint), quote(script))
		attribute(&b, "language", d.Language)
		attribute(&b, "entrypoint", d.Entrypoint)
		if len(d.Args) > 0 {
			fmt.Fprintf(&b, "args = %s\n", list(d.Args))
		}
	}
	attribute(&b, "workdir", d.Workdir)
	if len(d.Env) > 0 {
		b.WriteString("env = {\n")
		for _, name := range slices.Sorted(maps.Keys(d.Env)) {
			key := name
			if !hclsyntax.ValidIdentifier(name) {
				key = quote(name)
			}
			fmt.Fprintf(&b, "%s = env(%s)\n", key, quote(name))
		}
		b.WriteString("}\n")
	}
	if w := d.Workspace; w != nil {
		b.WriteString("\nworkspace {\n")
		if w.Project != "" {
			attribute(&b, "project", w.Project)
		} else {
			attribute(&b, "source", relative(dir, w.Source))
		}
		attribute(&b, "mode", w.Mode)
		b.WriteString("}\n")
	}
	b.WriteString("\n")
	n.blocks(&b, d)
	b.WriteString("}\n")
	return format(b.String())
}

func (n Needs) blocks(b *strings.Builder, d *runfile.Definition) {
	if c := n.Narrow(d).Network; c.Mode == sdk.NetworkNone && len(c.Publish) == 0 {
		b.WriteString("network {\nmode = \"none\"\n}\n")
	} else {
		b.WriteString("network {\n")
		for _, l := range []struct {
			name  string
			value []string
		}{{"allow", c.Allow}, {"deny", c.Deny}, {"publish", c.Publish}} {
			if len(l.value) > 0 {
				fmt.Fprintf(b, "%s = %s\n", l.name, list(l.value))
			}
		}
		for _, s := range c.Secrets {
			secret(b, s)
		}
		b.WriteString("}\n")
	}
	for _, m := range n.Mounts {
		fmt.Fprintf(b, "\nmount %s {\nsource = %s\nmode = %s\n}\n", quote(m.Target), quote(m.Source), quote(m.Mode))
	}
	b.WriteString("\nlimits {\n")
	for _, l := range runfile.AllLimits {
		text := l.Text(n.Narrow(d).Limits)
		if text == "" {
			continue
		}
		if _, err := cty.ParseNumberVal(text); err != nil {
			text = quote(text)
		}
		fmt.Fprintf(b, "%s = %s%s\n", l.Name, text, n.peak(l.Name))
	}
	b.WriteString("}\n")
	for _, note := range n.Notes {
		fmt.Fprintf(b, "# %s\n", note)
	}
}

// peak is a comment with what a limit was derived from.
func (n Needs) peak(l sdk.Limit) string {
	switch u := n.usage; {
	case l == sdk.LimitTimeout && n.Limits.Timeout != 0:
		return fmt.Sprintf(" # took %.1fs", u.Wall.Duration().Seconds())
	case l == sdk.LimitMemory && n.Limits.Memory != 0:
		return " # used " + units.FormatSize(roundUp(*u.PeakMemory, 1<<20))
	case l == sdk.LimitPIDs && n.Limits.PIDs != 0:
		return fmt.Sprintf(" # used %d", *u.PIDs)
	}
	return ""
}

func secret(b *strings.Builder, s network.Secret) {
	fmt.Fprintf(b, "secret %s {\n", quote(s.Name))
	switch f := s.From; {
	case f.Env != "":
		fmt.Fprintf(b, "from = env(%s)\n", quote(f.Env))
	case f.File != "":
		fmt.Fprintf(b, "from = file(%s)\n", quote(f.File))
	default:
		fmt.Fprintf(b, "command = %s\n", list(f.Command))
		if f.TTL != 0 {
			fmt.Fprintf(b, "ttl = %s\n", quote(f.TTL.String()))
		}
	}
	fmt.Fprintf(b, "hosts = %s\n", list(s.Hosts))
	for _, r := range s.Rules {
		b.WriteString("rule {\n")
		if len(r.Methods) > 0 {
			fmt.Fprintf(b, "methods = %s\n", list(r.Methods))
		}
		if len(r.Paths) > 0 {
			fmt.Fprintf(b, "paths = %s\n", list(r.Paths))
		}
		b.WriteString("}\n")
	}
	b.WriteString("}\n")
}

func attribute(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s = %s\n", name, quote(value))
	}
}

// quote writes a string as HCL does, with templates escaped.
func quote(s string) string { return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()) }

func list(l []string) string {
	var out []string
	for _, s := range l {
		out = append(out, quote(s))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// relative is a path as a run file in dir names it.
func relative(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

func format(text string) string {
	out, _ := runfile.Format("run.hcl", []byte(text))
	return string(out)
}
