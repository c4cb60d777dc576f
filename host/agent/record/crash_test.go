package record

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/store"
)

// The test binary is its own helper: with these set it writes a loop until it is killed.
const (
	homeEnv = "HUTCH_RECORD_TEST_HOME"
	loopEnv = "HUTCH_RECORD_TEST_LOOP" // to go on with; empty begins one
)

func TestMain(m *testing.M) {
	home := os.Getenv(homeEnv)
	if home == "" {
		os.Exit(m.Run())
	}
	if err := writeUntilKilled(home, os.Getenv(loopEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writeUntilKilled(home, id string) error {
	s, err := store.Open(store.Options{Home: home})
	if err != nil {
		return err
	}
	var l *Loop
	var req model.Request
	if id == "" {
		l, err = Begin(s, New{Kind: store.KindCycle, Name: "crash", Definition: map[string]any{}})
	} else {
		var p *Past
		if l, p, err = Continue(s, id, nil); err == nil {
			req = p.Request
		}
	}
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		req.Messages = append(req.Messages, model.Message{Role: model.RoleUser, Text: fmt.Sprintf("question %d", len(req.Messages))})
		call := model.ToolCall{ID: strconv.Itoa(n), Name: "t", Arguments: "{}"}
		a := model.Answer{Text: fmt.Sprintf("answer %d", len(req.Messages)), Calls: []model.ToolCall{call}, Stop: model.StopTools}
		if _, err := l.ModelCall(ModelCall{Request: req, Answer: a}); err != nil {
			return err
		}
		if err := l.ToolCall(ToolCall{Call: call, Result: model.ToolResult{ID: call.ID, Text: "done"}}); err != nil {
			return err
		}
		req.Messages = append(req.Messages, assistant(a), model.Message{Role: model.RoleTool, Results: []model.ToolResult{{ID: call.ID, Text: "done"}}})
		fmt.Println(l.ID(), n) // nobody is notified of a call before it is recorded
	}
}

// TestAKilledLoopGoesOn: whenever its host is killed, everything that was reported as recorded is there, in order,
// the record is intact, and the next process goes on in it.
func TestAKilledLoopGoesOn(t *testing.T) {
	s := newStore(t)
	exe, err := os.Executable()
	must(t, err)
	id, reported := "", 0
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), homeEnv+"="+s.Paths().Data, loopEnv+"="+id)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range 3 + 4*round {
			if !lines.Scan() {
				t.Fatalf("round %d: the writer ended: %v", round, cmd.Wait())
			}
			id, _, _ = strings.Cut(lines.Text(), " ")
			reported++
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() {
			reported++
		}
		var killed *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &killed) {
			t.Fatalf("round %d: %v", round, err)
		}
		p, err := Open(s, id)
		must(t, err)
		if p.Done || len(p.Calls) < reported || len(p.Calls) > reported+1 {
			t.Fatalf("round %d: %d calls are recorded, %d were reported", round, len(p.Calls), reported)
		}
		checkTalk(t, p)
		rep, err := s.Verify(t.Context(), id)
		must(t, err)
		if !rep.OK {
			t.Fatalf("round %d: %+v", round, rep)
		}
		reported = len(p.Calls)
	}
	l, p, err := Continue(s, id, nil)
	must(t, err)
	if p.Info.Kind != store.KindCycle || len(p.Calls) != reported {
		t.Errorf("%+v", p.Info)
	}
	end(t, l)
	rep, err := s.Verify(t.Context(), id)
	must(t, err)
	if !rep.OK {
		t.Errorf("finished: %+v", rep)
	}
	if p, err = Open(s, id); err != nil || !p.Done {
		t.Errorf("%+v %v", p, err)
	}
}

// checkTalk holds the conversation against what the writer says.
func checkTalk(t *testing.T, p *Past) {
	t.Helper()
	var want, got []string
	for n, m := range p.Request.Messages {
		switch m.Role {
		case model.RoleUser:
			got, want = append(got, m.Text), append(want, fmt.Sprintf("question %d", n))
		case model.RoleAssistant:
			got, want = append(got, m.Text), append(want, fmt.Sprintf("answer %d", n))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if len(got) != 2*len(p.Calls) {
		t.Fatalf("%d messages of %d calls", len(got), len(p.Calls))
	}
	if last := p.Calls[len(p.Calls)-1]; len(last.Tools) > 1 || len(last.Answer.Calls) != 1 {
		t.Fatalf("the last call is %+v", last)
	}
}
