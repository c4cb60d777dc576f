package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/landlock/internal/launch"
	"github.com/hutch-run/hutch/sdk"
)

// TestMain is also the program that tests run in sandboxes: a copy of this one, named probe, in the workspace.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "probe" {
		probe(os.Args[1], os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// attempts are what a command must not do, each with its arguments from hostile.
var attempts = map[string]func(at string) error{
	"chmod": func(at string) error { return unix.Chmod(at, 0o777) },
	"chmod by dir": func(at string) error {
		return inDir(at, func(d int, name string) error { return unix.Fchmodat(d, name, 0o777, 0) })
	},
	"chmod by link": func(at string) error {
		return errors.Join(os.Symlink(at, "link"), os.Chmod("link", 0o777))
	},
	"chmod by /proc": func(at string) error { return unix.Chmod("/proc/self/cwd/../../../../../../../../.."+at, 0o777) },
	"chown":          func(at string) error { return unix.Chown(at, os.Getuid(), os.Getgid()) },
	"touch":          func(at string) error { return os.Chtimes(at, time.Unix(1, 0), time.Unix(1, 0)) },
	"setxattr":       func(at string) error { return unix.Setxattr(at, "user.x", []byte("x"), 0) },
	"read":           func(at string) error { _, err := os.ReadFile(at); return err },
	"write":          func(at string) error { return os.WriteFile(at, []byte("x"), 0o644) },
	"truncate":       func(at string) error { return os.Truncate(at, 0) },
	"remove":         os.Remove,
	"link":           func(at string) error { return os.Link(at, "hard") },
	"rename":         func(at string) error { return os.Rename(at, "renamed") },
	"list":           func(at string) error { _, err := os.ReadDir(filepath.Dir(at)); return err },
	"watch":          func(at string) error { return watch(filepath.Dir(at)) },
	"signal":         func(string) error { return unix.Kill(unix.Getppid(), 0) },
	"limit others": func(string) error {
		return unix.Prlimit(unix.Getppid(), unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1, Max: 1}, nil)
	},
	"renice others": func(string) error { return unix.Setpriority(unix.PRIO_USER, 0, 19) },
	"a unix socket": func(string) error { return socket(unix.AF_UNIX, unix.SOCK_STREAM) },
	"a tcp socket":  func(string) error { return socket(unix.AF_INET, unix.SOCK_STREAM) },
	"a netlink":     func(string) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW) },
	"a datagram":    func(string) error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0); return err },
	"shared memory": func(string) error {
		_, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
		return err
	},
	"user namespace": func(string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"set-id file":    func(string) error { return errors.Join(os.WriteFile("setid", nil, 0o755), unix.Chmod("setid", 0o4755)) },
	"verity":         func(string) error { return verity() },
	"lease":          func(string) error { return lease() },
	"chmod of no path": func(string) error {
		if runtime.GOARCH == "amd64" { // arm64 has no chmod
			return noPath(90, 0, 0o700, 0)
		}
		return noPath(unix.SYS_FCHMODAT, atCWD, 0, 0o700)
	},
	"touch of no path": func(string) error { return noPath(unix.SYS_UTIMENSAT, atCWD, 0, 0) },
	"descriptors":      func(string) error { return descriptors() },
	"signals":          func(string) error { return ignored() },
}

func inDir(at string, fn func(d int, name string) error) error {
	d, err := unix.Open(filepath.Dir(at), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return fn(d, filepath.Base(at))
}

func watch(dir string) error {
	fd, err := unix.InotifyInit1(0)
	if err != nil {
		return err
	}
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS)
	return err
}

func socket(family, kind int) error {
	_, err := unix.Socket(family, kind, 0)
	return err
}

// descriptors fails unless there is one besides the streams, and those of the Go runtime.
func descriptors() error {
	for fd := 3; fd < 1024; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
			fmt.Printf("descriptor %d: mode %o, device %x, inode %d\n", fd, st.Mode, st.Dev, st.Ino)
			return nil // an inherited one: the attempt succeeds
		}
	}
	return errors.New("none is inherited")
}

// verity fails where the filter refuses it; every other answer is of a file system, some of which would obey.
func verity() error {
	f, err := os.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.FS_IOC_ENABLE_VERITY, 0); errno == unix.EPERM {
		return errno
	}
	return nil
}

// lease asks for one on a file that the command may only read, so that other programs wait when they open it to write.
func lease() error {
	f, err := os.Open("probe")
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return err
}

// atCWD is AT_FDCWD as an argument.
const atCWD = ^uintptr(99)

// noPath makes a call with NULL for a path, which is not the working directory.
func noPath(call, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall6(call, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// ignored fails unless a signal is blocked from the start.
func ignored() error {
	var set unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &set); err != nil {
		return err
	}
	if set.Val[0] != 0 {
		return nil
	}
	var action struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTTOU), 0, uintptr(unsafe.Pointer(&action)), 8, 0, 0); errno == 0 && action.handler == 1 {
		return nil
	}
	return errors.New("none is blocked or ignored")
}

// probe makes an attempt, and prints how it ended.
func probe(name string, args []string) {
	if err := attempts[name](args[0]); err != nil {
		fmt.Println("refused:", err)
		return
	}
	fmt.Println("succeeded")
}

