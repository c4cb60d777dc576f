// Package crash kills hutch at random moments and looks at what is left.
package crash

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // those that are parallel wait most of the time
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-backend-podman": "plugins/podman", "libexec/hutch/hutch-podman-agent": "plugins/podman/agent",
		"libexec/hutch/hutch-backend-fake": "plugins/fake", "libexec/hutch/hutch-agent": "cmd/hutch-agent", "libexec/hutch/hutch-backend-e2b": "plugins/e2b",
		"libexec/hutch/hutch-backend-landlock": "plugins/landlock"}))
}

// kills is how often the host is killed for each user; make soak kills it 2,000 times.
const kills = 80

// TestKilledHost starts runs, kills the host with SIGKILL at random moments, and
// requires that every sandbox dies by itself, that `hutch gc` leaves nothing, and
// that `hutch audit verify` then finds no damage.
func TestKilledHost(t *testing.T) {
	t.Run("bwrap", func(t *testing.T) {
		e2e.Require(t, "bwrap")
		for name, uid := range e2e.Users() {
			t.Run(name, func(t *testing.T) { newUser(t, uid).killedHost(t) })
		}
	})
	// Its sandboxes end with their command: there is no more of a life cycle, and nothing but processes to be left.
	t.Run("landlock", func(t *testing.T) {
		for name, uid := range e2e.Users() {
			t.Run(name, func(t *testing.T) {
				u := newUser(t, uid)
				u.run = []string{"--backend", "landlock"}
				if out, err := u.command("doctor", "landlock").CombinedOutput(); err != nil {
					t.Skipf("no Landlock: %s", out)
				}
				u.killedHost(t)
			})
		}
	})
}

func (u *user) killedHost(t *testing.T) {
	before := u.traces(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	// How long a whole run takes here bounds the moments worth killing at.
	start := time.Now()
	u.hutch(t, 0, u.runArgs("true")...)
	whole := time.Since(start)

	died := 0
	for i := range kills {
		payload := "true"
		if i%2 == 1 {
			payload = "echo " + u.marker + "; sleep 60"
		}
		cmd := u.command(u.runArgs(payload)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.NewTimer(time.Duration(random.Int64N(int64(whole) * 3 / 2)))
		<-timer.C // the moment is the point of the test, not a way to wait for anything
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			died++
		}
	}
	if died < kills/4 {
		t.Fatalf("only %d of %d hosts died before they were done: this proves little", died, kills)
	}
	t.Logf("%d of %d hosts died on the way", died, kills)

	// PLG-05: soon nothing runs any more, before anybody cleans up. It takes milliseconds; a busy machine gets a minute.
	if !e2e.Eventually(time.Minute, func() bool { return len(e2e.Marked(u.marker)) == 0 && len(u.plugins()) == 0 }) {
		for _, pid := range append(e2e.Marked(u.marker), u.plugins()...) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("still runs: %d %q", pid, b)
		}
		e2e.KillMarked(u.marker)
	}

	u.hutch(t, 0, "gc")
	if diff := cmp.Diff(before, u.traces(t)); diff != "" {
		t.Errorf("gc left something (-before +after):\n%s", diff)
	}
	u.nothingForGC(t)
	u.hutch(t, 0, "audit", "verify")
	u.hutch(t, 0, u.runArgs("true")...)
}

// user is somebody who runs hutch, with directories of their own.
type user struct {
	uid                      int
	home, runtime, tmp, work string
	marker                   string
	image                    string   // of containers, where they are used
	env                      []string // besides
	run                      []string // flags of runs
}

