// Package junit writes JUnit XML as CI services read it.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
)

// Suites is a report. Texts must hold no characters that XML cannot.
type Suites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Time     Seconds  `xml:"time,attr"`
	Suites   []*Suite `xml:"testsuite"`
}

// Suite is a group of test cases. Its numbers and its time are those of the cases; see [Suites.Write].
type Suite struct {
	Name      string  `xml:"name,attr"`
	Tests     int     `xml:"tests,attr"`
	Failures  int     `xml:"failures,attr"`
	Errors    int     `xml:"errors,attr"`
	Skipped   int     `xml:"skipped,attr"`
	Time      Seconds `xml:"time,attr"`
	Timestamp string  `xml:"timestamp,attr,omitempty"`
	File      string  `xml:"file,attr,omitempty"`

	Properties []Property `xml:"properties>property,omitempty"` // of the cases, which have none in the usual schemas
	Cases      []Case     `xml:"testcase"`
}

// Case is one test. It passed where it has neither a failure nor an error, and was not skipped.
type Case struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Time    Seconds  `xml:"time,attr"`
	Failure *Problem `xml:"failure"`
	Error   *Problem `xml:"error"`
	Skipped *Problem `xml:"skipped"`
	// Attempts beside the one above have the names of Maven Surefire: flakyFailure, rerunError and so on.
	Attempts []Attempt
	Out      *Text `xml:"system-out"`
	Err      *Text `xml:"system-err"`
}

// Property says of a case what that has no place for.
type Property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// Problem says why a case did not pass.
type Problem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// Attempt is a further one at a case.
type Attempt struct {
	XMLName xml.Name
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:"stackTrace"`
	Out     *Text  `xml:"system-out"`
	Err     *Text  `xml:"system-err"`
}

// Text is what a case printed.
type Text struct {
	Text string `xml:",chardata"`
}

// Seconds is a time, written with milliseconds.
type Seconds float64

// MarshalXMLAttr implements [xml.MarshalerAttr].
func (s Seconds) MarshalXMLAttr(name xml.Name) (xml.Attr, error) {
	return xml.Attr{Name: name, Value: fmt.Sprintf("%.3f", float64(s))}, nil
}

// Write counts the cases and writes the report.
func (all *Suites) Write(w io.Writer) error {
	for _, s := range all.Suites {
		for _, c := range s.Cases {
			s.Tests++
			s.Time += c.Time
			switch {
			case c.Failure != nil:
				s.Failures++
			case c.Error != nil:
				s.Errors++
			case c.Skipped != nil:
				s.Skipped++
			}
		}
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Errors += s.Errors
		all.Time += s.Time
	}
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