// newBox makes a sandbox on a workspace with the probe.
func newBox(t *testing.T, spec sdk.Spec) *sandbox {
	t.Helper()
	if err := supported(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	project, state := filepath.Join(dir, "project"), filepath.Join(dir, "state")
	self, err := os.ReadFile("/proc/self/exe")
	for _, err := range []error{err, os.Mkdir(project, 0o755), os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(project, "probe"), self, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	spec.Workspace = sdk.Workspace{Source: project, Mode: sdk.WorkspacePrivate}
	b := &backend{}
	sb, err := b.Create(t.Context(), &sdk.CreateRequest{Spec: spec, ID: "test", StateDir: state, Allocated: func(sdk.Handle) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Destroy(context.Background(), sdk.Handle{ID: "test", StateDir: state}) })
	return sb.(*sandbox)
}

// output runs a command and returns what it printed.
func output(t *testing.T, s *sandbox, argv ...string) (string, *sdk.Exit) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var out bytes.Buffer
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(&out, r) }()
	exit, err := s.Exec(t.Context(), &sdk.Command{Argv: argv, Stdin: null, Stdout: w, Stderr: w, Started: func() {}})
	w.Close()
	<-read
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), exit
}

// TestAttempts makes each attempt outside, where it succeeds, and in a sandbox.
func TestAttempts(t *testing.T) {
	s := newBox(t, sdk.Spec{})
	outside := filepath.Join(t.TempDir(), "outside")
	for name := range attempts {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Stat(outside)
			got, exit := output(t, s, "./probe", name, outside)
			if !strings.HasPrefix(got, "refused: ") {
				t.Errorf("%q, %+v", got, exit)
			}
			after, err := os.Stat(outside)
			if err != nil || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
				t.Errorf("the file outside was %v and is %v, %v", before, after, err)
			}
		})
	}
}

// TestOwnFiles changes modes and times where a command may.
func TestOwnFiles(t *testing.T) {
	s := newBox(t, sdk.Spec{})
	got, exit := output(t, s, "/bin/sh", "-c", `set -e; mkdir d; echo x > d/f; chmod 640 d/f; chmod 711 d; cd d; touch -d @1000000000 f; ln -s f l
touch -h -d @1100000000 l; cp -p f g; stat -c '%a %Y' . f g l; chmod 700 "$TMPDIR"; (cd .. && chmod -R go= d && stat -c %a d/f); mktemp >/dev/null && echo made`)
	lines := strings.Split(got, "\n")
	want := []string{"711", "640 1000000000", "640 1000000000", "777 1100000000", "600", "made"}
	for i, w := range want {
		if i >= len(lines) || !strings.HasPrefix(lines[i], w) {
			t.Fatalf("%q, %+v; want lines that begin with %q", got, exit, want)
		}
	}
}

// TestFullNetwork reaches a listener of this machine, and no unix socket.
func TestFullNetwork(t *testing.T) {
	s := newBox(t, sdk.Spec{Network: sdk.NetworkFull})
	if got, _ := output(t, s, "./probe", "a tcp socket", "/"); got != "succeeded\n" {
		t.Error(got)
	}
	if got, _ := output(t, s, "./probe", "a unix socket", "/"); !strings.HasPrefix(got, "refused") {
		t.Error(got)
	}
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
	}
}

// TestProcessesAreCounted ends a command with too many at once, and none that had as many in its time.
func TestProcessesAreCounted(t *testing.T) {
	s := newBox(t, sdk.Spec{Limits: sdk.Limits{PIDs: 8}})
	got, exit := output(t, s, "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait; echo over")
	if got != "" || exit.Cause != sdk.CausePIDs {
		t.Errorf("%q, %+v", got, exit)
	}
	if got, exit := output(t, s, "/bin/sh", "-c", "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; echo $i"); got != "100\n" {
		t.Errorf("processes that have ended count: %q, %+v", got, exit)
	}
}

// TestSharedRepositories refuses what Landlock cannot protect.
func TestSharedRepositories(t *testing.T) {
	dir := t.TempDir()
	git := filepath.Join(dir, "sub", ".git")
	if err := os.MkdirAll(git, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := &sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspaceShared}}
	if err := unguarded(spec, true); err != nil {
		t.Errorf("a directory that is no repository yet: %v", err)
	}
	if err := os.WriteFile(filepath.Join(git, "HEAD"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unguarded(spec, true); sdk.ReasonOf(err) != sdk.ReasonUnsupported {
		t.Errorf("a repository below: %v", err)
	}
	spec.Config = &Config{Git: "writable"}
	if err := unguarded(spec, true); err != nil {
		t.Error(err)
	}
}

// TestOnlyTheLauncherGetsTheOrder connects first, as every user of this machine can.
func TestOnlyTheLauncherGetsTheOrder(t *testing.T) {
	cmd, l, err := launch.Command()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", strings.TrimPrefix(cmd.Env[0], "HUTCH_LANDLOCK_LAUNCHER="))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go launch.Follow(l, os.Getppid(), &launch.Order{Env: launch.Bytes([]string{"TOKEN=secret"})}, func(launch.Begun) {})
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); len(got) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("another process got %q, %v", got, err)
	}
}

// TestClosedPaths refuses what leads to a closed directory, from above, below or through a link.
func TestClosedPaths(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc", link); err != nil {
		t.Fatal(err)
	}
	for p, ok := range map[string]bool{"/opt/go": true, "/usr": true, "/proc": false, "/run/x": false, "/var": false, link: false} {
		if ds := (&Config{ROPaths: []string{p}}).Validate(); (len(ds) == 0) != ok {
			t.Errorf("%s: %v", p, ds)
		}
	}
}

// TestKernelsWithoutWhatIsNeeded refuses each that would not keep commands from signalling other processes.
func TestKernelsWithoutWhatIsNeeded(t *testing.T) {
	for abi, ok := range map[int]bool{0: false, 1: false, 5: false, 6: true, 7: true} {
		if err := enough(abi); (err == nil) != ok || !ok && (sdk.ReasonOf(err) != sdk.ReasonMissing || !strings.Contains(fmt.Sprint(err), "Landlock")) {
			t.Errorf("version %d: %v", abi, err)
		}
	}
}
