package run

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"
)

// Trace collects spans of runs. A nil Trace records nothing. It is safe for concurrent use.
type Trace struct {
	zero   time.Time
	mu     sync.Mutex
	events []traceEvent
	lanes  int
}

// traceEvent is one event of Chrome's trace event format.
type traceEvent struct {
	Name  string            `json:"name"`
	Cat   string            `json:"cat,omitempty"`
	Phase string            `json:"ph"`
	TS    float64           `json:"ts"`            // microseconds
	Dur   float64           `json:"dur,omitempty"` // microseconds
	PID   int               `json:"pid"`
	TID   int               `json:"tid"`
	Args  map[string]string `json:"args,omitempty"`
}

// NewTrace starts a trace whose zero may lie in the past, such as at the start of the process.
func NewTrace(zero time.Time) *Trace { return &Trace{zero: zero} }

// Span records what was done outside of any run, such as reading the run file. It ends when the function that it
// returns is called.
func (t *Trace) Span(name string) (end func()) {
	if t == nil {
		return func() {}
	}
	s := &span{t: t, name: name, start: time.Now()}
	return s.end
}

// Since records a span from the zero of the trace until now.
func (t *Trace) Since(name string) {
	if t != nil {
		(&span{t: t, name: name, start: t.zero}).end()
	}
}

// WriteTo writes what was recorded as Chrome trace event JSON, which Perfetto and chrome://tracing open. Every run is
// one thread of it.
func (t *Trace) WriteTo(w io.Writer) (int64, error) {
	t.mu.Lock()
	doc := struct {
		Events []traceEvent `json:"traceEvents"`
		Unit   string       `json:"displayTimeUnit"`
	}{append([]traceEvent{}, t.events...), "ms"}
	t.mu.Unlock()
	b, err := json.Marshal(doc)
	if err != nil {
		return 0, err
	}
	return io.Copy(w, bytes.NewReader(append(b, '\n')))
}

// span is one stretch of time. A nil span records nothing.
type span struct {
	t     *Trace
	name  string
	lane  int
	start time.Time
	args  map[string]string
}

// run begins the lane of a run.
func (t *Trace) run(id, name string) *span {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes++
	t.events = append(t.events, traceEvent{Name: "thread_name", Phase: "M", PID: os.Getpid(), TID: t.lanes,
		Args: map[string]string{"name": "run " + name}})
	return &span{t: t, name: "run " + name, lane: t.lanes, start: time.Now(), args: map[string]string{"id": id}}
}

func (s *span) child(name string) *span {
	if s == nil {
		return nil
	}
	return &span{t: s.t, name: name, lane: s.lane, start: time.Now()}
}

func (s *span) end() {
	if s == nil {
		return
	}
	now := time.Now()
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.events = append(s.t.events, traceEvent{
		Name: s.name, Cat: "hutch", Phase: "X", TS: us(s.start.Sub(s.t.zero)), Dur: us(now.Sub(s.start)), PID: os.Getpid(),
		TID: s.lane, Args: s.args,
	})
}
