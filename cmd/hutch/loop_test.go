package main

import (
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/store"
)

// plantLoop records a generate as a loop does, with the runs that are named as its attempts: plantloop RUN...
func plantLoop(ts *testscript.TestScript, neg bool, runs []string) {
	if neg || len(runs) == 0 {
		ts.Fatalf("usage: plantloop RUN...")
	}
	s, err := store.Open(store.Options{Home: ts.Getenv("HUTCH_HOME")})
	ts.Check(err)
	defer s.Close()
	for i, ref := range runs { // before there is a later one
		runs[i], err = s.Resolve(ref)
		ts.Check(err)
	}
	l, err := record.Begin(s, record.New{Kind: store.KindGenerate, Name: "sum", Definition: map[string]any{"task": "add"}})
	ts.Check(err)
	var req model.Request
	for i, id := range runs {
		req.Messages = append(req.Messages, model.Message{Role: model.RoleUser, Text: "add, please\x1b[2J"})
		a := model.Answer{Text: "here you are", Stop: model.StopEnd, Model: "small-1", Usage: model.Usage{InputTokens: 100, OutputTokens: 20}}
		_, err = l.ModelCall(record.ModelCall{Request: req, Answer: a, Started: time.Now(), Took: time.Second})
		ts.Check(err)
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Text: a.Text})
		class := "runtime"
		if i == len(runs)-1 {
			class = "ok"
		}
		ts.Check(l.Attempt(record.Attempt{N: i + 1, Run: id, OK: class == "ok", Class: class}))
	}
	// What really starts the runs gives them their parent, which nobody can do afterwards; this one has it from the start.
	part, err := s.CreateRun(store.NewRun{Name: "part", Parent: l.ID(), Definition: map[string]any{}})
	ts.Check(err)
	_, err = part.Finish(store.End{OK: true, Cause: "exited", Result: map[string]any{"schema": "hutch.result/v1"}})
	ts.Check(err)
	_, err = l.End(store.End{OK: true, Cause: "done", Result: map[string]any{"schema": "test/v1"}})
	ts.Check(err)
}
