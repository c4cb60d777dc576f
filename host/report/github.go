package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/termsafe"
)

var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// Annotations writes a GitHub workflow command for every run that is not ok, at the line of the expectation that does
// not hold or of the run block, and a warning for one that is ok and is flaky or was denied something of the network.
// Nothing that a program wrote can end a command or begin another one.
func Annotations(w io.Writer, rs []*result.Result) error {
	var b strings.Builder
	for _, r := range rs {
		level, text := "error", Headline(r)+"\n"+explanation(r)
		if r.OK {
			var lines []string
			if r.Flaky {
				lines = append(lines, "flaky: "+Headline(r))
			}
			for _, line := range Denials(r) {
				lines = append(lines, "network: "+line)
			}
			if level, text = "warning", strings.Join(lines, "\n"); len(lines) == 0 {
				continue
			}
		}
		at := r.Source
		for _, f := range r.ExpectFailures {
			if f.At != nil {
				at = f.At
				break
			}
		}
		if e := r.Error; e != nil {
			for _, d := range e.Diagnostics {
				if d.Range != nil {
					at = d.Range
					break
				}
			}
		}
		b.WriteString("::" + level + " title=" + githubProperty.Replace(termsafe.Line("hutch: "+r.Name)))
		if at != nil {
			fmt.Fprintf(&b, ",file=%s,line=%d,col=%d", githubProperty.Replace(termsafe.Line(at.File)), at.Start.Line,
				at.Start.Column)
			if at.End.Line >= at.Start.Line {
				fmt.Fprintf(&b, ",endLine=%d", at.End.Line)
			}
		} else if r.File != "" {
			b.WriteString(",file=" + githubProperty.Replace(termsafe.Line(r.File)))
		}
		b.WriteString("::" + githubData.Replace(termsafe.String(text)) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// most of a stream that a step summary shows; GitHub takes 1 MiB for all of a step.
const summaryTail = 4 << 10

// StepSummary writes Markdown for $GITHUB_STEP_SUMMARY: a table of all runs, and the end of the output of those that
// are not ok.
func StepSummary(w io.Writer, rs []*result.Result) error {
	var b strings.Builder
	failed, flaky := 0, 0
	for _, r := range rs {
		switch {
		case !r.OK:
			failed++
		case r.Flaky:
			flaky++
		}
	}
	fmt.Fprintf(&b, "### hutch: %s\n\n", counts(len(rs)-failed, failed, flaky))
	b.WriteString("| run | result | time | backend | |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range rs {
		mark, _ := verdict(r)
		if mark != "ok" {
			mark = "**" + mark + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", cell(r.Name), mark, took(r), cell(r.Backend.Name), cell(Headline(r)))
	}
	for _, r := range rs {
		if r.OK {
			for _, line := range Denials(r) {
				fmt.Fprintf(&b, "\n%s: network: %s\n", cell(r.Name), cell(line))
			}
			continue
		}
		fmt.Fprintf(&b, "\n<details><summary>%s: %s</summary>\n\n", cell(r.Name), cell(Headline(r)))
		fence(&b, explanation(r))
		for _, s := range []struct{ name, text string }{{"stdout", r.Stdout.Text}, {"stderr", r.Stderr.Text}} {
			if s.text == "" {
				continue
			}
			fmt.Fprintf(&b, "\n%s:\n\n", s.name)
			fence(&b, tail(s.text, summaryTail))
		}
		b.WriteString("\n</details>\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell makes s plain text in a cell of a Markdown table: no markup, no HTML, no further cell.
func cell(s string) string {
	var b strings.Builder
	for _, r := range termsafe.Line(s) {
		if strings.ContainsRune("\\`*_{}[]()#+!|~@$", r) {
			b.WriteByte('\\')
			b.WriteRune(r)
			continue
		}
		switch r {
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// fence writes s as a code block with a fence longer than any run of backticks in it.
func fence(b *strings.Builder, s string) {
	longest, n := 2, 0
	for _, r := range s {
		if r == '`' {
			n++
			longest = max(longest, n)
		} else {
			n = 0
		}
	}
	f := strings.Repeat("`", longest+1)
	fmt.Fprintf(b, "%s\n%s\n%s\n", f, strings.TrimRight(termsafe.String(s), "\n"), f)
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i+1 < len(s) {
		s = s[i+1:]
	}
	return "…\n" + strings.ToValidUTF8(s, "")
}
