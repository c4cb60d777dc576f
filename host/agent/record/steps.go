package record

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hutch-run/hutch/host/store"
)

// stepData is what the events of a run say that is shown of them.
type stepData struct {
	Candidates []struct {
		Name   string
		Chosen bool
	}
	Files     int
	Language  string
	Installer string
	Cached    bool
	Cause     string
	ExitCode  *int `json:"exit_code"`
	Argv      []string
	Counts    map[string]int
	Kept      bool
}

// steps makes nodes of the events of a run. Each step took until the next one began.
func (t *teller) steps(events []store.Event) {
	var last *Node
	for _, e := range events {
		if last != nil {
			last.took(e.Time.Sub(last.Started))
			last = nil
		}
		var d stepData
		if len(e.Data) > 0 && json.Unmarshal(e.Data, &d) != nil {
			continue
		}
		n := &Node{Type: NodeStep, Started: e.Time}
		if n.Name, n.Detail = d.step(e.Type); n.Name != "" {
			t.root.add(n)
			last = n
		}
	}
	if last != nil && t.rec.Ended != nil {
		last.took(t.rec.Ended.Sub(last.Started))
	}
}

// step names a step and says what is worth knowing of it; "" for what is no step.
func (d *stepData) step(of store.EventType) (name, detail string) {
	switch of {
	case store.EventPlan:
		for _, c := range d.Candidates {
			if c.Chosen {
				detail = c.Name
			}
		}
		return "plan", detail
	case store.EventCode:
		return "code", files(d.Files)
	case store.EventDependencies:
		if d.Cached {
			return "dependencies", join(d.Language, "from the cache")
		}
		return "dependencies", join(d.Language, d.Installer)
	case store.EventSandboxCreate:
		return "create", ""
	case store.EventSandboxReady:
		return "ready", ""
	case store.EventExecStart:
		return "exec", oneLine(strings.Join(d.Argv, " "))
	case store.EventExecEnd:
		if d.ExitCode != nil {
			return "ended", fmt.Sprintf("%s %d", d.Cause, *d.ExitCode)
		}
		return "ended", d.Cause
	case store.EventChanges:
		var all []string
		for _, kind := range []string{"added", "modified", "deleted", "mode", "type"} {
			if n := d.Counts[kind]; n > 0 {
				all = append(all, fmt.Sprintf("%d %s", n, kind))
			}
		}
		return "changes", strings.Join(all, ", ")
	case store.EventOutputs:
		return "outputs", files(d.Files)
	case store.EventSandboxDestroy:
		if d.Kept {
			return "keep", ""
		}
		return "destroy", ""
	}
	return "", ""
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}
