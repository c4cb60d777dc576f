package microinit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// run executes the program outside any namespace, so it is not pid 1 there, but
// all else is the same. It returns the reports and what the command printed.
func run(t *testing.T, limits []Rlimit, args ...string) (map[Kind]uint32, int, string) {
	t.Helper()
	image, err := Image(Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(path, image, 0o755); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		t.Fatal(err)
	}
	far := os.NewFile(uintptr(pair[1]), "status")
	command := blockOf(t, args)
	cmd := exec.Command(path)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	cmd.ExtraFiles = []*os.File{far, w, w, w, w, command}
	err = cmd.Run()
	far.Close()
	w.Close()
	out, _ := io.ReadAll(r)
	if err != nil {
		t.Fatalf("pid 1: %v", err)
	}
	reports, pid := map[Kind]uint32{}, 0
	for {
		b, oob := make([]byte, 64), make([]byte, 128)
		n, oobn, _, _, err := unix.Recvmsg(pair[0], b, oob, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return reports, pid, string(out)
		}
		kind, value, err := ParseReport(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		reports[kind] = value
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			t.Fatal(err)
		}
		cred, err := unix.ParseUnixCredentials(&messages[0])
		if err != nil {
			t.Fatal(err)
		}
		if kind == Started {
			pid = int(cred.Pid)
		}
	}
}

