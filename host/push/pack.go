package push

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/hutch-run/hutch/host/git/bundle"
)

// packing is a bundle that is being made. Git finds and compresses what belongs to it while other things are done, and
// what it has written waits in a pipe.
type packing struct {
	ends  []string // where the history in it ends
	sent  int64    // bytes that were read
	r     *os.File
	wrote chan error // git's end
	ended bool
	err   error // valid once ended
	stop  context.CancelFunc
}

// pack begins to make a bundle; close ends that, whether or not it was read.
func pack(ctx context.Context, w *Work, part bundle.Part) (*packing, error) {
	r, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &packing{ends: part.Ends, r: r, wrote: make(chan error, 1), stop: stop}
	go func() {
		err := bundle.Write(ctx, w.Repo, w.Commit, w.Branch, part, pw)
		p.wrote <- errors.Join(err, pw.Close())
	}()
	return p, nil
}

// whole begins to make a bundle of the history, as much of it as depth says.
func whole(ctx context.Context, w *Work, depth int) (*packing, error) {
	ends, err := w.Repo.Ends(ctx, w.Commit, depth)
	if err != nil {
		return nil, err
	}
	return pack(ctx, w, bundle.Part{Ends: ends})
}

// Read implements [io.Reader]. The end of the pipe is the end of the bundle only when git is content.
func (p *packing) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.sent += int64(n)
	if err == io.EOF {
		if werr := p.wait(); werr != nil {
			err = werr
		}
	}
	return n, err
}

func (p *packing) wait() error {
	if !p.ended {
		p.ended, p.err = true, <-p.wrote
	}
	return p.err
}

// close ends git, if it has not ended.
func (p *packing) close() {
	p.stop()
	_ = p.r.Close()
	_ = p.wait() // a reader that came to the end has seen the error
}
