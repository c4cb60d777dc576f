package sdk

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// box is a sandbox as the server keeps it.
type box struct {
	id    string
	start *pb.CreateStart // what it was made from; nil when attached
	keep  bool
	made  chan struct{} // closed when the creation has ended, well or not

	ctx    context.Context // parent of everything that happens in the sandbox
	cancel context.CancelCauseFunc

	turn chan struct{} // holds one token: the call that destroys or resets has it

	mu      sync.Mutex
	sandbox Sandbox // nil until made, and when making it failed
	err     error   // why it failed
	handle  Handle
	users   int           // calls under way
	empty   chan struct{} // closed and renewed when users falls to 0
}

func (s *Server) newBox(id string, keep bool, start *pb.CreateStart) *box {
	b := &box{id: id, keep: keep, start: start, made: make(chan struct{}), turn: make(chan struct{}, 1),
		handle: Handle{ID: id}, empty: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancelCause(s.base)
	b.turn <- struct{}{}
	return b
}

// reserve returns the box for id, and whether the caller is the one who has to
// make the sandbox.
func (s *Server) reserve(start *pb.CreateStart) (b *box, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := start.GetSandboxId()
	if b, ok := s.boxes[id]; ok {
		if b.start != nil && !proto.Equal(b.start, start) {
			return nil, false, Errorf(ReasonConfig, "sandbox %s exists already and was made from another spec", id)
		}
		return b, false, nil
	}
	b = s.newBox(id, start.GetKeep(), start)
	b.users = 1 // the creation itself
	s.boxes[id] = b
	return b, true, nil
}

// attached notes a sandbox that was found again.
func (s *Server) attached(h Handle, sb Sandbox) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.boxes[h.ID]; ok {
		return b
	}
	b := s.newBox(h.ID, true, nil)
	b.sandbox, b.handle = sb, h
	close(b.made)
	s.boxes[h.ID] = b
	return b
}

func (s *Server) lookup(id string) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[id]
}

func (s *Server) forget(b *box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.boxes[b.id] == b {
		delete(s.boxes, b.id)
	}
}

// use returns the sandbox with the given id for one call, which ends with leave.
func (s *Server) use(id string) (b *box, sb Sandbox, leave func(), err error) {
	b = s.lookup(id)
	if b == nil {
		return nil, nil, nil, Errorf(ReasonNotFound, "there is no sandbox %s", id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sandbox == nil || b.ctx.Err() != nil {
		return nil, nil, nil, Errorf(ReasonNotFound, "there is no sandbox %s (it is being made or removed)", id)
	}
	b.users++
	return b, b.sandbox, b.leave, nil
}

func (b *box) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		close(b.empty)
		b.empty = make(chan struct{})
	}
}

// end cancels everything that happens in the sandbox.
func (b *box) end(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel(cause)
}

// idle waits until no call is under way.
func (b *box) idle(ctx context.Context) error {
	b.mu.Lock()
	n, empty := b.users, b.empty
	b.mu.Unlock()
	if n == 0 {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// alone waits for the right to destroy or reset.
func (b *box) alone(ctx context.Context) (release func(), err error) {
	select {
	case <-b.turn:
		return func() { b.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// set notes what came of the creation.
func (b *box) set(sb Sandbox, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sandbox, b.err = sb, err
}

// get returns what came of the creation; both are nil while it is under way.
func (b *box) get() (Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sandbox, b.err
}

func (b *box) setHandle(h Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handle = h
}

func (b *box) lastHandle() Handle {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handle
}

// within returns a context for one call in the sandbox: it ends with the call's
// own, and with the sandbox, whose cause it takes.
func (b *box) within(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	b.mu.Lock()
	life := b.ctx
	b.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

// renew lets the sandbox be used again after a reset.
func (b *box) renew(base context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx, b.cancel = context.WithCancelCause(base)
}
