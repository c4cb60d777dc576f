package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

func TestSandboxResets(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n"})
	for name, l := range map[string]sdk.Limits{"on disk": {}, "in memory": {Disk: 16 << 20, PIDs: 64}} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, sdk.Spec{Limits: l, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
			sh(t, s, "echo more >> a.txt; echo o > /output/o; mkdir -p /tmp/d/e; echo x > /tmp/d/e/f; chmod 0 /tmp/d/e; echo s > /dev/shm/s")
			seconds := marker(t)
			exit := make(chan ran, 1)
			started := make(chan struct{})
			go func() {
				r, err := try(t, t.Context(), s, &sdk.Command{Argv: []string{"sleep", seconds}, Started: func() { close(started) }})
				if err != nil {
					t.Error(err)
				}
				exit <- r
			}()
			<-started
			if err := s.Reset(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if r := <-exit; r.Exit == nil || r.Cause != sdk.CauseSignaled || r.Signal != "SIGKILL" {
				t.Errorf("the running command ended with %+v", r.Exit)
			}
			if r := sh(t, s, "cat a.txt /output/o; ls -A /tmp /dev/shm"); r.out != "hello\nmore\no\n/dev/shm:\n\n/tmp:\n" {
				t.Errorf("after a soft reset: %q %q", r.out, r.err)
			}
			if err := s.Reset(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if r := sh(t, s, "cat a.txt; ls -A /output /tmp"); r.out != "hello\n/output:\n\n/tmp:\n" {
				t.Errorf("after a hard reset: %q %q", r.out, r.err)
			}
			if changes, err := s.Changes(t.Context()); err != nil || len(changes) != 0 {
				t.Errorf("after a hard reset: %v %v", changes, err)
			}
		})
	}
}

