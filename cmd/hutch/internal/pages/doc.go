// Package pages renders the parser's model of the command line: as help on a terminal, as Markdown and man pages, and
// as completion scripts for shells. All of them come from the model alone, so they cannot disagree with the parser.
package pages

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Usager is a command that says its synopsis itself.
type Usager interface{ Usage() []string }

// usage returns the lines of a command's synopsis.
func usage(n *kong.Node) []string {
	if n.Target.IsValid() && n.Target.CanAddr() {
		if u, ok := n.Target.Addr().Interface().(Usager); ok {
			return u.Usage()
		}
	}
	parts := []string{n.FullPath()}
	if len(visible(n.Children)) > 0 {
		return []string{n.FullPath() + " COMMAND"}
	}
	if len(ownFlags(n)) > 0 {
		parts = append(parts, "[flags]")
	}
	for _, p := range n.Positional {
		name := strings.ToUpper(p.Name)
		if p.IsCumulative() {
			name += "..."
		}
		if !p.Required {
			name = "[" + name + "]"
		}
		parts = append(parts, name)
	}
	return []string{strings.Join(parts, " ")}
}

func visible(nodes []*kong.Node) []*kong.Node {
	var out []*kong.Node
	for _, n := range nodes {
		if !n.Hidden {
			out = append(out, n)
		}
	}
	return out
}

// ownFlags are the flags that a command takes besides --help.
func ownFlags(n *kong.Node) []*kong.Flag {
	var out []*kong.Flag
	for _, f := range n.Flags {
		if !f.Hidden && f.Name != "help" {
			out = append(out, f)
		}
	}
	return out
}

// leaves are all visible commands below n in the order of the grammar.
func leaves(n *kong.Node) []*kong.Node {
	if len(n.Children) == 0 {
		return []*kong.Node{n}
	}
	var out []*kong.Node
	for _, c := range visible(n.Children) {
		out = append(out, leaves(c)...)
	}
	return out
}

// flagName is how a flag is written in lists: "-m, --memory=512m".
func flagName(f *kong.Flag, pad bool) string {
	name := "--" + f.Name
	if f.Short != 0 {
		name = fmt.Sprintf("-%c, %s", f.Short, name)
	} else if pad {
		name = "    " + name
	}
	if !f.IsBool() && !f.IsCounter() {
		name += " " + placeholder(f)
	}
	return name
}

func placeholder(f *kong.Flag) string {
	if f.PlaceHolder != "" {
		return f.PlaceHolder
	}
	return strings.ToUpper(f.Name)
}

// flagGroup is flags under one title.
type flagGroup struct {
	title string
	flags []*kong.Flag
}

// grouped returns a command's flags by group, those without one first.
func grouped(n *kong.Node) []flagGroup {
	groups := []flagGroup{{title: "Flags"}}
	for _, f := range ownFlags(n) {
		title := "Flags"
		if f.Group != nil {
			title = f.Group.Title
		}
		found := false
		for i := range groups {
			if groups[i].title == title {
				groups[i].flags, found = append(groups[i].flags, f), true
			}
		}
		if !found {
			groups = append(groups, flagGroup{title, []*kong.Flag{f}})
		}
	}
	if len(groups[0].flags) == 0 {
		groups = groups[1:]
	}
	return groups
}

// block is a stretch of a command's long text: a paragraph, or lines to be shown as they are.
type block struct {
	code bool
	text string
}

// blocks splits a long text at its blank lines; what is indented is code.
func blocks(text string) []block {
	var out []block
	for _, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if p = strings.Trim(p, "\n"); p == "" {
			continue
		}
		if !strings.HasPrefix(p, "    ") {
			out = append(out, block{text: strings.Join(strings.Fields(p), " ")})
			continue
		}
		lines := strings.Split(p, "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "    ")
		}
		out = append(out, block{code: true, text: strings.Join(lines, "\n")})
	}
	return out
}
