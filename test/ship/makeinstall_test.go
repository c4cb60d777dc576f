package ship

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestMakeInstall installs what was built, as sudo does: without go in PATH, below a directory that make itself has to
// expand.
func TestMakeInstall(t *testing.T) {
	e2e.Require(t, "make")
	dir := t.TempDir()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	install := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", "install", "PREFIX=~/.local")
		cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "SUDO_USER=somebody"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	scripts, err := filepath.Abs("../../scripts")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(scripts, filepath.Join(dir, "scripts")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), makefile, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := install(); err == nil || !strings.Contains(out, "run make build as yourself, then sudo make install") {
		t.Errorf("before the build: %v\n%s", err, out)
	}
	for name, from := range map[string]string{
		"bin/hutch": e2e.Hutch(), "libexec/hutch/hutch-backend-bwrap": filepath.Join(e2e.Dir, "libexec/hutch/hutch-backend-bwrap"),
		"libexec/hutch/hutch-agent": "", "libexec/hutch/hutch-podman-agent": "", "libexec/hutch/hutch-lima-guest": "", "libexec/hutch/hutch-kubernetes-agent": "",
	} {
		var program []byte
		if from != "" {
			if program, err = os.ReadFile(from); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := install(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if page, err := os.ReadFile(filepath.Join(dir, ".local/share/man/man1/hutch-run.1")); err != nil || len(page) < 1000 {
		t.Errorf("the man page of hutch run has %d bytes: %v", len(page), err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, ".local/bin/hutch"), "backend", "list", "-q")
	cmd.Env = []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "bwrap\n" {
		t.Errorf("the installed hutch: %v\n%s", err, out)
	}
}
