// Package launch starts the command of a sandbox: this program again, which restricts itself and then becomes the
// command. A restriction of Landlock or seccomp cannot be taken back and is inherited, so neither the plugin nor the
// reaper of the command may have it, and Go runs nothing between fork and exec.
//
// Start reading at [Order], which the plugin sends, and confine, which obeys it.
package launch

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/seccomp/notify"
)

const (
	launcherName = "hutch-landlock-launcher"
	launcherEnv  = "HUTCH_LANDLOCK_LAUNCHER" // the name of the socket that the plugin listens on
)

// Order is what a launcher does.
type Order struct {
	Candidates [][]byte // paths to execute, in order; bytes, for JSON would change names that are not UTF-8
	Argv, Env  [][]byte
	Dir        []byte

	Read, Write, Devices [][]byte // paths that the command may read, write below, and open with their ioctls
	Network              bool
	Rlimits              limits.Rlimits
	CPUs                 []int // nil for all
	Filter               []byte
}

// Bytes converts strings for an [Order].
func Bytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// Command returns a launcher, and where it will connect to. The caller starts it and calls [Follow]. A supervised
// command has no descriptors but its streams, so the socket has a name, which nobody can guess.
func Command() (cmd *exec.Cmd, l *net.UnixListener, err error) {
	name := "@hutch-launcher-" + rand.Text()
	if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}); err != nil {
		return nil, nil, fmt.Errorf("listen for the launcher: %w", err)
	}
	cmd = &exec.Cmd{Path: fmt.Sprintf("/proc/%d/exe", os.Getpid()), Args: []string{launcherName}, Dir: "/",
		Env: []string{launcherEnv + "=" + name}}
	return cmd, l, nil
}

// Begun is a launcher that has restricted itself.
type Begun struct {
	Reaper   int      // the process below which all processes of the command stay
	Listener *os.File // where the kernel asks about system calls that the filter leaves to the plugin
}

// NotExecuted is the error of a command of which no candidate could be executed.
type NotExecuted struct{ Errno syscall.Errno }

func (e *NotExecuted) Error() string { return e.Errno.Error() }

// NoDir is the error of a working directory that cannot be entered.
type NoDir struct{ Errno syscall.Errno }

func (e *NoDir) Error() string { return e.Errno.Error() }

// What a launcher says first, each time followed by a number or a text.
const (
	saysBegun  = 'b' // the reaper's process id; the listener comes with it
	saysNoExec = 'x' // errno
	saysNoDir  = 'd' // errno
	saysFailed = 'f' // a text
)

// Follow waits for the launcher, whose process id is pid, and sends the order. It calls begun once the launcher has
// restricted itself, from when on the listener must be served, and returns when the command was executed. Closing l
// ends it, also later.
func Follow(l *net.UnixListener, pid int, o *Order, begun func(Begun)) error {
	conn, err := accept(l, pid)
	if err != nil {
		return fmt.Errorf("wait for the launcher: %w", err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return fmt.Errorf("send the order to the launcher: %w", err)
	}
	said, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(said, oob)
	if err != nil || n == 0 {
		return fmt.Errorf("the launcher ended before it answered: %w", err)
	}
	if said[0] != saysBegun {
		return failure(said[:n])
	}
	listener, err := notify.Receive(oob[:oobn])
	if err != nil {
		return err
	}
	if n != 5 {
		listener.Close()
		return fmt.Errorf("the launcher said %q", said[:n])
	}
	begun(Begun{Reaper: int(binary.LittleEndian.Uint32(said[1:n])), Listener: listener})
	rest, err := io.ReadAll(conn) // ends when the socket closes by the exec
	if err != nil {
		return fmt.Errorf("wait for the launcher: %w", err)
	}
	if len(rest) > 0 {
		return failure(rest)
	}
	return nil
}

// accept returns the connection of the process pid. The names of sockets stand in /proc/net/unix, so every user of this
// machine can connect, and would get the command's environment.
func accept(l *net.UnixListener, pid int) (*net.UnixConn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		raw, err := conn.SyscallConn()
		if err == nil {
			var peer *unix.Ucred
			cerr := raw.Control(func(fd uintptr) {
				peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
					unix.SO_PEERCRED)
			})
			if cerr == nil && err == nil && int(peer.Pid) == pid {
				return conn, nil
			}
		}
		conn.Close()
	}
}

// failure is the error that a launcher reports, which has said at least one byte.
func failure(said []byte) error {
	n, err := strconv.ParseUint(string(said[1:]), 10, 12) // an errno is below 4096
	switch {
	case said[0] == saysNoExec && err == nil && n > 0:
		return &NotExecuted{syscall.Errno(n)}
	case said[0] == saysNoDir && err == nil && n > 0:
		return &NoDir{syscall.Errno(n)}
	case said[0] == saysFailed:
		return errors.New(string(said[1:]))
	}
	return fmt.Errorf("the launcher said %q", said)
}

