package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
)

func init() {
	helpers["runs"] = makeRuns
	helpers["append"] = appendForever
	helpers["writer"] = appendMany
	helpers["deps"] = wantDeps
	helpers["drop"] = dropSandbox
}

// makeRuns is a host that records one run after the other, as fast as it can, and says what it has done.
func makeRuns(s *Store, _ string) error {
	for n := 0; ; n++ {
		dir, err := NewRuntimeDir()
		if err != nil {
			return err
		}
		r, err := s.CreateRun(NewRun{Name: "crash", Definition: n})
		if err != nil {
			return err
		}
		fmt.Println("created", r.ID())
		in, err := s.Begin(Intent{ID: "s-" + r.ID(), Run: r.ID(), Backend: "fake"})
		if err != nil {
			return err
		}
		ref, err := r.WriteCode("d/main.py", 0o644, strings.NewReader("code of "+r.ID()))
		if err != nil {
			return err
		}
		if err := r.Event(EventCode, nil, ref); err != nil {
			return err
		}
		fmt.Println("event", r.ID(), 2)
		log, err := r.OpenLog(Stdout, 1000)
		if err != nil {
			return err
		}
		if err := in.SetHandle(json.RawMessage(`{"x":1}`)); err != nil {
			return err
		}
		for i := range 10 {
			if _, err := log.Write(logBytes(i*1500, 1500)); err != nil {
				return err
			}
			if err := r.Event("step", i); err != nil {
				return err
			}
			fmt.Println("event", r.ID(), 3+i)
		}
		if err := log.Close(); err != nil {
			return err
		}
		if err := finishRun(r); err != nil {
			return err
		}
		fmt.Println("finished", r.ID())
		if err := in.Done(); err != nil {
			return err
		}
		if err := dir.Close(); err != nil {
			return err
		}
	}
}

// logBytes is a piece of an endless stream in which every position can be recognised.
func logBytes(from, n int) []byte {
	b := make([]byte, 0, n+8)
	for at := from - from%8; len(b) < n+8; at += 8 {
		b = fmt.Appendf(b, "%07d\n", at/8)
	}
	return b[from%8:][:n]
}

// TestKilledHosts is issue 2 §5: hosts are killed at random points, and nothing that was said is lost. All of them use
// one store, so that each finds what those before it left.
func TestKilledHosts(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 30
	}
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	states := map[State]int{}
	for round := range rounds {
		cmd, lines := startHelper(t, s, "runs", "")
		acked, finished := map[string]uint64{}, map[string]bool{}
		for n := rnd.IntN(45); n >= 0 && lines.Scan(); n-- {
			note(lines.Text(), acked, finished)
		}
		// The host goes on while we look, so where this hits it is its own affair.
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said before it died
			note(lines.Text(), acked, finished)
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("round %d: the host ended by itself: %v", round, err)
		}
		for id, seq := range acked {
			rep := verify(t, s, id)
			states[rep.State]++
			if !rep.OK || rep.Events < seq {
				t.Fatalf("round %d, run %s: said %d events: %+v", round, id, seq, rep)
			}
			if finished[id] && rep.State != StateFinished {
				t.Fatalf("round %d, run %s finished and is %s", round, id, rep.State)
			}
			checkLog(t, s, id)
		}
		if round%20 == 0 || round == rounds-1 {
			checkLeavesNothing(t, s)
		}
	}
	t.Logf("runs by state: %v", states)
	if states[StateInterrupted] == 0 || states[StateFinished] == 0 {
		t.Errorf("the kills did not hit runs in all their states: %v", states)
	}
	for id, rep := range verifyAll(t, s) {
		if !rep.OK {
			t.Errorf("run %s: %+v", id, rep)
		}
	}
}

// shortTemp is a temporary directory with a path that is short enough for sockets.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func note(line string, acked map[string]uint64, finished map[string]bool) {
	f := strings.Fields(line)
	switch {
	case len(f) == 2 && f[0] == "created":
		acked[f[1]] = 1
	case len(f) == 3 && f[0] == "event":
		acked[f[1]], _ = strconv.ParseUint(f[2], 10, 64)
	case len(f) == 2 && f[0] == "finished":
		finished[f[1]] = true
	}
}

// checkLog: whatever can be read of a log is a piece of its stream without a gap, and after the fact its tail.
func checkLog(t *testing.T, s *Store, id string) {
	t.Helper()
	rec, err := s.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	l, err := rec.OpenLog(Stdout)
	if err != nil {
		return // it died before it had one
	}
	defer l.Close()
	total, dropped, err := l.Counts()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := l.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != total-dropped || !bytes.Equal(b.Bytes(), logBytes(int(dropped), b.Len())) {
		t.Fatalf("log of %s: %d bytes of %d, %d dropped: %.40q", id, b.Len(), total, dropped, b.Bytes())
	}
	if total > 1000 && b.Len() < 700 {
		t.Fatalf("log of %s: only %d bytes are left of %d", id, b.Len(), total)
	}
}