func newUser(t *testing.T, uid int) *user {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "hutch-crash-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	t.Cleanup(func() { podmantest.EndPause(filepath.Join(base, "r")) })
	u := &user{uid: uid, run: []string{"--backend", "bwrap", "--disk", "16MiB"}, home: filepath.Join(base, "h"), runtime: filepath.Join(base, "r"), tmp: filepath.Join(base, "t"),
		work: filepath.Join(base, "w"), marker: fmt.Sprintf("hutch-crash-%d-%d", uid, time.Now().UnixNano())}
	for _, dir := range []string{u.home, u.runtime, u.tmp, u.work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			if err := os.Chown(dir, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chmod(base, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func (u *user) runArgs(script string) []string {
	return slices.Concat([]string{"run", "-q", "--workspace", u.work}, u.run, []string{"--", "sh", "-c", script})
}

func (u *user) command(args ...string) *exec.Cmd {
	cmd := exec.Command(e2e.Hutch(), args...)
	cmd.Dir = u.work
	cmd.Env = []string{"HOME=" + u.home, "HUTCH_HOME=" + filepath.Join(u.home, "hutch"), "XDG_RUNTIME_DIR=" + u.runtime,
		"TMPDIR=" + u.tmp, "PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.Env = append(cmd.Env, u.env...)
	if u.image != "" {
		cmd.Env = append(cmd.Env, "PODMAN_IMAGE="+u.image)
		for _, name := range []string{"XDG_DATA_HOME", "CONTAINERS_STORAGE_CONF", "CONTAINERS_CONF"} { // see ownStorage
			if value := os.Getenv(name); value != "" {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
		}
	}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.uid)}}
	}
	return cmd
}

// hutch runs a command to its end and requires its exit code.
func (u *user) hutch(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := u.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("hutch %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out.String())
	}
	return out.String()
}

// nothingForGC runs gc where there is nothing to remove any more. It looks at /tmp too, where tests that run beside
// this one may leave something.
func (u *user) nothingForGC(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(u.hutch(t, 0, "gc")) {
		if !strings.HasPrefix(line, "runtime_dir hutch-") && !strings.Contains(line, "removed ") {
			t.Errorf("gc still finds work: %s", line)
		}
	}
}

// plugins returns the backend processes of the build under test.
func (u *user) plugins() []int { return e2e.Marked(filepath.Join(e2e.Dir, "libexec")) }

// ids returns the ids of all runs, finished or not: sandboxes and cgroups bear them.
func (u *user) ids() []string {
	var ids []string
	runs, _ := os.ReadDir(filepath.Join(u.home, "hutch", "runs"))
	for _, r := range runs {
		id, _, _ := strings.Cut(strings.TrimPrefix(r.Name(), "."), ".")
		ids = append(ids, id)
	}
	return ids
}

// traces lists what hutch could have left on the machine: mounts, cgroups,
// sockets and temporary files.
func (u *user) traces(t *testing.T) []string {
	t.Helper()
	var found []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if strings.Contains(line, filepath.Dir(u.home)) || strings.Contains(line, e2e.Dir) {
			found = append(found, "mount "+line)
		}
	}
	ids := u.ids()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasPrefix(d.Name(), "hutch") {
			return nil
		}
		for _, id := range ids { // other hutches on this machine are none of our business
			if strings.Contains(d.Name(), id) {
				found = append(found, "cgroup "+p)
			}
		}
		return nil
	})
	containers := map[string]string{}
	if u.image != "" {
		containers = u.containers(t)
	}
	for _, name := range containers {
		found = append(found, "container "+name)
	}
	for _, dir := range []string{u.runtime, u.tmp} {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && (p == filepath.Join(u.runtime, "libpod") || p == filepath.Join(u.runtime, "containers")) {
				return fs.SkipDir // Podman's own books, which it makes for every caller, as gc is
			}
			// An empty directory of ours may stay; what is in it may not.
			if err == nil && !d.IsDir() {
				// The OCI runtime of an ordinary user keeps the state of a container that runs there, below its id.
				found = append(found, strings.TrimSpace("file "+p+" "+containers[filepath.Base(filepath.Dir(p))]))
			}
			return nil
		})
	}
	sandboxes, _ := filepath.Glob(filepath.Join(u.home, "hutch", "*", "sandboxes", "*"))
	intents, _ := filepath.Glob(filepath.Join(u.home, "hutch", "*", "intents", "*"))
	for _, p := range append(sandboxes, intents...) {
		found = append(found, "record "+p)
	}
	return found
}
