package record

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// part is a finished run of a loop.
func part(t *testing.T, s *store.Store, l *Loop, name string, code int) string {
	t.Helper()
	run, err := s.CreateRun(store.NewRun{Name: name, Parent: l.ID(), Definition: map[string]any{}})
	must(t, err)
	_, err = run.Finish(store.End{OK: code == 0, Cause: "exited", ExitCode: &code, Result: result{Schema: "hutch.result/v1"}})
	must(t, err)
	return run.ID()
}

// generated is a loop of two attempts and an error of the provider between them.
func generated(t *testing.T, s *store.Store) *Loop {
	l := begin(t, s, store.KindGenerate)
	req := model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "add\nnumbers"}}}
	call := func(a model.Answer, err error) {
		t.Helper()
		_, werr := l.ModelCall(ModelCall{Request: req, Answer: a, Err: err, Started: time.Now(), Took: 3200 * time.Millisecond})
		must(t, werr)
	}
	call(model.Answer{Text: "first", Stop: model.StopEnd, Model: "small-1", Usage: model.Usage{InputTokens: 812, OutputTokens: 140}}, nil)
	must(t, l.Attempt(Attempt{N: 1, Run: part(t, s, l, "sum", 1), Class: "syntax", Detail: "SyntaxError: invalid \x1b[31msyntax (main.py, line 3)"}))
	call(model.Answer{}, &model.Error{Kind: model.KindServer, Status: 529, Message: "overloaded"})
	call(model.Answer{Text: "second", Stop: model.StopEnd, Model: "small-1", Usage: model.Usage{InputTokens: 12_345, OutputTokens: 1_700_000}, Retries: 2}, nil)
	must(t, l.Attempt(Attempt{N: 2, Run: part(t, s, l, "sum", 0), OK: true, Class: "ok"}))
	end(t, l)
	return l
}

// cycled is a loop with states, tools and a command, which nobody has ended.
func cycled(t *testing.T, s *store.Store) *Loop {
	l := begin(t, s, store.KindCycle)
	must(t, l.State("set-up", nil))
	must(t, l.State("coding", nil))
	calls := []model.ToolCall{
		{ID: "1", Name: "read_file", Arguments: `{"path":"ünï/日本.py"}`},
		{ID: "2", Name: "run_command", Arguments: `{"command":"pytest -q\n  --maxfail 1"}`},
		{ID: "3", Name: "run_command", Arguments: `{bad`},
	}
	req := model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "work"}}}
	_, err := l.ModelCall(ModelCall{Request: req, Answer: model.Answer{Stop: model.StopTools, Calls: calls, Usage: model.Usage{InputTokens: 1024, OutputTokens: 88}}, Started: time.Now(), Took: 65 * time.Second})
	must(t, err)
	must(t, l.ToolCall(ToolCall{Call: calls[0], Result: model.ToolResult{ID: "1", Text: "x = 1"}, Took: 4 * time.Millisecond}))
	must(t, l.ToolCall(ToolCall{Call: calls[1], Result: model.ToolResult{ID: "2", Text: "1 failed"}, Run: part(t, s, l, "pytest", 1), Took: 1400 * time.Millisecond}))
	must(t, l.ToolCall(ToolCall{Call: calls[2], Result: model.ToolResult{ID: "3", Text: "the arguments are not JSON\nmore", IsError: true}, Took: 0}))
	part(t, s, l, "interrupted-before-it-was-said", 0)
	must(t, l.State("sync-back", nil))
	return l
}

var (
	ids = regexp.MustCompile(`\d{6}-\d{6}-[0-9a-z]{6}`)
)

// TestTree draws loops as goldens say. What they really took is not the same twice, so the times below a second are
// masked.
func TestTree(t *testing.T) {
	s := newStore(t)
	for name, c := range map[string]struct {
		loop  *Loop
		style Style
	}{
		"generate":        {generated(t, s), Style{}},
		"generate-ascii":  {generated(t, s), Style{ASCII: true}},
		"generate-narrow": {generated(t, s), Style{Width: 110}},
		"cycle":           {cycled(t, s), Style{Color: true}},
	} {
		t.Run(name, func(t *testing.T) {
			tree, err := Tree(s, c.loop.ID())
			must(t, err)
			clearShort(tree)
			var b bytes.Buffer
			must(t, tree.WriteText(&b, c.style))
			golden(t, name+".txt", ids.ReplaceAllString(b.String(), "261121-000000-abcdef"))
			for line := range strings.Lines(b.String()) {
				if strings.Contains(strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(line, "\x1b[m", ""), "\x1b[3", ""), "\x1b[2m", ""), "\x1b") {
					t.Errorf("a control character comes through: %q", line)
				}
			}
		})
	}
}

// clearShort sets what depends on the machine to one value.
func clearShort(n *Node) {
	if n.Took != nil && n.Type != NodeModel && n.Type != NodeTool {
		n.took(1500 * time.Millisecond)
	}
	for _, c := range n.Children {
		clearShort(c)
	}
}

// TestTreeIsData: the JSON of a tree can be read again, and has the sums.
func TestTreeIsData(t *testing.T) {
	s := newStore(t)
	l := generated(t, s)
	tree, err := Tree(s, l.ID())
	must(t, err)
	b, err := json.Marshal(tree)
	must(t, err)
	var again Node
	must(t, json.Unmarshal(b, &again))
	if again.Schema != TreeSchema || again.Type != "generate" || again.OK == nil || !*again.OK || again.Usage.InputTokens != 812+12_345 || len(again.Children) != 2 {
		t.Errorf("%s", b)
	}
	first := again.Children[0]
	if first.Type != NodeAttempt || len(first.Children) != 2 || first.Children[1].Outcome != "exit 1" || first.Children[1].ID == "" {
		t.Errorf("%s", b)
	}
	must(t, s.Remove(first.Children[1].ID))
	tree, err = Tree(s, l.ID())
	must(t, err)
	if got := tree.Children[0].Children[1].Outcome; got != "removed" {
		t.Errorf("a run that is gone is %q", got)
	}
	// What cannot be read is left out; the rest is drawn.
	must(t, os.Remove(filepath.Join(l.Dir(), "calls", "0001.answer.json")))
	if _, err := Tree(s, l.ID()); err != nil {
		t.Error(err)
	}
}

func TestTranscript(t *testing.T) {
	s := newStore(t)
	p, err := Open(s, cycled(t, s).ID())
	must(t, err)
	var b bytes.Buffer
	must(t, p.WriteTranscript(&b))
	golden(t, "transcript.txt", b.String())
}

func TestCounts(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.0k", 1999: "1.9k", 10_000: "10k", 999_999: "999k", 1_250_000: "1.2M", 25_000_000: "25M"} {
		if got := count(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0ms", 999 * time.Millisecond: "999ms", 1950 * time.Millisecond: "1.9s", 59 * time.Second: "59s", 125 * time.Second: "2m05s", 62 * time.Minute: "1h02m"} {
		if got := span(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	for s, want := range map[string]string{"abcdef": "abc…", "abcd": "abcd", "日本語": "日…"} {
		if got := cut(s, 4, "…"); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-want +got), -update accepts it:\n%s", path, diff)
	}
}
