package cycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/modeltest"
	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/host/workspace/review"
)

func TestWorks(t *testing.T) {
	w := newWorld(t)
	w.When = OnSuccess
	var states []string
	w.Progress = func(p Progress) {
		if p.State != "" {
			states = append(states, p.State)
		}
	}
	m := w.says(
		modeltest.Calls(call("list_files", ""), call("read_file", `{"path":"src/main.sh"}`)),
		modeltest.Calls(call("edit_file", `{"path":"src/main.sh","edits":[{"old":"one","new":"three"}]}`), done("It says three.")),
		modeltest.Calls(call("apply_patch", `{"patch":%q}`, "--- a/src/main.sh\n+++ b/src/main.sh\n@@ -1 +1 @@\n-echo three\n+echo two\n"), call("write_file", `{"path":"new.txt","content":"n"}`), call("run_command", `{"command":"cat new.txt; sh src/main.sh"}`)),
		modeltest.Text("It says two now."),
	)
	r := w.do(t, func(c *runfile.Cycle) {
		c.Setup = []string{"sh", "-c", "test -f a.txt"}
		c.Check = []string{"sh", "-c", `test "$(sh src/main.sh)" = two`}
	})
	if !r.OK || r.Outcome != Done || r.Summary != "It says two now." || r.State != StateTearDown || !r.Apply.Done || r.Sandbox.Kept {
		t.Errorf("the result is %+v", r)
	}
	if diff := cmp.Diff([]review.Item{{Path: "new.txt", Kind: "added"}, {Path: "src/main.sh", Kind: "modified"}}, r.Changes); diff != "" {
		t.Error(diff)
	}
	if len(r.Checks) != 2 || r.Checks[0].OK || !r.Checks[1].OK || r.Setup == nil || !r.Setup.OK || r.Turns != 4 || r.ToolCalls != 7 || r.ToolErrors != 1 {
		t.Errorf("checks %+v, setup %+v, %d turns, %d calls, %d errors", r.Checks, r.Setup, r.Turns, r.ToolCalls, r.ToolErrors)
	}
	if diff := cmp.Diff([]string{StateSetUp, StateCoding, StateSyncBack, StateTearDown}, states); diff != "" {
		t.Error(diff)
	}
	if w.read(t, "src/main.sh") != "echo two\n" || w.read(t, "new.txt") != "n" {
		t.Errorf("the project has %q and %q", w.read(t, "src/main.sh"), w.read(t, "new.txt"))
	}
	requests := m.Requests()
	if !strings.Contains(requests[0].Messages[0].Text, "Make main.sh say two.") || !strings.Contains(requests[0].System, "done only if it succeeds") {
		t.Errorf("the model was asked %+v", requests[0])
	}
	said := requests[2].Messages
	if last := said[len(said)-1].Results[1]; !last.IsError || !strings.Contains(last.Text, "did not succeed (exit code 1)") {
		t.Errorf("of the check that failed, the model got %+v", last)
	}
	if last := requests[3].Messages[len(requests[3].Messages)-1].Results[2]; !strings.Contains(last.Text, `"text":"ntwo\n"`) {
		t.Errorf("of the command, the model got %+v", last)
	}
	// Every command is its own run, which names the cycle, and the record has no key.
	runs, err := w.Store.List(store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	parents := 0
	for _, i := range runs {
		if i.Parent == r.ID {
			parents++
		}
	}
	if parents != 4 { // set-up, two checks, a command
		t.Errorf("%d runs name the cycle as their parent", parents)
	}
	_ = filepath.WalkDir(r.Dir, func(p string, d os.DirEntry, err error) error {
		if b, _ := os.ReadFile(p); strings.Contains(string(b), "hunter2hunter2") {
			t.Errorf("%s holds the key", p)
		}
		return err
	})
}

// What is wrong with a call is answered with an error, and the work goes on.
func TestBadCalls(t *testing.T) {
	w := newWorld(t)
	same := call("read_file", `{"path":"a.txt"}`)
	many := make([]model.ToolCall, maxAtOnce+2)
	for i := range many {
		many[i] = call("read_file", `{"path":"a.txt"}`)
	}
	m := w.says(
		modeltest.Calls(
			call("exec", `{}`),
			call("", `{}`),
			call("read_file", `{"path":`),
			call("read_file", `{"path":7}`),
			call("read_file", `{"pth":"a.txt"}`),
			call("read_file", `{"path":"../../etc/passwd"}`),
			call("write_file", `{"path":"x","content":%q}`, strings.Repeat("x", 4<<20)),
			same, same,
			model.ToolCall{Name: "read_file", Arguments: `{"path":"a.txt"}`},
			call(finishTool, `{"outcome":"maybe","summary":""}`),
			call(finishTool, `{"outcome":"done"}`),
			call("run_command", `{}`),
			call("run_command", `{"command":"true","timeout":"soon"}`),
			call("command_output", `{"job":"job-99"}`),
			call("apply_patch", `{"patch":"what?"}`),
			call("grep", `{"pattern":"("}`),
		),
		modeltest.Calls(same),
		modeltest.Calls(many...),
		modeltest.Text(""),
		modeltest.Step{Answer: model.Answer{Text: "I was about to", Stop: model.StopLength}},
		modeltest.Calls(call("write_file", `{"path":"b.txt","content":"b"}`), done("enough"), call("write_file", `{"path":"c.txt","content":"c"}`)),
	)
	r := w.do(t, nil)
	if !r.OK || r.Summary != "enough" {
		t.Errorf("the result is %+v", r)
	}
	requests := m.Requests()
	results := func(n int) []model.ToolResult {
		messages := requests[n].Messages
		return messages[len(messages)-1].Results
	}
	for i, want := range []string{
		`no tool "exec"; the tools are list_files`, `no tool ""`, "not valid JSON", `"path" must be a string`, `no argument "pth"`, "outside of the workspace",
		"at most 4MiB", "", "the id of this call was used", "", "neither done nor blocked", `"summary" is missing`, "give either command", "timeout", "no job", "nothing was changed", "no regular expression",
	} {
		got := results(1)[i]
		if (want != "") != got.IsError || !strings.Contains(got.Text, want) {
			t.Errorf("call %d: %+v, want %q", i, got, want)
		}
	}
	if got := results(2)[0]; !got.IsError || !strings.Contains(got.Text, "the id of this call was used") {
		t.Errorf("an id of an earlier answer: %+v", got)
	}
	if got := results(3); len(got) != len(many) || got[maxAtOnce-1].IsError || !got[maxAtOnce].IsError {
		t.Errorf("many calls at once: %d results", len(got))
	}
	for n, want := range map[int]string{4: "was empty", 5: "was cut off"} {
		messages := requests[n].Messages
		if last := messages[len(messages)-1]; last.Role != model.RoleUser || !strings.Contains(last.Text, want) {
			t.Errorf("request %d ends with %+v, want %q", n, last, want)
		}
	}
	// Whatever ids the model gave, in what is sent every call has one of its own, and a result.
	ids := map[string]bool{}
	last := requests[len(requests)-1].Messages
	for i, msg := range last {
		for j, c := range msg.Calls {
			if c.ID == "" || ids[c.ID] {
				t.Errorf("the id %q is there twice", c.ID)
			}
			ids[c.ID] = true
			if last[i+1].Results[j].ID != c.ID {
				t.Errorf("the result of %q is one of %q", c.ID, last[i+1].Results[j].ID)
			}
		}
	}
	if diff := cmp.Diff([]review.Item{{Path: "b.txt", Kind: "added"}}, r.Changes); diff != "" { // c.txt comes after the end
		t.Error(diff)
	}
}

// However coding ends, what changed can be reviewed, and the sandbox is gone only when there is nothing to review.
func TestEnds(t *testing.T) {
	change := modeltest.Calls(call("write_file", `{"path":"b.txt","content":"b"}`))
	forever := func(n int) (steps []modeltest.Step) {
		for range n {
			steps = append(steps, modeltest.Calls(call("read_file", `{"path":"a.txt"}`)))
		}
		return steps
	}
	for name, c := range map[string]struct {
		steps   []modeltest.Step
		change  func(*runfile.Cycle)
		outcome string
		reason  string
		kept    bool
	}{
		"blocked":           {[]modeltest.Step{change, modeltest.Calls(call(finishTool, `{"outcome":"blocked","summary":"no compiler"}`))}, nil, Blocked, "cannot go on", true},
		"nothing changed":   {[]modeltest.Step{modeltest.Text("There is nothing to do.")}, nil, Done, "", false},
		"blocked, no diff":  {[]modeltest.Step{modeltest.Calls(call(finishTool, `{"outcome":"blocked","summary":"?"}`))}, nil, Blocked, "", false},
		"refused":           {[]modeltest.Step{change, {Answer: model.Answer{Text: "I will not.", Stop: model.StopRefused}}}, nil, Refused, "would not", true},
		"refused by server": {[]modeltest.Step{change, {Err: &model.Error{Kind: model.KindRefused, Message: "policy"}}}, nil, Refused, "policy", true},
		"model error":       {[]modeltest.Step{change, {Err: &model.Error{Kind: model.KindAuth, Message: "no such key", Hint: "set one"}}}, nil, ModelFailed, "no such key; set one", true},
		"turns":             {append([]modeltest.Step{change}, forever(5)...), func(c *runfile.Cycle) { c.Model.Config.Budget.Turns = 3 }, OverBudget, "turns", true},
		"tokens":            {append([]modeltest.Step{change}, forever(5)...), func(c *runfile.Cycle) { c.Model.Config.Budget.Tokens = 40 }, OverBudget, "tokens", true},
		"tool calls":        {append([]modeltest.Step{change}, forever(9)...), func(c *runfile.Cycle) { c.ToolCalls = 2 }, OverBudget, "tool calls", true},
		"never checks out":  {[]modeltest.Step{change, modeltest.Text("done"), change, modeltest.Text("really done")}, func(c *runfile.Cycle) { c.Check, c.Model.Config.Budget.Turns = []string{"false"}, 4 }, OverBudget, "turns", true},
		"only words":        {[]modeltest.Step{change, modeltest.Text("I cannot."), modeltest.Text("I really cannot.")}, func(c *runfile.Cycle) { c.Check = []string{"false"} }, Blocked, "answers in words", true},
		"setup fails":       {nil, func(c *runfile.Cycle) { c.Setup = []string{"sh", "-c", "echo x >setup.txt; exit 3"} }, SetupFailed, "exit code 3", true},
		"no such backend":   {nil, func(c *runfile.Cycle) { c.Box.Backends = []*runfile.Backend{runfile.NewBackend("none")} }, Failed, "none", false},
		"time": {[]modeltest.Step{change, {Do: func(ctx context.Context, _ model.Request) (model.Answer, error) {
			<-ctx.Done()
			return model.Answer{}, context.Cause(ctx)
		}}}, func(c *runfile.Cycle) { c.Model.Config.Budget.Time = units.Duration(5 * time.Second) }, OverBudget, "time", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.When = OnSuccess
			w.says(c.steps...)
			r := w.do(t, c.change)
			if r.Outcome != c.outcome || !strings.Contains(r.Reason, c.reason) || r.OK != (c.outcome == Done) {
				t.Errorf("the outcome is %s, %q", r.Outcome, r.Reason)
			}
			if got := r.Sandbox != nil && r.Sandbox.Kept; got != c.kept || len(r.Changes) > 0 != c.kept || !r.ChangesKnown {
				t.Errorf("kept: %v, changes %+v", got, r.Changes)
			}
			if w.read(t, "b.txt") != "" || w.read(t, "setup.txt") != "" {
				t.Error("what did not succeed was applied")
			}
			if r.State != StateTearDown {
				t.Errorf("the last state is %s", r.State)
			}
		})
	}
}

