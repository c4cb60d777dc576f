package handover

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"unsafe"
)

// What a client asks for, the first byte of its message.
const (
	AsksRun    = 'r'
	AsksStatus = 's'
	AsksStop   = 'q'
)

// What a client gets: one of these, and a number or a text.
const (
	SaysTaken   = 't' // the pid of the worker; from here on the client must not execute the command itself
	SaysExit    = 'x' // the exit code, or the status
	SaysRefused = 'n' // why
)

// Bounds of messages, in bytes.
const (
	MostRequest = 8 << 20 // arguments and environment: more than Linux lets a process have by default
	mostAnswer  = 64 << 10
)

// Lost is the exit code of a command whose worker ended before it did.
const Lost = 125

// ErrAbsent says that no resident runs.
var ErrAbsent = errors.New("hutch serve is not running")

// CheckDir refuses a directory that is not this user's alone.
func CheckDir(dir string) error {
	var st syscall.Stat_t
	err := syscall.Lstat(dir, &st)
	if err == nil && (st.Mode&syscall.S_IFMT != syscall.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0) {
		err = errors.New("it is not a directory of this user alone")
	}
	if err != nil {
		return &os.PathError{Op: "use", Path: dir, Err: err}
	}
	return nil
}

// Identity distinguishes a program from every other one, also from a later build at its path.
func Identity(path string) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	id := ""
	for _, n := range []int64{int64(st.Dev), int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} {
		id += " " + strconv.FormatInt(n, 36)
	}
	return id[1:], nil
}

// Self is the program of this process, also when another one is at its path now.
const Self = "/proc/self/exe"

// Peer is who is at the other end of a connection. It must be this user.
func Peer(fd int) (*syscall.Ucred, error) {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = errors.New("it belongs to uid " + strconv.Itoa(int(cred.Uid)))
	}
	return cred, err
}

// Dial connects to the resident.
func Dial() (*os.File, error) {
	dir := Dir()
	if err := CheckDir(dir); err != nil {
		if errors.Is(err, syscall.ENOENT) {
			err = ErrAbsent
		}
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	conn := os.NewFile(uintptr(fd), dir+"/socket")
	if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: conn.Name()}); err == nil {
		_, err = Peer(fd)
	}
	if err == syscall.ENOENT || err == syscall.ECONNREFUSED {
		err = ErrAbsent
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// ReadAnswer reads what the resident says: one of the constants and a text.
func ReadAnswer(r io.Reader) (kind byte, text string, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, "", err
	}
	length := uint32(head[1])<<24 | uint32(head[2])<<16 | uint32(head[3])<<8 | uint32(head[4])
	if length > mostAnswer {
		return 0, "", errors.New("invalid answer")
	}
	body := make([]byte, length)
	_, err = io.ReadFull(r, body)
	return head[0], string(body), err
}

// Request is a command that is handed over.
type Request struct {
	Identity  string
	Umask     int
	Args, Env []string
	Files     []*os.File // the directory, stdin, stdout, stderr
}

// Send writes a request: its kind, its length with the descriptors, and strings separated by zero bytes.
func (r *Request) Send(conn *os.File) error {
	body := []byte(r.Identity + "\x00" + strconv.Itoa(r.Umask) + "\x00" + strconv.Itoa(len(r.Args)))
	for _, list := range [][]string{r.Args, r.Env} {
		for _, s := range list {
			body = append(append(body, 0), s...)
		}
	}
	if len(body) > MostRequest {
		return errors.New("its arguments and environment are too large")
	}
	var fds []int
	for _, f := range r.Files {
		fds = append(fds, int(f.Fd()))
	}
	head := []byte{AsksRun, byte(len(body) >> 24), byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}
	if err := syscall.Sendmsg(int(conn.Fd()), head, syscall.UnixRights(fds...), nil, syscall.MSG_NOSIGNAL); err != nil {
		return err
	}
	_, err := conn.Write(body)
	return err
}