// blockOf is a file that holds the block of args.
func blockOf(t *testing.T, args []string) *os.File {
	t.Helper()
	block, err := Block(append([]string{"init"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "block")
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func args(t *testing.T, dir string, candidates, env []string, argv ...string) []string {
	t.Helper()
	a, err := Args(false, dir, candidates, env, argv)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTellsExitFromSignal(t *testing.T) {
	sh := []string{"/bin/sh"}
	for script, want := range map[string]syscall.WaitStatus{
		"exit 0":           0,
		"exit 137":         137 << 8,
		"kill -9 $$":       9,
		"kill -TERM $$":    15,
		"(exit 3); exit 7": 7 << 8,
	} {
		reports, _, _ := run(t, nil, args(t, "/", sh, nil, "sh", "-c", script)...)
		if got := syscall.WaitStatus(reports[Ended]); got != want {
			t.Errorf("%s: status %#x, want %#x", script, got, want)
		}
	}
}

func TestPassesExactly(t *testing.T) {
	_, _, out := run(t, nil, args(t, "/usr", []string{"/bin/sh"}, []string{"A=1", "B=two words", "C="},
		"zero", "-c", `printf '%s|' "$0" "$@"; pwd; /usr/bin/env`, "", "x y", "")...)
	first, rest, _ := strings.Cut(out, "\n")
	// dash runs the script with $0 from the argument after it.
	if first != "|x y||/usr" {
		t.Errorf("arguments and directory arrived as %q", first)
	}
	for _, want := range []string{"A=1\n", "B=two words\n", "C=\n"} {
		if !strings.Contains(rest, want) {
			t.Errorf("environment %q lacks %q", rest, want)
		}
	}
	if strings.Contains(rest, "HOME=") {
		t.Errorf("environment %q holds more than it was given", rest)
	}
}

func TestStartedTellsThePID(t *testing.T) {
	_, pid, out := run(t, nil, args(t, "/", []string{"/bin/sh"}, nil, "sh", "-c", "echo $$; exec ps -o sid= -p $$")...)
	got := strings.Fields(out)
	if len(got) != 2 || got[0] != got[1] {
		t.Errorf("pid and session are %q: the command must lead its session", got)
	}
	if len(got) > 0 && got[0] != strconv.Itoa(pid) {
		t.Errorf("the report said pid %d, the command %s", pid, got[0])
	}
}

func TestCandidates(t *testing.T) {
	dir := t.TempDir()
	deny := filepath.Join(dir, "deny")
	if err := os.WriteFile(deny, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		name       string
		candidates []string
		want       syscall.Errno // 0: it runs
	}{
		{"first", []string{"/bin/true"}, 0},
		{"second after missing", []string{none, "/bin/true"}, 0},
		{"second after denied", []string{deny, "/bin/true"}, 0},
		{"second after not a directory", []string{deny + "/x", "/bin/true"}, 0},
		{"missing", []string{none, none}, syscall.ENOENT},
		{"denied wins over missing", []string{none, deny, none}, syscall.EACCES},
		{"a directory", []string{dir}, syscall.EACCES},
	} {
		t.Run(c.name, func(t *testing.T) {
			reports, _, _ := run(t, nil, args(t, "/", c.candidates, nil, "x")...)
			errno, failed := reports[NoExec]
			if (c.want != 0) != failed || syscall.Errno(errno) != c.want {
				t.Errorf("got %v %v, want %v", failed, syscall.Errno(errno), c.want)
			}
		})
	}
}

func TestDirectoryAndLimits(t *testing.T) {
	reports, _, _ := run(t, nil, args(t, "/no/such/dir", []string{"/bin/true"}, nil, "true")...)
	if syscall.Errno(reports[NoDir]) != syscall.ENOENT {
		t.Errorf("a missing directory gave %v", reports)
	}
	limits := []Rlimit{{unix.RLIMIT_NOFILE, 33}, {unix.RLIMIT_CORE, 0}}
	_, _, out := run(t, limits, args(t, "/", []string{"/bin/sh"}, nil, "sh", "-c", "ulimit -n; ulimit -Hn; ulimit -c")...)
	if out != "33\n33\n0\n" {
		t.Errorf("limits arrived as %q", out)
	}
}

func TestClosesDescriptors(t *testing.T) {
	_, _, out := run(t, nil, args(t, "/", []string{"/bin/ls"}, nil, "ls", "/proc/self/fd")...)
	if out != "0\n1\n2\n3\n" { // 3 is ls's own
		t.Errorf("the command sees descriptors %q", out)
	}
}

func TestSignalsAreAtTheirDefaults(t *testing.T) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGPIPE)
	defer signal.Reset()
	_, _, out := run(t, nil, args(t, "/", []string{"/bin/grep"}, nil, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")...)
	if want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"; out != want {
		t.Errorf("the command starts with %q", out)
	}
}

func TestArgsRefuses(t *testing.T) {
	for name, try := range map[string]func() error{
		"nothing to run": func() error { _, err := Args(false, "/", nil, nil, nil); return err },
		"empty path":     func() error { _, err := Args(false, "/", []string{""}, nil, []string{"x"}); return err },
		"empty variable": func() error { _, err := Args(false, "/", []string{"x"}, []string{""}, []string{"x"}); return err },
		"nul":            func() error { _, err := Args(false, "/", []string{"x"}, nil, []string{"x\x00"}); return err },
	} {
		if try() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, _, err := ParseReport([]byte("short")); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a short report gave %v", err)
	}
}

func TestHugeArguments(t *testing.T) {
	reports, _, _ := run(t, nil, "-", "/", "/bin/true", "", "", strings.Repeat("x", 1<<20))
	if syscall.Errno(reports[NoExec]) != syscall.E2BIG {
		t.Errorf("an argument of 1 MiB gave %v", reports)
	}
	if _, err := Block([]string{strings.Repeat("x", maxBlock)}); err == nil {
		t.Error("a block of 16 MiB was accepted")
	}
}

func TestEndsWithThePlugin(t *testing.T) {
	image, err := Image(Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(path, image, 0o755); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Before anything is sent: what was sent without has the pid 0.
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(pair[1]), "status"), BlockFD - 3: blockOf(t, args(t, "/", []string{"/bin/sleep"}, nil, "sleep", "1000"))}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles[0].Close()
	var command int
	for command == 0 {
		b, oob := make([]byte, 64), make([]byte, 128)
		n, oobn, _, _, err := unix.Recvmsg(pair[0], b, oob, 0)
		if err != nil || n == 0 {
			t.Fatal("no report", err)
		}
		if kind, _, _ := ParseReport(b[:n]); kind == Started {
			messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
			cred, err := unix.ParseUnixCredentials(&messages[0])
			if err != nil {
				t.Fatal(err)
			}
			command = int(cred.Pid)
		}
	}
	defer unix.Kill(command, unix.SIGKILL) // outside a namespace nothing else ends it
	unix.Close(pair[0])
	if err := cmd.Wait(); err != nil {
		t.Errorf("pid 1 ended with %v", err)
	}
}

// TestWaits: an init that waits executes the command of a message with its streams, and nothing when none comes.
func TestWaits(t *testing.T) {
	image, err := Image(Options{Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(path, image, 0o755); err != nil {
		t.Fatal(err)
	}
	begin := func() (status int, cmd *exec.Cmd, words *bytes.Buffer) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		far, null := os.NewFile(uintptr(pair[1]), "status"), devNull(t)
		defer far.Close()
		cmd, words = exec.Command(path), new(bytes.Buffer)
		cmd.Stderr = words
		cmd.ExtraFiles = []*os.File{far, null, null, null, null, null}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return pair[0], cmd, words
	}
	report := func(status int) (Kind, uint32) {
		b := make([]byte, 64)
		n, err := unix.Read(status, b)
		if err != nil || n == 0 {
			t.Fatalf("read %d bytes: %v", n, err)
		}
		kind, value, err := ParseReport(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		return kind, value
	}

	for name, end := range map[string]func(status int) error{
		"closed":         unix.Close,
		"no descriptors": func(status int) error { return unix.Sendmsg(status, []byte{0}, nil, nil, 0) },
		"too few":        func(status int) error { return unix.Sendmsg(status, []byte{0}, unix.UnixRights(0, 0, 0), nil, 0) },
	} {
		status, cmd, _ := begin()
		if kind, _ := report(status); kind != Init {
			t.Errorf("%s: the first report is %d", name, kind)
		}
		if err := errors.Join(end(status), cmd.Wait()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	status, cmd, words := begin()
	defer unix.Close(status)
	if kind, _ := report(status); kind != Init {
		t.Errorf("the first report is %d", kind)
	}
	streams := filepath.Join(t.TempDir(), "streams")
	if err := os.WriteFile(streams+"0", []byte("input"), 0o600); err != nil {
		t.Fatal(err)
	}
	var fds []int
	fds = append(fds, int(blockOf(t, args(t, "/", []string{"/bin/sh"}, []string{"PATH=/usr/bin:/bin"}, "sh", "-c",
		"cat; echo error >&2; ls /proc/self/fd | tr '\n' ' '; exit 7")).Fd()))
	for i := range 3 {
		f, err := os.OpenFile(streams+strconv.Itoa(i), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := unix.Sendmsg(status, []byte{0}, unix.UnixRights(append(fds, int(w.Fd()))...), nil, 0); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadAll(r); err != nil { // ends because init and command have closed it
		t.Fatal(err)
	}
	for {
		kind, value := report(status)
		if kind == Ended {
			if syscall.WaitStatus(value).ExitStatus() != 7 {
				t.Errorf("status %#x", value)
			}
			break
		}
	}
	if err := cmd.Wait(); err != nil || words.Len() > 0 {
		t.Errorf("%v, and on the stderr of who started it: %q", err, words)
	}
	for i, want := range []string{"input", "input0 1 2 3 ", "error\n"} {
		if got, err := os.ReadFile(streams + strconv.Itoa(i)); err != nil || string(got) != want {
			t.Errorf("stream %d holds %q, want %q: %v", i, got, want, err)
		}
	}
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
