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
)

// The shape of JUnit XML as CI services read it.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string `xml:"name,attr"`
	Tests     int    `xml:"tests,attr"`
	Failures  int    `xml:"failures,attr"`
	Errors    int    `xml:"errors,attr"`
	Skipped   int    `xml:"skipped,attr"`
	Time      string `xml:"time,attr"`
	Timestamp string `xml:"timestamp,attr,omitempty"`
	File      string `xml:"file,attr,omitempty"`

	Properties []junitProperty `xml:"properties>property,omitempty"` // of the cases, which have none in the usual schemas
	Cases      []junitCase     `xml:"testcase"`

	seconds float64
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitProblem `xml:"failure"`
	Error   *junitProblem `xml:"error"`
	// Attempts beside the one above have the names of Maven Surefire: flakyFailure, rerunError and so on.
	Attempts []junitAttempt
	Out      *junitText `xml:"system-out"`
	Err      *junitText `xml:"system-err"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

type junitAttempt struct {
	XMLName xml.Name
	Message string     `xml:"message,attr"`
	Type    string     `xml:"type,attr"`
	Text    string     `xml:"stackTrace"`
	Out     *junitText `xml:"system-out"`
	Err     *junitText `xml:"system-err"`
}

type junitText struct {
	Text string `xml:",chardata"`
}

// JUnit writes a JUnit XML report: a test suite per run file, a test case per run. A run that ended in another way
// than it should is a failure; one that hutch or the backend could not run is an error. Characters that XML cannot
// hold are shown as visible escapes.
func JUnit(w io.Writer, rs []*result.Result) error {
	all := junitSuites{Name: "hutch"}
	index := map[string]int{}
	var total float64
	for _, r := range rs {
		key := r.File
		if key == "" {
			key = "hutch run"
		}
		i, ok := index[key]
		if !ok {
			i = len(all.Suites)
			index[key] = i
			all.Suites = append(all.Suites, junitSuite{Name: xmlText(key), Timestamp: stamp(r.Started), File: xmlText(r.File)})
		}
		s := &all.Suites[i]
		c := junitCaseOf(r)
		s.Tests++
		all.Tests++
		if c.Failure != nil {
			s.Failures++
			all.Failures++
		}
		if c.Error != nil {
			s.Errors++
			all.Errors++
		}
		sec := r.Usage.Wall.Duration().Seconds()
		s.seconds += sec
		total += sec
		s.Cases = append(s.Cases, c)
		s.Properties = append(s.Properties, junitProperties(r)...)
	}
	for i := range all.Suites {
		all.Suites[i].Time = fmt.Sprintf("%.3f", all.Suites[i].seconds)
	}
	all.Time = fmt.Sprintf("%.3f", total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05")
}

func junitCaseOf(r *result.Result) junitCase {
	c := junitCase{
		Name:  xmlText(r.Name),
		Class: xmlText(strings.TrimSuffix(strings.ReplaceAll(r.File, "/", "."), ".hcl")),
		Time:  fmt.Sprintf("%.3f", r.Usage.Wall.Duration().Seconds()),
	}
	if c.Class == "" {
		c.Class = "hutch"
	}
	bad, kind := r.Attempts, "flaky"
	if !r.OK { // the first failure is the case's, and those after it are its repetitions
		all := append(slices.Clone(r.Attempts), r)
		first := all[0]
		p := &junitProblem{Message: xmlText(Headline(first)), Type: string(first.Cause), Text: xmlText(explanation(first))}
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
		c.Attempts = append(c.Attempts, junitAttempt{XMLName: xml.Name{Local: name}, Message: xmlText(Headline(a)),
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
func junitProperties(r *result.Result) (out []junitProperty) {
	at := ""
	if r.Source != nil {
		at = r.Source.String()
	}
	add := func(name, value string) {
		if value != "" {
			out = append(out, junitProperty{xmlText(r.Name) + ": " + name, xmlText(value)})
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

func junitStream(s result.Stream) *junitText {
	if s.Text == "" {
		return nil
	}
	return &junitText{xmlText(s.Text)}
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
