package pages

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Man returns the manual pages of section 1 by name: the program's own, and hutch-COMMAND for each command, with the
// commands below it.
func Man(app *kong.Node) map[string]string {
	commands := visible(app.Children)
	pages := map[string]string{app.Name: overview(app, commands)}
	for _, c := range commands {
		var b strings.Builder
		heading(&b, pageName(c), c.Help)
		b.WriteString(".SH SYNOPSIS\n")
		for _, n := range leaves(c) {
			for _, u := range usage(n) {
				fmt.Fprintf(&b, ".B %s\n.br\n", roff(u))
			}
		}
		b.WriteString(".SH DESCRIPTION\n")
		for _, n := range leaves(c) {
			if n != c {
				fmt.Fprintf(&b, ".SS %s\n%s\n", roff(n.FullPath()), roff(n.Help))
			}
			manual(&b, n)
		}
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(app.Name))
		pages[pageName(c)] = b.String()
	}
	return pages
}

// pageName is the name of the page of a command: hutch-run.
func pageName(n *kong.Node) string { return strings.ReplaceAll(n.FullPath(), " ", "-") }

func heading(b *strings.Builder, name, help string) {
	help = strings.TrimPrefix(strings.TrimSuffix(help, "."), name+" ")
	fmt.Fprintf(b, ".TH %s 1\n.SH NAME\n%s \\- %s\n", strings.ToUpper(roff(name)), roff(name), roff(help))
}

// overview is the page of the program: its commands, each with one line, and its files.
func overview(app *kong.Node, commands []*kong.Node) string {
	var b strings.Builder
	heading(&b, app.Name, app.Help)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I COMMAND\n[flags] [arguments]\n.SH COMMANDS\n", roff(app.Name))
	for _, c := range commands {
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(c)), roff(c.Help))
	}
	b.WriteString(".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/hutch/config.hcl\nThe user's configuration.\n" +
		".TP\n.I $XDG_DATA_HOME/hutch\nThe records of runs. With\n.B HUTCH_HOME\nset, everything lies below it.\n")
	return b.String()
}

// manual is the long text of one command, its arguments and flags.
func manual(b *strings.Builder, n *kong.Node) {
	for _, bl := range blocks(n.Detail) {
		if bl.code {
			fmt.Fprintf(b, ".PP\n.RS 4\n.nf\n%s\n.fi\n.RE\n", roff(bl.text))
		} else {
			fmt.Fprintf(b, ".PP\n%s\n", roff(bl.text))
		}
	}
	for _, p := range n.Positional {
		fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(strings.ToUpper(p.Name)), roff(p.Help))
	}
	for _, g := range grouped(n) {
		if g.title != "Flags" {
			fmt.Fprintf(b, ".PP\n%s:\n", roff(g.title))
		}
		for _, f := range g.flags {
			fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(flagName(f, false)), roff(f.Help))
		}
	}
}

// roff escapes text: backslashes, dashes that must stay dashes, and lines that would be requests.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
