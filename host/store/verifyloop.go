package store

import (
	"encoding/json"
	"fmt"
)

// toldRun is a run that an event of a loop names as a part of it, with the head of its chain.
type toldRun struct {
	event uint64
	Run   string `json:"run"`
	Head  string `json:"head"`
}

// note keeps what an event of a loop says about a run.
func (t *told) note(e Event) {
	if e.Type != EventAttempt && e.Type != EventToolCall {
		return
	}
	r := toldRun{event: e.Seq}
	if json.Unmarshal(e.Data, &r) == nil && r.Run != "" {
		t.runs = append(t.runs, r)
	}
}

// parts compares what a loop says about its runs with what the audit chain knows of them, also of those that hutch
// removed since. That a run is what the audit chain knows is the matter of its own report.
func (t *told) parts(known map[string]auditKnown, rep *Report) {
	for _, r := range t.runs {
		rep.parts = append(rep.parts, r.Run)
		k := known[r.Run]
		wrong := func(format string, args ...any) {
			rep.find(Finding{Problem: ProblemHeadMismatch, Event: r.event, Detail: fmt.Sprintf("run %s: ", r.Run) + fmt.Sprintf(format, args...)})
		}
		switch {
		case k.begin == nil:
			wrong("the audit chain does not know it")
		case r.Head == "": // it was interrupted
		case k.end == nil:
			wrong("the loop knows its end, and the audit chain does not")
		case k.end.Head != r.Head:
			wrong("the loop knows its chain up to %s, and the audit chain up to %s: one of them was replaced", short(r.Head), short(k.end.Head))
		}
	}
}
