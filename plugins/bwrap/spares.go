package main

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk/hostids"
)

// spares keeps holders that have no sandbox: one that is started before anybody
// waits for it, and those whose sandbox has ended. A start (a user namespace, and
// a Go program in it) costs more than all the mounts of a sandbox. A holder is
// fit for every workspace whose owner lies in its map of ids. A nil *spares keeps
// none.
//
// What a holder is used again for shares with what was before no more than the
// range of host ids and the processors it runs on: each sandbox has a mount
// namespace of its own, each command all the others, and a holder that did not
// come clean is ended.
type spares struct {
	mu     sync.Mutex
	coming chan started // what is being started, nil if nothing is
	idle   []*started   // the last one was used last
	ended  bool
}

// A holder sees the host's mounts as they were when it started, and later ones only where the host shares them. An idle
// one ends within this time after they changed, so that it keeps none of them busy; that process is the plugin of a
// `hutch serve`, or of another host that goes on.
const idleTime = 5 * time.Second

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
	if s.coming != nil || len(s.idle) > 0 || s.ended {
		return
	}
	c := make(chan started, 1)
	s.coming = c
	go func() { c <- start(0, 0) }()
}

// take returns a holder for a workspace of the given owner.
func (s *spares) take(uid, gid int) (*identity, *holder.Holder, error) {
	if s != nil && uid < hostids.OnDisk && gid < hostids.OnDisk {
		if x := s.spare(); x != nil && x.err == nil {
			x.id.become(uid, gid)
			return x.id, x.h, nil
		}
	}
	x := start(uid, gid)
	return x.id, x.h, x.err
}

// spare takes a holder out of s, or nil.
func (s *spares) spare() *started {
	s.mu.Lock()
	for n := len(s.idle); n > 0; n = len(s.idle) {
		x := s.idle[n-1]
		s.idle = s.idle[:n-1]
		select {
		case <-x.h.Gone(): // killed meanwhile
			x.end()
		default:
			s.mu.Unlock()
			return x
		}
	}
	c := s.coming
	s.coming = nil
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	x := <-c
	return &x
}

// give takes a holder back whose sandbox is to end. The sandbox has ended on
// return, and so has the holder if there is no further use for it.
func (s *spares) give(id *identity, h *holder.Holder) {
	x := &started{id: id, h: h}
	if s == nil || !id.general() || h.Clear() != nil {
		x.end()
		return
	}
	s.mu.Lock()
	keep := !s.ended && len(s.idle) < runtime.GOMAXPROCS(0)
	if keep {
		s.idle = append(s.idle, x)
		time.AfterFunc(idleTime, func() { s.expire(x) })
	}
	s.mu.Unlock()
	if !keep {
		x.end()
	}
}

// expire ends a holder that saw other mounts, unless it has been taken meanwhile.
func (s *spares) expire(x *started) {
	s.mu.Lock()
	i := slices.Index(s.idle, x)
	if i >= 0 && !x.id.mountsChanged() {
		time.AfterFunc(idleTime, func() { s.expire(x) })
		i = -1
	}
	if i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
	s.mu.Unlock()
	if i >= 0 {
		x.end()
	}
}

// close ends all spare holders; there will be no others.
func (s *spares) close() {
	s.mu.Lock()
	c, idle := s.coming, s.idle
	s.coming, s.idle, s.ended = nil, nil, true
	s.mu.Unlock()
	for _, x := range idle {
		x.end()
	}
	if c == nil {
		return
	}
	if x := <-c; x.err == nil {
		x.end()
	}
}

func start(uid, gid int) started {
	id := newIdentity(uid, gid)
	id.mounts = openMounts()
	h, err := holder.Start(id.Identity)
	if err != nil {
		id.Close()
	}
	return started{id, h, err}
}

// end ends a holder and gives its ids back.
func (x *started) end() {
	x.h.Close()
	x.id.Close()
}
