package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestStandIn holds the stand-in to what Lima 2.2 was seen to do: exit codes, and what it says at which level.
func TestStandIn(t *testing.T) {
	standIn(t)
	home, err := os.MkdirTemp("", "s") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	file := filepath.Join(t.TempDir(), "vm.yaml")
	for name, text := range map[string]string{file: "cpus: 1\nmounts: []\n", file + ".typo": "cpus: 1\ncpuz: 2\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("n", 90)
	for _, step := range []struct {
		args   string
		code   int
		stdout string // what it must hold
		stderr string // likewise; with ! in front, must not
	}{
		{"list --json", 0, "", `"level":"warning"`},
		{"list --json nosuch", 1, "", `"msg":"unmatched instances"`},
		{"delete nosuch", 0, "", `"level":"warning"`},
		{"stop nosuch", 1, "", "lima.yaml: no such file or directory"},
		{"frob", 1, "", `unknown command`},
		{"list --frob", 1, "", `unknown flag`},
		{"create --name=../x " + file, 1, "", "must match"},
		{"create --name=" + long + " " + file, 1, "", "too long"},
		{"create --name=a " + file, 0, "", "!fatal"},
		{"create --name=a " + file, 1, "", "instance `a` already exists"},
		{"create --name=b " + file + ".typo", 0, "", "Non-strict YAML"},
		{"list --json a", 0, `"status":"Stopped"`, ""},
		{"stop a", 1, "", "expected status `Running`, got `Stopped`"},
		{"start a", 0, "", "READY"},
		{"start a", 0, "", "is already running"},
		{"list --json a", 0, `"status":"Running"`, ""},
		{"delete a", 1, "", "expected status `Stopped`"},
		{"stop a", 0, "", "!fatal"},
		{"stop --force a", 0, "", "!fatal"},
		{"start dflt", 1, "", "failed to download"},
		{"list --json dflt", 0, `"name":"dflt"`, ""}, // a start that failed has made it
		{"delete --force a", 0, "", "!fatal"},
		{"list --json a", 1, "", "unmatched"},
		{"info", 0, `"version":"2.2.0"`, ""},
	} {
		cmd := exec.Command("limactl", append([]string{"--tty=false", "--log-format=json"}, strings.Fields(step.args)...)...)
		cmd.Env = append(os.Environ(), "LIMA_HOME="+home)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run() // its code is looked at
		if code := cmd.ProcessState.ExitCode(); code != step.code {
			t.Errorf("limactl %s: code %d, want %d\n%s", step.args, code, step.code, errs.String())
		}
		if !strings.Contains(out.String(), step.stdout) {
			t.Errorf("limactl %s printed %q, and not %q", step.args, out.String(), step.stdout)
		}
		if not, ok := strings.CutPrefix(step.stderr, "!"); ok == strings.Contains(errs.String(), strings.TrimPrefix(not, "!")) && step.stderr != "" {
			t.Errorf("limactl %s said %q; want %q", step.args, errs.String(), step.stderr)
		}
	}
}
