package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// needBwrap skips a test where bwrap is missing, and fails it where
// HUTCH_TEST_REQUIRE lists bwrap.
func needBwrap(t testing.TB) {
	t.Helper()
	_, err := findBwrap()
	if err == nil {
		return
	}
	if slices.Contains(strings.FieldsFunc(os.Getenv("HUTCH_TEST_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), "bwrap") {
		t.Fatalf("bwrap is required: %v", err)
	}
	t.Skipf("needs bwrap: %v", err)
}

// newSandbox makes a sandbox of spec and removes it when the test ends.
func newSandbox(t testing.TB, spec sdk.Spec) *sandbox {
	t.Helper()
	needBwrap(t)
	s, err := create(t.Context(), request(t, spec), limits.Probe(), nil)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func request(t testing.TB, spec sdk.Spec) *sdk.CreateRequest {
	t.Helper()
	return &sdk.CreateRequest{
		Spec: spec, ID: fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()), Owner: "test", StateDir: t.TempDir(),
		Allocated: func(sdk.Handle) error { return nil }, Progress: func(string, int64, int64) {},
	}
}

// ran is what one command did.
type ran struct {
	*sdk.Exit
	out, err string
}

// sh runs a shell script in the sandbox.
func sh(t testing.TB, s *sandbox, script string) ran {
	t.Helper()
	return run(t, t.Context(), s, &sdk.Command{Argv: []string{"/bin/sh", "-c", script}})
}

// run runs a command; its streams are pipes, as a host's FIFOs would be.
func run(t testing.TB, ctx context.Context, s *sandbox, c *sdk.Command) ran {
	t.Helper()
	r, err := try(t, ctx, s, c)
	if err != nil {
		t.Fatalf("exec %q: %v", c.Argv, err)
	}
	return r
}

func try(t testing.TB, ctx context.Context, s *sandbox, c *sdk.Command) (ran, error) {
	t.Helper()
	if c.Stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		c.Stdin = null
	}
	var out, errs bytes.Buffer
	var closers []io.Closer
	var waits []chan struct{}
	stream := func(buf *bytes.Buffer) *os.File {
		path := filepath.Join(t.TempDir(), "fifo")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer r.Close()
			_, _ = io.Copy(buf, r)
		}()
		w := os.NewFile(uintptr(fd), path)
		closers, waits = append(closers, w), append(waits, done)
		return w
	}
	c.Stdout, c.Stderr = stream(&out), stream(&errs)
	exit, err := s.Exec(ctx, c)
	for i := range closers {
		closers[i].Close()
		<-waits[i]
	}
	return ran{exit, out.String(), errs.String()}, err
}

// write makes files below dir; a name that ends with a slash is a directory.
func write(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// picture describes every entry below dir: type, mode, owner, size, time, content.
func picture(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%s %o %d:%d %d.%d", rel, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch {
		case d.Type().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", data)
		case d.Type()&os.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %q", target)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// ordinaryUID is a host user without a name or any right.
const ordinaryUID = 20417

// TestAsOrdinaryUser runs every TestSandbox… again without root.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	needBwrap(t)
	dir, err := os.MkdirTemp("/tmp", "hutch-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, ordinaryUID, ordinaryUID); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSandbox", "-test.v")
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH"), "HUTCH_TEST_REQUIRE=" + os.Getenv("HUTCH_TEST_REQUIRE")}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID, Groups: []uint32{ordinaryUID, ordinaryUID + 1}}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("--- PASS: TestSandbox")) {
		t.Errorf("nothing ran as an ordinary user:\n%s", out)
	}
	t.Log(string(out))
}

func itoa(n int) string { return strconv.Itoa(n) }

func contextWithCause(t testing.TB) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}
