package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Life is where the life cycle of sandboxes on one backend is interrupted: by whom hutch is run, and where.
type Life struct {
	Backend string // the block of run files
	Base    string // all processes of this host name it in their arguments, their environment or their mounts
	Home    string // HUTCH_HOME
	Work    string // where run files and the project are made
	Runtime string // XDG_RUNTIME_DIR
	Tmp     string // TMPDIR

	Command func(args ...string) *exec.Cmd // of hutch, in Work
	// Command with another boot id, before a restart of the machine; nil where that cannot be
	InAnotherBoot func(args ...string) *exec.Cmd
	// what is left of sandboxes, such as mounts, cgroups, containers; nil for nothing
	Traces  func(t *testing.T) []string
	Holders []string          // how the command lines begin of what holds a sandbox; nil for none
	Without map[string]string // the phases and events that cannot be on this backend, with the reason
}

// Bound is how long a test waits for what must come; it is long, for a busy machine.
const Bound = 2 * time.Minute

// files is what an apply changes: enough to be in the middle of it.
const files = 100

// mark is in the arguments of what runs in a sandbox.
func (l *Life) mark() string { return "lives-in-" + filepath.Base(l.Base) }

// phase is one command in the life of a sandbox.
type phase struct {
	name   string
	args   []string
	within func(l *Life, c *exec.Cmd) bool // whether the command is in the middle of it
}

// phases are all, in an order in which one can follow the other.
var phases = []phase{
	{"create", []string{"create", "life.hcl", "--name", "box"}, func(l *Life, _ *exec.Cmd) bool {
		intents, _ := filepath.Glob(filepath.Join(l.Home, "state", "intents", "*"))
		return slices.ContainsFunc(intents, func(p string) bool { fi, err := os.Stat(p); return err == nil && fi.Size() > 0 })
	}},
	{"exec", []string{"exec", "box", "--", "sh", "-c", "echo $0; sleep 600", "MARK"}, func(l *Life, c *exec.Cmd) bool {
		return strings.Contains(c.Stdout.(*Output).String(), l.mark())
	}},
	{"diff", []string{"diff", "box"}, backendRuns},
	{"apply", []string{"apply", "box"}, func(l *Life, _ *exec.Cmd) bool {
		journals, _ := filepath.Glob(filepath.Join(l.Home, "applies", "*", "journal"))
		return len(journals) > 0
	}},
	{"reset", []string{"reset", "-f", "box"}, backendRuns},
	{"stop", []string{"stop", "-f", "box"}, backendRuns},
	{"rm", []string{"rm", "-f", "box"}, func(l *Life, c *exec.Cmd) bool {
		records, _ := filepath.Glob(filepath.Join(l.Home, "sandboxes", "*", "sandbox.json"))
		return slices.ContainsFunc(records, func(p string) bool {
			b,
				_ := os.ReadFile(p)
			return bytes.Contains(b, []byte(`"removing"`))
		})
	}},
	{"pull", []string{"pull", "box"}, backendRuns},
}

func backendRuns(_ *Life, c *exec.Cmd) bool { return len(BackendsOf(c.Process.Pid)) > 0 }

// events are what happens in the middle of a phase. Where one needs what is not there, such as a payload of create, it
// reports false. Each run of the tests has time for some; make soak tries all (HUTCH_TEST_EVERYTHING=1).
var events = []struct {
	name   string
	always bool
	do     func(l *Life, c *exec.Cmd, ended <-chan struct{}) bool
}{
	{"two signals", true, func(_ *Life, c *exec.Cmd, ended <-chan struct{}) bool {
		for _, said := range []string{"hutch: stopping", ""} {
			_ = c.Process.Signal(os.Interrupt)
			until(ended, func() bool { return strings.Contains(c.Stderr.(*Output).String(), said) })
		}
		return true
	}},
	{early, false, func(_ *Life, c *exec.Cmd, _ <-chan struct{}) bool { return c.Process.Signal(syscall.SIGTERM) == nil }},
	{"SIGKILL of hutch", true, func(_ *Life, c *exec.Cmd, _ <-chan struct{}) bool { return c.Process.Kill() == nil }},
	{"SIGKILL of the backend", true, func(_ *Life, c *exec.Cmd,
		_ <-chan struct{}) bool {
		return kill(BackendsOf(c.Process.Pid))
	}},
	{"SIGKILL of the holder", false, func(l *Life, _ *exec.Cmd, _ <-chan struct{}) bool {
		return kill(l.processes(func(line string) bool {
			return slices.ContainsFunc(l.Holders, func(h string) bool { return strings.HasPrefix(line, h) })
		}))
	}},
	{payload, false, func(l *Life, c *exec.Cmd, _ <-chan struct{}) bool {
		return kill(l.processes(func(line string) bool {
			return strings.HasPrefix(line, "sh\x00") &&
				strings.Contains(line, l.mark())
		}))
	}},
	{restart, false, func(l *Life, c *exec.Cmd, _ <-chan struct{}) bool {
		for range 3 { // what one of them starts meanwhile dies as well
			kill(append(l.processes(func(string) bool { return true }), c.Process.Pid))
		}
		return os.RemoveAll(filepath.Join(l.Runtime, "hutch")) == nil // which is in memory
	}},
}

