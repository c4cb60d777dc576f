// Command soak makes runs and persistent sandboxes side by side while it kills host, backend, holder and payload at
// random. Then it calls hutch gc once, and counts what is left. It prints a table of its figures and fails when a run
// that nobody killed ended wrongly, or when anything is left. `make soak` builds hutch and calls it.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

type options struct {
	hutch     string // path of the command
	backend   string
	runs      int
	sandboxes int
	jobs      int // at once
	seed      uint64
}

// The processes that are killed.
var victims = []string{"host", "backend", "holder", "payload"}

// figures are what came of it.
type figures struct {
	options
	runs, sandboxes atomic.Int64 // that nobody killed, and that ended as they had to
	late            atomic.Int64 // runs that were refused, because a backend did not start within 10 s on a busy machine
	kills           [4]atomic.Int64
	took            time.Duration
	left            map[string][]string
	grown           [2]string // of a host and a backend over many runs

	mu      sync.Mutex
	wrong   []string
	cgroups map[string]bool // of the processes that could have been killed
}

func (f *figures) failed(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, f.backend+": "+fmt.Sprintf(format, args...))
	fmt.Fprintln(os.Stderr, f.wrong[len(f.wrong)-1])
}

// soaking is one soak with its directories.
type soaking struct {
	options
	base string
	env  []string // of a Podman with a storage below base
	f    *figures
}

