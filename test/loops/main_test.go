package loops

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/agent/model/scripted"
	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

const modelProgram = "libexec/hutch/hutch-agent"

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{modelProgram: "cmd/hutch-agent", "libexec/hutch/hutch-backend-podman": "plugins/podman",
		"libexec/hutch/hutch-podman-agent": "plugins/podman/agent", "libexec/hutch/hutch-backend-e2b": "plugins/e2b"}))
}

// bound is how long a test waits for what must come.
const bound = 2 * time.Minute

// world is a directory with run files and a project, and somebody who works there with hutch.
type world struct {
	uid     int
	dir     string
	backend string   // the block
	env     []string // besides what everybody has
	mark    string   // on the command lines of what is to be found again
}

// newWorld is one whose sandboxes are bwrap's.
func newWorld(t *testing.T, uid int) *world {
	t.Helper()
	e2e.Require(t, "bwrap")
	return worldOn(t, uid, `backend "bwrap" {}`)
}

// others are the worlds with other backends that run here, as the user who runs the tests. Lima's is in
// plugins/lima/testdata/script/cycle-killed.txtar, which is run as somebody other than root.
var others = map[string]func(t *testing.T) *world{
	"podman": func(t *testing.T) *world {
		block := fmt.Sprintf("backend \"podman\" {\n    image = %q\n    pull  = \"never\"\n  }", podmantest.Busybox(t))
		// Its images are below the real home, for which a rootless Podman has a process already, by the usual TMPDIR.
		return worldOn(t, os.Getuid(), block, "HOME="+os.Getenv("HOME"), "XDG_RUNTIME_DIR="+os.Getenv("XDG_RUNTIME_DIR"), "TMPDIR="+os.TempDir())
	},
	"e2b": func(t *testing.T) *world {
		return worldOn(t, os.Getuid(), `backend "e2b" {}`, e2btest.ForTest(t, e2btest.Options{}).Env()...)
	},
}

func worldOn(t *testing.T, uid int, backend string, env ...string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "hutch-loops-") // where overlays may be made
	if err != nil {
		t.Fatal(err)
	}
	w := &world{uid: uid, dir: dir, backend: backend, env: env, mark: "mark-of-" + filepath.Base(dir)}
	t.Cleanup(func() {
		if out, _ := w.command("ps", "-q").Output(); t.Failed() && len(out) > 0 {
			_ = w.command(append([]string{"rm", "--force"}, strings.Fields(string(out))...)...).Run()
		}
		_ = w.command("gc").Run() // a test that failed may have left something
		e2e.KillMarked(w.mark)
		w.endPause(t)
		os.RemoveAll(dir)
	})
	tmp := filepath.Join(dir, "t") // where nobody else's hutch leaves anything
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	w.own(t, dir)
	w.own(t, tmp)
	return w
}

// endPause ends the process that a rootless Podman, which gc asks what there is, leaves for each home that it sees.
func (w *world) endPause(t *testing.T) {
	notes, err := filepath.Glob(filepath.Join(w.dir, "t", "podman-run-*", "libpod", "tmp", "pause.pid"))
	if err != nil {
		t.Error(err)
	}
	for _, note := range notes {
		b, err := os.ReadFile(note)
		if err != nil {
			t.Error(err)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}
	}
}

// own gives something to the user.
func (w *world) own(t *testing.T, path string) {
	t.Helper()
	if w.uid != os.Getuid() {
		if err := os.Chown(path, w.uid, w.uid); err != nil {
			t.Fatal(err)
		}
	}
}

// write writes files below the directory: name, text, name, text, …
func (w *world) write(t *testing.T, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(w.dir, files[i])
		for dir, missing := filepath.Dir(path), []string{}; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(dir); err == nil {
				for len(missing) > 0 {
					last := missing[len(missing)-1]
					if err := os.Mkdir(last, 0o755); err != nil {
						t.Fatal(err)
					}
					w.own(t, last)
					missing = missing[:len(missing)-1]
				}
				break
			}
			missing = append(missing, dir)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
		w.own(t, path)
	}
}

// read is a file of the directory; "" for none.
func (w *world) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func (w *world) home() string { return filepath.Join(w.dir, "home") }

// command is a call of hutch.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(e2e.Hutch(), args...)
	cmd.Dir = w.dir
	cmd.Env = append([]string{"HOME=" + w.dir, "HUTCH_HOME=" + w.home(), "TMPDIR=" + filepath.Join(w.dir, "t"), "TERM=xterm", "PATH=/usr/local/bin:/usr/bin:/bin"}, w.env...)
	if w.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}}
	}
	return cmd
}

// hutch runs it, and wants a certain exit code.
func (w *world) hutch(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := w.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("hutch %s ended with %d, want %d\n%s%s", strings.Join(args, " "), got, code, &out, &errs)
	}
	return out.String(), errs.String()
}

// serve serves a script to anyone who has the key, and returns the address.
func serve(t *testing.T, key, script string) *scripted.Server {
	t.Helper()
	s, err := scripted.Parse("script.txtar", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	v, err := scripted.Serve("127.0.0.1:0", s, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

// local is a model block for such a server, which needs no key.
func local(v *scripted.Server) string {
	return fmt.Sprintf("model \"m\" {\n  provider = \"openai\"\n  model    = \"small\"\n  base_url = \"%s/v1\"\n}\n\n", v.URL())
}

// begun waits until a command with the world's mark runs.
func (w *world) begun(t *testing.T) {
	t.Helper()
	begun(t, w.mark)
}

// begun waits until a command with that mark runs.
func begun(t *testing.T, mark string) {
	t.Helper()
	if !e2e.Eventually(bound, func() bool { return len(e2e.Marked(mark)) > 0 }) {
		t.Fatalf("no command with %s is run", mark)
	}
}

// gone waits until no command of the world's, and no hutch-agent, runs any more.
func (w *world) gone(t *testing.T) {
	t.Helper()
	for _, what := range []string{w.mark, filepath.Join(e2e.Dir, modelProgram)} {
		if !e2e.Eventually(bound, func() bool { return len(e2e.Marked(what)) == 0 }) {
			t.Errorf("%s still runs", what)
		}
	}
}