const (
	payload = "SIGKILL of the payload"
	early   = "a signal in the first milliseconds" // which waits for nothing
	restart = "restart of the machine"
)

// Run tries each event in each phase. Whatever the moment, hutch gc leaves nothing, the next command works and no file
// is lost.
func (l *Life) Run(t *testing.T) {
	for name, text := range map[string]string{
		"life.hcl": "run \"a\" {\n  " + l.Backend +
			"\n  workspace { source = \"project\" }\n  command = [\"true\"]\n}\n",
		"project/there": "before\n",
		"repo/push.hcl": "run \"a\" {\n  " + l.Backend +
			"\n  command = [\"sh\", \"-c\", \"cp $HUTCH_PLAN done && git add done && git commit -q -m done\"]\n}\n",
	} {
		if err := l.write(name, text); err != nil {
			t.Fatal(err)
		}
	}
	cells, interrupted := 0, 0
	for _, p := range phases {
		for _, e := range events {
			// no other phase has a payload
			if e.name == payload && p.name != "exec" || os.Getenv("HUTCH_TEST_EVERYTHING") == "" && !e.always {
				continue
			}
			t.Run(e.name+" during "+p.name, func(t *testing.T) {
				for _, what := range []string{p.name, e.name} {
					if why := l.Without[what]; why != "" {
						t.Skip(why)
					}
				}
				word := strconv.FormatInt(time.Now().UnixNano(), 36)
				l.before(t, p.name, word)
				command := l.Command
				if e.name == restart && l.InAnotherBoot != nil {
					command = l.InAnotherBoot
				}
				c, ended := start(t, command(strings.Split(strings.ReplaceAll(strings.Join(p.args, "\n"), "MARK", l.mark()),
					"\n")...))
				happened := false
				if e.name == early {
					happened = e.do(l, c, ended)
				} else if until(ended, func() bool { return p.within(l, c) }) {
					happened = e.do(l, c, ended)
				}
				cells++
				if happened {
					interrupted++
				} else {
					t.Logf("it was over before that: exit code %d", wait(t, c, ended))
				}
				if code := wait(t, c, ended); code == 125 && c.Stderr.(*Output).String() == "" {
					t.Errorf("it failed without a word:\n%s%s", c.Stdout, c.Stderr)
				}
				l.goesOn(t, p.name, word)
				if t.Failed() {
					t.Logf("the command printed\n%s%s", c.Stdout, c.Stderr)
				}
			})
		}
	}
	if interrupted < cells/2 {
		t.Errorf("only %d of %d commands were interrupted: this proves little", interrupted, cells)
	}
	if l.box(t) != "" {
		l.Hutch(t, 0, "rm", "-f", "box")
	}
	l.nothingForGC(t)
	if left := l.left(t, ""); len(left) > 0 {
		t.Errorf("left in the end: %q", left)
	}
	// Rootless Podman, which gc asks for its containers, keeps one process to hold its namespaces.
	ours := func(line string) bool { return filepath.Base(strings.TrimRight(line, "\x00")) != "podman" }
	if !Eventually(Bound, func() bool { return len(l.processes(ours)) == 0 }) {
		t.Errorf("still runs: %v", commandLines(l.processes(ours)))
	}
	l.Hutch(t, 0, "audit", "verify")
}

// before makes what a phase needs.
func (l *Life) before(t *testing.T, phase, word string) {
	t.Helper()
	there := l.box(t) != ""
	if there && (phase == "create" || phase == "pull") {
		l.Hutch(t, 0, "rm", "-f", "box")
	}
	switch {
	case phase == "pull":
		l.shell(t, `echo "$1" > plan && { test -d .git || git init -q -b main; } && git config user.name Me && git config user.email me@example.com &&
			git add . && git commit -q -m "$1" && "$2" push --name box push.hcl plan`, word, Hutch())
		return
	case phase != "create" && !there:
		l.Hutch(t, 0, "create", "life.hcl", "--name", "box")
	}
	if phase != "create" {
		l.inBox(t, fmt.Sprintf("echo precious > kept; for i in $(seq %d); do echo %s > f$i; done", files, word))
	}
}

