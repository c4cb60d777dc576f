package run

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// Many says how several runs go together.
type Many struct {
	// Jobs is how many run at once; 0 means as many as there are CPUs.
	Jobs int
	// FailFast cancels what runs, and starts nothing further, once a run is not ok.
	FailFast bool
	// Streams gives the streams of each run; nil means none. It is called right before the run starts; done (may be
	// nil) right after it ended, before Each.
	Streams func(d *runfile.Definition) (s Streams, done func())
	// Each is called with every result as soon as it is there, one at a time; it may be nil.
	Each func(*result.Result)
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

	results := make([]*result.Result, len(ds))
	var (
		mu    sync.Mutex
		first error
		wg    sync.WaitGroup
		next  = make(chan int)
	)
	one := func(i int) {
		var s Streams
		var done func()
		if m.Streams != nil {
			s, done = m.Streams(ds[i])
		}
		res, err := r.Run(ctx, ds[i], s)
		if done != nil {
			done()
		}
		results[i] = res
		mu.Lock()
		defer mu.Unlock()
		if err != nil && first == nil {
			first = err
		}
		if m.Each != nil {
			m.Each(res)
		}
		if m.FailFast && !res.OK {
			cancel(errors.Join(sdk.ErrCancelled, errFailFast))
		}
	}
	for range min(jobs, len(ds)) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() == nil {
					one(i)
				}
			}
		})
	}
feed:
	for i := range ds {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	return results, first
}

var errFailFast = errors.New("another run failed")
