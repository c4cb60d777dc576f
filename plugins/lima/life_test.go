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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/plugins/lima/internal/limatest"
	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
)

// standIn skips a test that breaks VMs where the VM is a real one, which takes minutes each time.
func standIn(t testing.TB) {
	t.Helper()
	limatest.Need(t)
	if os.Getenv(limatest.RealVariable) == "1" {
		t.Skip("it makes and breaks VMs of its own, which takes minutes for each real one")
	}
}

// anyVM skips where there is no VM of either kind. The test may stop its VM, and must neither count on a new one nor leave it broken.
func anyVM(t testing.TB) {
	t.Helper()
	limatest.Need(t)
	if os.Getenv(limatest.RealVariable) == "1" {
		needVM(t)
	}
}

// vmName is a name for the VMs of one test, all of which are deleted at its end; with a real limactl the name of the one of all tests,
// which stays.
func vmName(t testing.TB) string {
	t.Helper()
	if os.Getenv(limatest.RealVariable) == "1" {
		return fmt.Sprint(testConfig(t)["instance"])
	}
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

// status is the state of a VM, "" when there is none.
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

func TestVMIsMadeOnceAndReused(t *testing.T) {
	standIn(t)
	name := vmName(t)
	first := mustCreate(t, newBackend(), config(name))
	for _, want := range []string{"making the VM " + name, "starting the VM " + name, "SSH Local Port", "essential requirement"} {
		if !strings.Contains(first.said.String(), want) {
			t.Errorf("nothing was said of %q:\n%s", want, first.said)
		}
	}
	sh(t, first.sandbox, "echo mine > file")
	second := mustCreate(t, newBackend(), config(name))
	if strings.Contains(second.said.String(), "making") || strings.Contains(second.said.String(), "starting") {
		t.Errorf("a VM that runs was made or started again:\n%s", second.said)
	}
	if got := sh(t, second.sandbox, "ls /workspace; ls /exchange; ls -A"); got != second.rec.ID+"\n"+second.rec.ID+"\n" {
		t.Errorf("a sandbox sees of the others: %q", got)
	}
	if out, exit, err := try(t, second.sandbox, "cat /workspace/"+first.rec.ID+"/file"); err != nil || exit.Code == 0 {
		t.Errorf("a sandbox reads another's file: %v %v %q", err, exit, out)
	}
}

func TestCommandsAreNotRootAndCannotBecomeIt(t *testing.T) {
	anyVM(t)
	s := mustCreate(t, newBackend(), config(vmName(t)))
	if out, exit, err := try(t, s.sandbox, "sudo -n id -u"); err != nil || exit.Code == 0 {
		t.Errorf("sudo works in a sandbox: %v %+v %q", err, exit, out)
	}
	out := sh(t, s.sandbox, "grep -E '^(CapEff|CapPrm|CapInh|NoNewPrivs):' /proc/self/status; ls -A /run/user /run/dbus /var/lib/hutch 2>&1 | grep -v '^ls\\|:$' || true")
	if want := "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"; out != want {
		t.Errorf("a command has rights, or sees what belongs to the VM: %q, want %q", out, want)
	}
	for name := range strings.Lines(sh(t, s.sandbox, "cat /proc/[0-9]*/comm")) {
		if name = strings.TrimSpace(name); name != "exe" && name != "sh" && name != "cat" {
			t.Errorf("a command sees the process %q", name)
		}
	}
}

func TestStoppedVM(t *testing.T) {
	anyVM(t)
	name := vmName(t)
	b := newBackend()
	kept, removed := mustCreate(t, b, config(name)), mustCreate(t, b, config(name))
	sh(t, kept.sandbox, "echo kept > file; echo kept > ~/.kept; echo out > /output/o")
	limactlDo(t, "stop", name)

	other := newBackend() // knows nothing but the handles
	again, err := other.Attach(t.Context(), kept.handle)
	if err != nil {
		t.Fatal(err)
	}
	st, err := again.(*sandbox).Inspect(t.Context())
	if err != nil || st.State != sdk.StateAsleep || st.Details["vm_status"] != "Stopped" {
		t.Fatalf("of a stopped VM: %+v %v", st, err)
	}
	if all, err := other.List(t.Context(), "life"); err != nil || len(all) < 2 {
		t.Fatalf("a list while the VM is stopped: %v %v", all, err)
	}
	if err := other.Destroy(t.Context(), removed.handle); err != nil {
		t.Fatalf("destroy while the VM is stopped: %v", err)
	}
	if got := status(t, name); got != "Stopped" {
		t.Fatalf("inspecting, listing and destroying left the VM %s", got)
	}
	if _, err := newBackend().Attach(t.Context(), removed.handle); err == nil {
		t.Errorf("a sandbox that was destroyed while its VM was stopped can be attached to")
	}
	// The first command starts it, and what was removed meanwhile is removed from its disk.
	if got := sh(t, again.(*sandbox), "cat file ~/.kept /output/o"); got != "kept\nkept\nout\n" {
		t.Errorf("after a reboot: %q", got)
	}
	l := again.(*sandbox).machine.live()
	_, err = l.ask(t.Context(), wire.Request{Op: wire.OpInspect, ID: removed.rec.ID}, nil)
	wantReason(t, err, sdk.ReasonNotFound)
	if st, err := again.(*sandbox).Inspect(t.Context()); err != nil || st.State != sdk.StateReady || st.Details["vm_status"] != "Running" {
		t.Errorf("of a VM that runs again: %+v %v", st, err)
	}
}

// TestTheVMStopsWithItsLastSandbox has two sandboxes stopped, and one of them taken up again by another process.
func TestTheVMStopsWithItsLastSandbox(t *testing.T) {
	standIn(t)
	name := vmName(t)
	b := newBackend()
	one, two := mustCreate(t, b, config(name)), mustCreate(t, b, config(name))
	sh(t, one.sandbox, "echo one > file")
	stop := func(s *sandbox) {
		t.Helper()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st, err := s.Inspect(t.Context()); err != nil || st.State != sdk.StateAsleep {
			t.Fatalf("it is %+v %v", st, err)
		}
	}
	stop(one.sandbox)
	if got := status(t, name); got != "Running" {
		t.Fatalf("with a sandbox in it the VM is %s", got)
	}
	if got := sh(t, two.sandbox, "echo works"); got != "works\n" {
		t.Errorf("the other sandbox says %q", got)
	}
	stop(two.sandbox)
	if got := status(t, name); got != "Stopped" {
		t.Fatalf("with all sandboxes stopped the VM is %s", got)
	}
	other := newBackend()
	again, err := other.Attach(t.Context(), one.handle)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	if err := again.(*sandbox).Start(t.Context(), func(step string, _, _ int64) { steps = append(steps, step) }); err != nil {
		t.Fatal(err)
	}
	if want := "starting the VM " + name; !slices.Contains(steps, want) {
		t.Errorf("the start told %q, not %q", steps, want)
	}
	if got := sh(t, again.(*sandbox), "cat file"); got != "one\n" {
		t.Errorf("the file is %q", got)
	}
	stop(again.(*sandbox)) // and the other one is stopped still
	if got := status(t, name); got != "Stopped" {
		t.Errorf("then the VM is %s", got)
	}
}

func TestTwoProcessesMakeOneVM(t *testing.T) {
	standIn(t)
	name := vmName(t)
	var all sync.WaitGroup
	boxes := make([]*created, 4)
	errs := make([]error, len(boxes))
	for i := range boxes {
		all.Go(func() { boxes[i], errs[i] = create(t, newBackend(), config(name)) })
	}
	all.Wait()
	made := 0
	for i, b := range boxes {
		if errs[i] != nil {
			t.Fatalf("%v\n%s", errs[i], b.said)
		}
		made += strings.Count(b.said.String(), "making the VM")
		if got := sh(t, b.sandbox, "pwd"); got != "/workspace/"+b.rec.ID+"\n" {
			t.Errorf("pwd: %q", got)
		}
	}
	if made != 1 {
		t.Errorf("the VM was made %d times", made)
	}
}

func TestDedicatedVM(t *testing.T) {
	standIn(t)
	name := vmName(t)
	b := newBackend()
	cfg := func() *Config { return config(name, func(c *Config) { c.Dedicated = true }) }
	one, two := mustCreate(t, b, cfg()), mustCreate(t, b, cfg())
	if one.machine.name == two.machine.name || status(t, name) != "" {
		t.Fatalf("two sandboxes with VMs of their own are in %s and %s", one.machine.name, two.machine.name)
	}
	sh(t, one.sandbox, "echo x > /exchange/$(basename $PWD)/x; chmod 0 /exchange/$(basename $PWD)")
	host := one.ready.Exchange.Host
	if err := b.Destroy(t.Context(), one.handle); err != nil {
		t.Fatal(err)
	}
	if st := status(t, one.machine.name); st != "" {
		t.Errorf("its VM is still there: %s", st)
	}
	if _, err := os.Lstat(host); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its exchange is still there: %v", err)
	}
	if _, err := os.Lstat(one.machine.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the records of its VM are still there: %v", err)
	}
	if st := status(t, two.machine.name); st != "Running" {
		t.Errorf("the other VM is %q", st)
	}
}