// An interrupt ends a command, and the rest follows.
func TestInterrupt(t *testing.T) {
	w := newWorld(t)
	w.When = OnSuccess
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	w.says(modeltest.Calls(call("write_file", `{"path":"b.txt","content":"b"}`), call("run_command", `{"command":"echo >started; exec sleep 1000"}`), call("write_file", `{"path":"c.txt","content":"c"}`)))
	job, err := work(w.project, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // once the command runs
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			runs, err := w.Store.List(store.Filter{})
			if err == nil && len(runs) == 2 {
				break
			}
		}
		cancel(errors.New("interrupted"))
	}()
	r, err := Run(ctx, w.Options, job)
	if err != nil {
		t.Fatal(err)
	}
	w.verify(t, r)
	if r.Outcome != Interrupted || r.OK || !r.Sandbox.Kept || len(r.Changes) == 0 || r.Changes[0].Path != "b.txt" || w.read(t, "b.txt") != "" {
		t.Errorf("the result is %+v", r)
	}
	for _, c := range r.Changes {
		if c.Path == "c.txt" {
			t.Error("a call was made after the interrupt")
		}
	}
}

// An apply that meets something leaves the sandbox, and says why.
func TestApplyConflict(t *testing.T) {
	w := newWorld(t)
	w.When = OnSuccess
	w.says(
		modeltest.Calls(call("write_file", `{"path":"a.txt","content":"theirs\n"}`)),
		modeltest.Step{Do: func(context.Context, model.Request) (model.Answer, error) {
			err := os.WriteFile(filepath.Join(w.project, "a.txt"), []byte("ours\n"), 0o644)
			return model.Answer{Text: "done", Stop: model.StopEnd}, err
		}},
	)
	r := w.do(t, nil)
	if !r.OK || r.Apply.Done || r.Apply.Problem == "" || r.ApplyError() == nil || !r.Sandbox.Kept || r.Changes[0].Conflict == "" {
		t.Errorf("the result is %+v", r)
	}
	if w.read(t, "a.txt") != "ours\n" {
		t.Error("the user's version is gone")
	}
}

