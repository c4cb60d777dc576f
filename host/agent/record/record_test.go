package record

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/store"
)

const secret = `pa"ss<w>ord`

func newStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{Home: filepath.Join(t.TempDir(), "home")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, s *store.Store, kind store.Kind) *Loop {
	t.Helper()
	l, err := Begin(s, New{Kind: kind, Name: "sum", File: "hutch.hcl", Definition: map[string]any{"task": "add", "env": secret}, Secrets: []string{secret}})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

type result struct {
	Schema string         `json:"schema"`
	Said   string         `json:"said"`
	Events store.ChainRef `json:"events,omitzero"`
}

func end(t *testing.T, l *Loop) {
	t.Helper()
	_, err := l.End(store.End{OK: true, Cause: "done", Result: result{Schema: "test/v1", Said: "it was " + secret}})
	must(t, err)
}

var tools = []model.Tool{{Name: "run_command", Description: "runs", Schema: json.RawMessage(`{"type":"object"}`)}}

// talk is a conversation of two calls, of which the first asks for two tools. It returns the second request.
func talk(t *testing.T, l *Loop) model.Request {
	t.Helper()
	req := model.Request{System: "you are careful with " + secret, Tools: tools, Messages: []model.Message{{Role: model.RoleUser, Text: "do it"}}}
	calls := []model.ToolCall{{ID: "a", Name: "run_command", Arguments: `{"argv":["echo","pa\"ss<w>ord"]}`}, {ID: "b", Name: "nonsense", Arguments: `{bad`}}
	n, err := l.ModelCall(ModelCall{Request: req, Answer: model.Answer{Text: "I begin", Calls: calls, Stop: model.StopTools, Usage: model.Usage{InputTokens: 10, OutputTokens: 3}}, Started: time.Now(), Took: time.Second})
	must(t, err)
	if n != 1 {
		t.Fatalf("call %d", n)
	}
	results := []model.ToolResult{{ID: "a", Text: "it said " + secret}, {ID: "b", Text: "no such tool", IsError: true}}
	for i, c := range calls {
		must(t, l.ToolCall(ToolCall{Call: c, Result: results[i], Started: time.Now(), Took: time.Millisecond}))
	}
	req.Messages = append(req.Messages, assistant(model.Answer{Text: "I begin", Calls: calls}), model.Message{Role: model.RoleTool, Results: results})
	_, err = l.ModelCall(ModelCall{Request: req, Answer: model.Answer{Text: "done", Stop: model.StopEnd, Usage: model.Usage{InputTokens: 20, OutputTokens: 4}}, Started: time.Now()})
	must(t, err)
	return req
}

// TestLoopFromBeginToEnd: what is recorded can be read again, without the secrets.
func TestLoopFromBeginToEnd(t *testing.T) {
	s := newStore(t)
	l := begin(t, s, store.KindCycle)
	must(t, l.State("coding", map[string]string{"sandbox": "s1"}))
	req := talk(t, l)
	must(t, l.Attempt(Attempt{N: 1, OK: true, Class: "ok"}))
	end(t, l)

	p, err := Open(s, l.ID())
	must(t, err)
	if p.State != "coding" || string(p.StateData) != `{"sandbox":"s1"}` || !p.Done || len(p.Attempts) != 1 {
		t.Errorf("%+v", p)
	}
	if diff := cmp.Diff(model.Usage{InputTokens: 30, OutputTokens: 7}, p.Usage); diff != "" {
		t.Error(diff)
	}
	want := req
	want.System = "you are careful with (sensitive)"
	want.Messages = append(want.Messages, model.Message{Role: model.RoleAssistant, Text: "done"})
	want.Messages[1].Calls[0].Arguments = `{"argv":["echo","(sensitive)"]}`
	want.Messages[2].Results[0].Text = "it said (sensitive)"
	if diff := cmp.Diff(want, p.Request, cmp.Transformer("json", func(r json.RawMessage) string { return strings.Join(strings.Fields(string(r)), "") })); diff != "" {
		t.Error(diff)
	}
	rep, err := s.Verify(t.Context(), l.ID())
	must(t, err)
	if !rep.OK || len(rep.Findings) > 0 {
		t.Errorf("%+v", rep)
	}
	must(t, filepath.WalkDir(l.Dir(), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, form := range []string{secret, `pa\"ss`, `ss<w>`, `ss\u003cw`} {
			if strings.Contains(string(b), form) {
				t.Errorf("%s has the secret as %s", path, form)
			}
		}
		return err
	}))
}

