package replay

import (
	"fmt"
	"io"
	"strings"

	"github.com/hutch-run/hutch/host/termsafe"
)

// Style says how a report is written.
type Style struct{ Color bool }

func (s Style) paint(color, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// WriteText writes the report for a person. Text of others is escaped.
func (r *Report) WriteText(w io.Writer, s Style) error {
	var b strings.Builder
	esc := termsafe.Line
	verdict := s.paint("32", "same")
	if !r.Same {
		n := fmt.Sprintf("%d differences", len(r.Differences))
		if len(r.Differences) == 1 {
			n = "1 difference"
		}
		verdict = s.paint("31", n)
	}
	fmt.Fprintf(&b, "%s: %s, %s repeated as %s\n", s.paint("1", esc(r.Name)), verdict, r.Run, r.Replay)
	for _, d := range r.Differences {
		what := d.What
		if d.Path != "" {
			what += " " + esc(d.Path)
		}
		if d.Line > 0 {
			what += fmt.Sprintf(", line %d", d.Line)
		}
		fmt.Fprintf(&b, "  %s\n", s.paint("1", what))
		if d.Diff != "" {
			for line := range strings.Lines(d.Diff) {
				b.WriteString("    " + s.side(line, esc(strings.TrimSuffix(line, "\n"))) + "\n")
			}
			continue
		}
		fmt.Fprintf(&b, "    %s\n    %s\n", s.paint("31", "- "+orNone(esc(d.Was))), s.paint("32", "+ "+orNone(esc(d.Is))))
	}
	b.WriteString("under\n")
	b.WriteString("  workspace: " + r.Workspace.text() + "\n")
	for _, c := range r.Circumstances {
		switch {
		case c.Was == "" || c.Was == c.Is:
			fmt.Fprintf(&b, "  %s: %s\n", esc(c.What), esc(c.Is))
		default:
			fmt.Fprintf(&b, "  %s: %s, then %s\n", esc(c.What), esc(c.Was), esc(c.Is))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// side paints a line of a diff.
func (s Style) side(line, text string) string {
	switch line[0] {
	case '-':
		return s.paint("31", text)
	case '+':
		return s.paint("32", text)
	case '@':
		return s.paint("36", text)
	}
	return text
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// text says in a line what became of the workspace.
func (w Workspace) text() string {
	esc := termsafe.Line
	partly := ""
	if w.Partly {
		partly = fmt.Sprintf(" (of the first %d paths)", mostLooked)
	}
	switch {
	case w.Source == "":
		return "an empty directory"
	case w.Untouched:
		return esc(w.Source) + ", in which nothing was touched since the run began" + partly
	}
	var names []string
	for _, p := range w.Touched {
		names = append(names, esc(p))
	}
	more := ""
	if n := w.Count - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	what := fmt.Sprintf("%d paths were", w.Count)
	if w.Count == 1 {
		what = "1 path was"
	}
	return fmt.Sprintf("%s, in which %s touched since the run began%s: %s%s", esc(w.Source), what, partly, strings.Join(names, ", "), more)
}
