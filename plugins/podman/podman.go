package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// podmanPlaces are where podman is looked for. PATH is the caller's, and a program that guards a boundary is not found
// by it.
var podmanPlaces = []string{"/usr/bin/podman", "/usr/local/bin/podman", "/bin/podman"}

// podmanVariable names the podman to use in the user's environment. A run file cannot name one: it is a program that
// runs on the host, outside every sandbox.
const podmanVariable = "PODMAN_PATH"

// podmanEnvironment are the variables that say where Podman's own files are.
var podmanEnvironment = []string{podmanVariable, imageVariable, "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
	"CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "DBUS_SESSION_BUS_ADDRESS"}

// commandTime bounds a call of podman that pulls nothing, on a machine that is busy.
const commandTime = 2 * time.Minute

// maxAnswer bounds what is read of an answer of podman.
const maxAnswer = 16 << 20

// podman is the podman program with what every call of it needs. Its methods may be called concurrently.
type podman struct {
	path     string
	env      []string
	rootless bool
	globals  []string // before the subcommand

	mu      sync.Mutex
	runtime string // the OCI runtime that was seen to work; "" means that none was tried yet
}

// findPodman finds the program, and how it has to be called here. It starts nothing.
func findPodman() (*podman, error) {
	places := podmanPlaces
	configured := os.Getenv(podmanVariable)
	if configured != "" {
		if !strings.HasPrefix(configured, "/") {
			return nil, sdk.Errorf(sdk.ReasonMissing, "%s is %q, which is not an absolute path", podmanVariable,
				configured).WithFix("give its whole path, or unset the variable")
		}
		places = []string{configured}
	}
	i := slices.IndexFunc(places, func(p string) bool { return unix.Access(p, unix.X_OK) == nil })
	if i < 0 {
		err := sdk.Errorf(sdk.ReasonMissing, "there is no executable podman at %s", places[0])
		if configured != "" {
			return nil, err.WithFix("correct or unset %s", podmanVariable)
		}
		return nil, err.WithFix("apt-get install podman, dnf install podman or apk add podman")
	}
	p := &podman{path: places[i], env: podmanEnv(), rootless: os.Geteuid() != 0}
	if !systemdManages(p.rootless) {
		p.globals = append(p.globals, "--cgroup-manager=cgroupfs")
	}
	return p, nil
}

// podmanEnv is this process's environment without what would lead podman astray: a runtime directory that is not there,
// and a service on another machine.
func podmanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "XDG_RUNTIME_DIR":
			st, err := os.Stat(value)
			if err != nil {
				return true
			}
			sys, ok := st.Sys().(*syscall.Stat_t)
			return !ok || int(sys.Uid) != os.Geteuid()
		case "CONTAINER_HOST", "CONTAINER_CONNECTION", "NOTIFY_SOCKET":
			return true
		}
		return false
	})
}

// systemdManages says whether systemd is there to make cgroups for this user.
func systemdManages(rootless bool) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return false
	}
	if !rootless {
		return true
	}
	_, err := os.Stat(fmt.Sprintf("/run/user/%d/systemd/private", os.Geteuid()))
	return err == nil
}

// commandError is a call of podman that failed.
type commandError struct {
	subcommand string
	code       int    // its exit code; -1 when it was killed
	words      string // what it said, one line
	err        error
}

func (e *commandError) Error() string {
	if e.words == "" {
		return fmt.Sprintf("podman %s: %v", e.subcommand, e.err)
	}
	return fmt.Sprintf("podman %s: %s", e.subcommand, e.words)
}

func (e *commandError) Unwrap() error { return e.err }

// call runs podman and returns what it printed. Its working directory is the root, for conmon inherits it and drops
// files into it; its output goes to files in memory, for whatever it leaves running inherits that too.
func (p *podman) call(ctx context.Context, args ...string) ([]byte, error) {
	return p.callWith(ctx, p.globals, nil, args...)
}

// callWith is call with other global options, and files that podman inherits from descriptor 3 on.
func (p *podman) callWith(ctx context.Context, globals []string, files []*os.File, args ...string) ([]byte, error) {
	return p.do(ctx, func(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }, globals, files,
		args...)
}

