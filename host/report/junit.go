package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/junit"
)

// JUnit writes a JUnit XML report: a test suite per run file, a test case per run. A run that ended in another way
// than it should is a failure; one that hutch or the backend could not run is an error. Characters that XML cannot
// hold are shown as visible escapes.
func JUnit(w io.Writer, rs []*result.Result) error {
	all := junit.Suites{Name: "hutch"}
	index := map[string]*junit.Suite{}
	for _, r := range rs {
		key := r.File
		if key == "" {
			key = "hutch run"
		}
		s := index[key]
		if s == nil {
			s = &junit.Suite{Name: xmlText(key), Timestamp: stamp(r.Started), File: xmlText(r.File)}
			index[key], all.Suites = s, append(all.Suites, s)
		}
		s.Cases = append(s.Cases, junitCaseOf(r))
		s.Properties = append(s.Properties, junitProperties(r)...)
	}
	return all.Write(w)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05")
}

func junitCaseOf(r *result.Result) junit.Case {
	c := junit.Case{
		Name:  xmlText(r.Name),
		Class: xmlText(strings.TrimSuffix(strings.ReplaceAll(r.File, "/", "."), ".hcl")),
		Time:  junit.Seconds(r.Usage.Wall.Duration().Seconds()),
	}
	if c.Class == "" {
		c.Class = "hutch"
	}
	bad, kind := r.Attempts, "flaky"
	if !r.OK { // the first failure is the case's, and those after it are its repetitions
		all := append(slices.Clone(r.Attempts), r)
		first := all[0]
		p := &junit.Problem{Message: xmlText(Headline(first)), Type: string(first.Cause), Text: xmlText(explanation(first))}
		if isError(first) {
			c.Error = p
		} else {
			c.Failure = p
		}
		bad, kind = all[1:], "rerun"
	}
	for _, a := range bad {
		name := kind + "Failure"
		if isError(a) {
			name = kind + "Error"
		}
		c.Attempts = append(c.Attempts, junit.Attempt{XMLName: xml.Name{Local: name}, Message: xmlText(Headline(a)),
			Type: string(a.Cause), Text: xmlText(explanation(a)), Out: junitStream(a.Stdout), Err: junitStream(a.Stderr)})
	}
	c.Out, c.Err = junitStream(r.Stdout), junitStream(r.Stderr)
	return c
}

// isError reports whether hutch or the backend could not run it.
func isError(r *result.Result) bool {
	return r.Error != nil || r.Cause == sdk.CauseSetupFailed || r.Cause == sdk.CauseBackend
}

// junitProperties says of a run what a test case has no place for, each with the name of the run before it.
func junitProperties(r *result.Result) (out []junit.Property) {
	at := ""
	if r.Source != nil {
		at = r.Source.String()
	}
	add := func(name, value string) {
		if value != "" {
			out = append(out, junit.Property{Name: xmlText(r.Name) + ": " + name, Value: xmlText(value)})
		}
	}
	add("id", r.ID)
	add("at", at)
	add("backend", r.Backend.Name)
	add("cause", string(r.Cause))
	for _, line := range Denials(r) {
		add("network", line)
	}
	return out
}

func junitStream(s result.Stream) *junit.Text {
	if s.Text == "" {
		return nil
	}
	return &junit.Text{Text: xmlText(s.Text)}
}

// explanation is everything that is to be said about a run that is not ok, as text of several lines.
func explanation(r *result.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cause: %s\n", r.Cause)
	if r.Evidence != "" {
		fmt.Fprintf(&b, "evidence: %s\n", r.Evidence)
	}
	for _, f := range failures(r) {
		fmt.Fprintln(&b, f)
	}
	for _, line := range Denials(r) {
		fmt.Fprintln(&b, "network: "+line)
	}
	if e := r.Error; e != nil {
		fmt.Fprintln(&b, e.Summary)
		for _, s := range []string{e.Detail, e.Fix} {
			if s != "" {
				fmt.Fprintln(&b, s)
			}
		}
		for _, d := range e.Diagnostics {
			if text := d.Error(); text != e.Summary {
				fmt.Fprintln(&b, text)
			}
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// notXML are the characters that package termsafe leaves alone and XML 1.0 cannot hold.
var notXML = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

// xmlText makes s safe for XML 1.0 and for anyone who reads it: characters that are not shown as themselves become
// visible escapes.
func xmlText(s string) string { return notXML.Replace(termsafe.String(s)) }