func TestStopWhenIdle(t *testing.T) {
	standIn(t)
	name := vmName(t)
	b := newBackend()
	idle := func(c *Config) { c.StopWhenIdle = true }
	one, two := mustCreate(t, b, config(name, idle)), mustCreate(t, b, config(name, idle))
	for _, step := range []struct {
		box  *created
		want string
	}{{one, "Running"}, {two, "Stopped"}} {
		if err := b.Destroy(t.Context(), step.box.handle); err != nil {
			t.Fatal(err)
		}
		if got := status(t, name); got != step.want {
			t.Errorf("the VM is %s, want %s", got, step.want)
		}
	}
	three := mustCreate(t, b, config(name, idle))
	if got := sh(t, three.sandbox, "echo works"); got != "works\n" {
		t.Errorf("in a VM that was started again: %q", got)
	}
}

func TestSettingsOfAVMThatExists(t *testing.T) {
	standIn(t)
	name := vmName(t)
	b := newBackend()
	old := mustCreate(t, b, config(name))
	_, err := create(t, newBackend(), config(name, func(c *Config) { c.Memory = 8 << 30 }))
	if e := wantReason(t, err, sdk.ReasonConfig); e.Path != "instance" || !strings.Contains(e.Fix, "limactl delete") {
		t.Errorf("%+v", e)
	}
	limactlDo(t, "delete", "--force", name) // as the message says; what was in it is gone
	if _, err := newBackend().Attach(t.Context(), old.handle); !errors.Is(err, &sdk.Error{Reason: sdk.ReasonNotFound}) {
		t.Errorf("attaching to a sandbox whose VM was deleted: %v", err)
	}
	again := mustCreate(t, newBackend(), config(name, func(c *Config) { c.Memory = 8 << 30 }))
	sh(t, again.sandbox, "true")
}