// A program that was started as a launcher is one, and gets no further than here.
func init() {
	if len(os.Args) != 1 || os.Args[0] != launcherName {
		return
	}
	name := os.Getenv(launcherEnv)
	if name == "" {
		return
	}
	// this thread becomes the command; the filter and the processors are its own
	runtime.LockOSThread()
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // the command has its three streams only
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	}
	if err == nil { // the plugin may have died, and another user may listen by its name
		var peer *unix.Ucred
		if peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil &&
			int(peer.Uid) == os.Geteuid() {
			_, _ = unix.Write(fd, run(fd, &Order{}))
		}
	}
	os.Exit(1)
}

// run returns only when the command could not be executed, with what to tell the plugin.
func run(fd int, o *Order) []byte {
	failed := func(what string, err error) []byte { return fmt.Appendf([]byte{saysFailed}, "%s: %v", what, err) }
	errno := func(kind byte, err error) []byte {
		var e syscall.Errno
		errors.As(err, &e)
		return fmt.Append([]byte{kind}, int(e))
	}
	line, err := readLine(fd)
	if err == nil {
		err = json.Unmarshal(line, o)
	}
	if err != nil {
		return failed("read the order", err)
	}
	if err := unix.Chdir(string(o.Dir)); err != nil {
		return errno(saysNoDir, err)
	}
	listener, err := confine(o)
	if err != nil {
		return failed("restrict the command", err)
	}
	begun := binary.LittleEndian.AppendUint32([]byte{saysBegun}, uint32(os.Getppid()))
	if err := unix.Sendmsg(fd, begun, unix.UnixRights(listener), nil, 0); err != nil {
		return failed("send the listener", err)
	}
	unix.Close(listener)
	var last error = syscall.ENOENT
	for _, path := range o.Candidates {
		err := syscall.Exec(string(path), toStrings(o.Argv), toStrings(o.Env))
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		last = err
		if !errors.Is(err, syscall.EACCES) { // as execvp does
			break
		}
	}
	return errno(saysNoExec, last)
}

// readLine reads up to a newline and not beyond, straight from the descriptor.
func readLine(fd int) (line []byte, err error) {
	buf := make([]byte, 64<<10)
	for !bytes.HasSuffix(line, []byte("\n")) {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.ErrUnexpectedEOF
		default:
			line = append(line, buf[:n]...)
		}
	}
	return line, nil
}

func toStrings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// confine restricts this thread, and all that it starts, for good. The order of the steps matters: the filter comes
// last, because it refuses what the steps before it need.
func confine(o *Order) (listener int, err error) {
	if len(o.CPUs) > 0 {
		var set unix.CPUSet
		for _, c := range o.CPUs {
			set.Set(c)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return -1, fmt.Errorf("choose the processors: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("give up new privileges: %w", err)
	}
	if err := restrictFiles(o); err != nil {
		return -1, err
	}
	if err := o.Rlimits.Apply(); err != nil {
		return -1, err
	}
	if err := dropCapabilities(); err != nil {
		return -1, fmt.Errorf("give up the capabilities: %w", err)
	}
	return notify.Load(o.Filter)
}

// rights of a directory that the command may write below: all but making devices and sockets.
const writable = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSRemoveDir |
	ll.AccessFSRemoveFile | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeFifo | ll.AccessFSMakeSym | ll.AccessFSRefer | ll.AccessFSTruncate)

// rights of a single file, such as a device or a stream.
const (
	readFile = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSReadFile)
	anyFile  = landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev)
	readDir  = readFile | ll.AccessFSReadDir
)

func restrictFiles(o *Order) error {
	var rules []landlock.Rule
	allow := func(paths [][]byte, file, dir landlock.AccessFSSet) {
		for _, p := range paths {
			st, err := os.Stat(string(p))
			if err != nil {
				continue // not there, or nothing that this user may reach
			}
			if target, err := os.Readlink(string(p)); err == nil && strings.HasPrefix(string(p), "/proc/") &&
				!strings.HasPrefix(target, "/") {
				continue // a stream that is in no file system, such as a pipe: Landlock does not restrict those
			}
			rights := file
			if st.IsDir() {
				rights = dir
			}
			rules = append(rules, landlock.PathAccess(rights, string(p)).IgnoreIfMissing())
		}
	}
	allow(o.Read, readFile, readDir)
	allow(o.Write, anyFile, writable)
	allow(o.Devices, anyFile, readDir)
	config := landlock.V6
	if o.Network {
		config.HandledAccessNet = 0
	}
	if err := config.Restrict(rules...); err != nil {
		return fmt.Errorf("restrict files and signals with Landlock: %w", err)
	}
	return nil
}

// dropCapabilities matters to root alone.
func dropCapabilities() error {
	for c := range uintptr(64) {
		if held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || held == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	return unix.Capset(&header, &none[0])
}
