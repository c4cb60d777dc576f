package supervise_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise"
)

func TestTerminal(t *testing.T) {
	term, err := supervise.OpenTerminal(40, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	p := start(t, payload("size", ""), supervise.Options{Terminal: term})
	out := bufio.NewReader(term.Master)
	if line, err := out.ReadString('\n'); line != "40 100 <nil>\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := term.Resize(50, 120); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); line != "50 120 <nil>\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if r := p.Wait(context.Background()); r.Code != 0 || r.Err != nil {
		t.Errorf("%+v", r)
	}
}

func TestTerminalIsControlling(t *testing.T) {
	term, err := supervise.OpenTerminal(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	p := start(t, payload("tty", ""), supervise.Options{Terminal: term})
	out := bufio.NewReader(term.Master)
	for _, want := range []string{"24 80 <nil>\r\n", "ready\r\n"} {
		if line, err := out.ReadString('\n'); line != want {
			t.Fatalf("%q, %v; want %q", line, err, want)
		}
	}
	if _, err := term.Master.Write([]byte{3}); err != nil { // ^C
		t.Fatal(err)
	}
	if r := p.Wait(context.Background()); r.Signal != syscall.SIGINT {
		t.Errorf("%+v, want SIGINT from the key", r)
	}
}

func TestTerminalOutputIsCompleteAndEnds(t *testing.T) {
	term, err := supervise.OpenTerminal(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	if err := term.Raw(); err != nil {
		t.Fatal(err)
	}
	const want = 3_000_000
	start(t, exec.Command("/usr/bin/head", "-c", strconv.Itoa(want), "/dev/zero"), supervise.Options{Terminal: term})
	var got bytes.Buffer
	if n, err := term.Output(&got); err != nil || n != want {
		t.Errorf("%d bytes, %v; want %d and no error", n, err, want)
	}
	if i := bytes.IndexFunc(got.Bytes(), func(r rune) bool { return r != 0 }); i >= 0 {
		t.Errorf("byte %d was changed", i)
	}
}

func fifos(t testing.TB, names ...string) []string {
	t.Helper()
	dir := t.TempDir()
	var out []string
	for _, n := range names {
		p := filepath.Join(dir, n)
		if err := unix.Mkfifo(p, 0o600); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestStreamsOpenInAnyOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}} {
		path := fifos(t, "in", "out", "err")
		peer := make([]*os.File, 3)
		go func() {
			for _, i := range order { // one after the other, each blocking
				flag := os.O_RDONLY
				if i == 0 {
					flag = os.O_WRONLY
				}
				peer[i], _ = os.OpenFile(path[i], flag, 0)
			}
			io.WriteString(peer[0], "hello\n")
			peer[0].Close()
		}()
		s, err := supervise.OpenStreams(ctx, path[0], path[1], path[2])
		if err != nil {
			t.Fatal(err)
		}
		cmd := sh("cat; echo bad >&2")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
		p := start(t, cmd, supervise.Options{})
		s.Close()
		out, _ := io.ReadAll(peer[1])
		bad, _ := io.ReadAll(peer[2])
		if r := p.Wait(ctx); r.Code != 0 || string(out) != "hello\n" || string(bad) != "bad\n" {
			t.Errorf("order %v: %+v %q %q", order, r, out, bad)
		}
	}
}

func TestStreamsGiveTheChildTheDescriptorItself(t *testing.T) {
	path := fifos(t, "in", "out", "err")
	said := make(chan []byte, 1)
	go func() {
		f, err := os.OpenFile(path[1], os.O_RDONLY, 0)
		if err != nil {
			t.Error(err)
		}
		data, _ := io.ReadAll(f)
		said <- data
	}()
	for _, i := range []int{0, 2} {
		f, err := os.OpenFile(path[i], os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	s, err := supervise.OpenStreams(context.Background(), path[0], path[1], path[2])
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	cmd := payload("nonblock", "")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
	p := start(t, cmd, supervise.Options{})
	// Three goroutines follow the command; copying would take three more.
	if n := runtime.NumGoroutine() - before; n > 3 {
		t.Errorf("%d goroutines for one command", n)
	}
	s.Close()
	p.Wait(context.Background())
	if got := <-said; string(got) != "checked\n" {
		t.Errorf("payload said %q", got)
	}
}

func TestStreamsOfADeadPeerAreBounded(t *testing.T) {
	path := fifos(t, "in", "out")
	ctx, cancel := context.WithCancelCause(context.Background())
	before := runtime.NumGoroutine()
	failed := make(chan error)
	go func() {
		_, err := supervise.OpenStreams(ctx, path[0], path[1], "")
		failed <- err
	}()
	cancel(errTime)
	if err := <-failed; !errors.Is(err, errTime) {
		t.Errorf("%v, want the cause", err)
	}
	waitFor(t, "no goroutine hangs in an open", func() bool { return runtime.NumGoroutine() <= before })
	if _, err := supervise.OpenStreams(context.Background(), "", "/dev/null", ""); err == nil {
		t.Error("a device is opened as a FIFO")
	}
	link := filepath.Join(t.TempDir(), "link")
	os.Symlink(path[0], link)
	if _, err := supervise.OpenStreams(context.Background(), link, "", ""); err == nil {
		t.Error("a symbolic link is followed")
	}
}
