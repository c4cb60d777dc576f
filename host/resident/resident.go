//go:build linux

// Package resident has commands executed by processes that are up already.
//
// A resident ([Serve], the command `hutch serve`) listens on a socket in a private directory of the user. It starts
// workers ([Worker]), which are processes of the same program. A client (package handover) sends its arguments,
// directory, environment, umask and standard streams; a worker takes them over as its own, executes the command with
// the code that the client would have used, and sends the exit code. A worker executes one command at a time, and the
// next one only when the last one ended well: what it keeps is a started program and running backends. Clients do not
// wait for each other: a worker is started where none is idle.
//
// # What must be the same
//
// A client is refused, and executes the command itself, when its program is another one than the resident's, or when it
// differs from the resident in something that a process inherits and that is not sent: namespaces, limits,
// capabilities, cgroups with limits, see [surroundings]. The resident reads this from /proc, so a process in a sandbox,
// whose namespaces are others, is refused also where it reaches the socket.
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
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/resident/handover"
)

// patience is how long a message may take that was begun.
const patience = 5 * time.Second

// request is a command that a client hands over.
type request struct{ handover.Request }

func (r *request) close() {
	for _, f := range r.Files {
		f.Close()
	}
}

// receive reads a request. The caller closes it, also after an error.
func receive(conn *net.UnixConn) (*request, error) {
	r := &request{}
	head, oob := make([]byte, 5), make([]byte, unix.CmsgSpace(8*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(head, oob)
	if err != nil {
		return r, err
	}
	if r.Files, err = filesOf(oob[:oobn]); err != nil {
		return r, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if n != len(head) || flags&unix.MSG_CTRUNC != 0 || len(r.Files) != 4 || length > handover.MostRequest {
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
	r.Identity = fields[0]
	r.Umask, errs[0] = strconv.Atoi(fields[1])
	args, errs[1] = strconv.Atoi(fields[2])
	fields = fields[3:]
	if errors.Join(errs[:]...) != nil || args < 0 || args > len(fields) {
		return r, errors.New("invalid request")
	}
	r.Args, r.Env = fields[:args], fields[args:]
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

// peer is who is at the other end of a connection.
func peer(conn *net.UnixConn) (cred *syscall.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if controlErr := raw.Control(func(fd uintptr) { cred, err = handover.Peer(int(fd)) }); controlErr != nil {
		return nil, controlErr
	}
	return cred, err
}

// Status is what the resident says about itself; the error is [handover.ErrAbsent] when none runs.
func Status() (string, error) { return ask(handover.AsksStatus) }

// Stop ends the resident. It returns when the commands that run have ended.
func Stop() error {
	_, err := ask(handover.AsksStop)
	return err
}

func ask(what byte) (string, error) {
	conn, err := handover.Dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{what}); err != nil {
		return "", err
	}
	kind, text, err := handover.ReadAnswer(conn)
	if err == nil && kind == handover.SaysRefused {
		err = errors.New("hutch serve refuses: " + text)
	}
	return text, err
}
