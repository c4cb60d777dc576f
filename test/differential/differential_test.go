package differential

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/host/report"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	programs := map[string]string{"libexec/hutch/hutch-backend-podman": "plugins/podman", "libexec/hutch/hutch-podman-agent": "plugins/podman/agent"}
	if withKubernetes {
		programs["libexec/hutch/hutch-backend-kubernetes"] = "plugins/kubernetes"
		programs["libexec/hutch/hutch-kubernetes-agent"] = "plugins/kubernetes/agent"
	}
	os.Exit(e2e.Main(m, programs))
}

// withKubernetes says that there is a cluster: see make test-kubernetes.
var withKubernetes = os.Getenv("HUTCH_TEST_KUBERNETES") == "1"

// known are programs of which a difference is meant: name -> why.
var known = map[string]string{}

// programs is the run file, to which a cluster adds its backend.
func programs(t *testing.T) string {
	if !withKubernetes {
		return "programs.hcl"
	}
	known[`script["no_network"]`] = "a pod without a network has an interface, which a policy closes"
	text, err := os.ReadFile("programs.hcl")
	if err != nil {
		t.Fatal(err)
	}
	const podman = "  backend \"podman\" {\n"
	block := "  backend \"kubernetes\" {\n    pull = \"never\"\n  }\n" + podman
	file := filepath.Join(t.TempDir(), "programs.hcl")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(podman), []byte(block)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestBackendsAgree runs programs.hcl on every backend, and compares the results.
func TestBackendsAgree(t *testing.T) {
	e2e.Require(t, "bwrap")
	podmantest.Need(t)
	project := t.TempDir()
	for name, data := range map[string]string{"a.txt": "a\n", "b.txt": "b\n", "dir/c.txt": "c\n"} {
		p := filepath.Join(project, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), e2e.Hutch(), "run", programs(t), "--all-backends", "-o", "json", "-j", "2",
		"--var", "image="+podmantest.Busybox(t), "--var", "project="+project)
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	causes := map[string]int{}
	compared := 0
	for line := range bytes.Lines(stdout.Bytes()) {
		var schema struct {
			Schema string `json:"schema"`
		}
		if err := json.Unmarshal(line, &schema); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if schema.Schema == result.Schema {
			var r result.Result
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			causes[string(r.Cause)]++
			if r.Error != nil && r.Cause != "timeout" {
				t.Errorf("%s: %v", r.Name, r.Error)
			}
			continue
		}
		var c report.Comparison
		if err := json.Unmarshal(line, &c); err != nil || c.Schema != report.ComparisonSchema {
			t.Fatalf("%v: %s", err, line)
		}
		compared++
		for _, d := range c.Differences {
			if known[c.Run] == "" {
				t.Errorf("%s: %s is not the same: %+v", c.Run, d.Field, d.Values)
			}
		}
	}
	if compared < 30 {
		t.Errorf("%d programs were compared; want at least 30\n%s", compared, stderr.String())
	}
	for _, cause := range []string{"exited", "signaled", "timeout"} {
		if causes[cause] < 2 {
			t.Errorf("no program ended with cause %s on both backends: %v", cause, causes)
		}
	}
}
