// Package guest is the program that the Lima backend has in its virtual machines. It runs as root there, one process
// for each backend that is connected, and ends with the ssh session that it speaks over.
//
// # A sandbox in the guest
//
// All sandboxes of a VM share its kernel. What keeps them apart, and keeps the VM itself as it was, is that every
// command has namespaces of its own: of processes, of mounts, of shared memory, and without a network one of that too.
// It sees of /workspace, /exchange, /input, /output, /tmp and its home what belongs to its own sandbox; the home is an
// overlay over the one that the VM's user has, so tools that were installed there work and what a command writes there
// stays in the sandbox. It has the uid of the VM's user, no capability, and cannot gain any: sudo does not work in a
// sandbox.
//
//	/workspace/ID              the workspace, an ordinary directory
//	/exchange/ID               what the host shares
//	/var/lib/hutch/ID/         the rest of it: what it is like, input, output, tmp, what it wrote to its home, the base
//	/run/hutch/ID/             which commands run, and the handle of its cgroup; gone after a reboot
//
// # A command
//
// This program starts itself once more as the first process of the command's namespaces. That one mounts what the
// command shall see, and starts the command, inside the sandbox's cgroup; it reaps, says how the command ended, and
// with its own end the kernel kills whatever is left. It is outside the cgroup, so no limit of the sandbox can hinder
// it. When this process dies, it ends too.
package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
	"github.com/hutch-run/hutch/sdk/visible"
)

// server is one process of the guest's program.
type server struct {
	user  account
	limit *limits.Support

	mu    sync.Mutex
	calls map[*call]bool
	over  bool // the session has ended: nothing is started any more
}

// account is the user whose commands they are.
type account struct {
	name     string
	uid, gid int
	home     string
}

// Serve answers a backend on the standard streams until it is gone. bootWait is how long the guest's first boot may
// take.
func Serve(ctx context.Context, name string, bootWait time.Duration) error {
	// what sshd and sudo let through is no command's; old kernels have it not
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	s := &server{calls: map[*call]bool{}}
	hello := &wire.Hello{Version: wire.Version, Arch: runtime.GOARCH, Boot: readLine("/proc/sys/kernel/random/boot_id"),
		Kernel: readLine("/proc/sys/kernel/osrelease")}
	err := s.prepare(ctx, name, bootWait)
	if err != nil {
		hello.Err = remote.AsError(err)
		return errors.Join(wire.WriteHello(os.Stdout, hello), err)
	}
	hello.User, hello.UID, hello.Home, hello.Limits = s.user.name, s.user.uid, s.user.home, s.limit.Limits
	hello.Size = size()
	if err := wire.WriteHello(os.Stdout, hello); err != nil {
		return err
	}
	session, err := yamux.Server(stdio{}, remote.Config())
	if err != nil {
		return err
	}
	defer s.end()
	for {
		if err := s.accept(session); err != nil {
			if session.IsClosed() {
				return nil // the backend is gone, which is how this ends
			}
			return err
		}
	}
}

// accept takes one request.
func (s *server) accept(session *yamux.Session) error {
	var req wire.Request
	call, stream, data, err := remote.Accept(session, &req, func() bool { return req.Op == wire.OpExec })
	switch {
	case err != nil:
		return err
	case call != nil:
		go func() { call.End(s.exec(req, call)) }()
	default:
		go s.answer(stream, req, data)
	}
	return nil
}

