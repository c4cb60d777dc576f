// Command soak makes runs and persistent sandboxes side by side while it kills host, backend, holder and payload at random. Then
// it calls hutch gc once, and counts what is left. It prints a table of its figures and fails when a run that nobody killed
// ended wrongly, or when anything is left. `make soak` builds hutch and calls it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type options struct {
	hutch     string // path of the command
	runs      int
	sandboxes int
	jobs      int // at once
	seed      uint64
}

// The processes that are killed.
var victims = []string{"host", "backend", "holder", "payload"}

// figures are what came of it.
type figures struct {
	runs, sandboxes atomic.Int64 // that nobody killed, and that ended as they had to
	kills           [4]atomic.Int64
	took            time.Duration
	left            map[string][]string
	grown           string // of a host and a backend over many runs

	mu    sync.Mutex
	wrong []string
}

func (f *figures) failed(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// soaking is one soak with its directories.
type soaking struct {
	options
	base string
	f    *figures
}

func soak(o options) (*figures, error) {
	base, err := os.MkdirTemp("/var/tmp", "hutch-soak-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(base)
	s := &soaking{options: o, base: base, f: &figures{left: map[string][]string{}}}
	for _, dir := range []string{"h", "r", "t", "w"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(base, "w", "file"), []byte("of the project\n"), 0o600); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := s.growth(); err != nil {
		return nil, err
	}
	work := make(chan func(r *rand.Rand))
	var wg sync.WaitGroup
	for i := range o.jobs {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(o.seed, uint64(i)))
			for job := range work {
				job(r)
			}
		})
	}
	for i := range max(o.runs, o.sandboxes) {
		if i < o.sandboxes {
			work <- func(r *rand.Rand) { s.sandbox(i, r) }
		}
		if i < o.runs {
			work <- func(r *rand.Rand) { s.run(i, r) }
		}
	}
	close(work)
	wg.Wait()
	s.f.took = time.Since(began).Round(time.Second)
	return s.f, s.leaks()
}

func (s *soaking) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.hutch, args...)
	cmd.Dir = filepath.Join(s.base, "w")
	cmd.Env = []string{"HOME=" + s.base, "HUTCH_HOME=" + filepath.Join(s.base, "h"), "XDG_RUNTIME_DIR=" + filepath.Join(s.base, "r"),
		"TMPDIR=" + filepath.Join(s.base, "t"), "PATH=/usr/local/bin:/usr/bin:/bin"}
	return cmd
}

// run makes one run and checks what it printed and how it ended; one in five is killed.
func (s *soaking) run(i int, r *rand.Rand) {
	word, code := fmt.Sprintf("word-%d-%d", i, r.Uint64()), r.IntN(100)
	args := []string{"run", "-q", "--backend", "bwrap", "--workspace", ".", "--", "sh", "-c"}
	if r.IntN(5) == 0 {
		s.killed(r, append(args, "echo "+word+"; sleep 2 & sleep 2")...)
		return
	}
	out, got := s.call(append(args, fmt.Sprintf("cat file; echo %s; exit %d", word, code))...)
	if want := "of the project\n" + word + "\n"; got != code || out != want {
		s.f.failed("run %d ended with %d and printed %q, want %d and %q", i, got, out, code, want)
		return
	}
	s.f.runs.Add(1)
}

