package main

import (
	"sync"
	"time"
)

// steps says what is being done: each step, once something has gone on for as long as patience says. What is quick says
// nothing, and scripts see nothing of it.
type steps struct {
	patience time.Duration
	tell     func(text string)

	mu  sync.Mutex
	all map[string]*stepping // by name of who works
}

// stepping is how far one of them is.
type stepping struct {
	last, printed string
	flows         bool // it takes long, and each step is printed
	timer         *time.Timer
}

// plainPatience is the patience of a call: above what anything takes that boots no VM and downloads nothing.
const plainPatience = 5 * time.Second

// step takes in what is being done for name.
func (s *steps) step(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.all[name]
	if st == nil {
		st = &stepping{}
		st.timer = time.AfterFunc(s.patience, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.all[name] == st {
				st.flows = true
				s.say(st)
			}
		})
		if s.all == nil {
			s.all = map[string]*stepping{}
		}
		s.all[name] = st
	}
	if st.last = text; st.flows {
		s.say(st)
	}
}

// say prints the step, unless it was printed already. It is called with mu held.
func (s *steps) say(st *stepping) {
	if st.last != st.printed {
		st.printed = st.last
		s.tell(st.last)
	}
}

// end says that what was being done for name is done.
func (s *steps) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.all[name]; st != nil {
		st.timer.Stop()
		delete(s.all, name)
	}
}

// endAll is end for everybody.
func (s *steps) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, st := range s.all {
		st.timer.Stop()
		delete(s.all, name)
	}
}
