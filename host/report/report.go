// Package report renders results for people and for CI services, from the result object and from nothing else.
//
// Whatever a program wrote or named (its output, its files) is escaped for where it is shown: package termsafe for a
// terminal, XML for JUnit, workflow commands and Markdown for GitHub.
package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/sdk"
)

// Style says how text is written.
type Style struct {
	Color   bool
	Verbose bool // say everything, not only what matters
	Width   int  // columns of the terminal; 0 means 100
}

// Reason says in a few words how a run ended, such as "exit code 3" or "timed out (timeout = 30s)". It may quote what
// the sandbox said and has to be escaped like everything else.
func Reason(r *result.Result) string {
	if r.NotStarted {
		name, path := "the command", false
		if len(r.Command) > 0 {
			name, path = fmt.Sprintf("%q", r.Command[0]), strings.Contains(r.Command[0], "/")
		}
		what := "could not be started" // all that is known of a run that was expected to end so
		switch r.Status {
		case result.CodeNotFound:
			if what = "was not found in the sandbox"; path { // the kernel says the same of both
				what = "or its interpreter " + what
			}
		case result.CodeNotExecutable:
			what = "cannot be executed"
		}
		return name + " " + what
	}
	if r.Error != nil && r.Cause != sdk.CauseTimeout && r.Cause != sdk.CauseCancelled {
		return r.Error.Summary
	}
	switch r.Cause {
	case sdk.CauseExited:
		return "exit code " + code(r)
	case sdk.CauseSignaled:
		return "killed by " + r.Signal
	case sdk.CauseTimeout:
		return "timed out" + limit(r, sdk.LimitTimeout)
	case sdk.CauseOOM:
		return "out of memory" + limit(r, sdk.LimitMemory)
	case sdk.CausePIDs:
		return "no more processes allowed" + limit(r, sdk.LimitPIDs) + ", exit code " + code(r)
	case sdk.CauseDisk:
		return "no more disk space allowed" + limit(r, sdk.LimitDisk) + ", exit code " + code(r)
	case sdk.CauseOutput:
		return "it wrote more output than allowed" + limit(r, "output_total")
	case sdk.CauseCancelled:
		return "cancelled"
	case sdk.CauseSetupFailed:
		return "it never started"
	}
	return "the backend failed"
}

func code(r *result.Result) string {
	switch {
	case r.ExitCode != nil:
		return fmt.Sprint(*r.ExitCode)
	case r.Signal != "":
		return "none, killed by " + r.Signal
	}
	return "unknown"
}

func limit(r *result.Result, l sdk.Limit) string {
	for _, x := range r.Limits {
		if x.Limit == l && x.Value != "" {
			return " (" + string(l) + " = " + x.Value + ")"
		}
	}
	return ""
}

// failures lists what was expected and is not so, one line each.
func failures(r *result.Result) []string {
	var l []string
	for _, f := range r.ExpectFailures {
		l = append(l, fmt.Sprintf("expected %s to be %s, got %s", f.What, f.Want, f.Got))
	}
	return l
}

// Headline is what a single line can say about a run; like [Reason] it may quote the sandbox.
func Headline(r *result.Result) string {
	if n := len(r.Attempts); n > 0 {
		last := *r
		last.Attempts = nil
		return fmt.Sprintf("%s (attempt %d; the first: %s)", Headline(&last), n+1, Headline(r.Attempts[0]))
	}
	s := Reason(r)
	if n := len(r.ExpectFailures); n > 0 && r.Error == nil {
		if s = failures(r)[0]; n > 1 {
			s += fmt.Sprintf(" (and %d more)", n-1)
		}
		if r.Cause != sdk.CauseExited {
			s = Reason(r) + ": " + s
		}
	}
	return s
}

// took is how long the program ran, or for a run that had none how long hutch was busy with it.
func took(r *result.Result) string {
	t := r.Usage.Wall.Duration()
	if t == 0 {
		t = max(0, r.Ended.Sub(r.Started))
	}
	switch {
	case t < time.Second:
		return t.Round(time.Millisecond).String()
	case t < time.Minute:
		return t.Round(10 * time.Millisecond).String()
	}
	return t.Round(time.Second).String()
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func changes(r *result.Result) string {
	counts := map[string]int{}
	var order []string
	for _, c := range r.Changes {
		if counts[c.Kind] == 0 {
			order = append(order, c.Kind)
		}
		counts[c.Kind]++
	}
	var parts []string
	for _, k := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[k], k))
	}
	if r.ChangesMore > 0 {
		parts = append(parts, fmt.Sprintf("%d more", r.ChangesMore))
	}
	return strings.Join(parts, ", ")
}
