package pages

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Man writes the manual page, hutch(1).
func Man(w io.Writer, app *kong.Node) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1\n.SH NAME\n%s \\- %s\n", strings.ToUpper(app.Name), roff(app.Name), roff(strings.TrimPrefix(strings.TrimSuffix(app.Help, "."), app.Name+" ")))
	b.WriteString(".SH SYNOPSIS\n")
	for _, n := range leaves(app) {
		for _, u := range usage(n) {
			fmt.Fprintf(&b, ".B %s\n.br\n", roff(u))
		}
	}
	b.WriteString(".SH COMMANDS\n")
	for _, n := range leaves(app) {
		fmt.Fprintf(&b, ".SS %s\n%s\n", roff(n.FullPath()), roff(n.Help))
		for _, bl := range blocks(n.Detail) {
			if bl.code {
				fmt.Fprintf(&b, ".PP\n.RS 4\n.nf\n%s\n.fi\n.RE\n", roff(bl.text))
			} else {
				fmt.Fprintf(&b, ".PP\n%s\n", roff(bl.text))
			}
		}
		for _, p := range n.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(strings.ToUpper(p.Name)), roff(p.Help))
		}
		for _, g := range grouped(n) {
			if g.title != "Flags" {
				fmt.Fprintf(&b, ".PP\n%s:\n", roff(g.title))
			}
			for _, f := range g.flags {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(flagName(f, false)), roff(f.Help))
			}
		}
	}
	b.WriteString(".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/hutch/config.hcl\nThe user's configuration.\n" +
		".TP\n.I $XDG_DATA_HOME/hutch\nThe records of runs. With\n.B HUTCH_HOME\nset, everything lies below it.\n")
	_, err := io.WriteString(w, b.String())
	return err
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
