package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/process"
	"github.com/hutch-run/hutch/sdk/visible"
)

// order is what the first process of a command's namespaces is told to do.
type order struct {
	ID        string
	UID, GID  int
	SetGroups bool   // no supplementary groups, where that can be asked for
	Home      string // where the commands see their home
	Network   bool
	Input     bool
	Exchange  bool
	Group     *limits.Handle
	Limits    limits.Request
	Exec      wire.Exec
}

func newOrder(b box, spec *wire.Sandbox, e *wire.Exec, group *limits.Group) *order {
	return &order{
		ID: b.id, UID: b.user.uid, GID: b.user.gid, SetGroups: setGroupsAllowed(), Home: b.user.home,
		Network: spec.Network, Input: spec.Input, Exchange: spec.Exchange, Group: group.Handle(), Limits: spec.Limits, Exec: *e,
	}
}

// controlFD is the socket to the server.
const controlFD = 3

// Init is the first process of a command's namespaces. It comes back when the command has ended, or never was started;
// with the end of this process the kernel ends everything else in them.
func Init() error {
	// Nothing of the command's can end this process by a signal, and what is caught here is not ignored there: the process
	// that started the guest's sshd may have ignored some.
	signal.Notify(make(chan os.Signal, 1))
	unix.CloseOnExec(controlFD)
	if err := unix.SetNonblock(controlFD, true); err != nil {
		return err
	}
	control := os.NewFile(controlFD, "control")
	lines := wire.NewLines(control)
	var o order
	if err := lines.Next(&o); err != nil {
		return fmt.Errorf("hear what to do: %w", err)
	}
	exit := o.live(control, lines)
	return wire.Send(control, wire.Event{Exit: exit})
}

func (o *order) live(control *os.File, lines *wire.Lines) *wire.Exit {
	broke := func(what string, err error) *wire.Exit {
		return &wire.Exit{Err: wire.AsError(fmt.Errorf("%s: %w", what, err))}
	}
	cpus := visible.Processors(o.Limits.CPUs)
	if err := o.mount(visible.Files(o.Limits, cpus)); err != nil {
		return broke("make the command's view of the sandbox", err)
	}
	if err := visible.Pin(os.Getpid(), cpus); err != nil {
		return broke("choose the command's processors", err)
	}
	if !o.Network {
		if err := raiseLoopback(); err != nil {
			return broke("make the command's network", err)
		}
	}
	cmd, why := o.command()
	if why != nil {
		return why
	}
	var group *limits.Group
	if o.Group != nil {
		g, err := limits.Open(*o.Group)
		if err != nil {
			return broke("find the sandbox's cgroup", err)
		}
		group = g
	}
	if err := confine(o.UID == 0, o.Limits.Files); err != nil {
		return broke("take the command's rights away", err)
	}
	start := cmd.Start
	if group != nil {
		start = func() error { return group.Start(cmd) }
	}
	if err := start(); err != nil {
		return notStarted(err)
	}
	for fd := range 3 {
		_ = unix.Close(fd) // the command has them, and nobody else shall
	}
	_ = wire.Send(control, wire.Event{Started: true}) // a server that is gone ends us
	go obey(lines, cmd.Process.Pid)
	return reap(cmd.Process.Pid)
}

// command makes the command, or says why there is none.
func (o *order) command() (*exec.Cmd, *wire.Exit) {
	dir := string(o.Exec.Dir)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, &wire.Exit{Err: wire.Errorf(wire.ReasonConfig, "there is no directory %q in the sandbox to work in", dir)}
	}
	cmd := &exec.Cmd{Dir: dir, Env: []string{}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	path := ""
	for _, kv := range o.Exec.Env {
		cmd.Env = append(cmd.Env, string(kv))
		if p, ok := strings.CutPrefix(string(kv), "PATH="); ok {
			path = p
		}
	}
	for _, a := range o.Exec.Argv {
		cmd.Args = append(cmd.Args, string(a))
	}
	if o.Exec.Files {
		cmd.Path = "/proc/self/exe"
		cmd.Args = append([]string{"hutch-lima-guest", "files"}, cmd.Args...)
	} else {
		p, err := process.Look(cmd.Args[0], path, dir)
		if err != nil {
			var no *process.NotRunnable
			if errors.As(err, &no) {
				return nil, &wire.Exit{NotStarted: true, Code: no.Code, Why: no.Why}
			}
			return nil, &wire.Exit{NotStarted: true, Code: 127, Why: err.Error()}
		}
		cmd.Path = p
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID), NoSetGroups: !o.SetGroups}}
	if o.Exec.TTY != nil {
		cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 0
	}
	return cmd, nil
}

// notStarted says why execve refused. What lies in the guest and not in the command is an error.
func notStarted(err error) *wire.Exit {
	switch {
	case errors.Is(err, unix.ENOENT):
		return &wire.Exit{NotStarted: true, Code: 127, Why: err.Error()}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.E2BIG), errors.Is(err, unix.ETXTBSY),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EPERM):
		return &wire.Exit{NotStarted: true, Code: 126, Why: err.Error()}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return &wire.Exit{Err: wire.Errorf(wire.ReasonQuota, "the sandbox has no room for another command: %w", err)}
	}
	return &wire.Exit{Err: wire.AsError(fmt.Errorf("start the command: %w", err))}
}

// confine takes from this process, on all its threads, what the command must never have. It can gain no right by
// executing a program. A command whose uid is not 0 has no capability by that; from one whose uid is, in a user
// namespace that knows no other, they are taken. Then it sets the limits that each process has on its own.
func confine(root bool, files uint64) error {
	prctl := func(option, arg uintptr) error {
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, option, arg, 0); errno != 0 {
			return errno
		}
		return nil
	}
	if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return err
	}
	for capability := uintptr(0); root && capability <= 63; capability++ {
		err := prctl(unix.PR_CAPBSET_DROP, capability)
		if errors.Is(err, unix.EINVAL) && capability > unix.CAP_SYS_ADMIN {
			break // the kernel knows no more
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	none := uint64(0)
	return limits.Rlimits{NoFile: &files, Core: &none}.Apply()
}

// obey does what the server says while the command runs. When the server is gone, so is everything.
func obey(lines *wire.Lines, pid int) {
	for {
		var c wire.Control
		if err := lines.Next(&c); err != nil {
			os.Exit(1)
		}
		switch {
		case c.End:
			_ = unix.Kill(-1, unix.SIGTERM) // all of this namespace but us
			_ = unix.Kill(-1, unix.SIGCONT)
		case c.Signal > 0:
			_ = unix.Kill(pid, unix.Signal(c.Signal)) // a command that is gone needs none
		}
	}
}

// reap reaps whatever ends until the command has.
func reap(pid int) *wire.Exit {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		got, err := syscall.Wait4(-1, &ws, 0, &ru)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return &wire.Exit{Err: wire.AsError(fmt.Errorf("wait for the command: %w", err))}
		case got == pid:
			return &wire.Exit{
				Status: uint32(ws), User: time.Duration(ru.Utime.Nano()), Sys: time.Duration(ru.Stime.Nano()), MaxRSS: int64(ru.Maxrss) << 10,
			}
		}
	}
}