func TestSandboxIsKept(t *testing.T) {
	needBwrap(t)
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n"})
	req := request(t, sdk.Spec{Limits: sdk.Limits{PIDs: 64}, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
	req.Keep = true
	var h sdk.Handle
	req.Allocated = func(got sdk.Handle) error { h = got; return nil }
	s, err := create(t.Context(), req, newBackend().support(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, s, "echo more >> a.txt; echo o > /output/o")
	// The plugin process ends, without anybody having destroyed the sandbox.
	if err := s.world.close(); err != nil {
		t.Fatal(err)
	}
	b := newBackend()
	again, err := b.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	s = again.(*sandbox)
	if r := sh(t, s, "cat a.txt /output/o; ulimit -n"); r.out != "hello\nmore\no\n1024\n" {
		t.Errorf("the kept sandbox has %q %q", r.out, r.err)
	}
	if same, err := b.Attach(t.Context(), h); err != nil || same != again {
		t.Errorf("attached twice: %v %v", same, err)
	}
	if st, err := s.Inspect(t.Context()); err != nil || st.State != sdk.StateReady || st.Details["layer"] != filepath.Join(req.StateDir, "layer") {
		t.Errorf("inspect: %+v %v", st, err)
	}
	for range 2 {
		if err := b.Destroy(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(req.StateDir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if _, err := b.Attach(t.Context(), h); !errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
		t.Errorf("attaching what is gone gave %v", err)
	}
	if st, err := s.Inspect(t.Context()); err != nil || st.State != sdk.StateGone {
		t.Errorf("inspect: %+v %v", st, err)
	}
	if _, err := try(t, t.Context(), s, &sdk.Command{Argv: []string{"true"}}); !errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
		t.Errorf("a command in what is gone gave %v", err)
	}
}

func TestSandboxCreateIsIdempotent(t *testing.T) {
	needBwrap(t)
	b := newBackend()
	defer b.spares.close()
	b.spares.warm()
	req := request(t, sdk.Spec{})
	one, err := b.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Create(t.Context(), req)
	if err != nil || one != two {
		t.Errorf("created twice: %v, %v", err, one != two)
	}
	if r := sh(t, one.(*sandbox), "id -un"); r.out != "sandbox\n" {
		t.Errorf("with a spare holder: %q %q", r.out, r.err)
	}
	for range 2 {
		if err := b.Destroy(t.Context(), sdk.Handle{ID: req.ID}); err != nil {
			t.Error(err)
		}
	}
	if err := b.Destroy(t.Context(), sdk.Handle{ID: "never-was", Data: json.RawMessage(`{"dir":"/no/such"}`)}); err != nil {
		t.Errorf("an unknown sandbox: %v", err)
	}
}

func TestSandboxCreateLeavesNothingWhenItFails(t *testing.T) {
	needBwrap(t)
	for name, spec := range map[string]sdk.Spec{
		"no such workspace": {Workspace: sdk.Workspace{Source: "/no/such/dir", Mode: sdk.WorkspacePrivate}},
		"a file":            {Workspace: sdk.Workspace{Source: "/etc/passwd", Mode: sdk.WorkspacePrivate}},
		"no such path":      {Config: &Config{TmpSize: 1 << 20, UID: 1000, ROBind: []string{"/opt/no/such"}}},
		"a reserved target": {Mounts: []sdk.Mount{{Source: "/opt", Target: "/proc/x"}}},
		"a limit":           {Limits: sdk.Limits{Files: 1}},
	} {
		req := request(t, spec)
		_, err := create(t.Context(), req, newBackend().support(), nil)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Reason == sdk.ReasonInternal {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(req.StateDir); len(left) > 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

// TestBwrapIsTheUsersChoice names another bwrap in the environment; no run file can.
func TestBwrapIsTheUsersChoice(t *testing.T) {
	for value, want := range map[string]string{"/opt/no/bwrap": "no executable bwrap at /opt/no/bwrap", "bwrap": "not an absolute path"} {
		t.Setenv(bwrapVariable, value)
		_, err := findBwrap()
		if err == nil || !strings.Contains(err.Error(), want) || sdk.ReasonOf(err) != sdk.ReasonMissing {
			t.Errorf("%s=%s: %v; want %q", bwrapVariable, value, err, want)
		}
	}
}

func TestSandboxPutsAndGets(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n"})
	for name, l := range map[string]sdk.Limits{"on disk": {}, "in memory": {Disk: 16 << 20}} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, sdk.Spec{Limits: l, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
			if err := s.Put(t.Context(), "/workspace/put.txt", sdk.FormatFile, strings.NewReader("put\n")); err != nil {
				t.Fatal(err)
			}
			if err := s.Put(t.Context(), "/workspace/a.txt", sdk.FormatFile, strings.NewReader("new\n")); err != nil {
				t.Fatal(err)
			}
			if r := sh(t, s, "cat put.txt a.txt; stat -c '%U %a' put.txt; echo mine >> put.txt; ls -A"); r.out != "put\nnew\nsandbox 644\na.txt\nput.txt\n" {
				t.Errorf("the command sees %q %q", r.out, r.err)
			}
			var b bytes.Buffer
			if err := s.Get(t.Context(), "/workspace/put.txt", sdk.FormatFile, &b); err != nil || b.String() != "put\nmine\n" {
				t.Errorf("got %q, %v", b.String(), err)
			}
			sh(t, s, "mkdir -p /output/d; echo 1 > /output/d/one; ln -s one /output/d/two; ln -s "+outside+" leads-out; mkfifo pipe")
			var tree bytes.Buffer
			if err := s.Get(t.Context(), "/output", sdk.FormatTar, &tree); err != nil {
				t.Fatal(err)
			}
			if err := s.Put(t.Context(), "/tmp/copy", sdk.FormatTar, &tree); err != nil {
				t.Fatal(err)
			}
			if r := sh(t, s, "cat /tmp/copy/d/two; stat -c %U /tmp/copy/d/one"); r.out != "1\nsandbox\n" {
				t.Errorf("the copy has %q %q", r.out, r.err)
			}
			if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{"/workspace/leads-out", "/workspace/pipe", "/workspace/../../etc/shadow", "relative"} {
				var b bytes.Buffer
				if err := s.Get(t.Context(), p, sdk.FormatFile, &b); err == nil || b.Len() > 0 {
					t.Errorf("%s gave %q, %v", p, b.String(), err)
				}
			}
			if err := s.Get(t.Context(), "/workspace/none", sdk.FormatFile, &b); !errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
				t.Errorf("what is not there gave %v", err)
			}
			for _, p := range []string{"/workspace/leads-out", "/usr/x", "/output"} {
				if err := s.Put(t.Context(), p, sdk.FormatFile, strings.NewReader("x")); err == nil {
					t.Errorf("wrote to %s", p)
				}
			}
			if data, _ := os.ReadFile(outside); string(data) != "secret" {
				t.Errorf("outside is %q", data)
			}
		})
	}
}
