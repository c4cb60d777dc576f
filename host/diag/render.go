package diag

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/hutch-run/hutch/host/termsafe"
)

// Style says how diagnostics are written as text.
type Style struct {
	Color bool // ANSI colours
	Width int  // columns of the terminal; 0 means 100
}

func (s Style) paint(color, text string) string { return termsafe.Paint(s.Color, color, text) }

// Write renders the diagnostics for a reader, an empty line between two of them. Whatever they quote is escaped, so
// nothing in a file can drive the terminal it is shown on.
func (ds Diagnostics) Write(w io.Writer, s Style) error {
	if s.Width <= 0 {
		s.Width = 100
	}
	s.Width = max(s.Width, 40)
	for i, d := range ds {
		text := d.render(s)
		if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

// Below renders what is to stand below text, a message that ends with the summary of the only diagnostic, if need be
// without the path it starts with: its place and all else. It is "" for other messages, which Write renders whole.
func (ds Diagnostics) Below(text string, s Style) string {
	if len(ds) != 1 || !strings.HasSuffix(text, strings.TrimPrefix(ds[0].Summary, ds[0].Path+": ")) {
		return ""
	}
	_, below, _ := strings.Cut(ds[0].Text(s), "\n")
	return below
}

// Text renders one diagnostic as Write does.
func (d Diagnostic) Text(s Style) string {
	var b strings.Builder
	_ = Diagnostics{d}.Write(&b, s) // a Builder takes everything
	return b.String()
}

func (d Diagnostic) render(s Style) string {
	paint := s.paint
	severity := termsafe.BoldRed
	if d.Severity == Warning {
		severity = termsafe.BoldYellow
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", paint(severity, string(d.Severity)+":"), paint(termsafe.Bold, termsafe.Line(d.Summary)))
	if place := d.place(); place != "" {
		fmt.Fprintf(&b, "  %s\n", place)
	}
	if d.Snippet != nil {
		d.Snippet.render(&b, s, severity)
	}
	for _, v := range d.Values {
		fmt.Fprintf(&b, "    %s\n", paint(termsafe.Faint, termsafe.Line(fmt.Sprintf("%s is %s", v.Name, v.Text))))
	}
	wrap(&b, "  ", "  ", d.Detail, s.Width)
	for _, r := range d.Related {
		fmt.Fprintf(&b, "  %s: %s\n", termsafe.Line(r.Range.String()), termsafe.Line(r.Note))
	}
	if d.Fix != "" {
		var fix strings.Builder
		wrap(&fix, "  fix: ", "       ", d.Fix, s.Width)
		b.WriteString(strings.Replace(fix.String(), "fix:", paint(termsafe.Green, "fix:"), 1))
	}
	return b.String()
}

// place is the line that says where: file:line:column, in block:
func (d Diagnostic) place() string {
	var parts []string
	if d.Range != nil {
		parts = append(parts, "at "+d.Range.String())
	}
	if d.Context != "" {
		parts = append(parts, "in "+d.Context)
	}
	switch {
	case strings.HasPrefix(d.Path, "--"): // a flag
		parts = append(parts, "at "+d.Path)
	case d.Path != "":
		parts = append(parts, "value "+d.Path)
	}
	if len(parts) == 0 {
		return ""
	}
	place := termsafe.Line(strings.Join(parts, ", "))
	if d.Snippet != nil {
		place += ":"
	}
	return place
}

func (sn *Snippet) render(b *strings.Builder, s Style, mark string) {
	paint := s.paint
	if len(sn.Lines) == 0 {
		return
	}
	gutter := len(fmt.Sprint(sn.Lines[len(sn.Lines)-1].Number))
	room := max(s.Width-gutter-7, 20)
	for _, l := range sn.Lines {
		from := min(max(l.MarkStart, 0), len(l.Text))
		to := min(max(l.MarkEnd, from), len(l.Text))
		before, marked, after := show(l.Text[:from]), show(l.Text[from:to]), show(l.Text[to:])
		before, marked, after = fit(before, marked, after, room)
		line := fmt.Sprintf("    %s %s%s%s", paint(termsafe.Faint, fmt.Sprintf("%*d |", gutter, l.Number)), before,
			paint(termsafe.Bold, marked), after)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if l.Text == "" && len(sn.Lines) > 1 {
			continue
		}
		fmt.Fprintf(b, "    %s %s%s\n", paint(termsafe.Faint, strings.Repeat(" ", gutter)+" |"),
			strings.Repeat(" ", termsafe.Columns(before)), paint(mark, strings.Repeat("^", max(termsafe.Columns(marked), 1))))
	}
	if sn.More > 0 {
		lines := "lines"
		if sn.More == 1 {
			lines = "line"
		}
		fmt.Fprintf(b, "    %s (and %d more %s)\n", paint(termsafe.Faint, strings.Repeat(" ", gutter)+" |"), sn.More, lines)
	}
}

// fit shortens a line to room columns so that the start of the mark stays in sight.
func fit(before, marked, after string, room int) (string, string, string) {
	if termsafe.Columns(before)+termsafe.Columns(marked)+termsafe.Columns(after) <= room {
		return before, marked, after
	}
	if w := termsafe.Columns(before); w > room/2 {
		before = "…" + dropColumns(before, w-room/2+1)
	}
	left := room - termsafe.Columns(before)
	if termsafe.Columns(marked) > left {
		return before, keepColumns(marked, left-1) + "…", ""
	}
	left -= termsafe.Columns(marked)
	if termsafe.Columns(after) > left {
		after = keepColumns(after, max(left-1, 0)) + "…"
	}
	return before, marked, after
}

func keepColumns(s string, n int) string {
	for i, r := range s {
		if n -= termsafe.Columns(string(r)); n < 0 {
			return s[:i]
		}
	}
	return s
}

func dropColumns(s string, n int) string {
	for i, r := range s {
		if n <= 0 {
			return s[i:]
		}
		n -= termsafe.Columns(string(r))
	}
	return ""
}

// show is source text as it is printed: escaped, tabs as four blanks.
func show(s string) string { return termsafe.Line(strings.ReplaceAll(s, "\t", "    ")) }

// wrap writes text in lines of at most width columns. Lines that begin with a blank are kept whole.
func wrap(b *strings.Builder, first, next, text string, width int) {
	if text == "" {
		return
	}
	indent := first
	for line := range strings.SplitSeq(termsafe.String(strings.TrimRight(text, "\n")), "\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") || line == "" {
			b.WriteString(strings.TrimRight(indent+strings.ReplaceAll(line, "\t", "    "), " ") + "\n")
			indent = next
			continue
		}
		col := 0
		for word := range strings.FieldsSeq(line) {
			w := termsafe.Columns(word)
			switch {
			case col == 0:
				b.WriteString(indent)
				col = utf8.RuneCountInString(indent)
			case col+1+w > width:
				b.WriteString("\n" + next)
				col = utf8.RuneCountInString(next)
			default:
				b.WriteByte(' ')
				col++
			}
			b.WriteString(word)
			col += w
		}
		b.WriteByte('\n')
		indent = next
	}
}
