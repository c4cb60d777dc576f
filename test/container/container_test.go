// Package container runs hutch inside of containers, as CI services start them.
package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-backend-fake": "plugins/fake", "libexec/hutch/hutch-backend-landlock": "plugins/landlock"}))
}

// container runs a script in a container with further flags of podman, and returns what it prints.
func container(t *testing.T, image string, flags []string, script string) string {
	t.Helper()
	// Where this test runs, limits may be lower than those that Podman asks for by default.
	args := append([]string{"run", "--rm", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
		"-v", e2e.Dir + ":/opt/hutch:ro", "-v", files(t) + ":/files:ro", "-e", "PATH=/opt/hutch/bin:/usr/bin:/bin", "-e", "HUTCH_HOME=/tmp/hutch"}, flags...)
	cmd := exec.CommandContext(t.Context(), "podman", append(args, image, "sh", "-c", script)...)
	cmd.Dir = "/"
	out, _ := cmd.CombinedOutput() // the script prints the codes that matter
	return string(out)
}

// directory is a new one that containers can see.
func directory(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "hutch-container-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if os.RemoveAll(dir) == nil {
			return
		}
		// What another user of a container has made is out of reach, but for root of the same user namespace.
		if out, err := exec.Command("podman", "unshare", "rm", "-rf", dir).CombinedOutput(); err != nil {
			t.Errorf("remove %s: %v\n%s", dir, err, out)
		}
	})
	if err := os.Chmod(dir, mode); err != nil { // what the umask of this test would forbid
		t.Fatal(err)
	}
	return dir
}

// files is a directory with what the scripts use.
func files(t *testing.T) string {
	t.Helper()
	dir := directory(t, 0o755)
	for name, text := range map[string]string{
		"one.hcl":      "run \"one\" {\n  backend \"bwrap\" {}\n  command = [\"echo\", \"it runs\"]\n}\n",
		"hello.sh":     "#!/bin/sh\necho it runs\n",
		"landlock.hcl": "run \"weaker\" {\n  backend \"landlock\" {}\n  command = [\"echo\", \"it runs\"]\n}\n",
		"next.hcl":     "run \"next\" {\n  backend \"bwrap\" {}\n  backend \"fake\" {}\n  command = [\"echo\", \"it runs\"]\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDefaultContainer is where no sandbox of bwrap can be made: plan and run agree, the next backend is taken, and
// every message has flags of podman with which it works.
func TestDefaultContainer(t *testing.T) {
	image := podmantest.Bubblewrap(t)
	advice := regexp.MustCompile(`podman run (--privileged|--user [^)\n]+)`)
	lines := map[string]bool{}
	for name, flags := range map[string][]string{"root": nil, "user": {"--user=1000"}} {
		t.Run(name, func(t *testing.T) {
			said := container(t, image, flags, "hutch run /files/one.hcl; echo run $?; hutch plan /files/one.hcl; echo plan $?")
			for _, want := range []string{"run 125\n", "plan 1\n", "none is able"} {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in\n%s", want, said)
				}
			}
			doctor := container(t, image, flags, "hutch doctor bwrap; echo doctor $?")
			if !strings.Contains(doctor, "doctor 1\n") || !strings.Contains(doctor, "podman, without the privileges") || strings.Contains(doctor, "hutch doctor") {
				t.Errorf("doctor says\n%s", doctor)
			}
			next := container(t, image, flags, "hutch plan /files/next.hcl; hutch run /files/next.hcl")
			if !strings.Contains(next, "fake 0.1.0 (none): chosen") || !strings.Contains(next, "on fake") {
				t.Errorf("with another backend after it:\n%s", next)
			}
			for _, text := range []string{said, doctor} {
				found := advice.FindAllStringSubmatch(text, -1)
				if len(found) < 2 {
					t.Errorf("%d lines of podman are in\n%s", len(found), text)
				}
				for _, line := range found {
					lines[line[1]] = true
				}
			}
		})
	}
	for line := range lines {
		if got := container(t, image, strings.Fields(line), "hutch run -q /files/one.hcl; hutch doctor bwrap >/tmp/doctor || cat /tmp/doctor"); got != "it runs\n" {
			t.Errorf("with podman run %s:\n%s", line, got)
		}
	}
}

// TestLandlockInContainer runs code where nothing else works: the user names the backend, or accepts its isolation. Doctor
// and the refusal of a run that names none have the line to type.
func TestLandlockInContainer(t *testing.T) {
	if confined.Landlock() < confined.MinLandlock {
		t.Skip("this kernel has no Landlock that is good enough")
	}
	image := podmantest.Bubblewrap(t)
	const line = "hutch run --backend landlock"
	for name, flags := range map[string][]string{"root": nil, "user": {"--user=1000"}} {
		t.Run(name, func(t *testing.T) {
			const script = "cp -r /files /tmp/w && cd /tmp/w && "
			for _, run := range []string{line + " hello.sh", "hutch run --min-isolation process hello.sh", line + " --workspace . -- sh -c 'chmod 600 one.hcl && echo it runs'"} {
				if got := container(t, image, flags, script+run+"; echo code $?"); !strings.Contains(got, "it runs\n") || !strings.Contains(got, "code 0\n") {
					t.Errorf("%s:\n%s", run, got)
				}
			}
			got := container(t, image, flags, script+"hutch run hello.sh; echo code $?; hutch doctor; echo doctor $?; hutch plan landlock.hcl; echo plan $?; hutch create landlock.hcl; echo create $?")
			for _, want := range []string{"code 125\n", "only landlock works", "doctor 0\n", "landlock 0.1.0 (process): chosen", "plan 0\n", "create 125\n", "its sandboxes end with the command"} {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%s", want, got)
				}
			}
			if n := strings.Count(got, line); n < 2 {
				t.Errorf("%d lines have %q:\n%s", n, line, got)
			}
		})
	}
}

// TestWorkspaceInContainer is a private workspace where hutch's state lies on the container's own file system, which
// takes no layers.
func TestWorkspaceInContainer(t *testing.T) {
	image := podmantest.Bubblewrap(t)
	flags := []string{"--user=1000", "--security-opt=seccomp=unconfined", "--security-opt=unmask=ALL"}
	const script = "mkdir /tmp/w && hutch run --backend bwrap --workspace /tmp/w -- sh -c 'echo it runs > a && cat a'"
	said := container(t, image, flags, script)
	if os.Getuid() != 0 && strings.HasPrefix(said, "it runs\n") {
		t.Skip("the storage of rootless Podman takes layers here")
	}
	if !strings.Contains(said, "--tmpfs /hutch:mode=1777 -e HUTCH_HOME=/hutch/state") {
		t.Fatalf("without a place for the state:\n%s", said)
	}
	if got := container(t, image, append(flags, "--tmpfs", "/hutch:mode=1777", "-e", "HUTCH_HOME=/hutch/state"), script); !strings.HasPrefix(got, "it runs\n") {
		t.Errorf("with a place for the state:\n%s", got)
	}
}
