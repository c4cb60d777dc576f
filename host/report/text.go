package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/termsafe"
)

// Summary writes how one run ended: one line, and below it what went wrong, what is worth looking at, and where. It
// never writes the output of the program.
func Summary(w io.Writer, r *result.Result, s Style) error {
	p := printer{style: s}
	mark, colour := verdict(r)
	p.printf("%s %s: %s, took %s", p.paint(termsafe.Bold, name(r)), p.paint(colour, mark), termsafe.Line(Headline(r)),
		took(r))
	if r.Backend.Name != "" {
		p.printf(" on %s", termsafe.Line(r.Backend.Name))
	}
	if m := r.Usage.PeakMemory; m != nil && *m > 0 {
		p.printf(", peak memory %s", size(*m))
	}
	p.end()
	p.details(r)
	if r.ID != "" && r.Dir != "" {
		switch {
		case s.Verbose:
			p.line("record", "%s, %s", r.Dir, plural(int(r.Events.Events), "event"))
		case !r.OK:
			p.line("record", "hutch show %s", r.ID)
		}
	}
	_, err := w.Write(p.buf.Bytes())
	return err
}

// verdict is ok, flaky or failed, with its color.
func verdict(r *result.Result) (mark, color string) {
	switch {
	case !r.OK:
		return "failed", termsafe.Red
	case r.Flaky:
		return "flaky", termsafe.Yellow
	}
	return "ok", termsafe.Green
}

func name(r *result.Result) string {
	if r.Name == "" {
		return "run"
	}
	return termsafe.Line(r.Name)
}

type printer struct {
	buf   bytes.Buffer
	style Style
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(&p.buf, format, args...) }
func (p *printer) end()                              { p.buf.WriteByte('\n') }

func (p *printer) paint(code, s string) string { return termsafe.Paint(p.style.Color, code, s) }

// line writes an indented line. Arguments that are strings are escaped.
func (p *printer) line(label, format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = termsafe.Line(s)
		}
	}
	p.printf("  %s %s\n", p.paint(termsafe.Faint, label+":"), fmt.Sprintf(format, args...))
}

// block writes text that may have several lines, indented.
func (p *printer) block(label, text string) {
	text = strings.TrimRight(text, "\n")
	if !strings.Contains(text, "\n") {
		p.line(label, "%s", text)
		return
	}
	p.printf("  %s\n", p.paint(termsafe.Faint, label+":"))
	for l := range strings.Lines(text) {
		p.printf("    %s\n", termsafe.Line(strings.TrimRight(l, "\r\n")))
	}
}

func (p *printer) details(r *result.Result) {
	if p.style.Verbose {
		p.line("id", "%s, started %s", r.ID, r.Started.UTC().Format(time.RFC3339))
		if len(r.Command) > 0 {
			p.line("command", "%q in %s", r.Command, r.Workdir)
		}
	}
	if !r.OK && r.Evidence != "" {
		p.line("evidence", "%s", r.Evidence)
	}
	for _, f := range r.ExpectFailures {
		at := ""
		if f.At != nil {
			at = f.At.String() + ": "
		}
		p.line("expected", "%s%s to be %s, got %s", at, f.What, f.Want, f.Got)
	}
	if r.Error != nil {
		p.failure(r.Error, Reason(r))
	}
	p.network(r)
	p.files(r)
	p.streams(r)
	for _, l := range r.Leaks {
		p.line("left behind", "%s (hutch gc removes it)", l)
	}
	if r.Kept {
		name := r.ID
		if r.Sandbox != nil {
			name = r.Sandbox.Name
		}
		p.line("kept", "the sandbox %s: hutch exec %s -- CMD; hutch rm %s removes it", name, name, name)
	}
	if p.style.Verbose {
		for _, l := range r.Limits {
			p.line("limit", "%s", l.String())
		}
		for _, n := range r.Notes {
			p.line("note", "%s", n)
		}
	}
}