// Cycles on one project at once, under one id, keep out of each other's way.
func TestParallel(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	results := make([]*Result, 3)
	for i := range results {
		own := w.Options
		m := modeltest.New(
			modeltest.Calls(call("write_file", `{"path":"n%d.txt","content":"%d"}`, i, i), call("run_command", `{"argv":["sh","-c","ls n*.txt"]}`)),
			modeltest.Calls(done("done")))
		own.Open = func(context.Context, model.Config) (model.Client, error) { return m, nil }
		job, err := work(w.project, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			r, err := Run(t.Context(), own, job)
			if err != nil {
				t.Error(err)
			}
			results[i] = r
		})
	}
	wg.Wait()
	for i, r := range results {
		if r == nil || !r.OK || !r.Sandbox.Kept || len(r.Changes) != 1 || r.Changes[0].Path != fmt.Sprintf("n%d.txt", i) {
			t.Errorf("cycle %d: %+v", i, r)
			continue
		}
		past, err := record.Open(w.Store, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got := past.Calls[0].Tools[1].Result; !strings.Contains(got, fmt.Sprintf(`"text":"n%d.txt\n"`, i)) {
			t.Errorf("cycle %d saw another one's files: %s", i, got)
		}
		if err := w.Apply(t.Context(), r.Sandbox.ID); i == 0 && (err != nil || w.read(t, "n0.txt") != "0") {
			t.Errorf("cycle %d: what it changed cannot be brought back: %v", i, err)
		}
	}
}

