package cycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/modeltest"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// die ends this process as a machine that loses power would, but for what the kernel holds.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// script is the conversation of the cycles that die. at is called before each step.
func script(at func(point string)) []modeltest.Step {
	step := func(point string, a modeltest.Step) modeltest.Step {
		return modeltest.Step{Do: func(context.Context, model.Request) (model.Answer, error) { at(point); return a.Answer, a.Err }}
	}
	return []modeltest.Step{
		step("ask-1", modeltest.Calls(
			model.ToolCall{ID: "c1", Name: "write_file", Arguments: `{"path":"b.txt","content":"b\n"}`},
			model.ToolCall{ID: "c2", Name: "run_command", Arguments: `{"command":"echo x >>count.txt"}`},
			model.ToolCall{ID: "c3", Name: "read_file", Arguments: `{"path":"b.txt"}`})),
		step("ask-2", modeltest.Calls(model.ToolCall{ID: "c4", Name: finishTool, Arguments: `{"outcome":"done","summary":"There is a b."}`})),
	}
}

// dieAt runs a cycle and dies at a point of it. The world is in the environment.
func dieAt(point string) {
	w, err := open(os.Getenv("HUTCH_TEST_STORE"), os.Getenv("HUTCH_TEST_PROJECT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	at := func(p string) {
		if p == point {
			die()
		}
	}
	w.When = OnSuccess
	w.says(script(at)...)
	apply := w.Apply
	w.Apply = func(ctx context.Context, ref string) error {
		at("before-apply")
		err := apply(ctx, ref)
		at("after-apply")
		return err
	}
	n := 0
	w.Progress = func(p Progress) {
		at(p.State)
		if p.Tool != nil {
			n++
			at(fmt.Sprintf("tool-%d", n))
		}
		if p.Check != nil {
			at("check")
		}
	}
	job, err := work(w.project, dying)
	if err == nil {
		_, err = Run(context.Background(), w.Options, job)
	}
	fmt.Fprintf(os.Stderr, "it did not die at %s: %v\n", point, err)
	os.Exit(3)
}

func dying(c *runfile.Cycle) { c.Check = []string{"test", "-f", "b.txt"} }

// A cycle whose host was killed, wherever, is gone on with to the same end.
func TestResume(t *testing.T) {
	for _, c := range []struct {
		point string
		left  int    // the step that the model answers next, from 0
		count string // what count.txt holds in the end: how often the command was run
		text  string // what the model is notified of the call that was cut off
	}{
		{StateSetUp, 0, "x\n", ""},
		{StateCoding, 0, "x\n", ""},
		{"ask-1", 0, "x\n", ""},
		{"tool-1", 1, "", "whether it was done is not known"}, // the command was next, and was perhaps begun
		{"tool-2", 1, "x\n", ""},
		{"tool-3", 1, "x\n", ""},
		{"ask-2", 1, "x\n", ""},
		{"check", 2, "x\n", ""},
		{"tool-4", 2, "x\n", ""},
		{StateSyncBack, 2, "x\n", ""},
		{"before-apply", 2, "x\n", ""},
		{"after-apply", 2, "x\n", ""},
		{StateTearDown, 2, "x\n", ""},
	} {
		t.Run(c.point, func(t *testing.T) {
			w := newWorld(t)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), "HUTCH_TEST_DIE="+c.point, "HUTCH_TEST_STORE="+w.Store.Paths().Data, "HUTCH_TEST_PROJECT="+w.project)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%v\n%s", err, out)
			}
			id := w.interrupted(t)
			w.When = OnSuccess
			m := w.says(script(func(string) {})[c.left:]...)
			job, err := work(w.project, dying)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Resume(t.Context(), w.Options, id, job)
			if err != nil {
				t.Fatal(err)
			}
			w.verify(t, r)
			if !r.OK || !r.Resumed || r.ID != id || r.Summary != "There is a b." || !r.Apply.Done || r.Sandbox != nil && r.Sandbox.Kept || r.State != StateTearDown {
				t.Errorf("the result is %+v", r)
			}
			if w.read(t, "b.txt") != "b\n" || w.read(t, "count.txt") != c.count {
				t.Errorf("the project has %q, and the command was run as often as %q says", w.read(t, "b.txt"), w.read(t, "count.txt"))
			}
			if r.Turns != 2 || r.ToolCalls != 4 || len(r.Checks) == 0 {
				t.Errorf("%d turns, %d calls, checks %+v", r.Turns, r.ToolCalls, r.Checks)
			}
			if requests := m.Requests(); len(requests) != 2-c.left {
				t.Errorf("the model was asked %d times", len(requests))
			} else if c.text != "" {
				messages := requests[0].Messages
				if got := messages[len(messages)-1].Results[1]; !got.IsError || !strings.Contains(got.Text, c.text) {
					t.Errorf("the model got %+v", got)
				}
			}
			if _, err := Resume(t.Context(), w.Options, id, job); err == nil || !strings.Contains(err.Error(), "has ended") {
				t.Errorf("a cycle that has ended is gone on with: %v", err)
			}
		})
	}
}

// interrupted is the one cycle whose host is dead.
func (w *world) interrupted(t *testing.T) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, err := w.Store.List(store.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if i.Kind == store.KindCycle && i.State == store.StateInterrupted {
				return i.ID
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no cycle shows as interrupted: %+v", list)
		}
	}
}