// sandbox makes one that persists, lets commands in it be killed, and checks that its files are all there.
func (s *soaking) sandbox(i int, r *rand.Rand) {
	name := fmt.Sprintf("box-%d", i)
	if r.IntN(5) == 0 { // and its name is free afterwards
		s.killed(r, "create", "--backend", "bwrap", "--workspace", ".", "--name", name)
		if _, code := s.call("inspect", name); code == 0 {
			_, _ = s.call("rm", "-f", name)
		}
	}
	if out, code := s.call("create", "--backend", "bwrap", "--workspace", ".", "--name", name); code != 0 {
		s.f.failed("create %s: %d %s", name, code, out)
		return
	}
	_, _ = s.call("exec", name, "--", "sh", "-c", "echo kept > kept")
	if r.IntN(2) == 0 {
		s.killed(r, "exec", name, "--", "sh", "-c", "sleep 2 & sleep 2")
	}
	if out, code := s.call("exec", name, "--", "cat", "kept"); code != 0 || out != "kept\n" {
		s.f.failed("the files of %s: %d %q", name, code, out)
		return
	}
	if out, code := s.call("rm", "-f", name); code != 0 {
		s.f.failed("rm %s: %d %s", name, code, out)
		return
	}
	s.f.sandboxes.Add(1)
}

// call runs a command that nobody kills. What it printed on stderr follows where it failed.
func (s *soaking) call(args ...string) (string, int) {
	cmd := s.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if code == 125 {
		out.Write(errs.Bytes())
	}
	return out.String(), code
}

// killed runs a command and kills one of its processes at a random moment.
func (s *soaking) killed(r *rand.Rand, args ...string) {
	cmd := s.command(args...)
	if err := cmd.Start(); err != nil {
		s.f.failed("start hutch: %v", err)
		return
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	// A moment after there is one, whenever that is. The host, which is there at once, dies at any time.
	which, most := r.IntN(len(victims)), 50*time.Millisecond
	if which == 0 {
		most = time.Second
	}
	alive := func() bool {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	for alive() && len(victim(cmd.Process.Pid, victims[which])) == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Duration(r.Int64N(int64(most))))
	if pids := victim(cmd.Process.Pid, victims[which]); alive() && len(pids) > 0 && syscall.Kill(pids[r.IntN(len(pids))], syscall.SIGKILL) == nil {
		s.f.kills[which].Add(1)
	}
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		s.f.failed("hutch %s does not end after its %s was killed", strings.Join(args, " "), victims[which])
		_ = cmd.Process.Kill()
		<-ended
	}
}

// victim finds the processes of one kind below a host.
func victim(host int, kind string) (found []int) {
	if kind == "host" {
		return []int{host}
	}
	var walk func(pid int, in string)
	walk = func(pid int, in string) {
		for _, child := range children(pid) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			is := in
			switch {
			case bytes.HasPrefix(line, []byte("hutch-bwrap-holder")):
				is = "holder"
			case bytes.Contains(line, []byte("hutch-backend-")):
				is = "backend"
			case in == "holder" || in == "payload":
				is = "payload"
			}
			if is == kind {
				found = append(found, child)
			}
			walk(child, is)
		}
	}
	walk(host, "")
	return found
}

func children(pid int) (out []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// growth lets one host make many runs, and compares its descriptors and memory, and those of its backend, early and late.
func (s *soaking) growth() error {
	n := min(max(s.runs/4, 40), 1000)
	file := fmt.Sprintf("run \"a\" {\n  for_each = toset([for i in range(%d) : tostring(i)])\n  backend \"bwrap\" {}\n  command = [\"true\"]\n}\n", n)
	if err := os.WriteFile(filepath.Join(s.base, "w", "many.hcl"), []byte(file), 0o600); err != nil {
		return err
	}
	cmd := s.command("run", "-q", "-j", strconv.Itoa(runtime.NumCPU()), "many.hcl")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	type sample struct{ fds, kib int }
	var early, late [2]sample
	for {
		select {
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("%d runs in one call: %w\n%s", n, err, out.Bytes())
			}
			for i := range early {
				if late[i].fds > early[i].fds+64 {
					s.f.failed("descriptors of %s grow: %d early, %d late", victims[i], early[i].fds, late[i].fds)
				}
			}
			s.f.grown = fmt.Sprintf("host %d → %d descriptors, %d → %d KiB; backend %d → %d descriptors, %d → %d KiB", early[0].fds, late[0].fds, early[0].kib, late[0].kib,
				early[1].fds, late[1].fds, early[1].kib, late[1].kib)
			return nil
		case <-tick.C:
		}
		done, _ := os.ReadDir(filepath.Join(s.base, "h", "runs"))
		for i, kind := range victims[:2] {
			pids := victim(cmd.Process.Pid, kind)
			if len(pids) == 0 {
				continue
			}
			fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pids[0]))
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pids[0]))
			_, rss, _ := strings.Cut(string(status), "VmRSS:")
			now := sample{fds: len(fds)}
			if f := strings.Fields(rss); len(f) > 0 {
				now.kib, _ = strconv.Atoi(f[0])
			}
			if len(done) <= n/2 { // the most of each half, since it goes up and down
				early[i] = sample{max(early[i].fds, now.fds), max(early[i].kib, now.kib)}
			} else {
				late[i] = sample{max(late[i].fds, now.fds), max(late[i].kib, now.kib)}
			}
		}
	}
}

