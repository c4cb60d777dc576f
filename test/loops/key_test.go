package loops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/test/e2e"
)

const key = "hunter2-the-key-of-the-test"

// TestKey has a cycle use a key over both protocols, and looks for it wherever it could be seen: in the arguments and
// the environment of every process but hutch itself, in the sandbox, in what is printed, and in all that is written.
func TestKey(t *testing.T) {
	for _, protocol := range []string{"openai", "anthropic"} {
		t.Run(protocol, func(t *testing.T) {
			w := newWorld(t, os.Getuid())
			w.env = []string{"HUTCH_VAR_key=" + key}
			v := serve(t, key, `-- answer --
I say it, and call a tool with it:
-- call read_file --
{}
-- fault --
echo_key
-- answer --
-- call run_command --
{"command": "env; : tool-`+w.mark+`; while ! test -e stop; do sleep 0.05; done", "env": {"SAID": "`+key+`"}}
-- answer --
-- expect --
"exit_code":0
`+finish)
			base := v.URL() + map[string]string{"openai": "/v1", "anthropic": ""}[protocol]
			w.write(t, "project/go", "", "project/b.txt", "", "spec.md", "Do it.\n", "c.hcl", fmt.Sprintf(`variable "key" {
  sensitive = true
}

model "m" {
  provider = %q
  model    = "small"
  base_url = %q
  api_key  = var.key
}

`, protocol, base)+w.cycleFile(""))
			cmd := w.command("cycle", "c.hcl", "--id", "1", "-o", "json")
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			begun(t, "tool-"+w.mark) // and not the set-up, before which no model is started
			models := e2e.Marked(filepath.Join(e2e.Dir, modelProgram))
			if len(models) != 1 {
				t.Errorf("there are %d processes of hutch-agent", len(models))
			}
			for _, pid := range processes(t) {
				for _, what := range []string{"cmdline", "environ"} {
					b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what))
					if err == nil && strings.Contains(string(b), key) && !(pid == cmd.Process.Pid && what == "environ") && pid != os.Getpid() {
						t.Errorf("the %s of process %d holds the key: %.200q", what, pid, b)
					}
				}
			}
			boxes, _ := w.hutch(t, 0, "ps", "-q")
			w.hutch(t, 0, "exec", strings.TrimSpace(boxes), "--", "touch", "stop")
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s%s", err, &out, &errs)
			}
			if strings.Contains(out.String()+errs.String(), key) || !strings.Contains(out.String(), `"outcome": "done"`) {
				t.Errorf("it printed\n%s%s", &out, &errs)
			}
			said := 0
			err := filepath.WalkDir(w.home(), func(path string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrPermission) && strings.HasSuffix(path, "/work/work") {
					return fs.SkipDir // the kernel's own, below an overlay: empty, and closed to everybody but root
				}
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				b, err := os.ReadFile(path)
				if strings.Contains(string(b), key) {
					t.Errorf("%s holds the key", path)
				}
				if strings.Contains(string(b), "(sensitive)") && strings.Contains(path, "/calls/") {
					said++
				}
				return err
			})
			if err != nil || said == 0 {
				t.Errorf("the answer with the key in it is not in the record: %v", err)
			}
			w.hutch(t, 0, "audit", "verify")
			w.gone(t)
		})
	}
}

// processes are all that there are.
func processes(t *testing.T) []int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(filepath.Base(n)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestModelProgram starts the program as a person might.
func TestModelProgram(t *testing.T) {
	program := filepath.Join(e2e.Dir, modelProgram)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":          {nil, "a part of hutch"},
		"no hutch":         {[]string{"model"}, "a part of hutch"},
		"no script":        {[]string{"serve"}, "hutch-agent serve [--listen 127.0.0.1:0] SCRIPT"},
		"missing script":   {[]string{"serve", "/nosuch.txtar"}, "/nosuch.txtar"},
		"for the internet": {[]string{"serve", "--listen", "0.0.0.0:0", "../../examples/cycle/answers.txtar"}, "is not an address of this machine alone"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(program, c.args...).CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.ExitCode() != 125 || !strings.Contains(string(out), c.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
