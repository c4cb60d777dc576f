// Package resident has commands executed by processes that are up already.
//
// A resident ([Serve], the command `hutch serve`) listens on a socket in a private directory of the user. It starts
// workers ([Work]), which are processes of the same program. A client ([HandOver]) sends its arguments, directory,
// environment, umask and standard streams; a worker takes them over as its own, executes the command with the code that
// the client would have used, and sends the exit code. A worker executes one command at a time, and the next one only
// when the last one ended well: what it keeps is a started program and running backends. Clients do not wait for each
// other: a worker is started where none is idle.
//
// # What must be the same
//
// A client is refused, and executes the command itself, when its program is another one than the resident's, or when it
// differs from the resident in something that a process inherits and that is not sent: namespaces, limits, capabilities,
// cgroups with limits, see [surroundings]. The resident reads this from /proc, so a process in a sandbox, whose
// namespaces are others, is refused also where it reaches the socket.
//
// # Ends
//
// The connection of a client is its life: when it is closed before the command ended, the worker exits at once, which
// has the same effect as killing a hutch that executes the command itself. When the resident is killed, its workers end
// after their commands.
package resident

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/store"
)

// What a client asks for, the first byte of its message.
const (
	asksRun    = 'r'
	asksStatus = 's'
	asksStop   = 'q'
)

// What a client gets: one of these, and a number or a text.
const (
	saysTaken   = 't' // the pid of the worker; from here on the client must not execute the command itself
	saysExit    = 'x' // the exit code
	saysRefused = 'n' // why
)

const (
	mostRequest = 8 << 20         // bytes of arguments and environment: more than Linux lets a process have by default
	mostAnswer  = 64 << 10        // bytes
	patience    = 5 * time.Second // for a message that was begun
)

// socket is the path of the resident's socket.
func socket() (string, error) {
	dir, err := store.ServeDir()
	return filepath.Join(dir, "socket"), err
}

// identity distinguishes this program from every other one, also from a later build at its path.
func identity(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim), nil
}

// self is the program of this process, also when another one is at its path now.
const self = "/proc/self/exe"

// request is a command that a client hands over.
type request struct {
	identity  string
	umask     int
	args, env []string
	files     []*os.File // the directory, stdin, stdout, stderr
}

func (r *request) close() {
	for _, f := range r.files {
		f.Close()
	}
}

// send writes a request: its kind, its length with the descriptors, and strings that end with zero bytes.
func (r *request) send(conn *net.UnixConn) error {
	body := r.identity + "\x00" + strconv.Itoa(r.umask) + "\x00" + strconv.Itoa(len(r.args)) + "\x00" + strings.Join(append(r.args[:len(r.args):len(r.args)], r.env...), "\x00")
	if len(body) > mostRequest {
		return errors.New("its arguments and environment are too large")
	}
	fds := make([]int, len(r.files))
	for i, f := range r.files {
		fds[i] = int(f.Fd())
	}
	head := binary.BigEndian.AppendUint32([]byte{asksRun}, uint32(len(body)))
	if _, _, err := conn.WriteMsgUnix(head, unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	_, err := io.WriteString(conn, body)
	return err
}

// receive reads a request. The caller closes it, also after an error.
func receive(conn *net.UnixConn) (*request, error) {
	r := &request{}
	head, oob := make([]byte, 5), make([]byte, unix.CmsgSpace(8*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(head, oob)
	if err != nil {
		return r, err
	}
	if r.files, err = filesOf(oob[:oobn]); err != nil {
		return r, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if n != len(head) || flags&unix.MSG_CTRUNC != 0 || len(r.files) != 4 || length > mostRequest {
		return r, errors.New("invalid request")
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(conn, body); err != nil {
		return r, err
	}
	fields := strings.Split(string(body), "\x00")
	if len(fields) < 3 {
		return r, errors.New("invalid request")
	}
	var errs [2]error
	var args int
	r.identity = fields[0]
	r.umask, errs[0] = strconv.Atoi(fields[1])
	args, errs[1] = strconv.Atoi(fields[2])
	fields = fields[3:]
	if errors.Join(errs[:]...) != nil || args < 0 || args > len(fields) {
		return r, errors.New("invalid request")
	}
	r.args, r.env = fields[:args], fields[args:]
	return r, nil
}

// filesOf are the descriptors of a message.
func filesOf(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}

// answer writes what a client gets.
func answer(conn net.Conn, kind byte, text string) error {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(text)))
	_, err := conn.Write(append(b, text...))
	return err
}

// readAnswer reads what answer writes.
func readAnswer(conn net.Conn) (kind byte, text string, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(conn, head); err != nil {
		return 0, "", err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length > mostAnswer {
		return 0, "", errors.New("invalid answer")
	}
	body := make([]byte, length)
	_, err = io.ReadFull(conn, body)
	return head[0], string(body), err
}

// peer is who is at the other end of a connection.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	if credErr == nil && int(cred.Uid) != os.Geteuid() {
		credErr = fmt.Errorf("it belongs to uid %d", cred.Uid)
	}
	return cred, credErr
}

// dial connects to the resident, and makes sure that it is this user's.
func dial() (*net.UnixConn, error) {
	path, err := socket()
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if _, err := peer(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return conn, nil
}

// absent reports whether a connection failed because no resident runs.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}
