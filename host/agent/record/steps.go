package record

import (
	"encoding/json"
	"fmt"

	"github.com/hutch-run/hutch/host/store"
)

// steps makes nodes of the events of a run. Each step took until the next one began.
func (t *teller) steps(events []store.Event) {
	var last *Node
	for _, e := range events {
		if last != nil {
			last.took(e.Time.Sub(last.Started))
			last = nil
		}
		n := &Node{Type: NodeStep, Started: e.Time}
		var d struct {
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
		if len(e.Data) > 0 && json.Unmarshal(e.Data, &d) != nil {
			continue
		}
		switch e.Type {
		case store.EventPlan:
			n.Name = "plan"
			for _, c := range d.Candidates {
				if c.Chosen {
					n.Detail = c.Name
				}
			}
		case store.EventCode:
			n.Name, n.Detail = "code", files(d.Files)
		case store.EventDependencies:
			n.Name, n.Detail = "dependencies", join(d.Language, d.Installer)
			if d.Cached {
				n.Detail = join(d.Language, "from the cache")
			}
		case store.EventSandboxCreate:
			n.Name = "create"
		case store.EventSandboxReady:
			n.Name = "ready"
		case store.EventExecStart:
			n.Name = "exec"
			if b, err := json.Marshal(d.Argv); err == nil {
				n.Detail = gist(fmt.Sprintf(`{"argv":%s}`, b))
			}
		case store.EventExecEnd:
			n.Name, n.Detail = "ended", d.Cause
			if d.ExitCode != nil {
				n.Detail = fmt.Sprintf("%s %d", d.Cause, *d.ExitCode)
			}
		case store.EventChanges:
			n.Name, n.Detail = "changes", counts(d.Counts)
		case store.EventOutputs:
			n.Name, n.Detail = "outputs", files(d.Files)
		case store.EventSandboxDestroy:
			n.Name = "destroy"
			if d.Kept {
				n.Name = "keep"
			}
		default:
			continue
		}
		t.root.add(n)
		last = n
	}
	if last != nil && t.rec.Ended != nil {
		last.took(t.rec.Ended.Sub(last.Started))
	}
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

func counts(m map[string]int) string {
	text := ""
	for _, kind := range []string{"added", "modified", "deleted", "mode", "type"} {
		if n := m[kind]; n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, kind)
		}
	}
	return text
}
