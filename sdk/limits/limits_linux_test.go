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

	"github.com/hutch-run/hutch/internal/testbound"
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
	os.Exit(testbound.Run(m, 5*time.Minute))
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
	if st.Counts.MemoryPeak && (st.MemoryPeak < 32<<20 || st.MemoryPeak > 65<<20) {
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

func TestForkBombHitsThePidsLimit(t *testing.T) {
	g := newGroup(t, Request{Pids: 32})
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
	if st.PidsHits == 0 {
		t.Errorf("no hit of the pids limit counted: %+v", st)
	}
	if st.Counts.PidsPeak && st.PidsPeak > 33 {
		t.Errorf("peak of %d pids, want at most 32 and, on v1, the one thread of ours that forks", st.PidsPeak)
	}
	if pids, err := g.Pids(); err != nil || len(pids) < got {
		t.Errorf("pids: %d, %v; want at least %d", len(pids), err, got)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("after kill: %v, %v; want none", pids, err)
	}
}

func TestPidsLimitOfOneStillRunsOneProcess(t *testing.T) {
	g := newGroup(t, Request{Pids: 1})
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
	var st Stats
	began := time.Now()
	for range 20 {
		cmd := payload("burn", "1s")
		if err := g.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if st = stats(t, g); st.Throttled >= 3 {
			break
		}
	}
	wall := time.Since(began)
	if st.Throttled < 3 || st.Waited == 0 {
		t.Errorf("not throttled: %+v", st)
	}
	// The kernel hands out the quota in slices of 5 ms for each processor, and what is left of one is not taken back.
	most := time.Duration(float64(wall)*cores*1.2) + time.Duration(runtime.NumCPU())*20*time.Millisecond
	if st.CPU > most || st.CPU == 0 {
		t.Errorf("used %v in %v, want at most %v", st.CPU, wall, most)
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
	g := newGroup(t, Request{Memory: 512 << 20, CPUs: 1, Pids: 500}) // a Go program has many threads
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
	name := "/" + dirPrefix + g.ID()
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
	pids, err := g.Pids()
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
	g := newGroup(t, Request{Pids: 5})
	if err := g.Start(exec.Command("/nonexistent/program")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v, want not found", err)
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("pids %v, %v; want none", pids, err)
	}
	if err := g.Start(exec.Command("/bin/true")); err != nil {
		t.Errorf("the group is not usable any more: %v", err)
	}
}

func TestKillReachesDaemons(t *testing.T) {
	g := newGroup(t, Request{Pids: 100})
	// Forks twice, makes a session, ignores every signal that can be ignored, and its parents are gone.
	cmd := exec.Command("/bin/sh", "-c", `setsid sh -c 'trap "" TERM INT HUP; (sleep 1000 & sleep 1000) & exit 0' ; exit 0`)
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	pids, err := g.Pids()
	if err != nil || len(pids) == 0 {
		t.Fatalf("pids %v, %v; want the daemon", pids, err)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil && !zombie(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ")
}

func TestKillBeatsAForkBomb(t *testing.T) {
	g := newGroup(t, Request{Pids: 500, CPUs: 1})
	// Every process makes two, as fast as it can, for ever.
	cmd := exec.Command("/bin/sh", "-c", `f() { f & f & wait; }; f 2>/dev/null`)
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	for {
		if st := stats(t, g); st.PidsHits > 0 {
			break
		}
		if deadlineHit(t) {
			t.Fatal("the bomb never reached its limit")
		}
		runtime.Gosched()
	}
	began := time.Now()
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed in %v", time.Since(began))
	cmd.Wait()
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("pids %v, %v; want none", pids, err)
	}
}

// TestKillByFreezer is for a machine whose pids controller may not be used.
func TestKillByFreezer(t *testing.T) {
	s := needGroups(t)
	sys := thisSystem()
	mounts, err := sys.mounts()
	if err != nil {
		t.Fatal(err)
	}
	own, err := sys.ownCgroups()
	if err != nil {
		t.Fatal(err)
	}
	mounts = slices.DeleteFunc(mounts, func(m mount) bool { return m.controllers["pids"] })
	p, _ := sys.findV1(mounts, own)
	if s.Mechanism != CgroupV1 || p == nil {
		t.Skip("needs the freezer of cgroup v1")
	}
	if _, ok := p.at["freezer"]; !ok {
		t.Fatalf("without pids the freezer is not used: %v", p.where())
	}
	cg, err := p.make(fmt.Sprintf("test-freezer-%d", os.Getpid()), Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cg.remove(deadline(t)); err != nil {
			t.Error(err)
		}
		cg.close()
	}()
	cmd := exec.Command("/bin/sh", "-c", finiteBomb)
	if err := cg.start(cmd); err != nil {
		t.Fatal(err)
	}
	for {
		if pids, err := cg.pids(); err != nil || len(pids) > 50 {
			break
		}
	}
	if err := cg.kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if pids, err := cg.pids(); err != nil || len(pids) != 0 {
		t.Errorf("%d processes, %v; want none", len(pids), err)
	}
}

// finiteBomb makes 2^9 processes that stay, as fast as can be, for tests that have no pids limit to bound it.
const finiteBomb = `f() { [ $1 -gt 8 ] && exec sleep 1000; f $(($1+1)) & f $(($1+1)) & wait; }; f 0 2>/dev/null`

func deadlineHit(t *testing.T) bool {
	d, ok := t.Deadline()
	return ok && time.Until(d) < 10*time.Second
}

func TestKillSparesAProcessThatOnlyForksInside(t *testing.T) {
	g := newGroup(t, Request{Pids: 50})
	v1, ok := g.cg.(*v1Group)
	if !ok {
		t.Skip("only in v1 does a thread of the host enter the group")
	}
	if err := v1.openTasks(); err != nil {
		t.Fatal(err)
	}
	inside, leave, left := make(chan bool), make(chan bool), make(chan bool)
	go offFirstThread(func() error {
		runtime.LockOSThread()
		for _, p := range v1.parts {
			writeFD(p.tasks, "0")
		}
		close(inside)
		<-leave
		for _, p := range v1.parts {
			writeFD(p.homeTasks, "0")
		}
		runtime.UnlockOSThread()
		close(left)
		return nil
	})
	<-inside
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("pids %v, %v: a host that forks is no member", pids, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := g.Kill(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("kill: %v; want it to wait for the guest to leave", err)
	}
	close(leave)
	<-left
	if err := g.Kill(deadline(t)); err != nil {
		t.Error(err)
	}
}

func TestHandleOpensTheGroupAgain(t *testing.T) {
	g := newGroup(t, Request{Pids: 50, Memory: 128 << 20})
	cmd := payload("wait", "")
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(g.Handle())
	if err != nil {
		t.Fatal(err)
	}
	var h Handle
	if err := json.Unmarshal(text, &h); err != nil {
		t.Fatal(err)
	}
	again, err := Open(h)
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := again.Pids(); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("pids %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	more := payload("wait", "")
	if err := again.Start(more); err != nil {
		t.Fatal(err)
	}
	if err := again.Destroy(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	more.Wait()
	if _, err := Open(h); !errors.Is(err, ErrGone) {
		t.Errorf("open after destroy: %v, want ErrGone", err)
	}
	if _, err := g.Stats(); !errors.Is(err, ErrGone) {
		t.Errorf("stats after destroy by somebody else: %v, want ErrGone", err)
	}
	if err := g.Start(payload("wait", "")); err == nil {
		t.Error("start in a group that is gone succeeds")
	}
	for range 2 {
		if err := g.Destroy(deadline(t)); err != nil {
			t.Errorf("destroy of what is gone: %v", err)
		}
	}
}

func TestOpenRefusesForeignDirectories(t *testing.T) {
	for _, dir := range []string{"/tmp", "hutch.x", "/sys/fs/cgroup", "/tmp/../hutch.x", "/sys/fs/cgroup/hutch.y"} {
		if _, err := Open(Handle{ID: "x", Mechanism: CgroupV1, Dirs: []string{dir}}); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%s: %v, want a refusal", dir, err)
		}
	}
	dir := t.TempDir() + "/hutch.x"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Handle{ID: "x", Mechanism: CgroupV1, Dirs: []string{dir}}); err == nil || !strings.Contains(err.Error(), "not on a cgroup") {
		t.Errorf("plain directory: %v", err)
	}
}

func TestSweep(t *testing.T) {
	s := needGroups(t)
	prefix := fmt.Sprintf("sweep-%d-", os.Getpid())
	var cmds []*exec.Cmd
	for i := range 3 {
		g, err := s.New(prefix+strconv.Itoa(i), Request{Pids: 10})
		if err != nil {
			t.Fatal(err)
		}
		cmd := payload("wait", "")
		if err := g.Start(cmd); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	other := newGroup(t, Request{Pids: 10})
	if _, err := Sweep(deadline(t), ""); err == nil {
		t.Error("an empty prefix is accepted")
	}
	got, err := Sweep(deadline(t), prefix)
	if want := []string{prefix + "0", prefix + "1", prefix + "2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("swept %v, %v; want %v", got, err, want)
	}
	for _, cmd := range cmds {
		cmd.Wait()
	}
	if left, err := List(prefix); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := other.Stats(); err != nil {
		t.Errorf("another group was swept too: %v", err)
	}
}

func TestNewRefusesTheSameIDTwiceAndKeepsTheFirst(t *testing.T) {
	g := newGroup(t, Request{Pids: 10})
	if _, err := New(g.ID(), Request{Pids: 10}); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v, want that it exists", err)
	}
	if _, err := g.Stats(); err != nil {
		t.Errorf("the first is damaged: %v", err)
	}
	if err := g.Start(exec.Command("/bin/true")); err != nil {
		t.Error(err)
	}
}

func TestTryLeavesNothing(t *testing.T) {
	s := needGroups(t)
	if err := s.Try(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if left, err := List(fmt.Sprintf("try-%d-", os.Getpid())); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestAdd(t *testing.T) {
	g := newGroup(t, Request{Pids: 10})
	cmd := payload("wait", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Pids(); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("pids %v, %v", pids, err)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Error(err)
	}
	cmd.Wait()
}

func TestRlimitsReachTheProgram(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	want := Rlimits{Core: n(0), NoFile: n(77), FSize: n(1 << 20), AS: n(4 << 30)}
	arg, _ := json.Marshal(want)
	out, err := payload("limits", string(arg)).CombinedOutput()
	if err != nil || string(out) != "0\n77\n2048\n4194304\n77\n" {
		t.Errorf("Apply: got %q, %v", out, err)
	}
	cmd := payload("hold", "")
	in, _ := cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(stdout).ReadString('\n')
	if err := want.ApplyTo(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	var l unix.Rlimit
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &l); err != nil || l.Cur != 77 || l.Max != 77 {
		t.Errorf("ApplyTo: %+v, %v", l, err)
	}
	in.Close()
	cmd.Wait()
}

// asNobody makes cmd run as an ordinary user who can read and execute the test binary.
func asNobody(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		return cmd
	}
	// A test binary lies below directories that only its maker may enter; the descriptor needs no path.
	exe, err := os.Open(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exe.Close() })
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Path = "/proc/self/fd/3"
	cmd.Dir = "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	return cmd
}

func TestAnOrdinaryUserIsToldWhatToDo(t *testing.T) {
	out, err := asNobody(t, payload("probe", "")).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got struct {
		Mechanism Mechanism
		Limits    map[Limit]How
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Mechanism != Rlimit {
		t.Skipf("this user has %s", got.Mechanism)
	}
	if h := got.Limits[CPUs]; h.By != "" || h.Reason == "" || h.Fix == "" {
		t.Errorf("cpus: %+v; want no mechanism, a reason and a fix", h)
	}
	if h := got.Limits[Memory]; h.By != byAS || h.Scope != EachProcess || h.Fix == "" {
		t.Errorf("memory: %+v; want rlimit AS per process, and the fix that makes it better", h)
	}
	t.Logf("%s\nfix: %s", got.Limits[CPUs].Reason, got.Limits[CPUs].Fix)
}

// TestTheFixForV1Works follows the advice of the test above as root, and then holds limits as an ordinary user.
func TestTheFixForV1Works(t *testing.T) {
	s := needGroups(t)
	if s.Mechanism != CgroupV1 || os.Geteuid() != 0 {
		t.Skip("needs root and cgroup v1")
	}
	const uid = 65534
	mounts, err := thisSystem().mounts()
	if err != nil {
		t.Fatal(err)
	}
	user := thisSystem()
	user.euid = uid
	fix := strings.ReplaceAll(user.v1Fix(mounts), "sudo ", "")
	for d := range strings.FieldsSeq(fix) {
		if strings.HasPrefix(d, "/sys/fs/cgroup/") {
			if exists(d) {
				t.Skipf("%s is there already", d)
			}
			t.Cleanup(func() {
				os.Remove(d + "/" + leafName)
				if err := os.Remove(d); err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
			})
		}
	}
	if out, err := exec.Command("/bin/sh", "-c", fix).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", fix, err, out)
	}
	out, err := asNobody(t, payload("delegated", string(CgroupV1))).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "all well\n") {
		t.Fatalf("%v:\n%s", err, out)
	}
}

// TestADelegatedV2SubtreeIsUsed gives an ordinary user a part of the hierarchy, as systemd does.
func TestADelegatedV2SubtreeIsUsed(t *testing.T) {
	s := needGroups(t)
	if s.Mechanism != CgroupV2 || os.Geteuid() != 0 {
		t.Skip("needs root and cgroup v2")
	}
	place := s.place.(*v2Place)
	if err := place.arrange(); err != nil {
		t.Fatal(err)
	}
	for name, inner := range map[string]string{"an empty slice above the user's scope": "/scope", "one cgroup with the user's processes in it": ""} {
		t.Run(name, func(t *testing.T) {
			top := fmt.Sprintf("%s/hutch-test-user-%d", place.dir, os.Getpid())
			for _, d := range []string{top, top + inner} {
				if err := os.Mkdir(d, 0o755); err != nil && !os.IsExist(err) {
					t.Fatal(err)
				}
				for _, f := range []string{"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"} {
					if err := os.Chown(d+f, 65534, 65534); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Cleanup(func() {
				if err := removeTree(deadline(t), top); err != nil {
					t.Error(err)
				}
			})
			scope := &v2Group{dir: top + inner}
			if err := scope.open(); err != nil {
				t.Fatal(err)
			}
			defer scope.close()
			cmd := asNobody(t, payload("delegated", string(CgroupV2)))
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := scope.start(cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil || !strings.HasSuffix(out.String(), "all well\n") {
				t.Fatalf("%v:\n%s", err, out.String())
			}
		})
	}
}

// delegatedPayload holds limits as whoever it is and panics where that does not work.
func delegatedPayload(want string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	s := Probe()
	if string(s.Mechanism) != want {
		panic(fmt.Sprint(s, s.Limits))
	}
	g, err := s.New(fmt.Sprintf("user-%d", os.Getpid()), Request{Memory: 32 << 20, CPUs: 1, Pids: 20})
	must(err)
	for range 2 {
		cmd := payload("hog", "100")
		cmd.Path = "/proc/self/fd/3"
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "self")}
		must(g.Start(cmd))
		fmt.Println(cmd.Wait())
	}
	st, err := g.Stats()
	must(err)
	if st.OOMKills < 2 {
		panic(fmt.Sprintf("%+v", st))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(g.Destroy(ctx))
	fmt.Println("all well")
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
				g, err := s.New(fmt.Sprintf("bench-%d-%d", os.Getpid(), n), Request{Memory: 1 << 30, CPUs: 2, Pids: 100})
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
