package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// TestEndStray kills what a podman run that was killed left, and nobody whose number merely stands in the file.
func TestEndStray(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, program string
		child         string // the program of its child
		names         bool   // the sandbox's file on its command line
		dies          bool
	}{
		{"its own", "conmon", "sleep", true, true},
		{"its own, with a child whose name holds other fields", "conmon", "x) S 1 (", true, true},
		{"another container's", "conmon", "sleep", false, false},
		{"another program's", "keeper", "sleep", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sandbox{dirs: dirs{t.TempDir()}}
			if err := os.Mkdir(s.dirs.base(), 0o700); err != nil {
				t.Fatal(err)
			}
			s.endStray() // of nothing
			program := t.TempDir() + "/" + c.program
			if err := os.WriteFile(program, shell, 0o755); err != nil {
				t.Fatal(err)
			}
			child := t.TempDir() + "/" + c.child
			if err := os.Symlink(sleep, child); err != nil {
				t.Fatal(err)
			}
			args := []string{"-c", `"` + child + `" 600 & echo $! > "$0"; echo begun; wait`, s.dirs.pid(), "-p", "/elsewhere"}
			if c.names {
				args[4] = s.dirs.pid()
			} else {
				args[1], args[2] = `"`+child+`" 600 & echo $! > `+s.dirs.pid()+`; echo begun; wait`, "x"
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, args...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			if _, err := out.Read(make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			pid := s.dirs.readPID()
			if pid == 0 {
				t.Fatal("it has no child")
			}
			for name := ""; name != c.child && ctx.Err() == nil; { // until it has been executed
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				if err != nil {
					t.Fatal(err)
				}
				name = strings.TrimSpace(string(b))
			}
			s.endStray()
			if !c.dies {
				if s.dirs.readPID() != pid || syscall.Kill(cmd.Process.Pid, 0) != nil {
					t.Error("it was killed")
				}
				return
			}
			err = cmd.Wait() // killed, or by itself when its child was: whichever came first
			if ctx.Err() != nil {
				t.Errorf("it did not end: %v", err)
			}
			for end := time.Now().Add(time.Minute); s.dirs.readPID() != 0 && procstat.Alive(pid); {
				if time.Now().After(end) {
					t.Fatal("its child lives")
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}
