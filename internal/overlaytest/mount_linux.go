package overlaytest

import (
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const variable = "HUTCH_OVERLAYTEST"

// Main becomes the process with the mount when that is what this process was started for. It does not return then.
func Main() {
	if spec := os.Getenv(variable); spec != "" {
		if err := serve(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0) // os.Exit would let the race detector, where it is built in, wait a second for nothing
	}
}

// order is what the process is asked to do at its start.
type order struct {
	Lower, Upper, Work, Root string
	Options                  string
	Chroot                   bool
}

// Mount is a process that sees an overlay.
type Mount struct {
	t     testing.TB
	lower string
	Upper string // the directory that writes go to
	in    io.WriteCloser
	enc   *gob.Encoder // and not JSON: names are bytes
	dec   *gob.Decoder
}

// Start mounts an overlay over lower: by root, whose marks are trusted.overlay.*, or else in a user namespace. The test
// is skipped where none can be mounted, and fails if HUTCH_TEST_REQUIRE lists overlay.
func Start(t testing.TB, lower string, trusted bool) *Mount {
	t.Helper()
	if trusted && os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if strings.Contains(lower+dir, ",") {
		t.Fatal("the name of a test that mounts holds no comma: its directories are in the options of the mount")
	}
	m := &Mount{t: t, lower: lower, Upper: filepath.Join(dir, "upper")}
	ord := order{
		Lower: lower, Upper: m.Upper, Work: filepath.Join(dir, "work"), Root: filepath.Join(dir, "root"),
		Options: "userxattr,volatile",
	}
	if trusted {
		ord.Options = "redirect_dir=off,metacopy=off,volatile"
	}
	for _, d := range []string{m.Upper, ord.Work, ord.Root + At} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := json.Marshal(ord)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variable+"="+string(spec))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if !trusted {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if m.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.enc, m.dec = gob.NewEncoder(m.in), gob.NewDecoder(out)
	var ready Answer
	if err = cmd.Start(); err == nil {
		t.Cleanup(func() {
			m.in.Close()
			_ = cmd.Wait() // killed by the end of its input
			// the kernel made them for itself alone; an ordinary user could not remove them
			for _, dir := range []string{"work", "work/incompat", "work/incompat/volatile"} {
				_ = os.Chmod(filepath.Join(ord.Work, dir), 0o700)
			}
		})
		if err = m.dec.Decode(&ready); err != nil || ready.Err != "" {
			m.in.Close()
			err = errors.Join(err, errors.New("mount: "+ready.Err))
		}
	}
	if err != nil {
		msg := fmt.Sprintf("no overlay can be mounted here: %v %s", err, stderr.String())
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "overlay") {
			t.Fatal(msg)
		}
		t.Skip(msg)
	}
	return m
}

// Do does one thing through the mount and returns what can be seen there afterwards.
func (m *Mount) Do(o Op) Answer {
	m.t.Helper()
	var a Answer
	if err := m.enc.Encode(o); err != nil {
		m.t.Fatal(err)
	}
	if err := m.dec.Decode(&a); err != nil {
		m.t.Fatal(err)
	}
	return a
}

// serve mounts, goes into a root where the mount is all there is, and obeys requests until its input ends.
func serve(spec string) error {
	var o order
	if err := json.Unmarshal([]byte(spec), &o); err != nil {
		return err
	}
	enc, dec := gob.NewEncoder(os.Stdout), gob.NewDecoder(os.Stdin)
	mount := func() error {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", o.Lower, o.Upper, o.Work, o.Options)
		if err := syscall.Mount("overlay", o.Root+At, "overlay", 0, data); err != nil {
			return fmt.Errorf("mount the overlay: %w", err)
		}
		if err := syscall.Chroot(o.Root); err != nil {
			return err
		}
		syscall.Umask(0o022)
		return os.Chdir("/")
	}
	if err := mount(); err != nil {
		return enc.Encode(Answer{Err: err.Error()})
	}
	if err := enc.Encode(Answer{}); err != nil {
		return err
	}
	for {
		var op Op
		if err := dec.Decode(&op); err != nil {
			return nil // the test is over
		}
		var a Answer
		if err := op.in(At); err != nil {
			a.Err = err.Error()
		}
		var err error
		if a.View, err = View(At); err != nil {
			return err
		}
		if op.Do == "files" {
			if a.Files, err = Files(At); err != nil {
				return err
			}
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}
