package ui

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
)

const (
	maxTurns = 100     // of a conversation, the last ones
	maxSaid  = 8 << 10 // bytes of one text of it
)

// talk is what was said in a generate or cycle, as far as it went.
type talk struct {
	Budget  []spent
	Earlier int // turns before those
	Turns   []turn
}

// spent is a part of the budget.
type spent struct {
	What, Used, Of string
	Share          int // in percent
}

// turn is one answer of the model, with what it was asked before, what its tools did, and what was tried then.
type turn struct {
	N     int
	Texts []said
	Tools []tool
	Tries []try
}

// said is a text of one side.
type said struct {
	Who  string // asked, model or error
	Text string
	Long bool // it is folded
}

type tool struct {
	Name, Gist, Arguments, Result, Run string
	Failed                             bool
}

type try struct {
	N           int
	OK          bool
	Class, More string
	Run         string
}

// conversation reads what was said in a loop.
func conversation(s *store.Store, i store.Info) (*talk, error) {
	p, err := record.Open(s, i.ID)
	if err != nil {
		return nil, err
	}
	t := &talk{Budget: budget(p)}
	tries := map[int][]try{}
	for _, a := range p.Attempts {
		tries[a.Call] = append(tries[a.Call], try{a.N, a.OK, a.Class, a.Detail, a.Run})
	}
	t.Earlier = max(0, len(p.Calls)-maxTurns)
	for _, c := range p.Calls[t.Earlier:] {
		n := turn{N: c.N, Tries: tries[c.N]}
		for _, m := range c.Asked {
			if m.Role == model.RoleUser {
				n.say("asked", m.Text)
			}
		}
		switch {
		case c.Error != nil:
			n.say("error", c.Error.Kind+": "+c.Error.Message)
		case c.Answer != nil:
			n.say("model", c.Answer.Text)
		}
		for _, a := range c.Tools {
			n.Tools = append(n.Tools, tool{a.Name, record.Gist(a.Arguments), clipped(a.Arguments), clipped(a.Result), a.Run,
				a.IsError})
		}
		t.Turns = append(t.Turns, n)
	}
	return t, nil
}

func (t *turn) say(who, text string) {
	if text = strings.TrimSpace(text); text != "" {
		t.Texts = append(t.Texts, said{who, clipped(text), len(text) > 600 || strings.Count(text, "\n") > 8})
	}
}

// clipped bounds a text of a model, which is hostile, and makes it printable.
func clipped(s string) string {
	if len(s) > maxSaid {
		s = strings.ToValidUTF8(s[:maxSaid], "") + fmt.Sprintf("\n… and %d bytes more", len(s)-maxSaid)
	}
	return termsafe.String(s)
}

// budget is what the loop may use, and has used.
func budget(p *record.Past) (list []spent) {
	var d struct {
		Model     struct{ Budget model.Budget }
		Attempts  int
		ToolCalls int `json:"tool_calls"`
	}
	if json.Unmarshal(p.Definition, &d) != nil {
		return nil
	}
	add := func(what string, used, of int64, text func(int64) string) {
		if of > 0 {
			list = append(list, spent{what, text(used), text(of), int(min(100, used*100/of))})
		}
	}
	tools, number := 0, func(n int64) string { return fmt.Sprint(n) }
	for _, c := range p.Calls {
		tools += len(c.Tools)
	}
	end := time.Now()
	if p.Info.Ended != nil {
		end = *p.Info.Ended
	}
	add("attempts", int64(len(p.Attempts)), int64(d.Attempts), number)
	add("answers", int64(len(p.Calls)), int64(d.Model.Budget.Turns), number)
	add("tokens", p.Usage.InputTokens+p.Usage.OutputTokens, d.Model.Budget.Tokens, number)
	add("tool calls", int64(tools), int64(d.ToolCalls), number)
	add("time", int64(end.Sub(p.Info.Started)), int64(d.Model.Budget.Time),
		func(n int64) string { return time.Duration(n).Round(time.Second).String() })
	return list
}