// inBox runs a script in the sandbox.
func (l *Life) inBox(t *testing.T, script string) string {
	t.Helper()
	return l.awake(t, "exec", "-q", "box", "--", "sh", "-c", script)
}

// awake runs a command to its good end. The sandbox is started where hutch says that it must be.
func (l *Life) awake(t *testing.T, args ...string) string {
	t.Helper()
	c, ended := l.start(t, args...)
	code := wait(t, c, ended)
	if code == 125 && strings.Contains(c.Stderr.(*Output).String(), "`hutch start box` starts it and keeps its files") {
		l.Hutch(t, 0, "start", "box")
		return l.Hutch(t, 0, args...)
	}
	if code != 0 {
		t.Errorf("hutch %s: exit code %d\n%s%s", strings.Join(args, " "), code, c.Stdout, c.Stderr)
	}
	return c.Stdout.(*Output).String()
}

// goesOn checks that nothing is left but a sandbox that works.
func (l *Life) goesOn(t *testing.T, phase, word string) {
	t.Helper()
	works := func(line string) bool {
		return strings.Contains(line, "hutch-backend-") || strings.Contains(line, l.mark())
	}
	if !Eventually(Bound, func() bool { return len(l.processes(works)) == 0 }) {
		t.Errorf("still runs: %v", commandLines(l.processes(works)))
	}
	l.Hutch(t, 0, "gc")
	box := l.box(t)
	if box == "" && phase != "create" && phase != "rm" {
		t.Error("the sandbox is gone")
	}
	if left := l.left(t, box); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if phase == "apply" {
		l.applied(t, word)
	}
	switch {
	case phase == "pull":
		l.pulled(t, word)
	case box == "": // whose name is free
		l.Hutch(t, 0, "create", "life.hcl", "--name", "box")
		fallthrough
	case phase == "create":
		l.inBox(t, "true")
	default:
		if out := l.inBox(t, "cat kept"); out != "precious\n" {
			t.Errorf("the files of the sandbox: %q", out)
		}
	}
}

// applied checks that all or nothing of an apply is in the project once the next one has begun, and that it brings all.
func (l *Life) applied(t *testing.T, word string) {
	t.Helper()
	count := func() (n int) {
		for i := range files {
			if b, _ := os.ReadFile(filepath.Join(l.Work, "project", fmt.Sprintf("f%d", i+1))); string(b) == word+"\n" {
				n++
			}
		}
		return n
	}
	c, ended := l.start(t, "diff", "box") // it puts back what a killed apply has begun
	wait(t, c, ended)
	if n := count(); n != 0 && n != files {
		t.Errorf("%d of %d files were applied\n%s", n, files, c.Stderr)
	}
	if out := l.awake(t, "apply", "box"); count() != files {
		t.Errorf("the next apply: %d of %d files\n%s", count(), files, out)
	}
	litter, _ := filepath.Glob(filepath.Join(l.Work, "project", ".*"))
	if len(litter) > 0 {
		t.Errorf("left in the project: %q", litter)
	}
}

// pulled checks that the branch is where it was or has what was committed in the sandbox, and that the next pull brings
// it.
func (l *Life) pulled(t *testing.T, word string) {
	t.Helper()
	l.shell(t, `git fsck --strict && test -z "$(git status --porcelain)" && case "$(git log -1 --format=%s)" in "$1" | done) ;; *) exit 1 ;; esac`, word)
	l.awake(t, "pull", "box")
	l.shell(t, `git fsck --strict && test -z "$(git status --porcelain)" && test "$(git log -2 --format=%s)" = "done
$1" && test "$(cat done)" = "$1" && test -z "$(find .git -name '*.lock')"`, word)
}

