package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
)

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
		t.Errorf("the start reported %q, not %q", steps, want)
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
		made += strings.Count("\n"+b.said.String(), "\nmaking the VM") // and not what others say that they wait for
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

// TestExchangeGoesWithItsSandbox has sandboxes removed by a process that knows only their handles, whatever became of
// the VM.
func TestExchangeGoesWithItsSandbox(t *testing.T) {
	standIn(t)
	for what, change := range map[string]func(name string, b *backend){
		"running": func(string, *backend) {},
		"deleted": func(name string, _ *backend) { limactlDo(t, "delete", "--force", name) },
		"recreated": func(name string, b *backend) {
			limactlDo(t, "delete", "--force", name)
			mustCreate(t, b, config(name))
		},
	} {
		t.Run(what, func(t *testing.T) {
			name, state := vmName(t), filepath.Join(t.TempDir(), "sandboxes", "state")
			c := mustCreate(t, newBackend(), config(name), func(r *sdk.CreateRequest) { r.StateDir = state })
			host := c.ready.Exchange.Host
			change(name, newBackend())
			if _, err := os.Stat(host); err != nil {
				t.Fatal(err)
			}
			if err := newBackend().Destroy(t.Context(), sdk.Handle{ID: c.rec.ID, Data: c.handle.Data, StateDir: state}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(host); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its exchange is still there: %v", err)
			}
		})
	}
}

// TestLimactlLeavesTheTerminal looks at the session, the terminal and the streams of a limactl, which its host agent
// inherits.
func TestLimactlLeavesTheTerminal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limactl")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nreadlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 | cut -d: -f1\ncut -d' ' -f1,6,7 /proc/$$/stat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := (&limactl{path: path}).call(t.Context(), nil, "start", "x")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(out)) // the streams, pid, session, terminal
	if len(f) != 6 || f[0] != "/dev/null" || f[1] != "pipe" || f[2] != "pipe" || f[3] != f[4] || f[5] != "0" {
		t.Errorf("it has %q", f)
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

func TestCheck(t *testing.T) {
	needStandIn(t)
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

// TestV1WaitersHearWhatTheyWaitFor has another run boot the VM.
func TestV1WaitersHearWhatTheyWaitFor(t *testing.T) {
	standIn(t)
	name := vmName(t)
	m, err := newBackend().machine(name)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := m.lock(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.does("starting the VM " + name)
	w := &words{}
	done := make(chan error, 1)
	go func() {
		p := &plan{cfg: config(name), exchange: exchangeOf{t.TempDir(), guestExchange}}
		_, err := m.connect(t.Context(), p, config(name).StartTimeout, w.say)
		done <- err
	}()
	await(t, "the waiter says for what it waits", func() string {
		want := "waiting for another run that works on the VM " + name + ": starting the VM " + name
		if said := w.String(); !strings.Contains(said, want) {
			return said
		}
		return ""
	})
	unlock()
	if err := <-done; err != nil {
		t.Errorf("after waiting: %v\n%s", err, w)
	}
}

// TestV2ACommandWhoseVMDies loses the VM in the middle of a command: the error says so and what is kept, and the next
// one goes on.
func TestV2ACommandWhoseVMDies(t *testing.T) {
	standIn(t)
	name := vmName(t)
	s := mustCreate(t, newBackend(), config(name))
	sh(t, s.sandbox, "echo kept > file; sync")
	done := make(chan error, 1)
	go func() {
		_, _, err := try(t, s.sandbox, "echo > started; exec sleep 1000")
		done <- err
	}()
	await(t, "the command runs", func() string {
		if _, exit, err := try(t, s.sandbox, "test -e started"); err != nil || exit.Code != 0 {
			return "not started"
		}
		return ""
	})
	limactlDo(t, "stop", "--force", name)
	e := wantReason(t, <-done, sdk.ReasonUnavailable)
	for _, want := range []string{"the VM " + name + " died: limactl says Stopped", "the files of its sandboxes are on its disk", "the next command starts it again"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, e)
		}
	}
	if text := s.machine.died(t.Context()); !strings.Contains(text, "died") {
		t.Errorf("before the next command it says %q", text)
	}
	if got := sh(t, s.sandbox, "cat file"); got != "kept\n" {
		t.Errorf("the file is %q", got)
	}
	if text := s.machine.died(t.Context()); text != "" {
		t.Errorf("with the VM up again it says %q", text)
	}
}

// TestK5StoppedByAnother stops a VM that somebody else has stopped meanwhile.
func TestK5StoppedByAnother(t *testing.T) {
	standIn(t)
	name := vmName(t)
	s := mustCreate(t, newBackend(), config(name))
	limactlDo(t, "stop", name)
	if err := s.machine.stop(t.Context(), false); err != nil {
		t.Error(err)
	}
}

// TestPlanRefusesWhatCreateWould asks for a VM that exists with other settings, and for dependencies.
func TestPlanRefusesWhatCreateWould(t *testing.T) {
	standIn(t)
	name := vmName(t)
	b := newBackend()
	mustCreate(t, b, config(name))
	for want, spec := range map[string]*sdk.Spec{
		"":                             {Config: config(name)},
		"was made from other settings": {Config: config(name, func(c *Config) { c.Memory *= 2 })},
		"nothing can be mounted":       {Config: config(name), Mounts: []sdk.Mount{{Target: "/hutch/deps", ReadOnly: true}}},
	} {
		p, err := b.Plan(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && len(p.Diagnostics) > 0 || want != "" && (len(p.Diagnostics) != 1 || !strings.Contains(p.Diagnostics[0].Summary, want)) {
			t.Errorf("want %q, got %+v", want, p.Diagnostics)
		}
	}
}
