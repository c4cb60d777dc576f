package client

import (
	"sync"
	"time"
)

// silenceAfter is how long a backend may be silent in a call before the host is notified; a call that has less time
// than twice that, after half of it.
const silenceAfter = 30 * time.Second

// silence notifies the host, at longer and longer intervals, that nothing comes of a call.
type silence struct {
	tell  func(call string, silent, most time.Duration)
	call  string
	first time.Duration
	most  time.Duration // after which the call fails; 0 when something else bounds it
	room  time.Duration // of the time there is, no matter who set it; 0 for none
	// limit, if there is one, ends the call where nothing comes for as long as limited says.
	limit   *time.Timer
	limited time.Duration

	mu    sync.Mutex
	t     *time.Timer // nil while the backend is not waited for
	since time.Time
	next  time.Duration
}

// silence returns one that has not begun. most is how long the call may take, 0 when it is not bounded here.
func (c *Client) silence(call string, most time.Duration) *silence {
	s := &silence{tell: c.opt.Silent, call: call, first: silenceAfter, most: most, room: most}
	if most > 0 {
		s.first = min(s.first, most/2)
	}
	return s
}

// begin says that the backend is waited for, from now on or, since it has said something, again.
func (s *silence) begin() {
	if s.limit != nil {
		s.limit.Reset(s.limited)
	}
	if s.tell == nil || s.first <= 0 { // there is no time left to be silent in
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.next = time.Now(), s.first
	if s.t == nil {
		s.t = time.AfterFunc(s.next, s.over)
	} else {
		s.t.Reset(s.next)
	}
}

// end says that the backend is not waited for any more.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t != nil {
		s.t.Stop()
		s.t = nil
	}
}

func (s *silence) over() {
	s.mu.Lock()
	silent := time.Since(s.since)
	if s.t == nil || silent < s.next { // it has ended, or begun again, meanwhile
		s.mu.Unlock()
		return
	}
	silent = s.next
	s.next *= 2
	if s.room == 0 || s.next < s.room { // else its end is reported next
		s.t.Reset(s.next - silent)
	}
	s.mu.Unlock()
	s.tell(s.call, silent, s.most)
}
