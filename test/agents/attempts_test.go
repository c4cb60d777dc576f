package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/test/e2e"
)

// scripted is an agent without a model: a preset, and a shell script that works.
func scripted(t *testing.T, script string) *world {
	t.Helper()
	e2e.Require(t, "bwrap")
	base := "/opt" // temporary directories are the sandbox's own
	if os.Getuid() != 0 {
		var err error
		if base, err = os.UserCacheDir(); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp(base, "hutch-agents-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := newWorld(t, dir, newService(t))
	presets := filepath.Join(w.dir, "home", "agents")
	if err := os.MkdirAll(presets, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(presets, "mine.hcl"): "description = \"Mine\"\nprogram = \"my-agent\"\nprompt = [\"-p\"]\n",
		filepath.Join(dir, "my-agent"):     "#!/bin/sh\n" + script,
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// TestAttempts has an agent make three attempts of which one is right, compares them, and takes that one.
func TestAttempts(t *testing.T) {
	w := scripted(t, `
echo same > same.txt
until n=$(ls /home/agent | wc -l) && mkdir /home/agent/$n; do :; done # counts the attempts
test $n = 1 && echo right > greeting.txt || echo wrong > greeting.txt
test $n != 2 || exit 3
`)
	out, errs := w.hutch(0, "agent", "mine", "-n", "3", "-p", "x", "--check", "touch check.txt; grep -q right greeting.txt")
	if !strings.Contains(out, "all agree on 1 file: same.txt") || !strings.Contains(errs, "hutch agent rm --attempts mine-my-shop") {
		t.Errorf("it said %s%s", out, errs)
	}
	out, _ = w.hutch(0, "compare", "mine-my-shop", "-o", "json")
	var got struct {
		Attempts []struct {
			Sandbox, Cause string
			OK             bool
			Passed         *bool
			Files, Added   int
		}
		Agreed    []string
		Differing []struct {
			Path     string
			Versions []string
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	var right string
	count := map[string]int{}
	for _, a := range got.Attempts {
		if a.Cause != "exited" || a.Passed == nil || a.Files != 2 || a.Added != 2 { // nothing of the check
			t.Errorf("an attempt is %+v", a)
		}
		if a.OK {
			right = a.Sandbox
		}
		count["all"]++
		if *a.Passed {
			count["passed"]++
		}
	}
	if diff := cmp.Diff(map[string]int{"all": 3, "passed": 1}, count); diff != "" || right == "" {
		t.Errorf("attempts %s\n%s", diff, out)
	}
	if diff := cmp.Diff([]string{"same.txt"}, got.Agreed); diff != "" || len(got.Differing) != 1 || got.Differing[0].Path != "greeting.txt" {
		t.Errorf("compared %s\n%s", diff, out)
	}
	w.hutch(0, "apply", right)
	if data, err := os.ReadFile(filepath.Join(w.project, "greeting.txt")); err != nil || string(data) != "right\n" {
		t.Errorf("the project has %q, %v", data, err)
	}
	if out, _ = w.hutch(0, "agent", "ls"); strings.Count(out, "checked by") != 3 {
		t.Errorf("hutch agent ls says %s", out)
	}
	w.hutch(0, "agent", "rm", "--attempts", "mine-my-shop")
	if out, _ = w.hutch(0, "ps", "-q"); out != "mine-my-shop\n" {
		t.Errorf("there is still %q", out)
	}
	// None is right.
	w.hutch(1, "agent", "mine", "-n", "2", "-p", "x", "--check", "false", "-q")
}

// TestBlock has the agent of a run file's block work: a preset with a variable and a function.
func TestBlock(t *testing.T) {
	w := scripted(t, `printf '%s %s\n' "$GREETING" "$*" > out.txt`)
	file := filepath.Join(w.project, "hutch.hcl")
	block := `variable "greeting" { default = "hello" }
agent "ours" {
  description = "Ours"
  program     = "my-agent"
  prompt      = ["--do"]
  env         = { GREETING = upper(var.greeting) }
}
`
	if err := os.WriteFile(file, []byte(block), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := w.hutch(0, "agent"); !strings.Contains(out, "Ours") {
		t.Errorf("hutch agent lists %s", out)
	}
	if out, _ := w.hutch(0, "validate", file); !strings.Contains(out, "1 agent block") {
		t.Errorf("hutch validate says %s", out)
	}
	w.hutch(0, "agent", "ours", "-p", "it", "--apply", "on-success")
	if got, err := os.ReadFile(filepath.Join(w.project, "out.txt")); string(got) != "HELLO --do it\n" {
		t.Errorf("it wrote %q, %v", got, err)
	}
	for text, want := range map[string]string{
		strings.Replace(block, "prompt ", "prompts", 1):                                               `hutch.hcl:5`,
		strings.Replace(block, `"my-agent"`, `"a/b"`, 1):                                              `"a/b" is not a name in PATH`,
		strings.Replace(block, `agent "ours"`, `agent "claude"`, 1):                                   `agent "claude" needs another name`,
		strings.Replace(block, `{ default = "hello" }`, "{\ndefault = \"x\"\nsensitive = true\n}", 1): "env is made of a sensitive value",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, errs := w.hutch(1, "validate", file); !strings.Contains(errs, want) {
			t.Errorf("validate does not say %s: %s", want, errs)
		}
		if _, errs := w.hutch(125, "agent", "ours", "-p", "it"); !strings.Contains(errs, want) {
			t.Errorf("agent does not say %s: %s", want, errs)
		}
	}
}
