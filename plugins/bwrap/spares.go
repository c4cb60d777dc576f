package main

import (
	"sync"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
)

// spares keeps one holder ready, so that its start (a user namespace, and a Go
// program in it) does not add to the time that somebody waits for a sandbox. A
// holder is fit for every workspace whose owner lies in its map of ids. A nil
// *spares keeps none.
type spares struct {
	mu    sync.Mutex
	spare chan started // what is being started, nil if nothing is
	ended bool
}

type started struct {
	id  *identity
	h   *holder.Holder
	err error
}

// warm starts a holder in the background, unless there is one already.
func (s *spares) warm() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare != nil || s.ended {
		return
	}
	c := make(chan started, 1)
	s.spare = c
	go func() { c <- start(0, 0) }()
}

// take returns a holder for a workspace of the given owner.
func (s *spares) take(uid, gid int) (*identity, *holder.Holder, error) {
	if s != nil && uid < diskIDs && gid < diskIDs {
		s.mu.Lock()
		c := s.spare
		s.spare = nil
		s.mu.Unlock()
		if c != nil {
			if x := <-c; x.err == nil {
				x.id.become(uid, gid)
				return x.id, x.h, nil
			}
		}
	}
	x := start(uid, gid)
	return x.id, x.h, x.err
}

// close ends the spare holder; there will be no other.
func (s *spares) close() {
	s.mu.Lock()
	c := s.spare
	s.spare, s.ended = nil, true
	s.mu.Unlock()
	if c == nil {
		return
	}
	if x := <-c; x.err == nil {
		x.h.Close()
		x.id.Close()
	}
}

func start(uid, gid int) started {
	id := newIdentity(uid, gid)
	h, err := holder.Start(id.Identity)
	if err != nil {
		id.Close()
	}
	return started{id, h, err}
}