func TestSpec(t *testing.T) {
	w := newWorld(t)
	if _, err := Prepare("../7", &runfile.Cycle{}); err == nil {
		t.Error("an id may lead out of the directory")
	}
	b := func(file string) *runfile.Cycle {
		return &runfile.Cycle{SpecFile: file, SpecText: "text", Box: &runfile.Definition{Workspace: &runfile.Workspace{Source: w.project}}}
	}
	if _, err := Prepare("8", b("")); err == nil || !strings.Contains(err.Error(), "dev_documents/CYCLE8/SPEC.md") {
		t.Errorf("a specification that is missing: %v", err)
	}
	at := filepath.Join(w.project, "dev_documents/CYCLE03")
	if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "SPEC.md"), []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, err := Prepare("3", b("")); err != nil || got.Spec.Path != "dev_documents/CYCLE03/SPEC.md" {
		t.Errorf("the specification of cycle 3: %+v, %v", got.Spec, err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(w.project, "dev_documents/CYCLE9"), 0o755), os.Symlink("/etc/hostname", filepath.Join(w.project, Convention("9")))); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare("9", b("")); err == nil {
		t.Error("a specification may be a link that leads out of the workspace")
	}
	got, err := Prepare("7", b(filepath.Join(w.project, "docs/x.md")))
	if err != nil || got.Spec.At != "docs/x.md" || len(got.Block.Box.Files) != 0 {
		t.Errorf("in the workspace: %+v, %v", got.Spec, err)
	}
	got, err = Prepare("7", b("/elsewhere/x.md"))
	if err != nil || got.Spec.At != "/input/SPEC.md" || string(got.Block.Box.Files[0].Content) != "text" {
		t.Errorf("elsewhere: %+v, %v", got.Spec, err)
	}
}

// The block's timeout bounds every command, whatever the model asks for.
func TestCommandTime(t *testing.T) {
	w := newWorld(t)
	m := w.says(modeltest.Calls(call("run_command", `{"command":"exec sleep 1000","timeout":"15m"}`)), modeltest.Text("done"))
	r := w.do(t, func(c *runfile.Cycle) { c.Box.Limits.Timeout = units.Duration(200 * time.Millisecond) })
	if got := m.Requests()[1].Messages[2].Results[0]; !r.OK || !strings.Contains(got.Text, `"cause":"timeout"`) {
		t.Errorf("the result is %+v, the model got %+v", r, got)
	}
}