// prepare looks who the user is and what the guest can do, once it has booted.
func (s *server) prepare(ctx context.Context, name string, bootWait time.Duration) error {
	if os.Geteuid() != 0 {
		return contract.Errorf(contract.ReasonDenied, "hutch's program in the guest must be root; sudo made it uid %d",
			os.Geteuid())
	}
	if err := booted(ctx, bootWait); err != nil {
		return err
	}
	u, err := user.Lookup(name)
	if err != nil {
		return contract.Errorf(contract.ReasonConfig, "the guest has no user %q: %w", name, err)
	}
	s.user = account{name: u.Username, home: u.HomeDir}
	for to, text := range map[*int]string{&s.user.uid: u.Uid, &s.user.gid: u.Gid} {
		if *to, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("the guest's user %q: %w", name, err)
		}
	}
	s.limit = limits.Probe()
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{stateDir, 0o700}, {runDir, 0o700}, {workspaceDir, 0o755}, {exchangeDir, 0o755}, {inputDir, 0o755},
		{outputDir, 0o755}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return fmt.Errorf("make hutch's directories in the guest: %w", err)
		}
	}
	return nil
}

// size is how large this machine is.
func size() wire.Machine {
	m := wire.Machine{CPUs: len(visible.Processors(math.MaxInt32)), Files: limits.HardLimit(unix.RLIMIT_NOFILE)}
	var mem unix.Sysinfo_t
	if unix.Sysinfo(&mem) == nil {
		m.Memory = int64(mem.Totalram) * int64(mem.Unit)
	}
	var disk unix.Statfs_t
	if unix.Statfs(workspaceDir, &disk) == nil {
		m.Disk = int64(disk.Blocks) * disk.Bsize
	}
	return m
}

// bootDone is made by Lima's boot scripts when they are done; sshd answers long before that.
const bootDone = "/run/lima-boot-done"

// booted waits for the end of the guest's boot. A guest without Lima's boot scripts has no such end.
func booted(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(bootDone); err == nil {
			return nil
		}
		if _, err := os.Stat("/mnt/lima-cidata"); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return contract.Errorf(contract.ReasonInternal, "the guest's boot scripts are not done after %s: there is no %s",
				wait, bootDone)
		}
	}
}

// stdio is the ssh session.
type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }

// end kills the commands of this session and waits for their ends.
func (s *server) end() {
	s.mu.Lock()
	s.over = true
	all := make([]*call, 0, len(s.calls))
	for c := range s.calls {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.kill()
	}
	for _, c := range all {
		<-c.gone
	}
}

// answer does what one stream asks for.
func (s *server) answer(stream *yamux.Stream, req wire.Request, data io.Reader) {
	defer stream.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_ = remote.Send(stream, s.do(ctx, req, data)) // a backend that is gone is noticed by the session
}

// do does what is no command.
func (s *server) do(ctx context.Context, req wire.Request, data io.Reader) (reply remote.Reply) {
	defer func() {
		if p := recover(); p != nil {
			reply = remote.Reply{Err: contract.Errorf(contract.ReasonInternal, "hutch's program in the guest has a bug: %s: %v",
				req.Op, p)}
		}
	}()
	var err error
	box := box{id: req.ID, server: s}
	if !validID(req.ID) {
		return remote.Reply{Err: contract.Errorf(contract.ReasonConfig, "%q is no id of a sandbox", req.ID)}
	}
	switch req.Op {
	case wire.OpCreate:
		if req.Sandbox == nil {
			err = contract.Errorf(contract.ReasonConfig, "there is nothing to create")
			break
		}
		err = box.create(ctx, req.Sandbox)
	case wire.OpFill:
		err = box.fill(ctx, req.Part, data)
	case wire.OpSnapshot:
		err = box.snapshot(ctx)
	case wire.OpSync:
		err = box.sync()
	case wire.OpChanges:
		reply.Changes, err = box.changes(ctx)
	case wire.OpReset:
		err = box.reset(ctx, req.Hard)
	case wire.OpDestroy:
		err = box.destroy(ctx)
	case wire.OpInspect:
		reply.State, err = box.inspect()
	default:
		err = contract.Errorf(contract.ReasonUnsupported, "there is no operation %q", req.Op)
	}
	reply.Err = remote.AsError(err)
	return reply
}

