package sdk

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

const (
	maxMessage   = 16 << 20         // bytes; go-plugin's own server takes 4 MiB
	windowSize   = 4 << 20          // bytes in flight on a stream before the sender waits
	keepAliveMin = 5 * time.Second  // how often a host may ask whether we live
	cleanupTime  = 30 * time.Second // how long a Destroy that nobody asked for may take
)

// Server answers the calls of the contract for one [Backend]. [Serve] makes one
// for a plugin process; tests and programs that embed a backend make their own.
type Server struct {
	backend Backend
	facts   Facts
	config  reflect.Type // of Description.Config, nil without one
	fields  []field
	log     hclog.Logger

	base context.Context // parent of all calls; its cause says why everything ends
	stop context.CancelCauseFunc

	first    func() // called once, by the first call that comes
	mu       sync.Mutex
	boxes    map[string]*box
	draining bool
	drained  chan struct{} // closed when Drain or Shutdown is through
}

// NewServer checks what b says about itself and returns a server for it. An error
// names the struct, field or value that is wrong.
func NewServer(b Backend) (*Server, error) {
	d := b.Describe()
	schema, err := SchemaOf(d.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	s := &Server{
		backend: b,
		log:     Logger(),
		boxes:   map[string]*box{},
		drained: make(chan struct{}),
		facts: Facts{
			Name: d.Name, Version: d.Version, SDKVersion: Version, Summary: d.Summary, Isolation: d.Isolation,
			Schema: schema, Capabilities: capabilities(b, d),
			Limits: d.Limits, Workspaces: d.Workspaces, Networks: d.Networks, Formats: d.Formats, Environment: d.Environment,
		},
	}
	if len(s.facts.Networks) == 0 {
		s.facts.Networks = []NetworkMode{NetworkNone}
	}
	switch {
	case !isName(d.Name, 32, "-"):
		return nil, fmt.Errorf("%q is no name of a backend: up to 32 of a-z, 0-9 and -, a letter first", d.Name)
	case d.Isolation.Rank() < 0:
		return nil, fmt.Errorf("the isolation %q is not one of none, process, namespace, container, vm, remote-vm",
			d.Isolation)
	}
	if d.Config != nil {
		s.config = reflect.TypeOf(d.Config)
		if s.config.Kind() == reflect.Pointer {
			s.config = s.config.Elem()
		}
		s.fields, _ = fieldsOf(s.config, nil) // SchemaOf went well
	}
	s.base, s.stop = context.WithCancelCause(context.Background())
	return s, nil
}

// capabilities reads the optional interfaces.
func capabilities(b Backend, d Description) []Capability {
	caps := []Capability{CapPlan} // the SDK answers for a backend that has no Planner
	add := func(c Capability, has bool) {
		if has {
			caps = append(caps, c)
		}
	}
	_, attach := b.(Attacher)
	_, list := b.(Lister)
	_, inspect := d.Sandbox.(Inspector)
	_, put := d.Sandbox.(Putter)
	_, get := d.Sandbox.(Getter)
	_, remove := d.Sandbox.(Remover)
	_, changes := d.Sandbox.(ChangeLister)
	_, reset := d.Sandbox.(Resetter)
	_, stop := d.Sandbox.(Stopper)
	_, dial := d.Sandbox.(Dialer)
	add(CapAttach, attach)
	add(CapList, list)
	add(CapInspect, inspect)
	add(CapPut, put)
	add(CapGet, get)
	add(CapRemove, remove)
	add(CapChanges, changes)
	add(CapReset, reset)
	add(CapStop, stop)
	add(CapTTY, d.TTY)
	add(CapSecrets, d.Secrets)
	add(CapDial, dial)
	add(CapObserve, d.Observe)
	add(CapFork, d.Fork)
	add(CapBudget, d.Budget)
	add(CapAhead, d.Ahead && stop)
	add(CapAllow, d.Allow)
	return caps
}

// Facts returns what Describe answers.
func (s *Server) Facts() Facts { return s.facts }

// GRPC returns a gRPC server, made with opts, that answers for the backend. It
// takes bigger messages than gRPC's default, lets the host ask whether it lives,
// and turns panics into errors.
func (s *Server) GRPC(opts ...grpc.ServerOption) *grpc.Server {
	g := s.newGRPC(opts)
	s.register(g)
	return g
}

func (s *Server) newGRPC(opts []grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(slices.Clone(opts),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(windowSize),
		grpc.InitialConnWindowSize(windowSize),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepAliveMin, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
	)...)
}

