package guest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// sleeperVariable makes the test binary a process that waits to be killed.
const sleeperVariable = "HUTCH_TEST_SLEEPER"

func TestMain(m *testing.M) {
	if os.Getenv(sleeperVariable) != "" {
		time.Sleep(math.MaxInt64)
	}
	os.Exit(m.Run())
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		"261122-075633-3phgv9": true, "a": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "..": false, "a/b": false, "A": false, "a b": false, "a\x00": false, "ä": false,
	} {
		if got := validID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}

// TestDo is about requests that a backend would not make.
func TestDo(t *testing.T) {
	s := &server{}
	for _, tc := range []struct {
		req  wire.Request
		want contract.Reason
	}{
		{wire.Request{Op: wire.OpDestroy, ID: "../x"}, contract.ReasonConfig},
		{wire.Request{Op: wire.OpCreate, ID: "x"}, contract.ReasonConfig},
		{wire.Request{Op: "frob", ID: "x"}, contract.ReasonUnsupported},
		{wire.Request{Op: wire.OpInspect, ID: "no-such-sandbox-of-a-test"}, contract.ReasonNotFound},
		{wire.Request{Op: wire.OpSync, ID: "no-such-sandbox-of-a-test"}, contract.ReasonNotFound},
		{wire.Request{Op: wire.OpReset, ID: "no-such-sandbox-of-a-test"}, contract.ReasonNotFound},
		{wire.Request{Op: wire.OpFill, ID: "no-such-sandbox-of-a-test", Part: wire.PartInput}, contract.ReasonNotFound},
	} {
		reply := s.do(t.Context(), tc.req, nil)
		if reply.Err == nil || reply.Err.Reason != tc.want {
			t.Errorf("%s %q: %v, want %s", tc.req.Op, tc.req.ID, reply.Err, tc.want)
		}
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bin", "tool"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(dir, "bin", "data"), "x", 0o644)
	env := [][]byte{[]byte("A=1"), []byte("PATH=" + filepath.Join(dir, "bin"))}
	for _, tc := range []struct {
		name  string
		exec  remote.Exec
		files bool
		path  string // of the program
		code  int    // of one that is not started
		want  contract.Reason
	}{
		{name: "by its name", exec: remote.Exec{Argv: [][]byte{[]byte("tool"), []byte("")}}, path: filepath.Join(dir, "bin", "tool")},
		{name: "by a path", exec: remote.Exec{Argv: [][]byte{[]byte("./bin/tool")}}, path: filepath.Join(dir, "bin", "tool")},
		{name: "not there", exec: remote.Exec{Argv: [][]byte{[]byte("none")}}, code: 127},
		{name: "not executable", exec: remote.Exec{Argv: [][]byte{[]byte("data")}}, code: 126},
		{name: "no directory", exec: remote.Exec{Argv: [][]byte{[]byte("tool")}, Dir: []byte(filepath.Join(dir, "none"))}, want: contract.ReasonConfig},
		{name: "a file for a directory", exec: remote.Exec{Argv: [][]byte{[]byte("tool")}, Dir: []byte(filepath.Join(dir, "bin", "data"))}, want: contract.ReasonConfig},
		{name: "on files", exec: remote.Exec{Argv: [][]byte{[]byte("remove"), []byte("/x")}}, files: true, path: "/proc/self/exe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.exec.Env = env
			if tc.exec.Dir == nil {
				tc.exec.Dir = []byte(dir)
			}
			o := &order{UID: 1, GID: 2, Exec: tc.exec, Files: tc.files}
			cmd, why := o.command()
			switch {
			case why != nil && why.Err != nil:
				if why.Err.Reason != tc.want {
					t.Errorf("refused: %v", why.Err)
				}
			case why != nil:
				if !why.NotStarted || why.Code != tc.code || why.Why == "" {
					t.Errorf("not started: %+v", why)
				}
			case tc.path == "" || filepath.Clean(cmd.Path) != tc.path:
				t.Errorf("it is %q, want %q", cmd.Path, tc.path)
			case cmd.SysProcAttr.Credential.Uid != 1 || cmd.SysProcAttr.Credential.Gid != 2 || !cmd.SysProcAttr.Setsid:
				t.Errorf("it runs as %+v", cmd.SysProcAttr)
			case len(cmd.Env) != 2:
				t.Errorf("its environment is %q", cmd.Env)
			}
		})
	}
}

// TestListen hears of a command's end, or of none.
func TestListen(t *testing.T) {
	for _, tc := range []struct {
		says    []remote.Event
		started int
		status  uint32
		killed  bool
	}{
		{[]remote.Event{{Started: true}, {Exit: &remote.Exit{Status: 7 << 8}}}, 1, 7 << 8, false},
		{[]remote.Event{{Started: true}}, 1, 0, true},
		{nil, 0, 0, true},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range tc.says {
			if err := remote.Send(w, e); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		started := 0
		exit := (&call{control: r}).listen(func() { started++ })
		r.Close()
		if started != tc.started || exit.Status != tc.status || exit.Killed != tc.killed {
			t.Errorf("%v: started %d, %+v", tc.says, started, exit)
		}
	}
}

// sleeper is a process that waits to be killed.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), sleeperVariable+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestKillAll kills the commands that are registered, and nobody who has got the number of one that is gone.
func TestKillAll(t *testing.T) {
	dir := t.TempDir()
	if list := registered(filepath.Join(dir, "none")); list != nil {
		t.Errorf("a sandbox without commands: %v", list)
	}
	command, stranger := sleeper(t), sleeper(t)
	if _, err := register(dir, command.Process.Pid); err != nil {
		t.Fatal(err)
	}
	before, err := procstat.Of(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fmt.Sprintf("%d-1%d", stranger.Process.Pid, before.Start), "4194304-1", "litter"} {
		write(t, filepath.Join(dir, name), "", 0o600)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }() // a process that is not waited for is not gone
	if _, err := descendants.Kill(t.Context(), func() []int { return registered(dir) }); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the command ended with %v", err)
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the stranger: %v", err)
	}
	if now, err := procstat.Of(stranger.Process.Pid); err != nil || now.Start != before.Start {
		t.Errorf("the stranger: %+v %v", now, err)
	}
}

func TestRegisterForgets(t *testing.T) {
	dir := t.TempDir()
	forget, err := register(dir, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if list := listing(t, dir); len(list) != 1 || !strings.HasPrefix(list[0], fmt.Sprintf("%d-", os.Getpid())) {
		t.Errorf("registered: %v", list)
	}
	forget()
	if list := listing(t, dir); list != nil {
		t.Errorf("not forgotten: %v", list)
	}
	if _, err := register(dir, math.MaxInt32); err == nil {
		t.Error("a missing process was registered")
	}
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
}

// listing are the names in dir.
func listing(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