// leaks calls gc and counts what is there all the same.
func (s *soaking) leaks() error {
	ids, err := os.ReadDir(filepath.Join(s.base, "h", "runs"))
	if err != nil {
		return err
	}
	// What cleans up by itself gets the time for it.
	for deadline := time.Now().Add(time.Minute); len(s.processes()) > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	if out, code := s.call("gc"); code != 0 {
		return errors.New("hutch gc: " + out)
	}
	if out, code := s.call("audit", "verify"); code != 0 {
		s.f.failed("audit verify: %d %s", code, out)
	}
	s.f.left["processes"] = s.processes()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, s.base) {
			s.f.left["mounts"] = append(s.f.left["mounts"], strings.TrimSpace(line))
		}
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id.Name()] = true
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "hutch") {
			for id := range known {
				if strings.Contains(d.Name(), id) {
					s.f.left["cgroups"] = append(s.f.left["cgroups"], p)
				}
			}
		}
		return nil
	})
	for _, dir := range []string{"r", "t", "h/sandboxes", "h/state/intents"} {
		_ = filepath.WalkDir(filepath.Join(s.base, dir), func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Name() != ".names.lock" {
				s.f.left["files"] = append(s.f.left["files"], p)
			}
			return nil
		})
	}
	return nil
}

// processes are those that have anything of this soak on their command line, in their environment or mounted.
func (s *soaking) processes() (found []string) {
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range pids {
		if filepath.Base(p) == strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, name := range []string{"cmdline", "environ", "mountinfo"} {
			b, _ := os.ReadFile(filepath.Join(p, name))
			if bytes.Contains(b, []byte(s.base)) {
				line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
				found = append(found, fmt.Sprintf("%s %q", filepath.Base(p), line))
				break
			}
		}
	}
	return found
}

// table is the figures in markdown.
func (f *figures) table(o options) string {
	var b strings.Builder
	row := func(what string, value any) { fmt.Fprintf(&b, "| %s | %v |\n", what, value) }
	b.WriteString("| what | figure |\n| --- | --- |\n")
	row("runs asked for, seed", fmt.Sprintf("%d, %d", o.runs, o.seed))
	row("runs that nobody killed, each with the right bytes and code", f.runs.Load())
	row("persistent sandboxes, each with all its files after kills", f.sandboxes.Load())
	for i, v := range victims {
		row("kills of a "+v, f.kills[i].Load())
	}
	for _, kind := range []string{"processes", "mounts", "cgroups", "files"} {
		row(kind+" left", len(f.left[kind]))
	}
	row("growth over many runs in one call", f.grown)
	row("wrong ends", len(f.wrong))
	row("took", f.took)
	return b.String()
}

// problems are what must not be.
func (f *figures) problems() []string {
	all := f.wrong
	for kind, list := range f.left {
		for _, one := range list {
			all = append(all, "left, "+kind+": "+one)
		}
	}
	return all
}
