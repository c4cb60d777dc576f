package sdk

import (
	"bufio"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

const (
	chunkSize   = 256 << 10 // bytes of a file in one message
	changeBatch = 1000      // changes in one message
)

func (s *service) Put(stream grpc.ClientStreamingServer[pb.PutRequest, pb.PutResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	h := first.GetHeader()
	if h == nil {
		return Errorf(ReasonConfig, "the first message of a put must be its header")
	}
	b, sb, leave, err := s.use(h.GetSandboxId())
	if err != nil {
		return err
	}
	defer leave()
	p, ok := sb.(Putter)
	if !ok {
		return unsupported("putting files")
	}
	if err := s.speaks(h); err != nil {
		return err
	}
	ctx, cancel := b.within(withLog(stream.Context(), s.log.With("sandbox", b.id)))
	defer cancel(nil)
	if err := p.Put(ctx, string(h.GetPath()), Format(h.GetFormat()), &putReader{stream: stream}); err != nil {
		return err
	}
	return stream.SendAndClose(&pb.PutResponse{})
}

func (s *Server) speaks(h *pb.TransferHeader) error {
	if !slices.Contains(s.facts.Formats, Format(h.GetFormat())) {
		return Errorf(ReasonUnsupported, "this backend does not take files as %q", h.GetFormat())
	}
	return nil
}

// putReader reads the bytes of a Put. It returns io.EOF only when the host said
// that all is sent: a connection that breaks is another error, and never a short file.
type putReader struct {
	stream grpc.ClientStreamingServer[pb.PutRequest, pb.PutResponse]
	left   []byte
	err    error
}

func (r *putReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		m, err := r.stream.Recv()
		if err != nil {
			r.err = err
			continue
		}
		r.left = m.GetData()
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (s *service) Get(r *pb.GetRequest, stream grpc.ServerStreamingServer[pb.GetResponse]) error {
	h := r.GetHeader()
	b, sb, leave, err := s.use(h.GetSandboxId())
	if err != nil {
		return err
	}
	defer leave()
	g, ok := sb.(Getter)
	if !ok {
		return unsupported("getting files")
	}
	if err := s.speaks(h); err != nil {
		return err
	}
	ctx, cancel := b.within(withLog(stream.Context(), s.log.With("sandbox", b.id)))
	defer cancel(nil)
	out := &getWriter{stream: stream}
	ctx = WithProgress(ctx, out.progress)
	// A tar writer writes many small pieces; each message costs.
	w := bufio.NewWriterSize(out, chunkSize)
	if err := g.Get(ctx, string(h.GetPath()), Format(h.GetFormat()), w); err != nil {
		return err
	}
	return w.Flush()
}

// getWriter sends the bytes of a Get, and how far it is.
type getWriter struct {
	mu     sync.Mutex
	stream grpc.ServerStreamingServer[pb.GetResponse]
}

func (w *getWriter) send(m *pb.GetResponse) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stream.Send(m)
}

// Write implements [io.Writer].
func (w *getWriter) Write(p []byte) (int, error) {
	n := 0
	for chunk := range slices.Chunk(p, chunkSize) {
		if err := w.send(&pb.GetResponse{Data: chunk}); err != nil {
			return n, err
		}
		n += len(chunk)
	}
	return n, nil
}

func (w *getWriter) progress(step string, done, total int64) {
	_ = w.send(&pb.GetResponse{Progress: &pb.Progress{Step: utf8(step), Done: done, Total: total}}) // a host that does not listen hears of the end
}

func (s *service) Remove(ctx context.Context, r *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	b, sb, leave, err := s.use(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer leave()
	rm, ok := sb.(Remover)
	if !ok {
		return nil, unsupported("removing files")
	}
	ctx, cancel := b.within(ctx)
	defer cancel(nil)
	if err := rm.Remove(ctx, string(r.GetPath()), r.GetRecursive()); err != nil {
		return nil, err
	}
	return &pb.RemoveResponse{}, nil
}

func (s *service) Changes(r *pb.ChangesRequest, stream grpc.ServerStreamingServer[pb.ChangesResponse]) error {
	b, sb, leave, err := s.use(r.GetSandboxId())
	if err != nil {
		return err
	}
	defer leave()
	c, ok := sb.(ChangeLister)
	if !ok {
		return unsupported("listing changes")
	}
	ctx, cancel := b.within(withLog(stream.Context(), s.log.With("sandbox", b.id)))
	defer cancel(nil)
	changes, err := c.Changes(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(changes, changeBatch) {
		m := &pb.ChangesResponse{Changes: make([]*pb.Change, len(batch))}
		for i, ch := range batch {
			m.Changes[i] = changeTo(ch)
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
