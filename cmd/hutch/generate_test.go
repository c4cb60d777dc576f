package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/generate"
	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
)

// TestGenerateOnATerminal has the golden file say what a terminal is sent while a model writes: each piece of an answer
// replaces the line of progress, which is cut at the terminal's width and gone before anything that stays.
func TestGenerateOnATerminal(t *testing.T) {
	painted := make(chan string, 100)
	u := &ui{errTTY: true, width: 40, err: writerFunc(func(p []byte) (int, error) {
		painted <- string(p)
		return len(p), nil
	})}
	g := &runfile.Generate{Name: "report", Attempts: 2, Model: &runfile.Model{Config: model.Config{Name: "local", Model: "small-\x1b[31m1"}}}
	w := newWatch(u, &generateCmd{Output: "text"}, g)
	var sent strings.Builder
	until := func(text string) { // a line of progress comes once it stands for longer than a moment
		t.Helper()
		for bound := time.After(20 * time.Second); ; {
			select {
			case p := <-painted:
				if sent.WriteString(p); strings.HasSuffix(p, text) {
					return
				}
			case <-bound:
				t.Fatalf("no %q in %q", text, sent.String())
			}
		}
	}
	tell := w.watch()
	tell.Begun("261121-140136-7vpz3k")
	tell.Asking(1)
	until("asking local")
	tell.Said(1, "print")
	tell.Said(1, "(1 + ")
	tell.Said(1, "ä")
	tell.Ended(generate.Attempt{N: 1, Class: generate.ClassAnswer, Summary: "no program could be made of the answer\nof the model"})
	tell.Asking(2)
	until("asking local")
	tell.Said(2, strings.Repeat("x", 1234))
	tell.Ended(generate.Attempt{N: 2, Class: generate.ClassOutput, File: "main.py", Line: 3, Summary: "sum.json is not there"})
	until("sum.json is not there\n")
	got := strings.ReplaceAll(strings.ReplaceAll(sent.String(), "\x1b", "␛"), "\r", "␍")
	const golden = "testdata/generate/terminal.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("what the terminal is sent (-want +got):\n%s", d)
	}
}

// What is said about the backend is said once, and not for each attempt.
func TestA7(t *testing.T) {
	var said strings.Builder
	u := &ui{err: writerFunc(func(p []byte) (int, error) { return said.Write(p) })}
	w := newWatch(u, &generateCmd{Output: "text"}, &runfile.Generate{Name: "report", Attempts: 2, Model: &runfile.Model{}}).watch()
	for range 2 {
		w.Result(&result.Result{Notes: []string{"podman runs as root", "another"}})
	}
	if got := said.String(); got != "hutch: podman runs as root\nhutch: another\n" {
		t.Errorf("it says %q", got)
	}
}
