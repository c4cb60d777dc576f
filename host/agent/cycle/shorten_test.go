package cycle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/modeltest"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/runfile"
)

const tookOut = "hutch took out this answer of"

// big writes a file that a tool answers in one page, nearly.
func (w *world) big(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.project, "big.txt"), []byte(strings.Repeat("a line of a file that is long\n", 2000)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readBig() modeltest.Step { return modeltest.Calls(call("read_file", `{"path":"big.txt"}`)) }

// long is what of a conversation is still as the tools answered it.
func long(r model.Request) (n int) {
	for _, m := range r.Messages {
		for _, t := range m.Results {
			if len(t.Text) > 60_000 {
				n++
			}
		}
	}
	return n
}

// A conversation that nears the model's context window is shortened from its beginning, and the record has both what
// was sent and what the tools had answered.
func TestContextWindow(t *testing.T) {
	w := newWorld(t)
	w.big(t)
	m := w.says(readBig(), modeltest.Calls(call("write_file", `{"path":"b.txt","content":%q}`, strings.Repeat("b", 20_000))), readBig(), readBig(), readBig(), modeltest.Text("done"))
	const most = 4 * (60_000 - 4_000) // bytes
	r := w.do(t, func(c *runfile.Cycle) { c.Model.Config.ContextWindow, c.Model.Config.MaxTokens = 60_000, 4_000 })
	if !r.OK || r.Shortened != 1 {
		t.Errorf("the result is %+v", r)
	}
	requests := m.Requests()
	for i, req := range requests {
		if req.Size() > most {
			t.Errorf("request %d has %d bytes, and the model takes %d", i, req.Size(), most)
		}
	}
	last := requests[len(requests)-1]
	if n := long(requests[len(requests)-2]); n != 3 {
		t.Errorf("there was room for 3 pages, and %d were there", n)
	}
	if n := long(last); n != 2 {
		t.Errorf("2 pages were to be left, and %d are", n)
	}
	if got := last.Messages[2].Results[0]; !strings.Contains(got.Text, tookOut) || got.IsError {
		t.Errorf("the oldest answer is %.200q", got.Text)
	}
	if got := last.Messages[3].Calls[0].Arguments; len(got) > 300 || !strings.Contains(got, `"path":"b.txt"`) || !strings.Contains(got, "made with 20000 bytes here") {
		t.Errorf("the long arguments are %.300q", got)
	}
	past, err := record.Open(w.Store, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(last.Messages, past.Request.Messages[:len(last.Messages)]); d != "" {
		t.Errorf("the record would go on with another conversation (-sent +recorded):\n%s", d)
	}
	if c := past.Calls[len(past.Calls)-1]; c.Shortened < 100_000 || len(c.Asked) != 1 || past.Calls[0].Shortened != 0 {
		t.Errorf("the record says that the last request was shortened by %d bytes, and prolonged by %d messages", c.Shortened, len(c.Asked))
	}
	if len(past.Calls[0].Tools[0].Result) < 60_000 || w.read(t, "b.txt") != "" || len(past.Calls[1].Tools[0].Arguments) < 20_000 {
		t.Error("what a tool was asked, or answered, is not in the record any more")
	}
}

// What tools answered just now is cut off when it alone is too long.
func TestAnswersAreTooLongAtOnce(t *testing.T) {
	w := newWorld(t)
	w.big(t)
	m := w.says(modeltest.Calls(call("read_file", `{"path":"big.txt"}`), call("read_file", `{"path":"big.txt"}`), call("read_file", `{"path":"a.txt"}`)), modeltest.Text("done"))
	r := w.do(t, func(c *runfile.Cycle) { c.Model.Config.ContextWindow, c.Model.Config.MaxTokens = 30_000, 4_000 })
	results := m.Requests()[1].Messages[2].Results
	if !r.OK || m.Requests()[1].Size() > 4*26_000 || !strings.Contains(results[0].Text, "ask for less at once") || !strings.Contains(results[2].Text, "hello") {
		t.Errorf("the result is %+v, the request has %d bytes", r, m.Requests()[1].Size())
	}
}

// A provider that refuses a conversation for its length gets a shorter one, for as long as there is something to take
// out.
func TestTooLong(t *testing.T) {
	refused := modeltest.Step{Err: &model.Error{Kind: model.KindTooLong, Message: "too long"}}
	w := newWorld(t)
	w.big(t)
	m := w.says(readBig(), readBig(), readBig(), refused, refused, readBig(), modeltest.Text("done"))
	if r := w.do(t, nil); !r.OK || r.Shortened != 3 || r.Turns != 5 {
		t.Errorf("the result is %+v", r)
	}
	requests := m.Requests()
	for i, want := range []int{0, 1, 2, 3, 1, 0, 0} {
		if got := long(requests[i]); got != want {
			t.Errorf("request %d has %d long answers, want %d", i, got, want)
		}
	}

	w = newWorld(t)
	w.says(refused)
	if r := w.do(t, nil); r.OK || r.Outcome != ModelFailed || !strings.Contains(r.Reason, "too long; nothing is left in the conversation that could be taken out") || r.Sandbox.Kept {
		t.Errorf("the result is %+v", r)
	}

	w = newWorld(t)
	forever := make([]modeltest.Step, 40)
	for i := range forever {
		forever[i] = refused
	}
	m = w.says(append([]modeltest.Step{readBig(), readBig()}, forever...)...)
	if r := w.do(t, nil); r.OK || r.Outcome != ModelFailed {
		t.Errorf("the result is %+v", r)
	}
	if n := len(m.Requests()); n > 20 {
		t.Errorf("the model was asked %d times", n)
	}
}

// fit changes nothing that somebody else holds, and leaves calls and results together.
func TestFit(t *testing.T) {
	text := strings.Repeat("ü", 5_000)
	r := model.Request{System: "s", Messages: []model.Message{{Role: model.RoleUser, Text: text}}}
	for range 4 {
		c := call("edit_file", `{"path":"x","edits":[{"old":%q,"new":""}],"n":12345678901234567890}`, text)
		r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Text: text, Calls: []model.ToolCall{c, {ID: c.ID + "b", Name: "x", Arguments: "{" + text}}},
			model.Message{Role: model.RoleTool, Results: []model.ToolResult{{ID: c.ID, Text: text}, {ID: c.ID + "b", Text: text, IsError: true}}})
	}
	same := clone(r)
	for most := r.Size() + 1; most > 1; most = most / 7 * 6 {
		got, saved := fit(r, most)
		if d := cmp.Diff(same, r); d != "" {
			t.Fatalf("with %d bytes, what was given was changed:\n%s", most, d)
		}
		if saved != r.Size()-got.Size() || saved < 0 || (saved == 0) != (r.Size() <= most) {
			t.Errorf("with %d bytes, %d were taken out of %d, and %d are left", most, saved, r.Size(), got.Size())
		}
		for i, m := range got.Messages {
			was := r.Messages[i]
			if m.Role != was.Role || m.Text != was.Text || len(m.Calls) != len(was.Calls) || len(m.Results) != len(was.Results) {
				t.Fatalf("with %d bytes, message %d is %+v", most, i, m)
			}
			for j, c := range m.Calls {
				if c.ID != was.Calls[j].ID || c.Name != was.Calls[j].Name || strings.HasPrefix(c.Arguments, `{"`) && !strings.Contains(c.Arguments, "12345678901234567890") {
					t.Fatalf("with %d bytes, a call is %.300q", most, c)
				}
			}
			for j, res := range m.Results {
				if res.ID != was.Results[j].ID || res.IsError != was.Results[j].IsError || strings.ToValidUTF8(res.Text, "") != res.Text {
					t.Fatalf("with %d bytes, a result is %.300q", most, res.Text)
				}
			}
		}
	}
}

