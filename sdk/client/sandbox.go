package client

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/internal/fields"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

// ChunkSize is the most bytes of a file that one message carries.
const ChunkSize = 256 << 10

// Sandbox is one sandbox of the backend.
type Sandbox struct {
	c     *Client
	ready sdk.Ready

	mu     sync.Mutex
	handle sdk.Handle
}

// ID returns the id that the host chose.
func (s *Sandbox) ID() string { return s.Handle().ID }

// Handle returns what finds the sandbox again.
func (s *Sandbox) Handle() sdk.Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handle
}

// Ready says what the sandbox really is.
func (s *Sandbox) Ready() sdk.Ready { return s.ready }

// Create makes a sandbox. req.Allocated is called for every handle, and must
// have it on disk when it returns; an error from it ends the creation.
// req.Progress and req.Allocated may be nil. When ctx ends or anything fails, the
// backend leaves nothing behind.
func (c *Client) Create(ctx context.Context, req *sdk.CreateRequest) (*Sandbox, error) {
	spec, err := specTo(&req.Spec)
	if err != nil {
		return nil, c.wrap("create", err)
	}
	ctx, quiet, cancel := c.progressing(ctx, "create", c.opt.SlowTimeout)
	defer cancel()
	stream, err := c.rpc.Create(ctx)
	if err != nil {
		return nil, c.fail(ctx, "create", err)
	}
	start := &pb.CreateStart{}
	fields.Copy(start, req)
	start.Spec = spec
	// on io.EOF Recv has the reason
	if err := stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: start}}); err != nil &&
		!errors.Is(err, io.EOF) {
		return nil, c.fail(ctx, "create", err)
	}
	s := &Sandbox{c: c, handle: sdk.Handle{ID: req.ID, StateDir: req.StateDir}}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return nil, c.fail(ctx, "create", err)
		}
		quiet.begin()
		switch ev := ev.GetEvent().(type) {
		case *pb.CreateEvent_Progress:
			if req.Progress != nil {
				req.Progress(ev.Progress.GetStep(), ev.Progress.GetDone(), ev.Progress.GetTotal())
			}
		case *pb.CreateEvent_Allocated:
			h := handleFrom(ev.Allocated)
			if h.ID != req.ID {
				return nil, c.wrap("create", sdk.Errorf(sdk.ReasonInternal, "the backend gave a handle of sandbox %s", quote(h.ID)))
			}
			if req.Allocated != nil {
				if err := req.Allocated(h); err != nil {
					return nil, c.wrap("create", err)
				}
			}
			// A message may still leave after its context ended. The backend would take this one for leave to go on, and
			// may be done before it hears of the end.
			if ctx.Err() != nil {
				return nil, c.wrap("create", context.Cause(ctx))
			}
			h.StateDir = req.StateDir
			s.mu.Lock()
			s.handle = h
			s.mu.Unlock()
			if err := stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Stored{Stored: &pb.HandleStored{}}}); err != nil && !errors.Is(err, io.EOF) {
				return nil, c.fail(ctx, "create", err)
			}
		case *pb.CreateEvent_Ready:
			s.ready = readyFrom(ev.Ready)
			return s, nil
		}
	}
}

// Adopt returns a sandbox that another client of the same backend process has made, for calls by this one.
func (c *Client) Adopt(s *Sandbox) *Sandbox {
	return &Sandbox{c: c, handle: s.Handle(), ready: s.ready}
}

// Attach finds a sandbox again by its handle, made by this process or another one.
func (c *Client) Attach(ctx context.Context, h sdk.Handle) (*Sandbox, error) {
	r, err := call(ctx, c, "attach", c.opt.SlowTimeout, c.rpc.Attach, &pb.AttachRequest{Handle: handleTo(h)})
	if err != nil {
		return nil, err
	}
	return &Sandbox{c: c, handle: h, ready: readyFrom(r.GetReady())}, nil
}

// Inspect says how the sandbox is.
func (s *Sandbox) Inspect(ctx context.Context) (sdk.Status, error) {
	r, err := call(ctx, s.c, "inspect", s.c.opt.Timeout, s.c.rpc.Inspect, &pb.InspectRequest{SandboxId: s.ID()})
	if err != nil {
		return sdk.Status{}, err
	}
	return sdk.Status{State: sdk.State(r.GetState()), Details: r.GetDetails()}, nil
}

