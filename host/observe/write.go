package observe

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

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

// File returns a run file for a run d that has none. dir is the absolute directory in which it will lie, script the
// path of the script that d runs, relative to dir, and "" for a command; image is that of the backend, "" for none.
func (n Needs) File(d *runfile.Definition, dir, script, image string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by hutch observe.\n\nrun %s {\n", runfile.Quote(d.Name))
	switch {
	case image == "" && len(n.Files) > 0:
		fmt.Fprintf(&b, "backend %s {\nro_bind = %s # asked for in vain\n}\n\n", runfile.Quote(n.backend),
			runfile.QuoteList(n.Files))
	case image == "":
		fmt.Fprintf(&b, "backend %s {}\n\n", runfile.Quote(n.backend))
	default:
		fmt.Fprintf(&b, "backend %s {\nimage = %s\n}\n\n", runfile.Quote(n.backend), runfile.Quote(image))
	}
	if script == "" {
		fmt.Fprintf(&b, "command = %s\n", runfile.QuoteList(d.Command))
	} else {
		fmt.Fprintf(&b, "file %s {\nsource = %s\n}\n", runfile.Quote(d.Entrypoint), runfile.Quote(script))
		runfile.WriteAttribute(&b, "language", d.Language)
		runfile.WriteAttribute(&b, "entrypoint", d.Entrypoint)
		if len(d.Args) > 0 {
			fmt.Fprintf(&b, "args = %s\n", runfile.QuoteList(d.Args))
		}
	}
	runfile.WriteAttribute(&b, "workdir", d.Workdir)
	if len(d.Env) > 0 {
		b.WriteString("env = {\n")
		for _, name := range slices.Sorted(maps.Keys(d.Env)) {
			key := name
			if !hclsyntax.ValidIdentifier(name) {
				key = runfile.Quote(name)
			}
			fmt.Fprintf(&b, "%s = env(%s)\n", key, runfile.Quote(name))
		}
		b.WriteString("}\n")
	}
	if w := d.Workspace; w != nil {
		b.WriteString("\nworkspace {\n")
		if w.Project != "" {
			runfile.WriteAttribute(&b, "project", w.Project)
		} else {
			runfile.WriteAttribute(&b, "source", relative(dir, w.Source))
		}
		runfile.WriteAttribute(&b, "mode", w.Mode)
		b.WriteString("}\n")
	}
	b.WriteString("\n")
	n.blocks(&b, d)
	b.WriteString("}\n")
	return format(b.String())
}

func (n Needs) blocks(b *strings.Builder, d *runfile.Definition) {
	runfile.WriteNetwork(b, n.Narrow(d).Network)
	for _, m := range n.Mounts {
		b.WriteString("\n")
		if why := n.asked[m.Target]; why != "" {
			fmt.Fprintf(b, "# %s\n", why)
		}
		fmt.Fprintf(b, "mount %s {\nsource = %s\nmode = %s\n}\n", runfile.Quote(m.Target), runfile.Quote(m.Source),
			runfile.Quote(m.Mode))
	}
	b.WriteString("\n")
	runfile.WriteLimits(b, n.Narrow(d).Limits, n.peak)
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
