package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// A command without a group has a keeper: this same program, started once more for this one command under the name
// keeperName. The keeper makes itself the reaper of orphans and then starts the command, so that whatever its
// descendants do, fork twice, make sessions, shed their environment, they remain descendants of the keeper and of
// nothing else. It holds one end of a socket; when the host dies, however suddenly, the keeper kills them all.
//
// Making the host itself the reaper would cost no process, but the kernel hands all orphans of a reaper to its first
// thread, so those of two commands could not be distinguished, nor from what the host has started for itself.
const (
	keeperName = "hutch-keeper"
	keeperEnv  = "HUTCH_KEEPER"
)

// order is what the keeper is to start.
type order struct {
	Path  []byte // and not strings, which JSON would make valid UTF-8
	Args  [][]byte
	Env   [][]byte
	Dir   []byte
	Files int // descriptors from 3 on that are the command's
	Attr  *syscall.SysProcAttr
}

func toBytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func toStrings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// birth is the keeper's first answer.
type birth struct {
	Pid   int
	Errno syscall.Errno
	Error string
}

// death is its last.
type death struct {
	Status    syscall.WaitStatus
	User, Sys time.Duration
	MaxRSS    int64
	Left      bool // something outlived the leader and was killed
	Error     string
}

// The orders that follow, each two bytes: what, and for opSignal which.
const (
	opSignal    = 's'
	opTerminate = 't'
	opKill      = 'k'
)

// launchKept turns cmd into the command of a keeper. It is changed in place, because the pipes that its owner may have
// asked for hang on it.
func (p *Process) launchKept() error {
	cmd := p.cmd
	if cmd.Err != nil {
		return cmd.Err
	}
	if cmd.SysProcAttr.PidFD != nil || cmd.SysProcAttr.UseCgroupFD {
		return errors.New("start process: PidFD and UseCgroupFD need an Options.Group")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start process: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "keeper")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		return fmt.Errorf("start process: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "keeper")
	path := cmd.Path
	o := order{Path: []byte(path), Args: toBytes(cmd.Args), Env: toBytes(cmd.Environ()), Dir: []byte(cmd.Dir), Files: len(cmd.ExtraFiles), Attr: cmd.SysProcAttr}
	cmd.Path, cmd.Args, cmd.Dir = "/proc/self/exe", []string{keeperName}, ""
	cmd.Env = []string{fmt.Sprintf("%s=%d", keeperEnv, 3+len(cmd.ExtraFiles))}
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	// Out of reach of signals that are meant for the host's group, and of a terminal's keys.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.started = time.Now()
	err = cmd.Start()
	p.closeSlave()
	if err != nil {
		ours.Close()
		return fmt.Errorf("start the keeper of %s: %w", path, err)
	}
	theirs.Close()
	enc, dec := json.NewEncoder(ours), json.NewDecoder(ours)
	var b birth
	if err = enc.Encode(o); err == nil {
		err = dec.Decode(&b)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("start %s: its keeper ended before it answered: %w", path, err)
	case b.Errno != 0:
		err = &os.PathError{Op: "start", Path: path, Err: b.Errno}
	case b.Error != "":
		err = errors.New(b.Error)
	}
	if err != nil {
		ours.Close()
		_ = cmd.Wait() // the keeper leaves when its socket closes
		return err
	}
	p.pid = b.Pid
	p.tree = keptTree{ours}
	go p.await(ours, dec)
	return nil
}

// await waits for the keeper's last word.
func (p *Process) await(socket *os.File, dec *json.Decoder) {
	var d death
	err := dec.Decode(&d)
	p.setReaped()
	socket.Close()
	waitErr := p.cmd.Wait()
	if err != nil {
		p.finish(Result{Code: 255}, fmt.Errorf("the keeper of process %d died (%v), so what became of its descendants is unknown", p.pid, p.cmd.ProcessState))
		return
	}
	var r Result
	r.setStatus(d.Status)
	r.Usage = Usage{User: d.User, Sys: d.Sys, MaxRSS: d.MaxRSS}
	r.Killed = d.Left
	if d.Error != "" {
		err = errors.New(d.Error)
	}
	p.finish(r, errors.Join(err, ignoreExit(waitErr)))
}

// keptTree is a tree below a keeper.
type keptTree struct{ socket *os.File }

func (t keptTree) send(op, arg byte) error {
	_, err := t.socket.Write([]byte{op, arg})
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return os.ErrProcessDone
	}
	return err
}

func (t keptTree) signal(sig syscall.Signal) error { return t.send(opSignal, byte(sig)) }
func (t keptTree) terminate() error                { return t.send(opTerminate, 0) }

// kill does not wait: the keeper's last word says that all are dead.
func (t keptTree) kill(context.Context) error { return t.send(opKill, 0) }

