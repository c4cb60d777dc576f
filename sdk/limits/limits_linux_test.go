package limits

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the payload: TestMain runs one of these instead of the tests.
var payloads = map[string]func(arg string){
	"hog":  hog,
	"burn": burn,
	"hold": func(string) { fmt.Println("ready"); io.Copy(io.Discard, os.Stdin) },
	// Forks a child that ignores everything and keeps forking, and says so.
	"forks": forks,
	"wait":  func(string) { forever() },
	"limits": func(arg string) {
		var r Rlimits
		if err := json.Unmarshal([]byte(arg), &r); err != nil {
			panic(err)
		}
		if err := r.Apply(); err != nil {
			panic(err)
		}
		err := syscall.Exec("/bin/sh", []string{"sh", "-c", "ulimit -c; ulimit -n; ulimit -f; ulimit -v; ulimit -Hn"}, nil)
		panic(err)
	},
	"probe": func(string) {
		s := Probe()
		json.NewEncoder(os.Stdout).Encode(map[string]any{"mechanism": s.Mechanism, "limits": s.Limits, "where": s.Where})
	},
	"delegated": delegatedPayload,
}

func TestMain(m *testing.M) {
	if p, ok := payloads[os.Getenv("LIMITS_TEST_PAYLOAD")]; ok {
		p(os.Getenv("LIMITS_TEST_ARG"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func payload(name, arg string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "LIMITS_TEST_PAYLOAD="+name, "LIMITS_TEST_ARG="+arg)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// hog touches arg MiB and says so.
func hog(arg string) {
	n, _ := strconv.Atoi(arg)
	var keep [][]byte
	for range n {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		keep = append(keep, b)
	}
	fmt.Println("touched", len(keep))
	runtime.KeepAlive(keep)
}

// burn keeps two threads busy for arg of wall time.
func burn(arg string) {
	d, _ := time.ParseDuration(arg)
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for time.Now().Before(end) {
			}
		})
	}
	wg.Wait()
}

// forks starts arg children that wait for ever, and says how many it got.
func forks(arg string) {
	n, _ := strconv.Atoi(arg)
	got := 0
	for range n {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if cmd.Start() == nil {
			got++
		}
	}
	fmt.Println("forked", got)
	forever()
}

// forever is for the payload what no select can be: the runtime takes an idle program for a deadlock and ends it.
func forever() { unix.Poll(nil, -1) }

// needGroups skips where there are no cgroups to use, unless they are required.
func needGroups(t testing.TB) *Support {
	t.Helper()
	s := Probe()
	if s.place == nil {
		why := s.Limits[CPUs].Reason
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "cgroup") {
			t.Fatalf("cgroups are required: %s", why)
		}
		t.Skipf("no cgroups: %s", why)
	}
	return s
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var seq int

func newGroup(t testing.TB, r Request) *Group {
	t.Helper()
	s := needGroups(t)
	seq++
	g, err := s.New(fmt.Sprintf("test-%d-%d", os.Getpid(), seq), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Destroy(ctx); err != nil {
			t.Errorf("destroy: %v", err)
		}
		for _, d := range g.dirs {
			if exists(d) {
				t.Errorf("%s is left behind", d)
			}
		}
	})
	return g
}

func stats(t *testing.T, g *Group) Stats {
	t.Helper()
	st, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestMemoryHogIsKilledAndCounted(t *testing.T) {
	g := newGroup(t, Request{Memory: 64 << 20})
	cmd := payload("hog", "256")
	out, _ := cmd.StdoutPipe()
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(out)
	err := cmd.Wait()
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("hog ended with %v and said %q, want SIGKILL", err, said)
	}
	st := stats(t, g)
	if st.OOMKills == 0 {
		t.Errorf("no oom kill counted: %+v", st)
	}
	if st.MemoryPeak > 0 && (st.MemoryPeak < 32<<20 || st.MemoryPeak > 65<<20) {
		t.Errorf("peak memory is %d, want just below 64 MiB", st.MemoryPeak)
	}
}

func TestMemoryBelowTheLimitIsLeftAlone(t *testing.T) {
	g := newGroup(t, Request{Memory: 256 << 20})
	cmd := payload("hog", "64")
	out, _ := cmd.StdoutPipe()
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || string(said) != "touched 64\n" {
		t.Fatalf("got %v and %q", err, said)
	}
	if st := stats(t, g); st.OOMKills != 0 || st.MemoryPeak < 64<<20 {
		t.Errorf("got %+v, want no oom kill and a peak of 64 MiB and more", st)
	}
}

