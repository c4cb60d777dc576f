// Package diag has the one value for errors with their places, for people and programs.
//
// A Diagnostic carries everything it needs, the excerpt of the source included, so that text for a terminal, JSON and
// annotations for a CI service are all rendered from the same value and can never disagree.
package diag

import (
	"fmt"
	"strings"
)

// Severity grades a Diagnostic.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the work cannot go on
	Warning Severity = "warning" // it goes on, but probably not as meant
)

// Diagnostic is one finding about a run file, a flag or a value. Its JSON form is stable.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// Summary says what is wrong in one line, lower case, without a full stop.
	Summary string `json:"summary"`
	// Detail says more, in whole sentences; lines of it that begin with a blank are kept as they are.
	Detail string `json:"detail,omitempty"`
	// Fix says what to do about it: a command, a spelling, a change.
	Fix string `json:"fix,omitempty"`
	// Path leads to the value below Context, such as `limits.memory` or `backend.bind[1].from`. It is set where the
	// range alone is not exact. A value that was given by a flag has the flag here, such as `--memory`.
	Path string `json:"path,omitempty"`
	// Context names the block that holds the range, such as `run "report"`.
	Context string `json:"context,omitempty"`
	// Range is where it is wrong; nil when the value came from no file.
	Range *Range `json:"range,omitempty"`
	// Snippet is the source at Range; nil when unknown or when it could show a secret.
	Snippet *Snippet `json:"snippet,omitempty"`
	// Values are the values that the expression at Range used, without those that are sensitive.
	Values []Value `json:"values,omitempty"`
	// Related points at other places that matter, such as the first definition of something defined twice.
	Related []Related `json:"related,omitempty"`
}

// Pos is a place in a file.
type Pos struct {
	Line   int `json:"line"`   // from 1
	Column int `json:"column"` // from 1, in characters as a reader counts them (grapheme clusters)
	Byte   int `json:"byte"`   // from 0
}

// Range is a stretch of a file; End is the first position after it.
type Range struct {
	File  string `json:"file"`
	Start Pos    `json:"start"`
	End   Pos    `json:"end"`
}

// String gives file:line:column of the start.
func (r Range) String() string { return fmt.Sprintf("%s:%d:%d", r.File, r.Start.Line, r.Start.Column) }

// IsZero reports whether r is no place at all.
func (r Range) IsZero() bool { return r == Range{} }

// Snippet is an excerpt of a source file.
type Snippet struct {
	Lines []Line `json:"lines"`
	// More is the number of marked lines that were left out after the last one.
	More int `json:"more,omitempty"`
}

// Line is one line of a Snippet, without its line end; an ellipsis stands for what was cut off a very long one.
// MarkStart and MarkEnd are byte offsets into Text that bound what the diagnostic is about. They are equal where it is
// about a place between two characters, such as the end of the line.
type Line struct {
	Number    int    `json:"number"`
	Text      string `json:"text"`
	MarkStart int    `json:"mark_start"`
	MarkEnd   int    `json:"mark_end"`
}

// Value is what a name in the source stood for when the diagnostic was made.
type Value struct {
	Name string `json:"name"` // such as `var.rows` or `each.key`
	Text string `json:"text"` // such as `100`, `"a"` or `list of string with 3 elements`
}

// Related is a further place with a word about it.
type Related struct {
	Note  string `json:"note"`
	Range Range  `json:"range"`
}

// Error makes a Diagnostic usable as an error: place, summary and fix in one line.
func (d Diagnostic) Error() string {
	var b strings.Builder
	if d.Range != nil {
		fmt.Fprintf(&b, "%s: ", d.Range)
	}
	b.WriteString(d.Summary)
	if d.Fix != "" {
		fmt.Fprintf(&b, " (%s)", d.Fix)
	}
	return b.String()
}

// Diagnostics is a list of findings in the order in which they should be read.
type Diagnostics []Diagnostic

// HasErrors reports whether any of them is an error.
func (ds Diagnostics) HasErrors() bool {
	for _, d := range ds {
		if d.Severity == Error {
			return true
		}
	}
	return false
}

// Err returns the errors among them as one error, or nil. errors.As finds the Diagnostics in it.
func (ds Diagnostics) Err() error {
	if !ds.HasErrors() {
		return nil
	}
	return ds
}

// Error gives the first error and the number of the others.
func (ds Diagnostics) Error() string {
	var first *Diagnostic
	n := 0
	for i := range ds {
		if ds[i].Severity == Error {
			if n++; first == nil {
				first = &ds[i]
			}
		}
	}
	switch {
	case first == nil:
		return "no errors"
	case n == 1:
		return first.Error()
	}
	return fmt.Sprintf("%s (and %d more errors)", first.Error(), n-1)
}

// Errorf makes an error that is about no place in a file, for values from flags and the like.
func Errorf(format string, args ...any) Diagnostic {
	return Diagnostic{Severity: Error, Summary: fmt.Sprintf(format, args...)}
}

// WithFix returns d with its Fix set.
func (d Diagnostic) WithFix(format string, args ...any) Diagnostic {
	d.Fix = fmt.Sprintf(format, args...)
	return d
}
