package backendtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// InProcess is a [Target] whose instances live in this process: make makes a
// backend that shares no memory with the ones made before.
func InProcess(make func() sdk.Backend) Target { return &inProcess{make} }

// inProcess serves backends inside this process, over real gRPC on a socket.
type inProcess struct {
	make func() sdk.Backend
}

// Start implements [Target].
func (t *inProcess) Start(_ context.Context, o StartOptions) (Plugin, error) {
	if o.EmptyPath {
		return nil, errors.New("an instance inside the test process cannot have a PATH of its own")
	}
	l, err := client.InProcess(t.make(), client.Options{})
	if err != nil {
		return nil, err
	}
	return &local{Local: l, done: make(chan struct{})}, nil
}

// local is one instance inside this process.
type local struct {
	*client.Local
	once sync.Once
	done chan struct{}
	err  error
}

func (p *local) Conn() grpc.ClientConnInterface { return p.Local.Conn() }
func (p *local) PID() int                       { return 0 }
func (p *local) Done() <-chan struct{}          { return p.done }
func (p *local) Log() string                    { return "" } // it is on the test's own stderr

// Abandon implements [Plugin]: the SDK hears what it hears from its lifeline.
func (p *local) Abandon() {
	p.Break()
	go p.end(sdk.ErrHostGone)
}

// Stop implements [Plugin].
func (p *local) Stop(ctx context.Context) error {
	go p.end(sdk.ErrCancelled)
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *local) end(cause error) {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		p.err = errors.Join(p.Server().Shutdown(ctx, cause), p.Close())
		close(p.done)
	})
}
