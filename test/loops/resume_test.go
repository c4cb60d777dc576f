package loops

import (
	"bufio"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/test/e2e"
)

// cycleFile is a cycle whose set-up goes on once the project has a file go.
func (w *world) cycleFile(model string) string {
	return model + `cycle "c" {
  spec = "spec.md"

  ` + w.backend + `
  workspace { source = "project" }

  setup = ["sh", "-c", ": ` + w.mark + `; test -e go || sleep 600"]
  check = ["test", "-f", "b.txt"]
}
`
}

const finish = `-- call finish --
{"outcome": "done", "summary": "There is a b."}
`

// The conversations of the three tests. What comes after the kill is asked of the same server, whose answers go on.
const (
	plainScript = `-- answer --
-- call write_file --
{"path": "b.txt", "content": "b\n"}
-- answer --
` + finish
	cutOffScript = `-- answer --
-- call write_file --
{"path": "b.txt", "content": "b\n"}
-- call run_command --
{"command": ": MARK; sleep 600"}
-- answer --
-- expect --
whether it was done is not known
` + finish
)

var begins = regexp.MustCompile(`set-up: record (\S+), sandbox (\S+)`)

// TestResume kills hutch in each state of a cycle, on each backend, and goes on.
func TestResume(t *testing.T) {
	for name, uid := range e2e.Users() {
		t.Run("bwrap/"+name, func(t *testing.T) { resumes(t, func(t *testing.T) *world { return newWorld(t, uid) }) })
	}
	for name, other := range others {
		t.Run(name, func(t *testing.T) { resumes(t, other) })
	}
}

func resumes(t *testing.T, in func(t *testing.T) *world) {
	t.Run("set-up", func(t *testing.T) {
		w := in(t)
		id := w.kill(t, plainScript)
		w.write(t, "project/go", "")
		w.resume(t, id)
	})
	t.Run("coding", func(t *testing.T) {
		w := in(t)
		w.write(t, "project/go", "")
		w.resume(t, w.kill(t, strings.ReplaceAll(cutOffScript, "MARK", w.mark)))
	})
	t.Run("sync-back", func(t *testing.T) {
		w := in(t)
		w.write(t, "project/go", "", "spec.md", "Write b.txt.\n", "c.hcl", w.cycleFile(local(serve(t, "", plainScript))))
		p := w.sit(t, "cycle", "c.hcl", "--id", "1", "--apply=ask")
		p.expect(t, "Apply this to ")
		id := begins.FindStringSubmatch(p.seen())[1]
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end(t, -1)
		if w.read(t, "project/b.txt") != "" {
			t.Error("something was applied that nobody had agreed to")
		}
		w.resume(t, id)
	})
}

// kill starts a cycle, kills hutch once a command with the mark runs, and returns the id of the record.
func (w *world) kill(t *testing.T, script string) string {
	t.Helper()
	w.write(t, "project/a.txt", "a\n", "spec.md", "Write b.txt.\n", "c.hcl", w.cycleFile(local(serve(t, "", script))))
	cmd := w.command("cycle", "c.hcl", "--id", "1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	id := ""
	for want := "set-up: record "; lines.Scan(); {
		if m := begins.FindStringSubmatch(lines.Text()); m != nil {
			id = m[1]
		}
		if strings.Contains(script, w.mark) {
			want = "write_file" // which has ended; the command is next
		}
		if strings.Contains(lines.Text(), want) {
			break
		}
	}
	w.begun(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if id == "" {
		t.Fatal("hutch did not say which record it writes")
	}
	return id
}

// resume goes on with a cycle whose hutch was killed, and checks that all is well at the end.
func (w *world) resume(t *testing.T, id string) {
	t.Helper()
	w.gone(t)
	if out, _ := w.hutch(t, 0, "runs"); !strings.Contains(out, "interrupted") {
		t.Errorf("the cycle does not show as interrupted:\n%s", out)
	}
	out, _ := w.hutch(t, 0, "cycle", "--resume", id, "--apply=on-success", "-o", "json")
	type story struct {
		ID, State, Outcome, Summary string
		OK, Resumed                 bool
		Turns                       int
		Changes                     []struct{ Path, Kind string }
		Apply                       struct{ Done bool }
		Sandbox                     struct{ Kept bool }
	}
	var got story
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := story{ID: id, State: "tear-down", Outcome: "done", Summary: "There is a b.", OK: true, Resumed: true, Turns: 2,
		Changes: []struct{ Path, Kind string }{{"b.txt", "added"}}, Apply: struct{ Done bool }{true}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the story (-want +got):\n%s", d)
	}
	if got := w.read(t, "project/b.txt"); got != "b\n" {
		t.Errorf("the project has %q", got)
	}
	if out, _ := w.hutch(t, 0, "ps", "-q"); out != "" {
		t.Errorf("there is still a sandbox: %s", out)
	}
	w.hutch(t, 0, "audit", "verify")
	if tree, _ := w.hutch(t, 0, "show", "--tree", id); !strings.Contains(tree, "resumed") {
		t.Errorf("the tree does not say that it was gone on with:\n%s", tree)
	}
	w.gone(t)
	_, said := w.hutch(t, 125, "cycle", "--resume", id)
	for _, want := range []string{"the cycle " + id + " has ended (done)", "hutch cycle c.hcl c --id 1 begins a new cycle"} {
		if !strings.Contains(said, want) {
			t.Errorf("a cycle that has ended is not said to have, with %q:\n%s", want, said)
		}
	}
}