// shell runs a script in the repository.
func (l *Life) shell(t *testing.T, script string, args ...string) {
	t.Helper()
	c := l.Command()
	c.Path, c.Args, c.Dir = "/bin/sh", append([]string{"sh", "-c", script, "sh"}, args...), filepath.Join(l.Work, "repo")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

// box is the id of the sandbox, or "".
func (l *Life) box(t *testing.T) string {
	t.Helper()
	c, ended := l.start(t, "inspect", "box")
	wait(t, c, ended)
	return sandboxID.FindString(c.Stdout.(*Output).String())
}

// nothingForGC calls gc where there must be nothing to remove.
func (l *Life) nothingForGC(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(l.Hutch(t, 0, "gc")) {
		// It looks at /tmp too, where other tests may leave something.
		if !strings.HasPrefix(line, "runtime_dir hutch-") && !strings.Contains(line, "removed ") {
			t.Errorf("gc still finds work: %s", line)
		}
	}
}

var sandboxID = regexp.MustCompile(`\d{6}-\d{6}-[a-z0-9]{6}`)

// left is what is there besides one sandbox.
func (l *Life) left(t *testing.T, box string) (found []string) {
	t.Helper()
	if l.Traces != nil {
		found = l.Traces(t)
	}
	for _, dir := range []string{filepath.Join(l.Runtime, "hutch"), l.Tmp, filepath.Join(l.Home, "sandboxes"),
		filepath.Join(l.Home, "state", "intents")} {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Name() != ".names.lock" {
				found = append(found, p)
			}
			return nil
		})
	}
	return slices.DeleteFunc(found, func(s string) bool { return box != "" && strings.Contains(s, box) })
}

// Hutch runs a command to its end and requires its exit code.
func (l *Life) Hutch(t *testing.T, code int, args ...string) string {
	t.Helper()
	c, ended := l.start(t, args...)
	if got := wait(t, c, ended); got != code {
		t.Errorf("hutch %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, c.Stdout, c.Stderr)
	}
	return c.Stdout.(*Output).String()
}

func (l *Life) start(t *testing.T, args ...string) (*exec.Cmd, <-chan struct{}) {
	t.Helper()
	return start(t, l.Command(args...))
}

func start(t *testing.T, c *exec.Cmd) (*exec.Cmd, <-chan struct{}) {
	t.Helper()
	c.Stdout, c.Stderr = &Output{}, &Output{}
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	return c, ended
}

// wait returns the exit code, -1 for a signal.
func wait(t *testing.T, c *exec.Cmd, ended <-chan struct{}) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Bound)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = c.Process.Kill()
		<-ended
		t.Fatalf("hutch %s did not end within %s\n%s%s", strings.Join(c.Args, " "), Bound, c.Stdout, c.Stderr)
	}
	return c.ProcessState.ExitCode()
}

// until waits for something, and reports false when the command ends before.
func until(ended <-chan struct{}, ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ended:
			return false
		case <-tick.C:
		}
	}
	return true
}

func (l *Life) write(name, text string) error {
	path := filepath.Join(l.Work, name)
	c := l.Command()
	c.Path, c.Args, c.Stdin = "/bin/sh", []string{"sh", "-c", `mkdir -p "${1%/*}" && cat > "$1"`, "sh", path},
		strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("write %s: %w: %s", path, err, out)
	}
	return nil
}

// processes are those of this life whose command line is right, but for this test.
func (l *Life) processes(right func(line string) bool) (found []int) {
	here, _ := os.Readlink("/proc/self/ns/mnt")
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, err := strconv.Atoi(filepath.Base(p))
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || pid == os.Getpid() || len(line) == 0 || !right(string(line)) {
			continue
		}
		for _, name := range []string{"cmdline", "environ", "mountinfo"} {
			if ns, _ := os.Readlink(filepath.Join(p, "ns", "mnt")); name == "mountinfo" && ns == here {
				continue
			}
			if b, _ := os.ReadFile(filepath.Join(p, name)); bytes.Contains(b, []byte(l.Base)) ||
				strings.Contains(string(line), l.mark()) {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

func commandLines(pids []int) (lines []string) {
	for _, pid := range pids {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		lines = append(lines, fmt.Sprintf("%d %q", pid, b))
	}
	return lines
}

// BackendsOf are the backend processes that a hutch started.
func BackendsOf(pid int) (found []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(b)) {
			if line, _ := os.ReadFile("/proc/" + f + "/cmdline"); bytes.Contains(line, []byte("/hutch-backend-")) {
				n, _ := strconv.Atoi(f)
				found = append(found, n)
			}
		}
	}
	return found
}

// kill reports whether one was there.
func kill(pids []int) (there bool) {
	for _, pid := range pids {
		there = syscall.Kill(pid, syscall.SIGKILL) == nil || there
	}
	return there
}

// Output is a buffer that one may read while another one writes.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
