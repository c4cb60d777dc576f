package run

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// Many says how several runs go together.
type Many struct {
	// Jobs is how many run at once; 0 means as many as there are CPUs.
	Jobs int
	// Retry is how many more attempts a run gets that is not ok. The result is that of the last attempt; it names the
	// others. A run that is refused or cancelled is not repeated.
	Retry int
	// Again is called with the result of the nth attempt when there will be another one, not at the same time as Each; it
	// may be nil.
	Again func(r *result.Result, n int)
	// FailFast cancels what runs, and starts nothing further, once a run is not ok.
	FailFast bool
	// Streams gives the streams of each run; nil means none. It is called right before the run starts; done (may be
	// nil) right after it ended, before Each.
	Streams func(d *runfile.Definition) (s Streams, done func())
	// Idle is called when no run needs a backend any more, while the last records are still being completed; it may be
	// nil. It is not called when runs were never started.
	Idle func()
	// Each is called with every result as soon as it is there, one at a time; it may be nil.
	Each func(*result.Result)
	// InOrder is called with every result once all before it have ended, in the order of the definitions, and not at the
	// same time as Each; it may be nil.
	InOrder func(*result.Result)
}

// RunAll runs definitions side by side. Results come in the order of the definitions, nil for those that were never
// started. The error is the first one of [Runner.Run], after all ended.
func (r *Runner) RunAll(ctx context.Context, ds []*runfile.Definition, m Many) ([]*result.Result, error) {
	jobs := m.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// encoding/json makes its tables of a type when it meets it first; here that need not be at the end of a run.
	go func() { _, _ = json.Marshal(&result.Result{Error: &result.Failure{}}) }()

	ds = slices.Clone(ds)
	for i := range ds {
		ds[i] = r.WithBackends(ds[i])
	}
	results := make([]*result.Result, len(ds))
	var (
		mu    sync.Mutex
		first error
		next  int // the first result that was not given to InOrder
		wg    sync.WaitGroup
		// A run is over before its record is on the disk. Where several may run at once the next one does not wait for
		// that; as many records as there are runs may be in that state. With FailFast it would start too early.
		running = make(chan struct{}, jobs)
		open    = make(chan struct{}, 2*jobs)
		early   = jobs > 1 && !m.FailFast
		left    atomic.Int64
	)
	left.Store(int64(len(ds)))
	attempt := func(d *runfile.Definition, over func()) (*result.Result, error) {
		var s Streams
		if m.Streams != nil {
			var done func()
			if s, done = m.Streams(d); done != nil {
				defer done()
			}
		}
		return r.run(ctx, d, s, over)
	}
	one := func(i int, leave func()) {
		over := sync.OnceFunc(func() {
			if left.Add(-1) == 0 && m.Idle != nil {
				m.Idle()
			}
			if early {
				leave()
			}
		})
		var earlier []*result.Result
		var res *result.Result
		var err error
		for {
			res, err = attempt(ds[i], func() {
				if len(earlier) == m.Retry { // otherwise only its result says whether it was the last attempt
					over()
				}
			})
			if err != nil || len(earlier) == m.Retry || ctx.Err() != nil || !worthAnother(res) {
				break
			}
			earlier = append(earlier, res)
			if m.Again != nil {
				mu.Lock()
				m.Again(res, len(earlier))
				mu.Unlock()
			}
		}
		over()
		res.Attempts, res.Flaky = earlier, res.OK && len(earlier) > 0
		mu.Lock()
		defer mu.Unlock()
		results[i] = res
		if err != nil && first == nil {
			first = err
		}
		if m.Each != nil {
			m.Each(res)
		}
		for ; m.InOrder != nil && next < len(results) && results[next] != nil; next++ {
			m.InOrder(results[next])
		}
		if m.FailFast && !res.OK {
			cancel(errors.Join(sdk.ErrCancelled, errFailFast))
		}
	}
feed:
	for i := range ds {
		for _, place := range []chan struct{}{open, running} {
			select {
			case place <- struct{}{}:
			case <-ctx.Done():
				break feed
			}
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			leave := sync.OnceFunc(func() { <-running })
			one(i, leave)
			leave()
			<-open
		})
	}
	wg.Wait()
	for ; m.InOrder != nil && next < len(results); next++ { // past those that never started
		if results[next] != nil {
			m.InOrder(results[next])
		}
	}
	return results, first
}

// worthAnother reports whether another attempt may end differently.
func worthAnother(r *result.Result) bool {
	return !r.OK && r.Cause != sdk.CauseCancelled && (r.Error == nil || r.Error.Phase != "plan")
}

var errFailFast = errors.New("another run failed")
