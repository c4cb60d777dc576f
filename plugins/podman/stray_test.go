package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEndStray kills what a podman run that was killed left, and nobody whose number merely stands in the file.
func TestEndStray(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, program string
		names         bool // the sandbox's file on its command line
		dies          bool
	}{
		{"its own", "conmon", true, true},
		{"another container's", "conmon", false, false},
		{"another program's", "keeper", true, false},
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
			args := []string{"-c", `sleep 600 & echo $! > "$0"; echo begun; wait`, s.dirs.pid(), "-p", "/elsewhere"}
			if c.names {
				args[4] = s.dirs.pid()
			} else {
				args[1], args[2] = `sleep 600 & echo $! > `+s.dirs.pid()+`; echo begun; wait`, "x"
			}
			cmd := exec.CommandContext(t.Context(), program, args...)
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
			child := s.dirs.readPID()
			if child == 0 {
				t.Fatal("it has no child")
			}
			s.endStray()
			if !c.dies {
				if s.dirs.readPID() != child || syscall.Kill(cmd.Process.Pid, 0) != nil {
					t.Error("it was killed")
				}
				return
			}
			err = cmd.Wait()
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("it ended with %v", err)
			}
			for end := time.Now().Add(time.Minute); s.dirs.readPID() != 0 && !isZombie(child); {
				if time.Now().After(end) {
					t.Fatal("its child lives")
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// isZombie says whether nobody has asked yet how a process ended.
func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}
