package backendtest

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/junit"
)

// Write writes the report to w.
func (r *Report) Write(w io.Writer, f Format) error {
	switch f {
	case Text, "":
		return r.text(w)
	case JSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	case JUnit:
		return r.junit(w)
	}
	return fmt.Errorf("there is no form %q of a report: text, json and junit are", f)
}

// text writes TAP version 14: one subtest a group.
func (r *Report) text(w io.Writer) error {
	var b strings.Builder
	byID := map[string]Result{}
	var checks []Check
	for _, res := range r.Results {
		byID[res.ID] = res
		checks = append(checks, Check{ID: res.ID})
	}
	all := slices.Collect(groups(checks, false))
	fmt.Fprintf(&b, "TAP version 14\n1..%d\n", len(all))
	for n, g := range all {
		failed := 0
		fmt.Fprintf(&b, "# Subtest: %s\n    1..%d\n", g.name, len(g.checks))
		for m, c := range g.checks {
			res := byID[c.ID]
			verdict := "ok"
			if res.Outcome == Failed {
				verdict = "not ok"
				failed++
			}
			fmt.Fprintf(&b, "    %s %d - %s", verdict, m+1, c.ID)
			if res.Outcome == Skipped {
				fmt.Fprintf(&b, " # SKIP %s", oneLine(res.Message))
			} else {
				fmt.Fprintf(&b, " # %s", round(res.Duration))
			}
			b.WriteByte('\n')
			if res.Outcome == Failed {
				fmt.Fprintf(&b, "      ---\n      proves: %s\n      message: |\n%s\n      fix: %s\n      ...\n",
					yamlString(res.Proves), indent(res.Message, "        "), yamlString(res.Fix))
			}
		}
		verdict := "ok"
		if failed > 0 {
			verdict = "not ok"
		}
		fmt.Fprintf(&b, "%s %d - %s\n", verdict, n+1, g.name)
	}
	fmt.Fprintf(&b, "# backend %s %s: %d passed, %d failed, %d skipped in %s\n",
		r.Backend, r.Version, r.Passed, r.Failed, r.Skipped, round(r.Duration))
	_, err := io.WriteString(w, b.String())
	return err
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func yamlString(s string) string {
	b, _ := json.Marshal(s) // JSON strings are YAML strings
	return string(b)
}

func indent(s, with string) string {
	return with + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+with)
}

func (r *Report) junit(w io.Writer) error {
	out := junit.Suites{Name: "hutch backend " + r.Backend + " " + r.Version}
	for _, res := range r.Results {
		group := Check{ID: res.ID}.Group()
		if n := len(out.Suites); n == 0 || out.Suites[n-1].Name != group {
			out.Suites = append(out.Suites, &junit.Suite{Name: group})
		}
		s := out.Suites[len(out.Suites)-1]
		c := junit.Case{
			Name: strings.TrimPrefix(res.ID, group+"/"), Class: "hutch.backend." + r.Backend + "." + group,
			Time: junit.Seconds(res.Duration.Seconds()),
		}
		switch res.Outcome {
		case Failed:
			c.Failure = &junit.Problem{
				Message: printable(firstLine(res.Message)),
				Text:    printable(res.Message + "\nproves: " + res.Proves + "\nlook at: " + res.Fix),
			}
		case Skipped:
			c.Skipped = &junit.Problem{Message: printable(res.Message)}
		}
		s.Cases = append(s.Cases, c)
	}
	return out.Write(w)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// printable leaves out what XML cannot hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0xfffe && r != 0xffff {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}