// TestRequestsHoldWhatIsNew: the files of a long conversation together are about as long as the conversation.
func TestRequestsHoldWhatIsNew(t *testing.T) {
	s := newStore(t)
	l := begin(t, s, store.KindGenerate)
	req := model.Request{System: strings.Repeat("s", 1000), Tools: tools}
	for range 20 {
		req.Messages = append(req.Messages, model.Message{Role: model.RoleUser, Text: strings.Repeat("u", 1000)})
		_, err := l.ModelCall(ModelCall{Request: req, Answer: model.Answer{Text: strings.Repeat("a", 1000)}})
		must(t, err)
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Text: strings.Repeat("a", 1000)})
	}
	// The conversation is cut down, as one that got too long is.
	req.Messages = append(req.Messages[:1:1], model.Message{Role: model.RoleUser, Text: "shorter"})
	_, err := l.ModelCall(ModelCall{Request: req, Answer: model.Answer{Text: "ok"}})
	must(t, err)
	p, err := Open(s, l.ID())
	must(t, err)
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Text: "ok"})
	if diff := cmp.Diff(req.Messages, p.Request.Messages); diff != "" {
		t.Error(diff)
	}
	var size int64
	entries, err := os.ReadDir(filepath.Join(l.Dir(), "calls"))
	must(t, err)
	for _, e := range entries {
		fi, err := e.Info()
		must(t, err)
		size += fi.Size()
	}
	if size > 60_000 {
		t.Errorf("%d bytes for a conversation of 41,000", size)
	}
}

// TestFailedCallsAreRecorded: what a provider answered instead of an answer is there, and the conversation without it.
func TestFailedCallsAreRecorded(t *testing.T) {
	s := newStore(t)
	l := begin(t, s, store.KindGenerate)
	req := model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "hi"}}}
	for _, err := range []error{&model.Error{Kind: model.KindRate, Status: 429, Message: "slow down, " + secret}, &model.BudgetError{What: "turns", Used: "3", Limit: "3"}, errors.New("other")} {
		_, werr := l.ModelCall(ModelCall{Request: req, Err: err})
		must(t, werr)
	}
	p, err := Open(s, l.ID())
	must(t, err)
	var got []*Failure
	for _, c := range p.Calls {
		got = append(got, c.Error)
	}
	want := []*Failure{{"rate", 429, "slow down, (sensitive)"}, {"budget", 0, (&model.BudgetError{What: "turns", Used: "3", Limit: "3"}).Error()}, {"other", 0, "other"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(req.Messages, p.Request.Messages); diff != "" {
		t.Error(diff)
	}
}

// TestAttemptsNameTheirRuns: the events of a loop hold the heads of the chains of its runs.
func TestAttemptsNameTheirRuns(t *testing.T) {
	s := newStore(t)
	l := begin(t, s, store.KindGenerate)
	run, err := s.CreateRun(store.NewRun{Name: "attempt", Parent: l.ID(), Definition: map[string]any{}})
	must(t, err)
	ended, err := run.Finish(store.End{OK: true, Cause: "exited", Result: result{Schema: "hutch.result/v1"}})
	must(t, err)
	head := ended.Head
	must(t, l.Attempt(Attempt{N: 1, Run: run.ID(), Class: "ok", OK: true}))
	if err := l.Attempt(Attempt{N: 2, Run: "261121-034512-c3k7q2"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
	p, err := Open(s, l.ID())
	must(t, err)
	if diff := cmp.Diff([]AttemptData{{N: 1, Run: run.ID(), Head: head, OK: true, Class: "ok"}}, p.Attempts); diff != "" {
		t.Error(diff)
	}
	if _, err := Open(s, run.ID()); err == nil {
		t.Error("a run was read as a loop")
	}
	if _, err := Begin(s, New{Kind: store.KindRun}); err == nil {
		t.Error("a run was begun as a loop")
	}
}

// TestStepGoesOn: a command goes on while its network decides.
func TestStepGoesOn(t *testing.T) {
	tree, begun := &treeBuilder{root: &Node{}, rec: &store.Record{}}, time.Now()
	tree.steps([]store.Event{
		{Type: store.EventExecStart, Time: begun}, {Type: store.EventNetworkDecided, Time: begun.Add(time.Second)},
		{Type: store.EventNetworkOpened, Time: begun.Add(2 * time.Second)}, {Type: store.EventExecEnd, Time: begun.Add(time.Minute)},
	})
	if n := tree.root.Children; len(n) != 2 || *n[0].Took != 60_000 {
		t.Errorf("the steps are %+v", n)
	}
}