func (s *Server) register(r grpc.ServiceRegistrar) { pb.RegisterBackendServer(r, &service{Server: s}) }

// Shutdown ends all calls with the given cause, waits for them, and destroys the
// sandboxes that are not to be kept. It may be called more than once; a caller that is
// first does the work, and the others wait for it.
func (s *Server) Shutdown(ctx context.Context, cause error) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		select {
		case <-s.drained:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.draining = true
	boxes := make([]*box, 0, len(s.boxes))
	for _, b := range s.boxes {
		boxes = append(boxes, b)
	}
	s.mu.Unlock()
	defer close(s.drained)
	s.stop(cause)
	errs := make([]error, len(boxes))
	var wg sync.WaitGroup
	for i, b := range boxes {
		wg.Go(func() { errs[i] = s.retire(ctx, b, cause) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// retire ends what a sandbox does, and the sandbox too unless it is to be kept.
func (s *Server) retire(ctx context.Context, b *box, cause error) error {
	b.end(cause)
	if err := b.idle(ctx); err != nil {
		return fmt.Errorf("sandbox %s: still busy: %w", b.id, err)
	}
	if sb, _ := b.get(); b.keep || sb == nil {
		return nil // a creation that failed has cleaned up itself
	}
	if err := guard(s.log, func() error { return s.backend.Destroy(ctx, b.lastHandle()) }); err != nil {
		s.log.Error("sandbox not destroyed", "sandbox", b.id, "error", err)
		return fmt.Errorf("sandbox %s: %w", b.id, err)
	}
	s.forget(b)
	return nil
}

const drainMethod = "/hutch.backend.v1.Backend/Drain"

func (s *Server) admit(method string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		s.first()
		s.first = nil
	}
	if s.draining && method != drainMethod {
		return statusOf(Errorf(ReasonUnavailable, "the backend is shutting down"))
	}
	return nil
}

// sandboxNamer is a request that is about one sandbox.
type sandboxNamer interface{ GetSandboxId() string }

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any,
	err error) {
	if err := s.admit(info.FullMethod); err != nil {
		return nil, err
	}
	log := s.log
	if n, ok := req.(sandboxNamer); ok {
		log = log.With("sandbox", n.GetSandboxId())
	}
	ctx = withLog(ctx, log)
	if info.FullMethod != drainMethod { // which is what ends all others
		var cancel context.CancelFunc
		ctx, cancel = s.bound(ctx)
		defer cancel()
	}
	err = guard(log, func() error {
		var err error
		resp, err = next(ctx, req)
		return err
	})
	if err != nil {
		return nil, statusOf(err)
	}
	return resp, nil
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := s.admit(info.FullMethod); err != nil {
		return err
	}
	return statusOf(guard(s.log, func() error { return next(srv, ss) }))
}

// bound returns a context that ends with ctx or with the server, whose cause it takes.
func (s *Server) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.base, func() { cancel(context.Cause(s.base)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// guard turns a panic of f into an error, with the stack in the log.
func guard(log hclog.Logger, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("the backend panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = &Error{Reason: ReasonInternal, Summary: fmt.Sprintf("the backend panicked: %v", r),
				Fix: "this is a bug in the backend; its log has the stack"}
		}
	}()
	return f()
}
