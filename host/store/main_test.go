package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The test binary is its own helper process: with helperEnv set it does what that names and ends.
const (
	helperEnv = "HUTCH_STORE_TEST_HELPER"
	homeEnv   = "HUTCH_STORE_TEST_HOME"
	argEnv    = "HUTCH_STORE_TEST_ARG"
)

var helpers = map[string]func(s *Store, arg string) error{}

func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	name := os.Getenv(helperEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	s, err := Open(Options{Home: os.Getenv(homeEnv)})
	if err == nil {
		err = helpers[name](s, os.Getenv(argEnv))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// helper prepares a helper process on the store; its stderr shows when the test fails.
func helper(t *testing.T, s *Store, name, arg string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+name, homeEnv+"="+s.paths.Data, argEnv+"="+arg)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	t.Cleanup(func() {
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("helper %s: %s", name, stderr.String())
		}
	})
	return cmd
}

// startHelper starts a helper and returns the lines it prints.
func startHelper(t *testing.T, s *Store, name, arg string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := helper(t, s, name, arg)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

// forever waits to be killed. The runtime would call select {} a deadlock in a process that does nothing else.
func forever() error {
	time.Sleep(math.MaxInt64)
	return nil
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says "signal: killed"
}

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(Options{Home: filepath.Join(t.TempDir(), "home")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newRun(t *testing.T, s *Store) *Run {
	t.Helper()
	r, err := s.CreateRun(NewRun{Name: "test", Backend: "fake", Definition: map[string]any{"command": []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// testResult is a result such as host/result has.
type testResult struct {
	Schema string   `json:"schema"`
	Events ChainRef `json:"events,omitzero"`
}

func finish(t *testing.T, r *Run) {
	t.Helper()
	if err := finishRun(r); err != nil {
		t.Fatal(err)
	}
}

func finishRun(r *Run) error {
	code := 0
	_, err := r.Finish(End{OK: true, Cause: "exited", ExitCode: &code, Result: testResult{Schema: "hutch.result/v1"}})
	return err
}

// abandon makes a run that has no end look like one whose host died.
func abandon(t *testing.T, s *Store, id string) {
	t.Helper()
	var r record
	r.open(s, id, s.paths.Run(id))
	dead := Self()
	dead.PID, dead.Start = 1<<30, 1
	if _, err := r.append(EventResume, resumeData{dead}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// newDeadRun begins a run whose host is dead.
func newDeadRun(t *testing.T, s *Store) *Run {
	t.Helper()
	was := self
	defer func() { self = was }()
	self = func() Process { p := was(); p.PID, p.Start = 1<<30, 1; return p }
	return newRun(t, s)
}

func verify(t *testing.T, s *Store, id string) *Report {
	t.Helper()
	rep, err := s.Verify(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// wantProblems checks which problems a report has, in any order and each once.
func wantProblems(t *testing.T, rep *Report, ok bool, want ...Problem) {
	t.Helper()
	got := []Problem{}
	for _, f := range rep.Findings {
		got = append(got, f.Problem)
	}
	slices.Sort(got)
	got = slices.Compact(got)
	slices.Sort(want)
	if want == nil {
		want = []Problem{}
	}
	if diff := cmp.Diff(want, got); diff != "" || rep.OK != ok {
		t.Errorf("run %s: ok %v, want %v; problems (-want +got):\n%s\n%+v", rep.Run, rep.OK, ok, diff, rep.Findings)
	}
}

func verifyAll(t *testing.T, s *Store) map[string]*Report {
	t.Helper()
	reports := map[string]*Report{}
	if err := s.VerifyAll(context.Background(), "", func(r *Report) error { reports[r.Run] = r; return nil }); err != nil {
		t.Fatal(err)
	}
	return reports
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if fi, err := os.Lstat(path); err == nil && fi.Mode().Perm()&0o200 == 0 { // a finished chain, which stays one
		os.Chmod(path, 0o600)
		defer os.Chmod(path, fi.Mode())
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// require skips a test that this machine cannot run, and fails it where HUTCH_TEST_REQUIRE says that it must run.
func require(t *testing.T, tool string, reason any) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), tool) {
		t.Fatalf("%s is required and does not work here: %v", tool, reason)
	}
	t.Skipf("%s does not work here: %v", tool, reason)
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newClock() func() time.Time { return time.Now }
