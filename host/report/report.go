// Package report renders results for people and for CI services, from the result object and from nothing else.
//
// Whatever a program wrote or named (its output, its files) is escaped for where it is shown: package termsafe for a
// terminal, XML for JUnit, workflow commands and Markdown for GitHub.
package report

import (
	"errors"
	"io"

	"github.com/hutch-run/hutch/host/result"
)

var errNotImplemented = errors.New("not implemented")

// Style says how text is written.
type Style struct {
	Color   bool
	Verbose bool // say everything, not only what matters
}

// Summary writes how one run ended, in a few lines.
func Summary(w io.Writer, r *result.Result, s Style) error { return errNotImplemented }

// Table writes one line per run and a last line with the totals.
func Table(w io.Writer, rs []*result.Result, s Style) error { return errNotImplemented }

// JUnit writes a JUnit XML report: a test suite per run file, a test case per run.
func JUnit(w io.Writer, rs []*result.Result) error { return errNotImplemented }

// Annotations writes a GitHub workflow command for every run that is not ok.
func Annotations(w io.Writer, rs []*result.Result) error { return errNotImplemented }

// StepSummary writes Markdown for $GITHUB_STEP_SUMMARY.
func StepSummary(w io.Writer, rs []*result.Result) error { return errNotImplemented }
