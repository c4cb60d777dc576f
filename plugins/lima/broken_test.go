package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

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

func TestStartThatFails(t *testing.T) {
	standIn(t)
	for what, f := range map[string]bootFaults{"never ready": {Never: true}, "dies": {Die: true}} {
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
			faults(t, name, bootFaults{})
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
			faults(t, name, bootFaults{})
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
	faults(t, name, bootFaults{BootDelay: 2 * time.Second})
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
		if got := wantReason(t, e.err, sdk.ReasonUnavailable); !strings.Contains(got.Error(), "broke") {
			t.Errorf("%+v", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command has not ended a minute after its VM")
	}
	if got := sh(t, s.sandbox, "cat file"); got != "kept\n" {
		t.Errorf("in the VM, started again, the workspace has %q", got)
	}
}