// checkLeavesNothing: one gc and nothing of dead hosts is left but the runs.
func checkLeavesNothing(t *testing.T, s *Store) {
	t.Helper()
	destroyed := 0
	items, err := collect(t, s, GCOptions{Destroy: func(context.Context, Intent) error { destroyed++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if i.Error != "" {
			t.Errorf("%+v", i)
		}
	}
	for _, dir := range []string{s.paths.Intents(), s.paths.Sandboxes(), filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "hutch")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v %v", dir, left, err)
		}
	}
	_ = filepath.WalkDir(s.paths.Data, func(path string, d os.DirEntry, err error) error {
		if err == nil && isTemp(d.Name()) {
			t.Errorf("left: %s", path)
		}
		return nil
	})
	if again, err := collect(t, s, GCOptions{}); err != nil || len(again) > 0 {
		t.Errorf("a second gc found %v %v", again, err)
	}
}

// appendForever appends to the chain of a run that the test holds, saying each number.
func appendForever(s *Store, id string) error {
	c := newChain(filepath.Join(s.paths.Run(id), eventsFile), s.now)
	for {
		seq, _, err := c.append(Event{Run: id, Type: "step", Data: json.RawMessage(`"` + strings.Repeat("x", 20000) + `"`)})
		if err != nil {
			return err
		}
		fmt.Println(seq)
	}
}

// TestKilledInALoop is STO-01: one chain, whose writer is killed in the middle of its appends again and again until at
// least a thousand are made.
func TestKilledInALoop(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	var acked uint64
	kills := 0
	for acked < 1000 {
		cmd, lines := startHelper(t, s, "append", r.ID())
		for n := rand.IntN(40); n >= 0 && lines.Scan(); n-- {
			acked, _ = strconv.ParseUint(lines.Text(), 10, 64)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			acked, _ = strconv.ParseUint(lines.Text(), 10, 64)
		}
		_ = cmd.Wait()
		kills++
		if kills%10 == 0 || acked >= 1000 {
			if rep := verify(t, s, r.ID()); !rep.OK || rep.Events < acked {
				t.Fatalf("after %d kills: said %d: %+v", kills, acked, rep)
			}
		}
	}
	finish(t, r)
	rep := verify(t, s, r.ID())
	if !rep.OK {
		t.Fatalf("%+v", rep)
	}
	t.Logf("%d events, %d kills, %d repairs", rep.Events, kills, len(rep.Findings))
}

