package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// session runs a command on a terminal and lets a test talk to it.
type session struct {
	in      *os.File      // what is typed
	out     *bufio.Reader // what the terminal shows
	resizes chan sdk.WindowSize
	exit    chan *sdk.Exit
}

func startSession(t *testing.T, s *sandbox, argv ...string) *session {
	t.Helper()
	inR, inW := fifo(t)
	outR, outW := fifo(t)
	_, errW := fifo(t)
	x := &session{in: inW, out: bufio.NewReader(outR), resizes: make(chan sdk.WindowSize, 1), exit: make(chan *sdk.Exit, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what waits for output then sees its end, and says what came
	t.Cleanup(cancel)
	go func() {
		exit, err := s.Exec(ctx, &sdk.Command{Argv: argv, Stdin: inR, Stdout: outW, Stderr: errW,
			TTY: &sdk.WindowSize{Rows: 11, Cols: 77}, Resizes: x.resizes})
		if err != nil {
			t.Errorf("exec: %v", err)
		}
		outW.Close()
		inR.Close()
		x.exit <- exit
	}()
	return x
}

// fifo returns the two ends of a named pipe, as the host and the SDK hold them.
func fifo(t *testing.T) (r, w *os.File) {
	t.Helper()
	path := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	hold, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	open := func(flag int) *os.File {
		fd, err := syscall.Open(path, flag|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), path)
		t.Cleanup(func() { f.Close() })
		return f
	}
	return open(os.O_RDONLY), open(os.O_WRONLY)
}

// expect reads lines until one holds text.
func (x *session) expect(t *testing.T, text string) {
	t.Helper()
	var seen strings.Builder
	for {
		line, err := x.out.ReadString('\n')
		seen.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("waited for %q, saw %q", text, seen.String())
		}
	}
}

func TestSandboxTerminal(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	// Without readline, which writes the size back that it read a moment ago, and so
	// loses one that is set in between.
	x := startSession(t, s, "bash", "--norc", "--noediting")
	typed := func(line string) {
		if _, err := x.in.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	typed("PS1=; stty -echo; echo quiet\n")
	x.expect(t, "quiet\r")
	typed("tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all three; echo $TERM\n")
	for _, want := range []string{"/dev/pts/", "11 77", "all three", "xterm"} {
		x.expect(t, want)
	}
	typed("trap 'echo resized to $(stty size)' WINCH; echo trap is set\n")
	x.expect(t, "trap is set")
	x.resizes <- sdk.WindowSize{Rows: 30, Cols: 100}
	for { // bash looks for signals between commands
		typed("echo size $(stty size)\n")
		line, err := x.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "30 100") {
			break
		}
	}
	typed("sh -c 'echo runs; exec sleep 1000'\n")
	x.expect(t, "runs")
	typed("\x03") // drops what is typed ahead, so nothing is
	typed("echo status $?\n")
	x.expect(t, "status 130")
	typed("exit 5\n")
	_, _ = io.Copy(io.Discard, x.out)
	if exit := <-x.exit; exit == nil || exit.Code != 5 || exit.Cause != sdk.CauseExited {
		t.Errorf("got %+v", exit)
	}
}

func TestSandboxTerminalInterruptsAProgram(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	x := startSession(t, s, "sh", "-c", "trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.01; done")
	x.expect(t, "ready")
	if _, err := x.in.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	x.expect(t, "caught")
	_, _ = io.Copy(io.Discard, x.out)
	if exit := <-x.exit; exit == nil || exit.Code != 6 {
		t.Errorf("got %+v", exit)
	}
}

func TestSandboxTerminalEndsWithItsInput(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	x := startSession(t, s, "cat")
	if _, err := x.in.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
	x.expect(t, "line")
	x.in.Close()
	_, _ = io.Copy(io.Discard, x.out)
	if exit := <-x.exit; exit == nil || exit.Code != 0 {
		t.Errorf("got %+v", exit)
	}
}