func TestForkBombHitsThePIDsLimit(t *testing.T) {
	g := newGroup(t, Request{PIDs: 32})
	cmd := payload("forks", "200")
	out, _ := cmd.StdoutPipe()
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var got int
	fmt.Sscanf(line, "forked %d", &got)
	if got == 0 || got >= 32 {
		t.Errorf("payload said %q, want some children and fewer than 32", line)
	}
	st := stats(t, g)
	if st.PIDsHits == 0 {
		t.Errorf("no hit of the pids limit counted: %+v", st)
	}
	if st.PIDsPeak > 32 {
		t.Errorf("peak of %d pids, want at most 32", st.PIDsPeak)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) < got {
		t.Errorf("pids: %d, %v; want at least %d", len(pids), err, got)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("after kill: %v, %v; want none", pids, err)
	}
}

func TestPIDsLimitOfOneStillRunsOneProcess(t *testing.T) {
	g := newGroup(t, Request{PIDs: 1})
	cmd := exec.Command("/bin/sh", "-c", "echo ok; (echo no) || exit 3")
	out, _ := cmd.StdoutPipe()
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(out)
	err := cmd.Wait()
	if string(said) != "ok\n" || err == nil {
		t.Errorf("said %q and ended with %v; want ok, and the second process refused", said, err)
	}
}

func TestCPUQuotaIsKept(t *testing.T) {
	const cores = 0.1
	g := newGroup(t, Request{CPUs: cores})
	// Two busy threads want twenty times the quota. On a machine where others leave them less than that they are never
	// throttled, so there may be more than one round.
	throttled := func() (n uint64) {
		for _, dir := range g.Handle().Dirs {
			n += readKeyed(dir + "/cpu.stat")["nr_throttled"]
		}
		return n
	}
	var used time.Duration
	began := time.Now()
	for range 20 {
		cmd := payload("burn", "1s")
		if err := g.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if throttled() >= 3 {
			break
		}
	}
	wall := time.Since(began)
	if n := throttled(); n < 3 {
		t.Errorf("throttled in %d periods, want at least 3", n)
	}
	// The kernel hands out the quota in slices of 5 ms for each processor, and what is left of one is not taken back.
	most := time.Duration(float64(wall)*cores*1.2) + time.Duration(runtime.NumCPU())*20*time.Millisecond
	if used > most || used == 0 {
		t.Errorf("used %v in %v, want at most %v", used, wall, most)
	}
}

// groupsOf reads in which cgroups a thread or process is.
func groupsOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestOnlyTheChildIsInTheGroup(t *testing.T) {
	g := newGroup(t, Request{Memory: 512 << 20, CPUs: 1, PIDs: 500}) // a Go program has many threads
	before := groupsOf(t, "/proc/self/cgroup")
	cmds := make([]*exec.Cmd, 8)
	var wg sync.WaitGroup
	for i := range cmds {
		wg.Go(func() {
			cmd := payload("hold", "")
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			if err := g.Start(cmd); err != nil {
				t.Error(err)
				return
			}
			if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Errorf("payload said %q", line)
			}
			_ = in
			cmds[i] = cmd
		})
	}
	wg.Wait()
	name := "/" + dirPrefix + g.id
	for _, cmd := range cmds {
		in := groupsOf(t, fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
		if n := strings.Count(in, name+"\n"); n != len(g.dirs) {
			t.Errorf("child is in %d of %d hierarchies' groups:\n%s", n, len(g.dirs), in)
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		data, err := os.ReadFile("/proc/self/task/" + task.Name() + "/cgroup")
		if err == nil && string(data) != before {
			t.Errorf("thread %s of ours is in\n%swant\n%s", task.Name(), data, before)
		}
	}
	pids, err := g.PIDs()
	if err != nil || len(pids) != len(cmds) {
		t.Errorf("pids %v, %v; want the %d children", pids, err, len(cmds))
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Error(err)
	}
	for _, cmd := range cmds {
		cmd.Wait()
	}
}

func TestStartThatFailsLeavesNobodyInside(t *testing.T) {
	g := newGroup(t, Request{PIDs: 5})
	if err := g.Start(exec.Command("/nonexistent/program")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v, want not found", err)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("pids %v, %v; want none", pids, err)
	}
	if err := g.Start(exec.Command("/bin/true")); err != nil {
		t.Errorf("the group is not usable any more: %v", err)
	}
}

func BenchmarkProbe(b *testing.B) {
	for b.Loop() {
		Probe()
	}
}

// BenchmarkGroup is the life of a group, with all limits: the whole price of limits for one run.
func BenchmarkGroup(b *testing.B) {
	s := needGroups(b)
	for _, inGroup := range []bool{false, true} {
		b.Run(fmt.Sprintf("group=%v", inGroup), func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				cmd := exec.Command("/bin/true")
				if !inGroup {
					if err := cmd.Run(); err != nil {
						b.Fatal(err)
					}
					continue
				}
				g, err := s.New(fmt.Sprintf("bench-%d-%d", os.Getpid(), n), Request{Memory: 1 << 30, CPUs: 2, PIDs: 100})
				if err != nil {
					b.Fatal(err)
				}
				if err := g.Start(cmd); err != nil {
					b.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
				if _, err := g.Stats(); err != nil {
					b.Fatal(err)
				}
				if err := g.Destroy(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
