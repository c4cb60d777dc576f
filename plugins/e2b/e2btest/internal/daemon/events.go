package daemon

import (
	"sync"

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// hub hands the events of one process to its current listeners. Nothing is kept for later listeners but the end.
// A listener that does not take its events holds up the process, as envd's do.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	end       *process.ProcessEvent
}

// listener is one stream that is notified of a process.
type listener struct {
	events chan *process.ProcessEvent
	gone   chan struct{} // closed when the stream is over
}

// listen adds a listener; of a process that has ended it returns the end instead.
func (h *hub) listen() (*listener, *process.ProcessEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		return nil, h.end
	}
	l := &listener{events: make(chan *process.ProcessEvent), gone: make(chan struct{})}
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	return l, nil
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	close(l.gone)
}

// tell gives an event to all listeners there are; of the end those who come later hear too.
func (h *hub) tell(event *process.ProcessEvent) {
	h.mu.Lock()
	if event.GetEnd() != nil {
		h.end = event
	}
	var to []*listener
	for l := range h.listeners {
		to = append(to, l)
	}
	h.mu.Unlock()
	for _, l := range to {
		select {
		case l.events <- event:
		case <-l.gone:
		}
	}
}
