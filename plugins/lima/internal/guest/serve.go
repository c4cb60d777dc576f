package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// server is one process of the guest's program.
type server struct {
	user  account
	limit *limits.Support

	mu      sync.Mutex
	streams map[streamKey]chan *pending // streams of commands whose request is not here yet, or who wait for them
	calls   map[*call]bool
	over    bool // the session has ended: nothing is started any more
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
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) // what sshd and sudo let through is no command's; old kernels have it not
	s := &server{streams: map[streamKey]chan *pending{}, calls: map[*call]bool{}}
	hello := &wire.Hello{Version: wire.Version, Arch: runtime.GOARCH, Boot: readLine("/proc/sys/kernel/random/boot_id"), Kernel: readLine("/proc/sys/kernel/osrelease")}
	err := s.prepare(ctx, name, bootWait)
	if err != nil {
		hello.Err = wire.AsError(err)
		return errors.Join(wire.WriteHello(os.Stdout, hello), err)
	}
	hello.User, hello.UID, hello.Home, hello.Limits = s.user.name, s.user.uid, s.user.home, s.limit.Limits
	hello.Size = size()
	if err := wire.WriteHello(os.Stdout, hello); err != nil {
		return err
	}
	session, err := yamux.Server(stdio{}, wire.Config())
	if err != nil {
		return err
	}
	defer s.end()
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return nil // the backend is gone, which is how this ends
		}
		go s.answer(stream)
	}
}

// prepare looks who the user is and what the guest can do, once it has booted.
func (s *server) prepare(ctx context.Context, name string, bootWait time.Duration) error {
	if os.Geteuid() != 0 {
		return wire.Errorf(wire.ReasonDenied, "hutch's program in the guest must be root; sudo made it uid %d", os.Geteuid())
	}
	if err := booted(ctx, bootWait); err != nil {
		return err
	}
	u, err := user.Lookup(name)
	if err != nil {
		return wire.Errorf(wire.ReasonConfig, "the guest has no user %q: %w", name, err)
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
	}{{stateDir, 0o700}, {runDir, 0o700}, {workspaceDir, 0o755}, {exchangeDir, 0o755}, {inputDir, 0o755}, {outputDir, 0o755}} {
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
			return wire.Errorf(wire.ReasonInternal, "the guest's boot scripts are not done after %s: there is no %s", wait, bootDone)
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
func (s *server) answer(stream *yamux.Stream) {
	in := wire.NewLines(stream)
	var req wire.Request
	if err := in.Next(&req); err != nil {
		stream.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch req.Op {
	case wire.OpStdin, wire.OpStdout, wire.OpStderr:
		s.deliver(streamKey{req.Call, req.Op}, &pending{stream, in.Rest()})
		return
	case wire.OpExec:
		s.exec(req, stream, in)
		stream.Close()
		return
	}
	defer stream.Close()
	reply := s.do(ctx, req, in.Rest())
	_ = wire.Send(stream, reply) // a backend that is gone is noticed by the session
}

// do does what is no command.
func (s *server) do(ctx context.Context, req wire.Request, data io.Reader) (reply wire.Reply) {
	defer func() {
		if p := recover(); p != nil {
			reply = wire.Reply{Err: wire.Errorf(wire.ReasonInternal, "hutch's program in the guest has a bug: %s: %v", req.Op, p)}
		}
	}()
	var err error
	box := box{id: req.ID, server: s}
	if !validID(req.ID) {
		return wire.Reply{Err: wire.Errorf(wire.ReasonConfig, "%q is no id of a sandbox", req.ID)}
	}
	switch req.Op {
	case wire.OpCreate:
		if req.Sandbox == nil {
			err = wire.Errorf(wire.ReasonConfig, "there is nothing to create")
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
		err = wire.Errorf(wire.ReasonUnsupported, "there is no operation %q", req.Op)
	}
	reply.Err = wire.AsError(err)
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