// appendMany appends a thousand events, half of them two at a time.
func appendMany(s *Store, id string) error {
	c := newChain(filepath.Join(s.paths.Run(id), eventsFile), s.now)
	var err error
	for i := 0; i < 1000; i += 2 {
		a, b := Event{Run: id, Type: "step"}, Event{Run: id, Type: "step"}
		if i%4 == 0 {
			_, _, err = c.append(a, b)
		} else if _, _, err = c.append(a); err == nil {
			_, _, err = c.append(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestTwoWriters is STO-04, with a third one in this process.
func TestTwoWriters(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	var wg sync.WaitGroup
	for range 2 {
		cmd := helper(t, s, "writer", r.ID())
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for i := range 250 {
				if err := r.Event("mine", i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	finish(t, r)
	rep := verify(t, s, r.ID())
	wantProblems(t, rep, true)
	if rep.Events != 2502 {
		t.Errorf("%d events", rep.Events)
	}
}

// TestLockOfAStoppedWriter: nobody appends past a lock, and nobody waits for ever either.
func TestLockOfAStoppedWriter(t *testing.T) {
	defer func(d time.Duration) { lockTimeout = d }(lockTimeout)
	lockTimeout = 20 * time.Millisecond
	s := newStore(t)
	r := newRun(t, s)
	f, err := os.Open(filepath.Join(r.Dir(), eventsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := lockFile(f, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := r.Event("step", nil); !errors.Is(err, flock.ErrLocked) {
		t.Fatalf("appended past a lock: %v", err)
	}
	unlockFile(f)
	if err := r.Event("step", nil); err != nil {
		t.Fatal(err)
	}
}

// TestNoSpace is STO-02. It fills a store on a tmpfs of 1 MiB, in its own mount namespace: the test runs itself
// again in there.
func TestNoSpace(t *testing.T) {
	if os.Getenv("HUTCH_STORE_TEST_INSIDE") == "" {
		inside(t, "TestNoSpace")
		return
	}
	dir := t.TempDir()
	unmount, err := mountTmpfs(dir, 1<<20)
	if err != nil {
		t.Fatalf("%s: %v", noMount, err)
	}
	t.Cleanup(unmount)
	fillStore(t, dir)
}

// inside runs one test again in its own mount namespace.
func inside(t *testing.T, test string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), "HUTCH_STORE_TEST_INSIDE=1")
	if err := inMountNamespace(cmd); err != nil {
		require(t, "tmpfs", err)
	}
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte(noMount)) || err != nil && len(out) == 0 {
		require(t, "tmpfs", fmt.Sprintf("%v %s", err, out))
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+test)) {
		t.Fatalf("%v\n%s", err, out)
	}
}

const noMount = "no tmpfs can be mounted"

func fillStore(t *testing.T, dir string) {
	s, err := Open(Options{Home: filepath.Join(dir, "home")})
	if err != nil {
		t.Fatal(err)
	}
	full := func(what string, err error) {
		t.Helper()
		if !strings.Contains(fmt.Sprint(err), "the store is full") || !strings.Contains(err.Error(), "hutch gc") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	early, _ := smallRun(t, s)

	// A chain that fills the disk to the last byte.
	r := newRun(t, s)
	var events uint64 = 1
	for {
		if err = r.Event("step", strings.Repeat("x", 5000)); err != nil {
			break
		}
		events++
	}
	full("event", err)
	for { // smaller ones still fit into what is left of a page
		if err = r.Event("s", nil); err != nil {
			break
		}
		events++
	}
	full("event", err)
	if rep := verify(t, s, r.ID()); !rep.OK || rep.Events != events || len(rep.Findings) != 0 {
		t.Fatalf("%d events were appended: %+v", events, rep)
	}
	full("finish", finishRun(r))
	_, err = s.CreateRun(NewRun{Name: "x"})
	full("create", err)
	_, err = s.Begin(Intent{ID: "x"})
	full("intent", err)

	wantProblems(t, verify(t, s, early.ID()), true)
	if rec, err := s.Load(early.ID()); err != nil || rec.State != StateFinished {
		t.Fatalf("%+v %v", rec, err)
	}
	abandon2 := s.readInfo(r.ID())
	if abandon2.State != StateRunning { // this process lives
		t.Errorf("state %s", abandon2.State)
	}
	if left, _ := filepath.Glob(filepath.Join(s.paths.Data, "*", ".*"+tempMark+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// Removing is the way out, and it works on a full disk.
	if err := os.Truncate(filepath.Join(r.Dir(), eventsFile), 0); err != nil { // damaged, so that it may go
		t.Fatal(err)
	}
	if err := s.Remove(r.ID()); err != nil {
		t.Fatal(err)
	}
	late, _ := smallRun(t, s)

	// A log that fills the disk keeps what there was room for.
	r = newRun(t, s)
	log, err := r.OpenLog(Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; err == nil; n += 3000 {
		_, err = log.Write(logBytes(n, 3000))
	}
	full("log", err)
	if _, err := log.Write([]byte("x")); !errors.Is(err, ErrFull) {
		t.Errorf("a write after the disk was full: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	total, dropped := log.Counts()
	rec, _ := s.Load(r.ID())
	l, err := rec.OpenLog(Stdout)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := l.WriteTo(&b); err != nil || int64(b.Len()) != total-dropped || !bytes.Equal(b.Bytes(), logBytes(0, b.Len())) {
		t.Fatalf("%d bytes of %d, %d dropped, %v", b.Len(), total, dropped, err)
	}
	l.Close()
	for _, id := range []string{early.ID(), late.ID()} {
		wantProblems(t, verify(t, s, id), true)
	}
	wantProblems(t, verifyAll(t, s)[""], true)
}

// wantDeps asks for one entry of the cache and says whether it had to build it.
func wantDeps(s *Store, key string) error {
	e, err := s.Deps(context.Background(), "python", key, func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "f"), []byte(key), 0o600)
	})
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(e.Dir, "f"))
	if err != nil || string(b) != key {
		return fmt.Errorf("%q %w", b, err)
	}
	_, err = io.WriteString(os.Stdout, strconv.FormatBool(e.Built)+"\n")
	return err
}

// dropSandbox makes the record of a sandbox with many files and forgets it with its intent, as a host whose sandbox
// could not be made.
func dropSandbox(s *Store, _ string) error {
	r, err := s.BeginSandbox(SandboxInfo{Backend: "fake"}, "box")
	if err != nil {
		return err
	}
	in, err := s.Begin(Intent{ID: r.ID(), Backend: "fake"})
	if err != nil {
		return err
	}
	for i := range 2000 {
		if _, err := r.WriteCode(fmt.Sprint(i), 0o644, strings.NewReader("x")); err != nil {
			return err
		}
	}
	fmt.Println(r.CodeDir())
	return errors.Join(in.Done(), r.Forget())
}

// TestK2KilledWhileItForgets kills a host that is removing the record of a sandbox: gc removes the rest, and the audit
// chain knows that hutch removed it.
func TestK2KilledWhileItForgets(t *testing.T) {
	s := newStore(t)
	cmd, lines := startHelper(t, s, "drop", "")
	if !lines.Scan() {
		t.Fatal("the helper made no sandbox")
	}
	for len(names(t, lines.Text())) == 2000 { // until the removal has begun
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := s.GC(t.Context(), GCOptions{}); err != nil {
		t.Fatal(err)
	}
	intents, err := s.Intents()
	if left := names(t, s.paths.Sandboxes()); len(intents) > 0 || err != nil || len(left) > 1 { // the lock of the names
		t.Errorf("left: %q, intents %v, %v", left, intents, err)
	}
	if err := s.VerifyAll(t.Context(), "", func(r *Report) error {
		if !r.OK {
			t.Errorf("%+v", r.Findings)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