// failure reports what hutch or the backend could not do; reason stands in the headline already. What a diagnostic says
// at its line is not said before it, and what the summary says not by a diagnostic.
func (p *printer) failure(e *result.Failure, reason string) {
	said := func(field func(diag.Diagnostic) string, text string) bool {
		return slices.ContainsFunc(e.Diagnostics, func(d diag.Diagnostic) bool { return field(d) == text })
	}
	if e.Summary != reason {
		p.line("error", "%s", e.Summary)
	}
	style := diag.Style{Color: p.style.Color, Width: p.style.Width}
	below := e.Diagnostics.Below(e.Summary, style)
	p.buf.WriteString(below)
	if e.Detail != "" && !said(func(d diag.Diagnostic) string { return d.Detail }, e.Detail) {
		p.block("detail", e.Detail)
	}
	if e.Fix != "" && !said(func(d diag.Diagnostic) string { return d.Fix }, e.Fix) {
		p.line("fix", "%s", e.Fix)
	}
	if below == "" {
		_ = e.Diagnostics.Write(&p.buf, style) // a buffer takes everything
	}
}

// files says what was collected, and what changed in the workspace.
func (p *printer) files(r *result.Result) {
	if len(r.Outputs) > 0 {
		var n int64
		for _, o := range r.Outputs {
			n += o.Size
		}
		p.line("outputs", "%s, %s in %s", plural(len(r.Outputs), "file"), size(n), r.Dir+"/output")
		if p.style.Verbose {
			for _, o := range r.Outputs {
				p.line("  "+"output", "%s (%s)", o.Path, size(o.Size))
			}
		}
	}
	if n := len(r.Skipped) + r.SkippedMore; n > 0 {
		first := r.Skipped[0]
		p.line("not collected", "%s, first %s: %s", plural(n, "file"), first.Path, first.Detail)
	}
	for _, repo := range r.NewRepositories {
		p.line("git", "%s is new, and git may run what it names: look at its files or delete it before you use git there",
			repo)
	}
	if len(r.Changes) > 0 && (p.style.Verbose || r.Workspace.Mode != "readonly") {
		dropped := ""
		if r.ChangesDropped > 0 {
			dropped = ", dropped with the sandbox; --apply brings them back, --keep leaves the sandbox"
		}
		p.line("changes", "%s in the workspace%s", changes(r), dropped)
		if p.style.Verbose {
			for _, c := range r.Changes {
				p.line("  change", "%s %s", c.Kind, c.Path)
			}
		}
	}
}

// streams says what of the program's output was not kept, or never came.
func (p *printer) streams(r *result.Result) {
	for _, s := range []struct {
		name string
		s    result.Stream
	}{{"stdout", r.Stdout}, {"stderr", r.Stderr}} {
		switch {
		case s.s.Lost != "" && s.s.Dropped == 0:
			p.line(s.name, "%s came, and a part may be missing: %s", size(s.s.Bytes), s.s.Lost)
		case s.s.Lost != "":
			p.line(s.name, "%s written, %s of it not kept: %s", size(s.s.Bytes), size(s.s.Dropped), s.s.Lost)
		case s.s.Dropped > 0:
			p.line(s.name, "%s written, the first %s dropped by limits.output", size(s.s.Bytes), size(s.s.Dropped))
		}
	}
}

// Line writes what became of one of several runs. The name is padded to width columns.
func Line(w io.Writer, r *result.Result, width int, s Style) error {
	p := printer{style: s}
	mark, colour := verdict(r)
	p.printf("%-*s  %s  %8s  %-8s  %s\n", width, name(r), p.paint(colour, fmt.Sprintf("%-6s", mark)), took(r),
		termsafe.Line(r.Backend.Name), termsafe.Line(Headline(r)))
	_, err := w.Write(p.buf.Bytes())
	return err
}

// Totals writes a line for each run that failed, then for each that is flaky, in the order given, and how many there
// were. The others had theirs when they ended.
func Totals(w io.Writer, rs []*result.Result, s Style) error {
	width := 0
	for _, r := range rs {
		width = max(width, len(name(r)))
	}
	failed, flaky := 0, 0
	for _, of := range []struct {
		is func(*result.Result) bool
		n  *int
	}{{func(r *result.Result) bool { return !r.OK }, &failed}, {func(r *result.Result) bool { return r.Flaky }, &flaky}} {
		for _, r := range rs {
			if of.is(r) {
				*of.n++
				if err := Line(w, r, width, s); err != nil {
					return err
				}
			}
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", plural(len(rs), "run"), counts(len(rs)-failed, failed, flaky))
	return err
}

// counts says how many runs ended in which way.
func counts(ok, failed, flaky int) string {
	text := fmt.Sprintf("%d ok, %d failed", ok, failed)
	if flaky > 0 {
		text = fmt.Sprintf("%d ok (%d flaky), %d failed", ok, flaky, failed)
	}
	return text
}