// A program that was started as a keeper is one, and gets no further than here.
func init() {
	fd, err := strconv.Atoi(os.Getenv(keeperEnv))
	if err != nil || len(os.Args) != 1 || os.Args[0] != keeperName {
		return
	}
	keep(os.NewFile(uintptr(fd), "host"))
	syscall.Exit(0) // os.Exit would let the race detector, where it is built in, wait a second for nothing
}

// keep is the keeper. It runs on the program's first thread, because init functions do, so the parent-death signal of
// the command comes when the whole keeper dies and not before.
func keep(host *os.File) {
	unix.CloseOnExec(int(host.Fd()))
	in, enc := bufio.NewReader(host), json.NewEncoder(host)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return // the host is gone
	}
	fail := func(err error) {
		b := birth{Error: err.Error()}
		errors.As(err, &b.Errno)
		_ = enc.Encode(b) // if nobody hears it, nobody needs it
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		fail(fmt.Errorf("read what to start: %w", err))
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fail(fmt.Errorf("become the reaper of orphans: %w", err))
		return
	}
	if err := descendants.Supported(); err != nil {
		fail(err)
		return
	}
	// The command, which may run as the same user, shall not look into or steer its keeper. One with a user namespace of
	// its own cannot reach out of that; the map of its ids would then belong to root, and nobody else could write it.
	own := o.Attr != nil && o.Attr.Cloneflags&unix.CLONE_NEWUSER != 0
	if !own {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	// A signal that is ignored stays ignored through exec, and a host started by nohup or in the background ignores some;
	// one that is caught is back at its default. The keeper itself is ended by its socket and not by signals.
	signal.Notify(make(chan os.Signal, 1))
	files := make([]uintptr, 3+o.Files)
	for i := range files {
		files[i] = uintptr(i)
	}
	pid, err := syscall.ForkExec(string(o.Path), toStrings(o.Args), &syscall.ProcAttr{Dir: string(o.Dir), Env: toStrings(o.Env), Files: files, Sys: o.Attr})
	if err != nil {
		fail(err)
		return
	}
	if own {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	// The command's streams are its own: a keeper that held them open would keep their readers waiting.
	if err := forget(len(files)); err != nil {
		fail(err)
		return
	}
	if err := enc.Encode(birth{Pid: pid}); err != nil {
		_, _ = descendants.Kill(context.Background(), below)
		return
	}
	go obey(in, pid)
	_ = enc.Encode(bury(pid))
}

// below lists all that is below the keeper.
func below() []int { return descendants.Of(os.Getpid()) }

// forget closes the first n descriptors and puts /dev/null in the place of the standard ones.
func forget(n int) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	for fd := range n {
		if fd < 3 {
			err = errors.Join(err, unix.Dup3(null, fd, 0))
		} else {
			unix.Close(fd)
		}
	}
	return err
}

// obey follows the host's orders, and kills when there is no host any more.
func obey(host io.Reader, pid int) {
	var b [2]byte
	for {
		if _, err := io.ReadFull(host, b[:]); err != nil {
			_, _ = descendants.Kill(context.Background(), below) // the leader's end, which this brings, ends the keeper
			return
		}
		switch b[0] {
		case opSignal:
			_ = syscall.Kill(-pid, syscall.Signal(b[1])) // not reaped before the keeper's last word
		case opTerminate:
			_ = descendants.Signal(below, syscall.SIGTERM)
			_ = descendants.Signal(below, syscall.SIGCONT)
		case opKill:
			_, _ = descendants.Kill(context.Background(), below)
		}
	}
}

// bury waits for the leader, kills and reaps what it left behind, and reaps the leader last.
func bury(pid int) (d death) {
	err := waitNoReap(pid)
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	for err == nil {
		var n int
		if n, err = descendants.Kill(ctx, below); n > 0 {
			d.Left = true
		}
		orphans := 0
		for _, child := range descendants.Children(os.Getpid()) {
			if child == pid {
				continue
			}
			orphans++
			if _, e := unix.Wait4(child, nil, unix.WNOHANG|unix.WALL, nil); e != nil && e != unix.ECHILD && e != unix.EINTR {
				err = errors.Join(err, fmt.Errorf("reap process %d: %w", child, e))
			}
		}
		if orphans == 0 {
			break
		}
	}
	var ru unix.Rusage
	var ws unix.WaitStatus
	for {
		_, e := unix.Wait4(pid, &ws, 0, &ru)
		if e == unix.EINTR {
			continue
		}
		err = errors.Join(err, e)
		break
	}
	if err != nil {
		d.Error = strings.TrimSpace(err.Error())
	}
	d.Status = syscall.WaitStatus(ws)
	d.User, d.Sys = time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano())
	d.MaxRSS = ru.Maxrss * maxRSSUnit
	return d
}