// validID says whether id can be a sandbox's, and so part of a path.
func validID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// setGroupsAllowed says whether this process may give a child no supplementary groups: not in a user namespace that
// maps one user.
func setGroupsAllowed() bool { return readLine("/proc/self/setgroups") != "deny" }

// bind mounts what the descriptor fd stands for at a path.
func bind(fd int, at string) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	return nil
}

// order is what the first process of a command's namespaces has to do.
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
	Exec      remote.Exec
	Files     bool // see wire.Request
}

func newOrder(b box, spec *wire.Sandbox, req *wire.Request, group *limits.Group) *order {
	return &order{
		ID: b.id, UID: b.user.uid, GID: b.user.gid, SetGroups: setGroupsAllowed(), Home: b.user.home,
		Network: spec.Network, Input: spec.Input, Exchange: spec.Exchange, Group: group.Handle(), Limits: spec.Limits,
		Exec: *req.Exec, Files: req.Files,
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
	lines := remote.NewLines(control)
	var o order
	if err := lines.Next(&o); err != nil {
		return fmt.Errorf("hear what to do: %w", err)
	}
	exit := o.live(control, lines)
	return remote.Send(control, remote.Event{Exit: exit})
}

func (o *order) live(control *os.File, lines *remote.Lines) *remote.Exit {
	broke := func(what string, err error) *remote.Exit {
		return &remote.Exit{Err: remote.AsError(fmt.Errorf("%s: %w", what, err))}
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
		return remote.NotStarted(err)
	}
	for fd := range 3 {
		_ = unix.Close(fd) // the command has them, and nobody else shall
	}
	_ = remote.Send(control, remote.Event{Started: true}) // a server that is gone ends us
	go obey(lines, cmd.Process.Pid)
	return reap(cmd.Process.Pid)
}

// command makes the command, or returns an error.
func (o *order) command() (*exec.Cmd, *remote.Exit) {
	dir := string(o.Exec.Dir)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, &remote.Exit{Err: contract.Errorf(contract.ReasonConfig,
			"there is no directory %q in the sandbox to work in", dir)}
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
	if o.Files {
		cmd.Path = "/proc/self/exe"
		cmd.Args = append([]string{"hutch-lima-guest", "files"}, cmd.Args...)
	} else {
		p, err := supervise.Look(cmd.Args[0], path, dir)
		if err != nil {
			var no *supervise.NotRunnable
			if errors.As(err, &no) {
				return nil, &remote.Exit{NotStarted: true, Code: no.Code, Why: no.Why}
			}
			return nil, &remote.Exit{NotStarted: true, Code: 127, Why: err.Error()}
		}
		cmd.Path = p
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(o.UID),
		Gid: uint32(o.GID), NoSetGroups: !o.SetGroups}}
	if o.Exec.TTY != nil {
		cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 0
	}
	return cmd, nil
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
	core := uint64(limits.NoCore)
	return limits.Rlimits{NoFile: &files, Core: &core}.Apply()
}

// obey does what the server says while the command runs. When the server is gone, so is everything.
func obey(lines *remote.Lines, pid int) {
	for {
		var c remote.Control
		if err := lines.Next(&c); err != nil {
			os.Exit(1)
		}
		switch {
		case c.Group:
			_ = unix.Kill(-pid, unix.Signal(c.Signal)) // a command that is gone needs none
		case c.Signal > 0:
			_ = unix.Kill(pid, unix.Signal(c.Signal))
		}
	}
}

// reap reaps whatever ends until the command has.
func reap(pid int) *remote.Exit {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		got, err := syscall.Wait4(-1, &ws, 0, &ru)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return &remote.Exit{Err: remote.AsError(fmt.Errorf("wait for the command: %w", err))}
		case got == pid:
			return &remote.Exit{
				Status: uint32(ws), User: time.Duration(ru.Utime.Nano()), Sys: time.Duration(ru.Stime.Nano()),
				MaxRSS: int64(ru.Maxrss) << 10,
			}
		}
	}
}
