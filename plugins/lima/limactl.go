package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/sdk"
)

// limactl is the program of that name.
type limactl struct {
	path string
	home string // LIMA_HOME, absolute
}

// limaEnvironment are the variables of the host that limactl, and the QEMU it starts, look at.
var limaEnvironment = []string{
	"LIMA_HOME", "LIMA_SSH_PORT_FORWARDER", "QEMU_SYSTEM_X86_64", "QEMU_SYSTEM_AARCH64", "QEMU_SYSTEM_ARM", "QEMU_SYSTEM_RISCV64",
	"QEMU_SYSTEM_PPC64", "QEMU_SYSTEM_S390X",
}

// inPath looks for a program in PATH.
func inPath(program, fix string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case errors.Is(err, exec.ErrNotFound): // which says the same
		return "", sdk.Errorf(sdk.ReasonMissing, "%s is not in PATH", program).WithFix("%s", fix)
	case err != nil:
		return "", sdk.Errorf(sdk.ReasonMissing, "find %s: %w", program, err).WithFix("%s", fix)
	}
	return path, nil
}

// findLimactl looks for limactl in PATH.
func findLimactl() (*limactl, error) {
	path, err := inPath("limactl", "install Lima 2.0 or newer: https://lima-vm.io/docs/installation/")
	if err != nil {
		return nil, err
	}
	home := os.Getenv("LIMA_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, sdk.Errorf(sdk.ReasonMissing, "this user has no home directory for Lima: %w", err).WithFix("set HOME or LIMA_HOME")
		}
		home = filepath.Join(user, ".lima")
	}
	if !filepath.IsAbs(home) {
		return nil, sdk.Errorf(sdk.ReasonConfig, "LIMA_HOME is %q and must be an absolute path", home)
	}
	return &limactl{path: path, home: home}, nil
}

// limaError is a limactl that failed.
type limaError struct {
	args  []string
	err   error
	fatal string // what it said last at level fatal, or its last line
}

func (e *limaError) Error() string {
	if e.fatal == "" {
		return fmt.Sprintf("limactl %s: %v", strings.Join(e.args, " "), e.err)
	}
	return fmt.Sprintf("limactl %s: %s", strings.Join(e.args, " "), e.fatal)
}

func (e *limaError) Unwrap() error { return e.err }

// stopTime is how long a limactl that was told to end may take: it passes that on to its own children.
const stopTime = 10 * time.Second

// call runs limactl and returns what it printed. Its log goes to tell line by line, if there is one.
func (l *limactl) call(ctx context.Context, tell func(level, msg string), args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, l.path, append([]string{"--tty=false", "--log-format=json"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the host agent that it starts outlives the caller's terminal
	cmd.Dir = "/"                                        // from elsewhere Lima would look for the same directory in the VM
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	var out bytes.Buffer
	cmd.Stdout = &out
	log := &limaout.Log{Tell: tell}
	cmd.Stderr = log
	err := cmd.Run()
	log.End()
	if err == nil {
		return out.Bytes(), nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	e := &limaError{args: args, err: err, fatal: log.Fatal}
	if e.fatal == "" {
		e.fatal = log.Last
	}
	if strings.Contains(e.fatal, "must not run as the root user") {
		return nil, sdk.Errorf(sdk.ReasonDenied, "limactl refuses to run as root: %w", e).WithFix("run hutch as an ordinary user")
	}
	return nil, e
}

// list asks for a VM by its name; nil when there is none. limactl start must never be called for such a one: it would
// make one from its default template.
func (l *limactl) list(ctx context.Context, name string) (*limaout.Instance, error) {
	out, err := l.call(ctx, nil, "list", "--json", name)
	var e *limaError
	if errors.As(err, &e) && strings.Contains(e.fatal, "unmatched instances") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := limaout.ParseList(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Name == name {
			return i, nil
		}
	}
	return nil, nil
}