func TestVMOfSomebodyElse(t *testing.T) {
	standIn(t)
	name := vmName(t)
	file := filepath.Join(t.TempDir(), "lima.yaml")
	if err := os.WriteFile(file, []byte("cpus: 1\nmemory: 1GiB\nmounts: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	limactlDo(t, "create", "--name="+name, file)
	s := mustCreate(t, newBackend(), config(name))
	if s.ready.Exchange != nil || !strings.Contains(strings.Join(s.ready.Notes, " "), "shares no directory") {
		t.Errorf("a VM without the mount has the exchange %+v and the notes %q", s.ready.Exchange, s.ready.Notes)
	}
	sh(t, s.sandbox, "echo x > file")
}

// faults orders the next boots of a VM to go wrong.
func faults(t testing.TB, name string, f limatest.Faults) {
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

func TestBrokenVMIsStartedAgain(t *testing.T) {
	standIn(t)
	name := vmName(t)
	b := newBackend()
	s := mustCreate(t, b, config(name))
	sh(t, s.sandbox, "echo kept > file")
	pid, err := os.ReadFile(filepath.Join(os.Getenv("LIMA_HOME"), name, "ha.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscan(string(pid), &n); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the VM is broken", func() string {
		if st := status(t, name); st != "Broken" {
			return "it is " + st
		}
		if s.machine.live() != nil {
			return "the connection lives"
		}
		return ""
	})
	if got := sh(t, s.sandbox, "cat file"); got != "kept\n" {
		t.Errorf("after its hostagent was killed: %q", got)
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

func TestStartThatFails(t *testing.T) {
	standIn(t)
	for what, f := range map[string]limatest.Faults{"never ready": {Never: true}, "dies": {Die: true}} {
		t.Run(what, func(t *testing.T) {
			name := vmName(t)
			short := func(c *Config) { c.StartTimeout = 2 * time.Second }
			faults(t, name, f)
			_, err := create(t, newBackend(), config(name, short))
			if e := wantReason(t, err, sdk.ReasonUnavailable); !strings.Contains(e.Summary, name) || !strings.Contains(e.Fix, "serial") {
				t.Errorf("%+v", e)
			}
			if st := status(t, name); st != "" {
				t.Errorf("a VM that was made for it and never started is %s", st)
			}
			faults(t, name, limatest.Faults{})
			s := mustCreate(t, newBackend(), config(name, func(c *Config) { c.StartTimeout = time.Minute }))
			limactlDo(t, "stop", name)
			faults(t, name, f)
			s.cfg.StartTimeout = 2 * time.Second
			if _, _, err := try(t, s.sandbox, "true"); err == nil {
				t.Errorf("a command ran in a VM that does not start")
			}
			if st := status(t, name); st != "Stopped" {
				t.Errorf("a VM that existed and does not start is %s", st)
			}
			faults(t, name, limatest.Faults{})
			s.cfg.StartTimeout = time.Minute
			sh(t, s.sandbox, "true")
		})
	}
}

func TestVMThatStillBoots(t *testing.T) {
	standIn(t)
	name := vmName(t)
	s := mustCreate(t, newBackend(), config(name))
	limactlDo(t, "stop", name)
	faults(t, name, limatest.Faults{BootDelay: 2 * time.Second})
	cmd := exec.Command("limactl", "start", name)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	await(t, "the VM runs", func() string {
		if st := status(t, name); st != "Running" {
			return st
		}
		return ""
	})
	// Running says nothing: the boot scripts are not done.
	sh(t, s.sandbox, "test -e /run/lima-boot-done")
}

// TestVMThatStopsUnderACommand cuts the power of a sandbox that was just made.
func TestVMThatStopsUnderACommand(t *testing.T) {
	anyVM(t)
	name := vmName(t)
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "file"), []byte("kept\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := mustCreate(t, newBackend(), config(name), func(req *sdk.CreateRequest) { req.Workspace.Source = source })
	type end struct {
		exit *sdk.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		_, exit, err := try(t, s.sandbox, "echo x > /exchange/$(basename $PWD)/runs; exec sleep 600")
		ended <- end{exit, err}
	}()
	await(t, "the command runs", func() string {
		_, err := os.Stat(filepath.Join(s.ready.Exchange.Host, "runs"))
		if err != nil {
			return err.Error()
		}
		return ""
	})
	limactlDo(t, "stop", "--force", name)
	select {
	case e := <-ended:
		if got := wantReason(t, e.err, sdk.ReasonUnavailable); !strings.Contains(got.Summary, "broke") {
			t.Errorf("%+v", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command has not ended a minute after its VM")
	}
	if got := sh(t, s.sandbox, "cat file"); got != "kept\n" {
		t.Errorf("in the VM, started again, the workspace has %q", got)
	}
}

func TestHome(t *testing.T) {
	standIn(t)
	name := vmName(t)
	b := newBackend()
	one, two := mustCreate(t, b, config(name)), mustCreate(t, b, config(name))
	sh(t, one.sandbox, "cd && echo mine > .mine && echo changed >> .profile && echo x > /tmp/x")
	if got := sh(t, two.sandbox, "cd && cat .profile && ls .mine /tmp/x 2>/dev/null || true"); got != "# the VM's own\n" {
		t.Errorf("another sandbox has the home %q", got)
	}
	if err := one.Reset(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, one.sandbox, "cd && cat .mine .profile && ls /tmp"); got != "mine\n# the VM's own\nchanged\n" {
		t.Errorf("after a reset: %q", got)
	}
	if err := one.Reset(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, one.sandbox, "cd && cat .profile && ls .mine 2>/dev/null || true"); got != "# the VM's own\n" {
		t.Errorf("after a hard reset: %q", got)
	}
}

func TestRootIsRefused(t *testing.T) {
	standIn(t)
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'limactl: must not run as the root user' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "limactl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	_, err := create(t, newBackend(), config(vmNameOnly()))
	if e := wantReason(t, err, sdk.ReasonDenied); !strings.Contains(e.Fix, "ordinary user") {
		t.Errorf("%+v", e)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = create(t, newBackend(), config(vmNameOnly()))
	if e := wantReason(t, err, sdk.ReasonMissing); !strings.Contains(e.Fix, "install Lima") {
		t.Errorf("%+v", e)
	}
	findings, err := newBackend().Check(t.Context())
	if err != nil || len(findings) != 1 || findings[0].Status != sdk.SeverityError || findings[0].Fix == "" {
		t.Errorf("%+v %v", findings, err)
	}
}

func vmNameOnly() string { return "v" + fmt.Sprint(vmNumber.Add(1)) }

func TestCheck(t *testing.T) {
	limatest.Need(t)
	findings, err := newBackend().Check(t.Context())
	if err != nil || len(findings) != 5 {
		t.Fatalf("%+v %v", findings, err)
	}
	for _, f := range findings {
		if f.Status == sdk.SeverityError || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	}
}
