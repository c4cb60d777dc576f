package differential

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestReplayElsewhere runs on bwrap and again on podman: what ends alike is the same, and what the image changes is
// reported.
func TestReplayElsewhere(t *testing.T) {
	e2e.Require(t, "bwrap")
	podmantest.Need(t)
	home := t.TempDir()
	hutch := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), e2e.Hutch(), args...)
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+home)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("hutch %q: exit code %d, want %d\n%s", args, code, want, out)
		}
		return string(out)
	}
	run := func(program string) {
		t.Helper()
		file := filepath.Join(home, "run.hcl")
		if err := os.WriteFile(file, []byte(`run "r" {
  backend "bwrap" {}
  backend "podman" { image = "`+podmantest.Busybox(t)+`" }
  command = ["sh", "-c", "`+program+`"]
}
`), 0o644); err != nil {
			t.Fatal(err)
		}
		hutch(0, "run", file)
	}

	run(`echo hi; echo one > output/one; echo new > new`)
	if out := hutch(0, "replay", "--backend", "podman"); !strings.HasPrefix(out, "r: same, ") || !strings.Contains(out, "backend: bwrap ") {
		t.Errorf("a program that needs nothing of the machine:\n%s", out)
	}
	run(`readlink -f /bin/sh`)
	out := hutch(1, "replay", "--backend", "podman")
	for _, want := range []string{"r: 1 difference", "stdout"} {
		if !strings.Contains(out, want) {
			t.Errorf("a program that is another one in the image: %q is not in\n%s", want, out)
		}
	}
	hutch(0, "audit", "verify")
}
