package command

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// TestTerminal types into a terminal, reads what is printed on it, and changes its size; the end of the input is ^D.
func TestTerminal(t *testing.T) {
	pty, err := supervise.OpenTerminal(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	stdin, typed, err1 := os.Pipe()
	printed, stdout, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer printed.Close()
	term, err := OpenTerminal(pty.Master, &sdk.Command{Stdin: stdin, Stdout: stdout})
	if err != nil {
		t.Fatal(err)
	}
	term.Resize(sdk.WindowSize{Rows: 7, Cols: 11})
	if size, err := unix.IoctlGetWinsize(int(pty.Slave.Fd()), unix.TIOCGWINSZ); err != nil || size.Row != 7 || size.Col != 11 {
		t.Errorf("the size is %+v, %v", size, err)
	}
	if _, err := typed.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(pty.Slave)
	if line, err := r.ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("the command read %q, %v", line, err)
	}
	if err := typed.Close(); err != nil {
		t.Fatal(err)
	}
	if line, err := r.ReadString('\n'); line != "" || err == nil {
		t.Errorf("after the end of the input the command read %q, %v", line, err)
	}
	if _, err := pty.Slave.WriteString("printed\n"); err != nil {
		t.Fatal(err)
	}
	if err := pty.Slave.Close(); err != nil {
		t.Fatal(err)
	}
	term.Drain()
	term.Close()
	if err := stdout.Close(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := bufio.NewReader(printed).WriteTo(&out); err != nil || !strings.Contains(out.String(), "printed\r\n") {
		t.Errorf("printed was %q, %v", &out, err)
	}
	term.Resize(sdk.WindowSize{Rows: 1, Cols: 1}) // of one that is closed
	var none *Terminal
	none.Resize(sdk.WindowSize{})
	none.Drain()
	none.Close()
}