func soak(o options) (_ *figures, err error) {
	base, err := os.MkdirTemp("/var/tmp", "hutch-soak-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(base)
	s := &soaking{options: o, base: base, f: &figures{options: o, left: map[string][]string{}, cgroups: map[string]bool{}}}
	for _, dir := range []string{"h", "r", "t", "w", "s"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if o.backend == "podman" {
		if s.env, err = podmantest.OwnStorage(filepath.Join(base, "s")); err != nil {
			return nil, err
		}
		defer func() {
			err = errors.Join(err, podmantest.EndStorage(filepath.Join(base, "s"), append(os.Environ(), s.env...), nil))
		}()
		image, err := podmantest.BusyboxFor(append(os.Environ(), s.env...))
		if err != nil {
			return nil, err
		}
		s.env = append(s.env, "PODMAN_IMAGE="+image)
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
		if i%100 == 0 {
			fmt.Fprintf(os.Stderr, "%s: %s: %d begun\n", time.Now().Format(time.TimeOnly), o.backend, i)
		}
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
	cmd.Env = append(s.env, "HOME="+s.base, "HUTCH_HOME="+filepath.Join(s.base, "h"),
		"XDG_RUNTIME_DIR="+filepath.Join(s.base, "r"),
		"TMPDIR="+filepath.Join(s.base, "t"), "PATH=/usr/local/bin:/usr/bin:/bin")
	return cmd
}

// run makes one run and checks what it printed and how it ended; one in five is killed.
func (s *soaking) run(i int, r *rand.Rand) {
	word, code := fmt.Sprintf("word-%d-%d", i, r.Uint64()), r.IntN(100)
	args := []string{"run", "-q", "--backend", s.backend, "--workspace", ".", "--", "sh", "-c"}
	if r.IntN(5) == 0 {
		s.killed(r, word, append(args, "echo "+word+"; sleep 2 & sleep 2")...)
		return
	}
	out, got := s.call(append(args, fmt.Sprintf("cat file; echo %s; exit %d", word, code))...)
	if got == 125 && strings.Contains(out, "it printed nothing within") {
		s.f.late.Add(1)
		return
	}
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
		s.killed(r, "", "create", "--backend", s.backend, "--workspace", ".", "--name", name)
		if _, code := s.call("inspect", name); code == 0 {
			_, _ = s.call("rm", "-f", name)
		}
	}
	if out, code := s.call("create", "--backend", s.backend, "--workspace", ".", "--name", name); code != 0 {
		s.f.failed("create %s: %d %s", name, code, out)
		return
	}
	if out, code := s.call("exec", name, "--", "sh", "-c", "echo kept > kept"); code != 0 {
		s.f.failed("exec %s: %d %s", name, code, out)
		return
	}
	if r.IntN(2) == 0 {
		word := fmt.Sprintf("word-%s-%d", name, r.Uint64())
		s.killed(r, word, "exec", name, "--", "sh", "-c", "echo "+word+"; sleep 2 & sleep 2")
	}
	// a container whose first process was killed
	if out, _ := s.call("inspect", name); strings.Contains(out, ", stopped\n") {
		_, _ = s.call("start", name)
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

// killed runs a command and kills one of its processes at a random moment. Its program has word in its arguments.
func (s *soaking) killed(r *rand.Rand, word string, args ...string) {
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
	for alive() && len(victim(cmd.Process.Pid, word, victims[which])) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Duration(r.Int64N(int64(most))))
	if pids := victim(cmd.Process.Pid, word, victims[which]); alive() && len(pids) > 0 {
		pid := pids[r.IntN(len(pids))]
		s.f.cgroupsOf(pid)
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			s.f.kills[which].Add(1)
		}
	}
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		s.f.failed("hutch %s does not end after its %s was killed", strings.Join(args, " "), victims[which])
		_ = cmd.Process.Kill()
		<-ended
	}
}

// holders are the command lines of what holds a sandbox: bwrap's holder, the first process of a container, and its
// monitor.
var holders = []string{"hutch-bwrap-holder", "/run/hutch-agent", "/usr/bin/conmon"}

// victim finds the processes of one kind that belong to a host: below it, or around the program with word in its
// arguments.
func victim(host int, word, kind string) (found []int) {
	if kind == "host" {
		return []int{host}
	}
	add := func(pid int, is string) {
		if is == kind && !slices.Contains(found, pid) {
			found = append(found, pid)
		}
	}
	isHolder := func(pid int) bool {
		line := commandLine(pid)
		return slices.ContainsFunc(holders, func(h string) bool { return strings.HasPrefix(line, h) })
	}
	var walk func(pid int, in string)
	walk = func(pid int, in string) {
		for _, child := range children(pid) {
			is := in
			switch {
			case isHolder(child):
				is = "holder"
			case strings.Contains(commandLine(child), "hutch-backend-"):
				is = "backend"
			case in == "holder" || in == "payload":
				is = "payload"
			}
			add(child, is)
			walk(child, is)
		}
	}
	walk(host, "")
	if len(found) > 0 || word == "" || kind == "backend" {
		return found
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil || pid == host || !strings.Contains(commandLine(pid), word) {
			continue
		}
		for is := "payload"; pid > 1 && (is == "payload" || isHolder(pid)); pid = parent(pid) {
			if isHolder(pid) {
				is = "holder"
			}
			add(pid, is)
		}
	}
	return found
}

func commandLine(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(line)
}

func parent(pid int) int {
	s, _ := procstat.Of(pid) // 0 of one that has ended
	return s.Parent
}

// cgroupsOf notes the cgroups of a process that bear a name of ours or of a container.
func (f *figures) cgroupsOf(pid int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (strings.Contains(parts[2], "hutch") || strings.Contains(parts[2], "libpod-")) {
			name := strings.TrimPrefix(parts[1], "name=")
			f.cgroups[filepath.Join("/sys/fs/cgroup", name, parts[2])] = true
		}
	}
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

// growth lets one host make many runs, and compares its descriptors and memory, and those of its backend, early and
// late.
func (s *soaking) growth() error {
	n := min(max(s.runs/4, 40), 1000)
	file := fmt.Sprintf("run \"a\" {\n  for_each = toset([for i in range(%d) : tostring(i)])\n  backend %q {}\n  "+
		"command = [\"true\"]\n}\n", n, s.backend)
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
			for i := range early {
				s.f.grown[i] = fmt.Sprintf("%d → %d descriptors, %d → %d KiB", early[i].fds, late[i].fds, early[i].kib,
					late[i].kib)
			}
			return nil
		case <-tick.C:
		}
		done, _ := os.ReadDir(filepath.Join(s.base, "h", "runs"))
		for i, kind := range victims[:2] {
			pids := victim(cmd.Process.Pid, "", kind)
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
		// which Podman mounts upon itself
		if strings.Contains(line, s.base) && !strings.HasSuffix(strings.Fields(line)[4], "/s/graph/overlay") {
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
	for p := range s.f.cgroups {
		if _, err := os.Stat(p); err == nil && !slices.Contains(s.f.left["cgroups"], p) {
			s.f.left["cgroups"] = append(s.f.left["cgroups"], p)
		}
	}
	if s.backend == "podman" {
		cmd := exec.Command("podman", "ps", "--all", "--quiet", "--external")
		cmd.Env = append(os.Environ(), s.env...)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("podman ps: %w", err)
		}
		s.f.left["containers"] = strings.Fields(string(out))
	}
	for _, dir := range []string{"r", "t", "h/sandboxes", "h/state/intents"} {
		_ = filepath.WalkDir(filepath.Join(s.base, dir), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && (p == filepath.Join(s.base, "r/libpod") ||
				p == filepath.Join(s.base, "r/containers")) {
				return fs.SkipDir // Podman's own books
			}
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
	here, _ := os.Readlink("/proc/self/ns/mnt")
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range pids {
		if filepath.Base(p) == strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, name := range []string{"cmdline", "environ", "mountinfo"} {
			if ns, _ := os.Readlink(filepath.Join(p, "ns/mnt")); name == "mountinfo" && ns == here {
				continue // Podman's mounts on the host
			}
			b, _ := os.ReadFile(filepath.Join(p, name))
			// every mount namespace that anybody made meanwhile has a copy of what Podman has mounted on the host
			if name == "mountinfo" {
				b = bytes.ReplaceAll(b, []byte(s.base+"/s/"), nil)
			}
			if bytes.Contains(b, []byte(s.base)) {
				line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
				found = append(found, fmt.Sprintf("%s %q", filepath.Base(p), line))
				break
			}
		}
	}
	return found
}

// table is the figures in markdown, a column for each soak.
func table(all []*figures) string {
	var b strings.Builder
	row := func(what string, value func(f *figures) any) {
		fmt.Fprintf(&b, "| %s |", what)
		for _, f := range all {
			fmt.Fprintf(&b, " %v |", value(f))
		}
		b.WriteString("\n")
	}
	row("what", func(f *figures) any { return f.backend })
	row("---", func(*figures) any { return "---" })
	row("runs asked for, seed", func(f *figures) any { return fmt.Sprintf("%d, %d", f.options.runs, f.seed) })
	row("runs that nobody killed, each with the right bytes and code", func(f *figures) any { return f.runs.Load() })
	row("persistent sandboxes, each with all its files after kills", func(f *figures) any { return f.sandboxes.Load() })
	row("runs refused because a backend did not start within 10 s", func(f *figures) any { return f.late.Load() })
	for i, v := range victims {
		row("kills of a "+v, func(f *figures) any { return f.kills[i].Load() })
	}
	for _, kind := range []string{"processes", "mounts", "cgroups", "containers", "files"} {
		row(kind+" left", func(f *figures) any { return len(f.left[kind]) })
	}
	for i, v := range victims[:2] {
		row(v+" over many runs in one call", func(f *figures) any { return f.grown[i] })
	}
	row("wrong ends", func(f *figures) any { return len(f.wrong) })
	row("took", func(f *figures) any { return f.took })
	return b.String()
}

// problems are what must not be.
func (f *figures) problems() []string {
	all := f.wrong
	for kind, list := range f.left {
		for _, one := range list {
			all = append(all, f.backend+": left, "+kind+": "+one)
		}
	}
	return all
}
