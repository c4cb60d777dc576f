package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/sdk"
)

// standIn skips a test that breaks VMs where the VM is a real one, which takes minutes each time.
func standIn(t testing.TB) {
	t.Helper()
	needStandIn(t)
	if os.Getenv(realVariable) == "1" {
		t.Skip("it makes and breaks VMs of its own, which takes minutes for each real one")
	}
}

// anyVM skips where there is no VM of either kind. The test may stop its VM, and must neither count on a new one nor
// leave it broken.
func anyVM(t testing.TB) {
	t.Helper()
	needStandIn(t)
	if os.Getenv(realVariable) == "1" {
		needVM(t)
	}
}

// vmName is a name for the VMs of one test, all of which are deleted at its end; with a real limactl the name of the
// one of all tests, which stays. A test with VMs of its own runs beside others: it mostly waits for them.
func vmName(t *testing.T) string {
	t.Helper()
	if os.Getenv(realVariable) == "1" {
		return fmt.Sprint(testConfig(t)["instance"])
	}
	t.Parallel()
	name := "v" + fmt.Sprint(vmNumber.Add(1))
	t.Cleanup(func() {
		for _, i := range vms(t) {
			if i.Name == name || strings.HasPrefix(i.Name, name+"-") {
				limactlDo(t, "delete", "--force", i.Name)
			}
		}
	})
	return name
}

var vmNumber atomic.Int64

// limactlDo runs limactl and ends the test unless it succeeds.
func limactlDo(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command("limactl", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("limactl %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// vms are all VMs there are.
func vms(t testing.TB) []*limaout.Instance {
	t.Helper()
	all, err := limaout.ParseList(strings.NewReader(limactlDo(t, "list", "--json")))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// status is the state of a VM, or "".
func status(t testing.TB, name string) string {
	t.Helper()
	for _, i := range vms(t) {
		if i.Name == name {
			return i.Status
		}
	}
	return ""
}

// config is the default configuration with a VM of its own; for the VM of all tests it is what that was made from.
func config(name string, change ...func(*Config)) *Config {
	c := configOf(&sdk.Spec{})
	c.Instance, c.StartTimeout = name, time.Minute
	if made != nil {
		*c = *made
	}
	for _, f := range change {
		f(c)
	}
	return c
}

var boxNumber atomic.Int64

// created is a sandbox, and what was said while it was made.
type created struct {
	*sandbox
	backend *backend
	handle  sdk.Handle
	said    *words
}

// words gathers progress.
type words struct {
	mu    sync.Mutex
	lines []string
}

func (w *words) say(step string, _, _ int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, step)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// create makes a sandbox by b.
func create(t testing.TB, b *backend, cfg *Config, change ...func(*sdk.CreateRequest)) (*created, error) {
	t.Helper()
	c := &created{backend: b, said: &words{}}
	req := &sdk.CreateRequest{
		ID: fmt.Sprintf("box%d", boxNumber.Add(1)), Owner: "life", StateDir: t.TempDir(), Keep: true, Progress: c.said.say,
		Allocated: func(h sdk.Handle) error { c.handle = h; return nil },
	}
	c.handle.ID = req.ID
	req.Config, req.Workspace.Mode = cfg, sdk.WorkspacePrivate
	for _, f := range change {
		f(req)
	}
	s, err := b.Create(t.Context(), req)
	if err != nil {
		return c, err
	}
	c.sandbox = s.(*sandbox)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.Destroy(ctx, sdk.Handle{ID: req.ID, Data: c.handle.Data}); err != nil {
			t.Errorf("destroy %s: %v", req.ID, err)
		}
	})
	return c, nil
}

func mustCreate(t testing.TB, b *backend, cfg *Config, change ...func(*sdk.CreateRequest)) *created {
	t.Helper()
	c, err := create(t, b, cfg, change...)
	if err != nil {
		t.Fatalf("create: %v\n%s", err, c.said)
	}
	return c
}

// sh runs a script in a sandbox and returns what it printed.
func sh(t testing.TB, s *sandbox, script string) string {
	t.Helper()
	out, exit, err := try(t, s, script)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %v %+v\n%s", script, err, exit, out)
	}
	return out
}

// try runs a script; both of its streams go to one text.
func try(t testing.TB, s *sandbox, script string) (string, *sdk.Exit, error) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(&out, r) }()
	exit, err := s.Exec(t.Context(), &sdk.Command{Argv: []string{"/bin/sh", "-c", script}, Stdin: null, Stdout: w, Stderr: w})
	w.Close()
	<-read
	return out.String(), exit, err
}

func wantReason(t testing.TB, err error, want sdk.Reason) *sdk.Error {
	t.Helper()
	var e *sdk.Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Fatalf("got %v, want an error with the reason %s", err, want)
	}
	return e
}

// faults orders the next boots of a VM to go wrong.
func faults(t testing.TB, name string, f bootFaults) {
	t.Helper()
	dir := filepath.Join(os.Getenv("LIMA_HOME"), "_faults")
	b, err := json.Marshal(f)
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".json"), b, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// await waits for a condition that says what is missing.
func await(t testing.TB, what string, missing func() string) {
	t.Helper()
	last := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if last = missing(); last == "" {
			return
		}
	}
	t.Fatalf("%s: still not so after a minute: %s", what, last)
}

func vmNameOnly() string { return "v" + fmt.Sprint(vmNumber.Add(1)) }