// runTime is how long a podman run whose context has ended may still take.
const runTime = time.Minute

// start calls podman run, which pulls nothing. It is not killed when ctx ends, unless it takes very long: killed
// between the making of a container and the note about it, it would leave one that Podman does not know, for ever
// waiting to be started.
func (p *podman) start(ctx context.Context, globals []string, files []*os.File, args ...string) error {
	_, err := p.do(ctx, func(*exec.Cmd) error { return nil }, globals, files, args...)
	return err
}

// do runs podman, and stop when ctx ends.
func (p *podman) do(ctx context.Context, stop func(*exec.Cmd) error, globals []string, files []*os.File,
	args ...string) ([]byte, error) {
	stdout, err := memoryFile()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := memoryFile()
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	cmd := exec.CommandContext(ctx, p.path, slices.Concat(globals, args)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", p.env, stdout, stderr, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel, cmd.WaitDelay = func() error { return stop(cmd) }, runTime
	err = cmd.Run()
	out, readErr := contents(stdout)
	if err == nil {
		return out, readErr
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("podman %s was stopped: %w", args[0], context.Cause(ctx))
	}
	words, _ := contents(stderr)
	e := &commandError{subcommand: args[0], code: -1, words: lastWords(words), err: err}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		e.code = exit.ExitCode()
	}
	return out, e
}

// memoryFile returns an empty file without a name.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("podman", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "podman's answer"), nil
}

func contents(f *os.File) ([]byte, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxAnswer))
}

// lastWords returns the error that podman ended with, without its warnings and its log's decoration.
func lastWords(stderr []byte) string {
	lines := bytes.Split(bytes.TrimSpace(stderr), []byte("\n"))
	last := ""
	for _, l := range lines {
		text := strings.TrimSpace(string(l))
		if strings.HasPrefix(text, "time=") && !strings.Contains(text, "level=error") {
			continue
		}
		if last = text; strings.HasPrefix(text, "Error:") {
			break
		}
	}
	last = strings.TrimSpace(strings.TrimPrefix(last, "Error:"))
	if len(last) > 2000 {
		last = last[:2000] + "…"
	}
	return last
}

// versionOf asks podman for its version.
func (p *podman) versionOf(ctx context.Context) (text string, major, minor int, err error) {
	out, err := p.callWith(ctx, nil, nil, "--version")
	if err != nil {
		return "", 0, 0, err
	}
	text = strings.TrimSpace(string(out))
	m := regexp.MustCompile(`(\d+)\.(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return text, 0, 0, fmt.Errorf("podman --version says %q", text)
	}
	major, _ = strconv.Atoi(m[1])
	minor, _ = strconv.Atoi(m[2])
	return text, major, minor, nil
}

// runtimesFor returns the OCI runtimes to try, the best first; "" is Podman's own choice. What was seen to work before
// is the only one.
func (p *podman) runtimesFor(configured string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if configured != runtimeAuto {
		return []string{configured}
	}
	if p.runtime != "" {
		return []string{p.runtime}
	}
	// crun knows no hybrid of cgroup v1 and v2, which is what a machine without the unified hierarchy mostly has.
	order := []string{"crun", "runc"}
	if !unifiedCgroups() {
		order = []string{"runc", "crun"}
	}
	order = slices.DeleteFunc(order, func(name string) bool {
		return !slices.ContainsFunc([]string{"/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/", "/bin/",
			"/sbin/"}, func(dir string) bool {
			return unix.Access(dir+name, unix.X_OK) == nil
		})
	})
	return append(order, "") // its configuration may know another one
}

// works notes that a container was started with the runtime.
func (p *podman) works(runtime string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime = runtime
}

// with returns the global options for a runtime.
func (p *podman) with(runtime string) []string {
	if runtime == "" {
		return p.globals
	}
	return append(slices.Clone(p.globals), "--runtime="+runtime)
}

// unifiedCgroups says whether this machine has cgroup v2 and nothing else.
func unifiedCgroups() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}
