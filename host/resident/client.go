package resident

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lost is the exit code of a command whose worker ended before it did.
const lost = 125

// HandOver has the resident execute a command, and passes on the signals that signals gets meanwhile. taken is false when
// the caller must execute it itself; why says the reason, "" when no resident runs.
func HandOver(args []string, signals <-chan os.Signal) (code int, taken bool, why string) {
	if why := unable(args); why != "" {
		return 0, false, why
	}
	conn, err := dial()
	if err != nil {
		if absent(err) {
			return 0, false, ""
		}
		return 0, false, err.Error()
	}
	defer conn.Close()
	me, err := identity(self)
	if err != nil {
		return 0, false, err.Error()
	}
	dir, err := os.Open(".")
	if err != nil {
		return 0, false, err.Error()
	}
	umask := unix.Umask(0)
	unix.Umask(umask)
	r := request{identity: me, umask: umask, args: args, env: os.Environ(), files: []*os.File{dir, os.Stdin, os.Stdout, os.Stderr}}
	err = r.send(conn)
	dir.Close()
	// One that refuses may have closed the connection before it read everything.
	kind, text, readErr := readAnswer(conn)
	switch {
	case readErr != nil && err == nil:
		err = readErr
		fallthrough
	case readErr != nil:
		return 0, false, "it ended: " + err.Error()
	case kind == saysRefused:
		return 0, false, text
	case kind != saysTaken:
		return 0, false, fmt.Sprintf("it answered %q", kind)
	}
	pid, _ := strconv.Atoi(text)
	return follow(conn, pid, signals), true, ""
}

// unable says why a command cannot be handed over: "" when it can.
func unable(args []string) string {
	interactive := false
	for _, a := range args {
		if a == "--" {
			break
		}
		flags, short := strings.CutPrefix(a, "-")
		interactive = interactive || a == "--tty" || a == "--interactive" || short && !strings.HasPrefix(flags, "-") && strings.ContainsAny(flags, "it")
	}
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			if interactive {
				return "-i and -t need this terminal as their own"
			}
			if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
				return "this is a background job of its terminal"
			}
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			return fmt.Sprintf("descriptor %d does not block", fd)
		}
	}
	return ""
}

// follow waits for the exit code.
func follow(conn *net.UnixConn, worker int, signals <-chan os.Signal) int {
	type end struct {
		code int
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		kind, text, err := readAnswer(conn)
		code, bad := strconv.Atoi(text)
		if err == nil && (kind != saysExit || bad != nil) {
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
				fmt.Fprintf(os.Stderr, "hutch: the process of hutch serve that executed the command ended (%v); hutch gc removes what it left\n", e.err)
				return lost
			}
			return e.code
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				_, _ = conn.Write([]byte{byte(sig)})
			}
		case s := <-stops: // ^Z stops the worker and this process, and fg continues both
			_, _ = conn.Write([]byte{byte(s.(syscall.Signal))})
			if s == syscall.SIGTSTP {
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			} else {
				_ = unix.Kill(worker, unix.SIGCONT)
			}
		}
	}
}

// Status is what the resident says about itself.
func Status() (string, error) { return ask(asksStatus) }

// Stop ends the resident. It returns when the commands that run have ended.
func Stop() error {
	_, err := ask(asksStop)
	return err
}

// ErrAbsent says that no resident runs.
var ErrAbsent = errors.New("hutch serve is not running")

func ask(what byte) (string, error) {
	conn, err := dial()
	if err != nil {
		if absent(err) {
			return "", ErrAbsent
		}
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{what}); err != nil {
		return "", err
	}
	kind, text, err := readAnswer(conn)
	if err == nil && kind == saysRefused {
		err = errors.New("hutch serve refuses: " + text)
	}
	return text, err
}
