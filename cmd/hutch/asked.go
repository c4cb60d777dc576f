package main

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
)

// asked is what the words of a command line ask for beside text, as far as that can be seen before they are understood:
// a program that reads JSON or JUnit gets it also when there is nothing to run.
type asked struct {
	command, file string
	json          bool
	junit         string
	answered      bool // the command itself has written what was asked for
}

// askedBy looks for the flags.
func askedBy(args []string) (a asked) {
	for i, arg := range args {
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		junit, is := strings.CutPrefix(arg, "--junit=")
		switch {
		case arg == "--":
			return a
		case i == 0 && !strings.HasPrefix(arg, "-"):
			a.command = arg
		case slices.Contains([]string{"--json", "-json", "-ojson", "-o=json", "--output=json"}, arg),
			(arg == "-o" || arg == "--output") && next == "json":
			a.json = true
		case is:
			a.junit = junit
		case arg == "--junit":
			a.junit = next
		case a.file == "" && strings.HasSuffix(arg, ".hcl"):
			a.file = arg
		}
	}
	return a
}

// failed is the JSON of a command other than run that did nothing.
type failed struct {
	Schema      string           `json:"schema"` // hutch.error/v1
	Status      int              `json:"status"` // the exit code
	Summary     string           `json:"summary"`
	Hints       []string         `json:"hints,omitempty"`
	Diagnostics diag.Diagnostics `json:"diagnostics,omitempty"`
}

// fail writes an error in the forms that were asked for: of run as the result of a run that was never made, so that
// whatever reads results has one kind of object to read.
func (a *asked) fail(u *ui, err error, code int) {
	if a.answered || !a.json && (a.junit == "" || a.command != "run") {
		return
	}
	a.answered = true
	f := failed{Schema: "hutch.error/v1", Status: code, Summary: plain(err)}
	if errors.As(err, &f.Diagnostics) && len(f.Diagnostics) > 0 {
		f.Summary = f.Diagnostics[0].Summary
	}
	for h := (*hinted)(nil); errors.As(err, &h); err = h.error {
		f.Hints = append(f.Hints, h.hints...)
	}
	if a.command != "run" {
		_ = json.NewEncoder(u.out).Encode(f) // the exit code says that it failed
		return
	}
	r := result.Unread(a.file, &result.Failure{Summary: f.Summary, Fix: strings.Join(f.Hints, "; "),
		Diagnostics: f.Diagnostics}, code)
	if a.json {
		_ = r.Encode(u.out)
	}
	if err := writeTo(a.junit, func(w io.Writer) error { return report.JUnit(w, []*result.Result{r}) }); err != nil {
		u.note("--junit: %s", plain(err))
	}
}
