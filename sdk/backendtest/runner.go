package backendtest

import (
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// reportSchema is what the JSON form calls itself.
const reportSchema = "hutch.conformance/v1"

// Run runs the table and returns the report. An error without a report says why it could not be run at all: the backend
// does not start, or does not describe itself. When ctx ends, Run returns within seconds, with its cause and the report
// of the checks that had run.
func (r *Runner) Run(ctx context.Context) (*Report, error) {
	began := time.Now()
	s, err := newSession(ctx, r.Target, r.Config, r.BadConfigs, r.CheckTime)
	if err != nil {
		return nil, err
	}
	defer s.close()
	rep := &Report{Schema: reportSchema, Backend: s.facts.Name, Version: s.facts.Version}
	var checks []Check
	for _, c := range Checks() {
		if r.Only == nil || r.Only.MatchString(c.ID) {
			checks = append(checks, c)
		}
	}
	results := make([]Result, len(checks))
	var mu sync.Mutex
	do := func(i int) {
		results[i] = s.run(ctx, checks[i])
		mu.Lock()
		defer mu.Unlock()
		if r.Progress != nil {
			r.Progress(results[i])
		}
	}
	parallel := r.Parallel
	if parallel <= 0 {
		parallel = 4
	}
	// The checks that need quiet come last, whatever their place in the table.
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range checks {
		if !checks[i].Alone {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				do(i)
			})
		}
	}
	wg.Wait()
	for i := range checks {
		if checks[i].Alone {
			do(i)
		}
	}
	rep.Results = results
	for _, res := range results {
		switch res.Outcome {
		case Passed:
			rep.Passed++
		case Failed:
			rep.Failed++
		case Skipped:
			rep.Skipped++
		}
	}
	rep.Duration = time.Since(began)
	return rep, context.Cause(ctx)
}

// Run runs every check as a subtest of t.
//
// When the backend's own Check says that this machine cannot run it, the test is
// skipped with that reason, unless the variable HUTCH_TEST_REQUIRE lists the
// backend's name (comma-separated): then it fails.
func Run(t *testing.T, s Suite) {
	t.Helper()
	target := s.Target
	if target == nil {
		target = &inProcess{make: s.New}
	}
	ses, err := newSession(t.Context(), target, s.Config, s.BadConfigs, s.CheckTime)
	if err != nil {
		t.Fatalf("the backend under test: %v", err)
	}
	defer ses.close()
	ses.facts.standIn = s.StandIn
	ses.gate(t)
	check := func(t *testing.T, c Check) {
		switch r := ses.run(context.Background(), c); r.Outcome {
		case Failed:
			t.Errorf("%s\nproves: %s\nlook at: %s", r.Message, r.Proves, r.Fix)
		case Skipped:
			t.Skip(r.Message)
		}
	}
	// The checks that need quiet come last. Groups are subtests, so that -run works
	// as everywhere.
	for _, alone := range []bool{false, true} {
		for group := range groups(Checks(), alone) {
			t.Run(group.name, func(t *testing.T) {
				for _, c := range group.checks {
					if s.Only != nil && !s.Only.MatchString(c.ID) {
						continue
					}
					_, name, _ := strings.Cut(c.ID, "/")
					t.Run(name, func(t *testing.T) {
						if !alone {
							t.Parallel()
						}
						check(t, c)
					})
				}
			})
		}
	}
}

// checkGroup is consecutive checks of one group.
type checkGroup struct {
	name   string
	checks []Check
}

// groups yields the checks that are to run alone, or those that are not, by group.
func groups(all []Check, alone bool) iter.Seq[checkGroup] {
	return func(yield func(checkGroup) bool) {
		var g checkGroup
		for _, c := range all {
			if c.Alone != alone {
				continue
			}
			if c.Group() != g.name {
				if len(g.checks) > 0 && !yield(g) {
					return
				}
				g = checkGroup{name: c.Group()}
			}
			g.checks = append(g.checks, c)
		}
		if len(g.checks) > 0 {
			yield(g)
		}
	}
}

// gate ends the test when this machine is not able to run the backend.
func (s *session) gate(t *testing.T) {
	t.Helper()
	findings, err := s.main.Check(t.Context())
	if err != nil {
		return // which the checks will say
	}
	s.found = findings
	for _, f := range findings {
		if f.Status != sdk.SeverityError {
			continue
		}
		required := strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ",")
		if slices.Contains(required, s.facts.Name) {
			t.Fatalf("%s cannot run here, and HUTCH_TEST_REQUIRE lists it: %s: %s (%s)", s.facts.Name, f.Name, f.Detail, f.Fix)
		}
		t.Skipf("%s cannot run here: %s: %s (%s)", s.facts.Name, f.Name, f.Detail, f.Fix)
	}
}