// Put writes what r holds at path inside the sandbox.
func (s *Sandbox) Put(ctx context.Context, path string, format sdk.Format, r io.Reader) error {
	ctx, w, cancel := s.c.waiting(ctx, "put")
	defer cancel()
	stream, err := s.c.rpc.Put(ctx)
	if err != nil {
		return s.c.fail(ctx, "put", err)
	}
	w.begin()
	err = stream.Send(&pb.PutRequest{Request: &pb.PutRequest_Header{Header: s.header(path, format)}})
	buf := make([]byte, ChunkSize)
	for err == nil {
		w.end()
		n, rerr := io.ReadFull(r, buf)
		w.begin()
		if n > 0 {
			err = stream.Send(&pb.PutRequest{Request: &pb.PutRequest_Data{Data: buf[:n]}})
		}
		if rerr == io.EOF || rerr == io.ErrUnexpectedEOF {
			break
		}
		if rerr != nil {
			return s.c.wrap("put", rerr) // cancel shows the backend that it is not the end
		}
	}
	// A Send that failed says only io.EOF; the reason comes with the answer.
	if _, err := stream.CloseAndRecv(); err != nil {
		return s.c.fail(ctx, "put", err)
	}
	return nil
}

// Get writes what is at path inside the sandbox to w. Every byte of it is hostile. How far it is the backend may tell,
// see [sdk.WithProgress].
func (s *Sandbox) Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error {
	ctx, waits, cancel := s.c.waiting(ctx, "get")
	defer cancel()
	stream, err := s.c.rpc.Get(ctx, &pb.GetRequest{Header: s.header(path, format)})
	if err != nil {
		return s.c.fail(ctx, "get", err)
	}
	tell := sdk.Progress(ctx)
	for {
		waits.begin()
		m, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return s.c.fail(ctx, "get", err)
		}
		waits.end()
		if p := m.GetProgress(); p != nil {
			tell(p.GetStep(), p.GetDone(), p.GetTotal())
		}
		if len(m.GetData()) == 0 {
			continue
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return s.c.wrap("get", err)
		}
	}
}

// Remove removes what is at path inside the sandbox; a directory only with recursive.
func (s *Sandbox) Remove(ctx context.Context, path string, recursive bool) error {
	req := &pb.RemoveRequest{SandboxId: s.ID(), Path: []byte(path), Recursive: recursive}
	_, err := call(ctx, s.c, "remove", s.c.opt.SlowTimeout, s.c.rpc.Remove, req)
	return err
}

// Changes returns what differs between the workspace and the directory it was
// made from, in path order.
func (s *Sandbox) Changes(ctx context.Context) ([]sdk.Change, error) {
	ctx, cancel := s.c.deadline(ctx, "changes", s.c.opt.SlowTimeout)
	defer cancel()
	stream, err := s.c.rpc.Changes(ctx, &pb.ChangesRequest{SandboxId: s.ID()})
	if err != nil {
		return nil, s.c.fail(ctx, "changes", err)
	}
	var out []sdk.Change
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, s.c.fail(ctx, "changes", err)
		}
		for _, c := range m.GetChanges() {
			out = append(out, changeFrom(c))
		}
	}
}

// Stop ends all that runs in the sandbox and gives back what it holds besides its files.
func (s *Sandbox) Stop(ctx context.Context) error {
	_, err := call(ctx, s.c, "stop", s.c.opt.SlowTimeout, s.c.rpc.Stop, &pb.StopRequest{SandboxId: s.ID()})
	return err
}

// Wake makes a sandbox that is stopped or asleep ready again. progress, which may be nil, gets how far that is.
func (s *Sandbox) Wake(ctx context.Context, progress func(step string, done, total int64)) error {
	ctx, quiet, cancel := s.c.progressing(ctx, "start", s.c.opt.SlowTimeout)
	defer cancel()
	stream, err := s.c.rpc.Start(ctx, &pb.StartRequest{SandboxId: s.ID()})
	if err != nil {
		return s.c.fail(ctx, "start", err)
	}
	for {
		ev, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return s.c.fail(ctx, "start", err)
		}
		quiet.begin()
		if p := ev.GetProgress(); p != nil && progress != nil {
			progress(p.GetStep(), p.GetDone(), p.GetTotal())
		}
	}
}

// Reset recreates the sandbox; the writes to the workspace stay unless hard.
func (s *Sandbox) Reset(ctx context.Context, hard bool) error {
	_, err := call(ctx, s.c, "reset", s.c.opt.SlowTimeout, s.c.rpc.Reset, &pb.ResetRequest{SandboxId: s.ID(), Hard: hard})
	return err
}

// Destroy removes the sandbox and all that Create made.
func (s *Sandbox) Destroy(ctx context.Context) error { return s.c.Destroy(ctx, s.Handle()) }

func (s *Sandbox) header(path string, format sdk.Format) *pb.TransferHeader {
	return &pb.TransferHeader{SandboxId: s.ID(), Path: []byte(path), Format: string(format)}
}
