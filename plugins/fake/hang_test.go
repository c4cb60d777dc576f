package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// TestO2ABackendThatHangs has every command hang: its author hears in which check and call, with the goroutines, from a
// report that comes although most of the suite could not be run.
func TestO2ABackendThatHangs(t *testing.T) {
	t.Parallel() // it waits
	r := backendtest.Runner{
		Target:    backendtest.InProcess(func() sdk.Backend { return &backend{} }),
		Config:    map[string]any{"hang_during": "exec"},
		Only:      regexp.MustCompile("^(create|exec)/"),
		CheckTime: 3 * time.Second,
	}
	t.Run("report", func(t *testing.T) {
		t.Parallel()
		report, err := r.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hung, notRun := 0, 0
		for _, res := range report.Results {
			switch {
			case res.Outcome == backendtest.Failed && strings.HasPrefix(res.Message, "the check took longer than 3s: the backend has not answered Exec for "):
				hung++
				if !strings.Contains(res.Message, "goroutines of the backend:") || !strings.Contains(res.Message, "fake.(*config).fault") {
					t.Errorf("%s does not show where it hangs: %s", res.ID, res.Message)
				}
			case res.Outcome == backendtest.Skipped && res.Message == "not run: 3 checks had hung in Exec":
				notRun++
			}
		}
		if hung < 3 || notRun < 10 || report.Passed == 0 || report.OK() {
			t.Errorf("%d checks hung, %d were not run, %d passed", hung, notRun, report.Passed)
		}
	})
	t.Run("the context ends", func(t *testing.T) {
		t.Parallel()
		why := errors.New("the author has seen enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		r := r
		r.CheckTime = time.Hour
		time.AfterFunc(2*time.Second, func() { cancel(why) })
		began := time.Now()
		report, err := r.Run(ctx)
		if !errors.Is(err, why) || report == nil || report.Failed == 0 {
			t.Errorf("got %v and %+v", err, report)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it took %s to end", took)
		}
	})
}
