package podman

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-backend-podman": "plugins/podman", "libexec/hutch/hutch-podman-agent": "plugins/podman/agent"}))
}

// user is somebody who runs hutch, with a store and their own project.
type user struct {
	dir string
	env []string
	as  *syscall.SysProcAttr
}

// newUser is the user who runs the test, or the ordinary user with subordinate ids. The example's image is there.
// Podman has its own storage when it is rootless, and where the test needs one.
func newUser(t *testing.T, rootless, ownStorage bool) *user {
	t.Helper()
	podmantest.Need(t)
	dir, err := os.MkdirTemp("/var/tmp", "hutch-review-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	u := &user{dir: dir, env: []string{"HOME=" + os.Getenv("HOME"), "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR")}}
	u.make(t, "run", "tmp", "project", "home")
	if rootless || ownStorage {
		if u.env, err = podmantest.OwnStorage(dir); err != nil {
			t.Fatal(err)
		}
	}
	u.env = append(u.env, "HUTCH_HOME="+filepath.Join(dir, "home"), "TMPDIR="+filepath.Join(dir, "tmp"), "PATH=/usr/local/bin:/usr/bin:/bin")
	if rootless && os.Getuid() == 0 {
		uid, gid, _ := e2e.Rootless(t)
		u.as = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		u.own(t, "", "run", "tmp", "project", "home")
	}
	if rootless {
		t.Cleanup(func() {
			if err := podmantest.EndStorage(dir, u.env, u.as); err != nil {
				t.Error(err)
			}
			if left := e2e.Marked(dir); len(left) > 0 {
				t.Errorf("still runs: %v", left)
			}
		})
	}
	script, err := os.ReadFile("../../examples/podman/image.sh")
	image := filepath.Join(dir, "image.sh") // a copy, for the checkout may be out of the user's reach
	if err == nil {
		err = os.WriteFile(image, script, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, code := u.run("/bin/sh", image); code != 0 {
		t.Fatalf("make the image: %s", out)
	}
	return u
}

// apart is the same user with another store and project.
func (u *user) apart(t *testing.T, name string) *user {
	t.Helper()
	u.make(t, name)
	u.own(t, name)
	other := &user{dir: filepath.Join(u.dir, name), env: append(slices.Clone(u.env), "HUTCH_HOME="+filepath.Join(u.dir, name, "home")), as: u.as}
	other.make(t, "project", "home")
	other.own(t, "project", "home")
	return other
}

// make makes directories below the user's.
func (u *user) make(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(u.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// own gives directories to the user, unless the test runs as that user.
func (u *user) own(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if u.as == nil {
			return
		}
		if err := os.Chown(filepath.Join(u.dir, name), int(u.as.Credential.Uid), int(u.as.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a program to its end; out is all that it printed.
func (u *user) run(program string, args ...string) (out string, code int) {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = u.dir, u.env, u.as
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return err.Error(), -1
	}
	return b.String(), cmd.ProcessState.ExitCode()
}

// hutch runs a command and requires its exit code.
func (u *user) hutch(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, got := u.run(e2e.Hutch(), args...)
	if got != code {
		t.Fatalf("hutch %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// letters is a file of the letters, one a line, with some replaced.
func letters(replace ...string) string {
	text := strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), "\n") + "\n"
	return strings.NewReplacer(replace...).Replace(text)
}

// plant writes files as the user, who owns the project.
func (u *user) plant(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(u.dir, "project", name)
		err := os.WriteFile(p, []byte(text), 0o644)
		if err == nil && u.as != nil {
			err = os.Chown(p, int(u.as.Credential.Uid), int(u.as.Credential.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// project is all that is in the project.
func (u *user) project(t *testing.T) map[string]string {
	t.Helper()
	got := map[string]string{}
	top := filepath.Join(u.dir, "project")
	err := filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, rerr := filepath.Rel(top, p)
		got[rel] = string(b)
		return errors.Join(err, rerr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestReview makes changes in a container, looks at them, settles a conflict, applies and takes back, with each overlay
// strategy: the same everywhere.
func TestReview(t *testing.T) {
	for name, overlays := range map[string][]string{"root": {"native", "copy"}, "user": {"native", "copy"}} {
		if name == "root" && os.Getuid() != 0 {
			continue // a user who is not root runs it as themselves, once
		}
		t.Run(name, func(t *testing.T) {
			u := newUser(t, name == "user", false)
			for _, overlay := range overlays {
				t.Run(overlay, func(t *testing.T) {
					t.Parallel()
					review(t, u.apart(t, overlay), overlay)
				})
			}
		})
	}
}

func review(t *testing.T, u *user, overlay string) {
	u.plant(t, map[string]string{"text": letters(), "gone": "g\n", "kept": "k\n"})
	before := u.project(t)
	file := filepath.Join(u.dir, "box.hcl")
	text := fmt.Sprintf("run \"box\" {\n  backend \"podman\" {\n    image   = \"localhost/hutch-example\"\n    pull    = \"never\"\n    overlay = %q\n  }\n"+
		"  workspace { source = \"project\" }\n  command = [\"true\"]\n}\n", overlay)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	u.hutch(t, 0, "create", file, "--name", "box")
	t.Cleanup(func() { u.hutch(t, 0, "rm", "-f", "box") })
	if out := u.hutch(t, 0, "inspect", "box"); !strings.Contains(out, "overlay ") || !strings.Contains(out, " "+overlay+"\n") {
		t.Errorf("inspect does not say %s:\n%s", overlay, out)
	}
	u.hutch(t, 0, "exec", "-q", "box", "--", "sh", "-c", "mkdir new; echo n > new/file; echo m > made")
	u.hutch(t, 0, "fs", "edit", "box", "text", "--old", "c\n", "--new", "sandbox\n")
	u.hutch(t, 0, "fs", "rm", "box", "gone")
	if got := u.hutch(t, 0, "diff", "box", "--name-only"); got != "gone\nmade\nnew/file\ntext\n" {
		t.Errorf("what changed: %q", got)
	}
	if got := u.hutch(t, 0, "diff", "box", "text"); !strings.Contains(got, "-c\n+sandbox\n") {
		t.Errorf("the difference: %s", got)
	}
	// The project's side moves on.
	u.plant(t, map[string]string{"text": letters("x\n", "project\n")})
	moved := u.project(t)
	if out := u.hutch(t, 1, "apply", "box"); !strings.Contains(out, "conflict: text:") {
		t.Errorf("no conflict is reported: %s", out)
	}
	if d := cmp.Diff(moved, u.project(t)); d != "" {
		t.Fatalf("an apply that was refused changed the project:\n%s", d)
	}
	u.hutch(t, 0, "apply", "box", "--hunks", "text:1")
	u.hutch(t, 1, "apply", "box")
	u.hutch(t, 0, "apply", "box", "--partial")
	want := map[string]string{"text": letters("c\n", "sandbox\n", "x\n", "project\n"), "kept": "k\n", "made": "m\n", "new/file": "n\n"}
	if d := cmp.Diff(want, u.project(t)); d != "" {
		t.Errorf("what was applied (-want +got):\n%s", d)
	}
	u.hutch(t, 0, "apply", "box", "--undo")
	u.hutch(t, 0, "apply", "box", "--undo")
	if d := cmp.Diff(moved, u.project(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
	// A hard reset takes the project as it is now, and forgets the rest.
	u.hutch(t, 0, "reset", "--hard", "box")
	if got := u.hutch(t, 0, "diff", "box", "--name-only"); got != "" {
		t.Errorf("after a hard reset: %q", got)
	}
	if got := u.hutch(t, 0, "fs", "read", "box", "text"); got != moved["text"] || got == before["text"] {
		t.Errorf("after a hard reset the sandbox reads %q", got)
	}
	u.hutch(t, 0, "audit", "verify")
	u.hutch(t, 0, "rm", "box")
	if left, _ := filepath.Glob(filepath.Join(u.dir, "home", "sandboxes", "[0-9]*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