// clone is a copy that shares nothing.
func clone(r model.Request) model.Request {
	out := model.Request{System: r.System}
	for _, m := range r.Messages {
		m.Calls, m.Results = append([]model.ToolCall(nil), m.Calls...), append([]model.ToolResult(nil), m.Results...)
		out.Messages = append(out.Messages, m)
	}
	return out
}

// FuzzArguments shortens and shows whatever a model calls a tool with.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"path":"a","n":1e400}`, `{"argv":["a","b\nc"]}`, `{"content":"` + strings.Repeat("x\\n", worth) + `","l":[["` + strings.Repeat("é", worth) + `"]]}`, `[]`, `null`, "x"} {
		f.Add(s, 100)
	}
	f.Fuzz(func(t *testing.T, args string, excess int) {
		if short := shortArguments(args); len(short) > len(args) || json.Valid([]byte(args)) && !json.Valid([]byte(short)) {
			t.Errorf("%d bytes became %q", len(args), short)
		}
		m := model.Message{Role: model.RoleTool, Results: []model.ToolResult{{Text: args}, {Text: args + args}}}
		if c := cutOff(m, excess); c.Size() > m.Size() || len(c.Results) != 2 || m.Results[0].Text != args {
			t.Errorf("%d bytes became %d", m.Size(), c.Size())
		}
	})
}