// Do has the resident execute a command, and passes on Signals meanwhile. taken is false when the caller must execute
// it itself; why says the reason, "" when no resident runs.
func Do(args []string) (code int, taken bool, why string) {
	conn, err := Dial()
	if err != nil {
		if errors.Is(err, ErrAbsent) {
			return 0, false, ""
		}
		return 0, false, err.Error()
	}
	defer conn.Close()
	if why := unable(args); why != "" {
		return 0, false, why
	}
	me, err := Identity(Self)
	if err != nil {
		return 0, false, err.Error()
	}
	dir, err := os.Open(".")
	if err != nil {
		return 0, false, err.Error()
	}
	Catch() // before anything happens that a signal has to end in order
	umask := syscall.Umask(0)
	syscall.Umask(umask)
	r := Request{Identity: me, Umask: umask, Args: args, Env: os.Environ(),
		Files: []*os.File{dir, os.Stdin, os.Stdout, os.Stderr}}
	err = r.Send(conn)
	dir.Close()
	// One that refuses may have closed the connection before it read everything.
	kind, text, readErr := ReadAnswer(conn)
	switch {
	case readErr != nil && err == nil:
		err = readErr
		fallthrough
	case readErr != nil:
		return 0, false, "it ended: " + err.Error()
	case kind == SaysRefused:
		return 0, false, text
	case kind != SaysTaken:
		return 0, false, "its answer is invalid"
	}
	pid, _ := strconv.Atoi(text)
	return follow(conn, pid), true, ""
}

// unable says why a command cannot be handed over: "" when it can.
func unable(args []string) string {
	interactive := false
	for _, a := range args {
		if a == "--" {
			break
		}
		interactive = interactive || a == "--tty" || a == "--interactive" ||
			len(a) > 1 && a[0] == '-' && a[1] != '-' && holds(a, "it")
	}
	for fd := range uintptr(3) {
		var attributes syscall.Termios
		// a terminal
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS,
			uintptr(unsafe.Pointer(&attributes))); errno == 0 {
			if interactive {
				return "-i and -t need this terminal as their own"
			}
			var group int32
			if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPGRP,
				uintptr(unsafe.Pointer(&group))); errno != 0 || int(group) != syscall.Getpgrp() {
				return "this is a background job of its terminal"
			}
		}
		if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0); errno != 0 ||
			flags&syscall.O_NONBLOCK != 0 {
			return "descriptor " + strconv.Itoa(int(fd)) + " does not block"
		}
	}
	return ""
}

// holds reports whether s has one of the bytes in set.
func holds(s, set string) bool {
	for i := range len(s) {
		for k := range len(set) {
			if s[i] == set[k] {
				return true
			}
		}
	}
	return false
}

// follow waits for the exit code.
func follow(conn *os.File, worker int) int {
	type end struct {
		code int
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		kind, text, err := ReadAnswer(conn)
		code, bad := strconv.Atoi(text)
		if err == nil && (kind != SaysExit || bad != nil) {
			err = errors.New("invalid answer")
		}
		ended <- end{code, err}
	}()
	stops := make(chan os.Signal, 2)
	signal.Notify(stops, syscall.SIGTSTP, syscall.SIGCONT)
	for {
		select {
		case e := <-ended:
			if e.err != nil {
				_, _ = os.Stderr.WriteString("hutch: the process of hutch serve that executed the command ended (" +
					e.err.Error() + "); hutch gc removes what it left\n")
				return Lost
			}
			return e.code
		case s := <-Signals:
			send(conn, s)
		case s := <-stops: // ^Z stops the worker and this process, and fg continues both
			send(conn, s)
			if s == syscall.SIGTSTP {
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
			} else {
				_ = syscall.Kill(worker, syscall.SIGCONT)
			}
		}
	}
}

// send passes a signal on. When the worker is gone, follow sees that.
func send(conn *os.File, s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok {
		_ = syscall.Sendmsg(int(conn.Fd()), []byte{byte(sig)}, nil, nil, syscall.MSG_NOSIGNAL)
	}
}
