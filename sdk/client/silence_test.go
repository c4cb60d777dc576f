package client

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// While a backend says nothing the host is notified, at longer and longer intervals. What it says about how far it is
// counts as an answer.
func TestSilenceIsTold(t *testing.T) {
	type notice struct {
		At, Silent, Most time.Duration
	}
	for name, tc := range map[string]struct {
		slow, caller time.Duration // what the call and its caller have; 0 is without end
		progress     time.Duration // when the backend says something
		runs         time.Duration
		want         []notice
	}{
		"quick":                 {slow: time.Hour, runs: 29 * time.Second},
		"silent":                {slow: time.Hour, runs: 3 * time.Minute, want: []notice{{30 * time.Second, 30 * time.Second, time.Hour}, {time.Minute, time.Minute, time.Hour}, {2 * time.Minute, 2 * time.Minute, time.Hour}}},
		"little time":           {slow: 10 * time.Second, runs: 9 * time.Second, want: []notice{{5 * time.Second, 5 * time.Second, 10 * time.Second}}},
		"of the caller":         {slow: time.Hour, caller: 10 * time.Second, runs: 9 * time.Second, want: []notice{{5 * time.Second, 5 * time.Second, 0}}},
		"no time of the caller": {slow: time.Hour, caller: -time.Second, runs: time.Minute},
		"progress":              {slow: time.Hour, progress: 20 * time.Second, runs: 55 * time.Second, want: []notice{{50 * time.Second, 30 * time.Second, time.Hour}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				var got []notice
				c := New(nil, Options{SlowTimeout: tc.slow, Silent: func(call string, silent, most time.Duration) {
					if call != "create" {
						t.Errorf("call %q", call)
					}
					mu.Lock()
					defer mu.Unlock()
					got = append(got, notice{time.Since(start), silent, most})
				}})
				ctx := t.Context()
				if tc.caller != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.caller)
					defer cancel()
				}
				_, quiet, cancel := c.progressing(ctx, "create", tc.slow)
				if tc.progress > 0 {
					time.AfterFunc(tc.progress, quiet.begin)
				}
				<-time.After(tc.runs) // of the bubble's own time
				cancel()
				<-time.After(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		})
	}
}

// A call in which the backend says how far it is ends when that has said nothing for long, however long it took until
// then.
func TestProgressGivesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil, Options{})
		ctx, quiet, cancel := c.progressing(t.Context(), "create", time.Minute)
		defer cancel()
		for range 5 {
			<-time.After(59 * time.Second) // of the bubble's own time
			quiet.begin()
		}
		synctest.Wait()
		if err := context.Cause(ctx); err != nil {
			t.Fatalf("a backend that says how far it is was given up: %v", err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if err := context.Cause(ctx); sdk.ReasonOf(err) != sdk.ReasonUnavailable || err.Error() != "no answer within 1m0s" {
			t.Errorf("one that says nothing any more: %v", err)
		}
	})
}
