package run

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// maxQuoted is how much of a text the report of a failed expectation shows.
const maxQuoted = 200

// expect compares how the run ended with what its expect block says. A block that says neither exit_code nor cause
// still expects exit code 0.
func (j *job) expect() {
	e := j.d.Expect
	if e == nil || j.res.Error != nil {
		return
	}
	r := j.res
	switch {
	case len(e.ExitCodes) > 0:
		if r.ExitCode == nil || !slices.Contains(e.ExitCodes, *r.ExitCode) {
			j.unexpected("exit_code", oneOf(e.ExitCodes), ended(r))
		}
	case len(e.Causes) == 0 && (r.Cause != sdk.CauseExited || r.ExitCode == nil || *r.ExitCode != 0):
		j.unexpected("exit_code", "0", ended(r))
	}
	if len(e.Causes) > 0 && !slices.Contains(e.Causes, string(r.Cause)) {
		j.unexpected("cause", strings.Join(e.Causes, " or "), string(r.Cause)+uncounted(r, e.Causes))
	}
	j.expectStream("stdout", e.Stdout, r.Stdout)
	j.expectStream("stderr", e.Stderr, r.Stderr)
	for i, pattern := range e.Outputs {
		if !slices.ContainsFunc(r.Outputs, func(o outputs.Output) bool {
			ok,
				_ := doublestar.Match(pattern, o.From)
			return ok
		}) {
			j.unexpected(fmt.Sprintf("outputs[%d]", i), "a file that matches "+quoted(pattern), noneOf(len(r.Outputs)))
		}
	}
	if e.Within > 0 && r.Usage.Wall.Duration() > time.Duration(e.Within) {
		j.unexpected("within", e.Within.String(), r.Usage.Wall.Duration().String())
	}
}

// noneOf says how many files there are, of which none is the one.
func noneOf(n int) string {
	if n == 0 {
		return "no file at all"
	}
	return fmt.Sprintf("none among %d", n)
}

func (j *job) unexpected(what, want, got string) {
	f := result.ExpectFailure{What: what, Want: want, Got: got}
	if at, ok := j.d.RangeOf("expect." + what); ok {
		f.At = &at
	}
	j.res.ExpectFailures = append(j.res.ExpectFailures, f)
}

func (j *job) expectStream(name string, e *runfile.ExpectStream, s result.Stream) {
	if e == nil {
		return
	}
	if s.Lost != "" { // whatever is expected of the whole, a part cannot show
		j.unexpected(name, "whole", "a part of it: "+s.Lost)
		return
	}
	b, cut, err := readTail(filepath.Join(j.rec.Dir(), name+".log"), maxExpectText)
	if err != nil && s.Bytes > 0 {
		j.unexpected(name, "readable", err.Error())
		return
	}
	text := string(b)
	partial := cut || s.Dropped > 0
	// A quotation that is cut could begin inside a secret, and quoting changes one.
	quoted := func(s string) string { return quoted(j.secrets.Text(s)) }
	kept := func() string { return kept(j.secrets.Tail(text, partial), partial) }
	if e.Empty != nil && *e.Empty != (s.Bytes == 0) {
		want, got := "empty", fmt.Sprintf("%d bytes", s.Bytes)
		if !*e.Empty {
			want, got = "not empty", "nothing"
		}
		j.unexpected(name+".empty", want, got)
	}
	if e.Equals != nil && (partial || text != *e.Equals) {
		j.unexpected(name+".equals", quoted(*e.Equals), kept())
	}
	for i, x := range e.Contains {
		if !strings.Contains(text, x) {
			j.unexpected(fmt.Sprintf("%s.contains[%d]", name, i), "a text that contains "+quoted(x), kept())
		}
	}
	for i, x := range e.Excludes {
		if strings.Contains(text, x) || partial { // nobody knows whether it is in what was dropped
			j.unexpected(fmt.Sprintf("%s.excludes[%d]", name, i), "a text without "+quoted(x), kept())
		}
	}
	for i, x := range e.Matches {
		if re, err := runfile.CompilePattern(x); err != nil || !re.MatchString(text) {
			j.unexpected(fmt.Sprintf("%s.matches[%d]", name, i), "a text that matches "+quoted(x), kept())
		}
	}
}

func kept(text string, partial bool) string {
	if partial {
		return quoted(text) + " (only the end was kept)"
	}
	return quoted(text)
}

// quoted shows the end of a text, where programs say what is wrong.
func quoted(s string) string {
	if len(s) > maxQuoted {
		return fmt.Sprintf("…%q", result.Text([]byte(s[len(s)-maxQuoted:]), true))
	}
	return fmt.Sprintf("%q", s)
}

// uncounted explains why a program that ran into a limit passes for one that ended by itself: nothing but a cgroup
// counts what was refused, so that where something else holds the limit, hutch does not know.
func uncounted(r *result.Result, wanted []string) string {
	limits := map[string]sdk.Limit{string(sdk.CauseOOM): sdk.LimitMemory, string(sdk.CausePIDs): sdk.LimitPIDs}
	if r.Cause != sdk.CauseExited && r.Cause != sdk.CauseSignaled {
		return ""
	}
	for _, l := range r.Limits {
		if slices.ContainsFunc(wanted, func(c string) bool { return limits[c] == l.Limit }) &&
			strings.HasPrefix(l.HeldBy, "rlimit") {
			return fmt.Sprintf(" (%s is held by an rlimit here, which counts nothing: hutch doctor says what is missing)",
				l.Limit)
		}
	}
	return ""
}

func oneOf(l []int) string {
	s := make([]string, len(l))
	for i, n := range l {
		s[i] = fmt.Sprint(n)
	}
	return strings.Join(s, " or ")
}

func ended(r *result.Result) string {
	switch {
	case r.ExitCode != nil:
		return fmt.Sprint(*r.ExitCode)
	case r.Signal != "":
		return string(r.Cause) + ", " + r.Signal
	}
	return string(r.Cause)
}
