package loops

import (
	"os"
	"strings"
	"testing"
)

// A person is shown what came of a cycle and agrees.
func TestAskedToApply(t *testing.T) {
	w := newWorld(t, os.Getuid())
	w.write(t, "project/go", "", "spec.md", "Write b.txt.\n", "c.hcl", w.cycleFile(local(serve(t, "", plainScript))))
	p := w.sit(t, "cycle", "c.hcl", "--id", "1", "--apply=ask")
	p.expect(t, "Apply this to ")
	p.types(t, "d\r")
	p.expect(t, "+b")
	p.expect(t, "Apply this to ")
	if w.read(t, "project/b.txt") != "" {
		t.Error("it was applied before anybody had agreed")
	}
	p.types(t, "y\r")
	p.expect(t, "cycle 1: done")
	p.end(t, 0)
	if got := w.read(t, "project/b.txt"); got != "b\n" {
		t.Errorf("the project has %q", got)
	}
	if out, _ := w.hutch(t, 0, "ps", "-q"); out != "" {
		t.Errorf("there is still a sandbox: %s", out)
	}
	w.hutch(t, 0, "apply", "--undo", begins.FindStringSubmatch(p.seen())[2])
	if w.read(t, "project/b.txt") != "" {
		t.Error("what was applied is not taken back")
	}
}

// Two cycles work on one project at the same time, under one id: neither sees what the other one does, and the second
// apply of a path is a conflict.
func TestTwoCycles(t *testing.T) {
	w := newWorld(t, os.Getuid())
	w.write(t, "project/go", "", "project/b.txt", "none\n", "spec.md", "Write b.txt.\n")
	var boxes [2]string
	var people [2]*person
	for i, name := range []string{"one", "two"} {
		// Each command waits for the test, which waits until both are that far.
		v := serve(t, "", `-- answer --
-- call write_file --
{"path": "b.txt", "content": "`+name+`\n"}
-- call run_command --
{"command": "while ! test -e go-on; do sleep 0.05; done; cat b.txt"}
-- answer --
-- expect --
"text":"`+name+`\n"
`+finish)
		w.write(t, name+".hcl", w.cycleFile(local(v)))
		people[i] = w.sit(t, "cycle", name+".hcl", "--id", "1")
	}
	for i, p := range people {
		p.expect(t, "write_file")
		boxes[i] = begins.FindStringSubmatch(p.seen())[2]
	}
	for _, box := range boxes {
		w.hutch(t, 0, "exec", box, "--", "touch", "go-on")
	}
	for _, p := range people {
		p.end(t, 0)
	}
	if boxes[0] == boxes[1] || w.read(t, "project/b.txt") != "none\n" {
		t.Errorf("the sandboxes are %q, the project has %q", boxes, w.read(t, "project/b.txt"))
	}
	w.hutch(t, 0, "apply", boxes[0], "b.txt")
	if w.read(t, "project/b.txt") != "one\n" {
		t.Errorf("the project has %q", w.read(t, "project/b.txt"))
	}
	if _, said := w.hutch(t, 1, "apply", boxes[1], "b.txt"); !strings.Contains(said, "conflict") || w.read(t, "project/b.txt") != "one\n" {
		t.Errorf("the project has %q, and what was said is %s", w.read(t, "project/b.txt"), said)
	}
	for _, box := range boxes {
		w.hutch(t, 0, "rm", "--force", box)
	}
	w.hutch(t, 0, "audit", "verify")
}
