package main

import (
	"fmt"
	"github.com/hutch-run/hutch/host/diag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// worksAs is what the habits that work print on stdout, by what is typed.
var worksAs = map[string]string{
	"run --rm -- true":                  ``,
	"run debian:12 cat /etc/os-release": `in debian:12: cat /etc/os-release`,
	"ps -a":                             `(?m)^box `,
	"exec box echo hi":                  `^hi\n$`,
	"logs box":                          `^made\n$`,
	"apply -auto-approve box":           `^A new\n$`,
	"-C sub run sub.hcl":                `^below\n$`,
	"run --dry-run one.hcl":             `chosen`,
	"run s.py a b":                      `^python a b\n$`,
	"run --language python -":           `^stdin\n$`,
	"run .":                             `^below\n$`,
	"ps --json":                         `"name":\s*"box"`,
	"run --no-color one.hcl":            `^one\n$`,
	"run --verbose one.hcl":             `^one\n$`,
	"help run":                          `^Usage: hutch run`,
	"-V":                                `^hutch `,
}

// TestHabits types every row of the table, in a directory of its own.
func TestHabits(t *testing.T) {
	backends := buildBackends(t, "fake")
	dir := t.TempDir()
	for i, h := range habits {
		script := &strings.Builder{}
		cd, code := "project", "0"
		if h.typed == "run ." {
			cd = "sub"
		}
		if h.answer != "" {
			code = "125"
		}
		script.WriteString("cd project\nstatus 0 hutch create --workspace sub --name box\nstatus 0 hutch exec box -- sh -c 'echo made; echo made > new'\n")
		if cd == "sub" {
			script.WriteString("cd sub\n")
		}
		script.WriteString("stdin $WORK/project/stdin.txt\n")
		if h.typed == "run debian:12 cat /etc/os-release" { // what would run where: there is no image
			h.typed = "run --dry-run --backend fake debian:12 cat /etc/os-release"
			fmt.Fprintf(script, "status 125 hutch run -q debian:12 cat /etc/os-release\nstderr 'there is no backend \"podman\"'\n")
		} else {
			fmt.Fprintf(script, "status %s hutch %s\n", code, h.typed)
			if h.answer != "" {
				fmt.Fprintf(script, "stderr 'hint: %s'\n", strings.NewReplacer("'", "''", "(", `\(`, ")", `\)`, "[", `\[`, "+", `\+`, ".", `\.`, "{", `\{`, "}", `\}`).Replace(h.answer))
			} else if want, tested := worksAs[h.typed]; !tested {
				t.Errorf("%s: nothing says what it prints", h.typed)
			} else if want != "" {
				fmt.Fprintf(script, "stdout '%s'\n", want)
			}
		}
		script.WriteString(`
-- project/one.hcl --
run "one" {
  backend "fake" {}
  command = ["echo", "one"]
}
-- project/two.hcl --
run "two" {
  backend "fake" {}
  command = ["echo", "two"]
}
-- project/sub/sub.hcl --
run "sub" {
  backend "fake" {}
  command = ["echo", "below"]
}
-- project/s.py --
import sys
print("python", *sys.argv[1:])
-- project/stdin.txt --
print("stdin")
-- .hutch/config.hcl --
backend = "fake"
`)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("row%02d.txtar", i)), []byte(script.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HUTCH_HOME", filepath.Join(env.WorkDir, ".hutch"))
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("HUTCH_BACKEND_PATH", backends)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// TestNoAbsurdGuess: a word that shares little with every known one has no guess.
func TestNoAbsurdGuess(t *testing.T) {
	for word, want := range map[string]string{"images": "", "-u": "", "up": "", "kill": "", "rnu": "run", "lgos": "logs", "pulll": "pull"} {
		if got := diag.Suggest(word, []string{"run", "runs", "rm", "ps", "pull", "logs", "fs", "gc", "--all", "diff"}); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
