package resident

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/resident/handover"
)

// pair is a connection of a client and a worker.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := [2]*net.UnixConn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn.(*net.UnixConn)
		t.Cleanup(func() { conn.Close() })
	}
	return conns[0], conns[1]
}

func TestRequest(t *testing.T) {
	a, b := pair(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	sent := &handover.Request{Identity: "1 2", Umask: 0o27, Args: []string{"run", "", "a\nb"}, Env: []string{"A=", "B=" + strings.Repeat("x", 1<<20)},
		Files: []*os.File{dir, os.Stdin, os.Stdout, os.Stderr}}
	done := make(chan error, 1)
	f, err := a.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	go func() { done <- sent.Send(f) }()
	got, err := receive(b)
	if err != nil {
		t.Fatal(err)
	}
	defer got.close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got.Identity != sent.Identity || got.Umask != sent.Umask || !cmp.Equal(got.Args, sent.Args) || !cmp.Equal(got.Env, sent.Env) {
		t.Errorf("got %q %o %q", got.Identity, got.Umask, got.Args)
	}
	want, err := dir.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if st, err := got.Files[0].Stat(); err != nil || !os.SameFile(st, want) {
		t.Errorf("another directory arrived: %v", err)
	}
}

// TestSignalBeforeTheCommand: a signal that the client sends with its request reaches the command, and one that came too
// late for the command before does not.
func TestSignalBeforeTheCommand(t *testing.T) {
	a, b := pair(t)
	if _, err := a.Write([]byte{byte(unix.SIGTERM)}); err != nil {
		t.Fatal(err)
	}
	w := Worker{Signals: make(chan os.Signal, 2)}
	w.Signals <- unix.SIGINT
	w.Run = func(c *Command) (int, bool) {
		if got := <-w.Signals; got != unix.SIGTERM || len(w.Signals) > 0 {
			t.Errorf("the command got %v and %d others", got, len(w.Signals))
		}
		return 143, true
	}
	if !w.execute(b, &request{}) {
		t.Error("the worker is not used again")
	}
	for _, want := range []string{strconv.Itoa(os.Getpid()), "143"} {
		if _, text, err := handover.ReadAnswer(a); err != nil || text != want {
			t.Fatalf("answer %q, want %q: %v", text, want, err)
		}
	}
}

// FuzzReceive: whatever a client sends is refused or a request, and leaves no descriptor open.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("r\x00\x00\x00\x0b1\x0018\x001\x00run\x00"), 4)
	f.Add([]byte("r\xff\xff\xff\xff"), 4)
	f.Add([]byte("r\x00\x00\x00\x061\x001\x00-1"), 4)
	f.Add([]byte("r"), 0)
	f.Fuzz(func(t *testing.T, message []byte, descriptors int) {
		if len(message) == 0 || len(message) > 4096 || descriptors < 0 || descriptors > 8 {
			t.Skip()
		}
		a, b := pair(t)
		fds := make([]int, descriptors)
		if _, _, err := a.WriteMsgUnix(message, unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		a.Close()
		r, err := receive(b)
		defer r.close()
		if err == nil && (len(r.Files) != 4 || len(r.Args)+len(r.Env) == 0 && len(message) > 4000) {
			t.Errorf("%q with %d descriptors is a request: %v", message, descriptors, r)
		}
	})
}

func TestSurroundings(t *testing.T) {
	mine, err := surroundings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if why := differs(mine, mine, false, ""); why != "" {
		t.Error(why)
	}
	for name := range mine {
		theirs := map[string]string{}
		for n, v := range mine {
			theirs[n] = v
		}
		theirs[name] += "x"
		if why := differs(mine, theirs, false, t.TempDir()); name != "cgroup" && why != "it has another "+name {
			t.Errorf("another %s: %q", name, why)
		}
		inSandbox := name == "root" || strings.HasSuffix(name, "namespace")
		if why := differs(mine, theirs, true, ""); (why != "") != inSandbox {
			t.Errorf("another %s for one that controls: %q", name, why)
		}
	}
}

func TestSameLimits(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"user.slice/pids.max": "100\n", "user.slice/a.scope/memory.max": "max\n", "user.slice/a.scope/cpu.max": "max 100000\n", "user.slice/a.scope/io.max": "",
		"user.slice/b.service/pids.max": "max\n", "ci/memory.max": "1000\n", "ci/job/memory.max": "max\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"0::/user.slice/a.scope\n", "0::/user.slice/b.service\n", true}, // the limit of user.slice holds both
		{"0::/user.slice/a.scope\n", "0::/\n", false},
		{"0::/user.slice/a.scope\n", "0::/ci/job\n", false},
		{"0::/\n", "0::/ci/job\n", false},
		{"0::/ci\n", "0::/ci/job\n", true},
		{"0::/ci\n", "0::/cix\n", false},
		{"1:memory:/\n0::/\n", "1:memory:/a\n0::/\n", false},
		{"0::/\n", "0::/../a\n", false},
		{"0::/user.slice/b.service\n", "", false},
	} {
		if got := sameLimits(tc.a, tc.b, root); got != tc.same {
			t.Errorf("%q and %q: %v", tc.a, tc.b, got)
		}
		if got := sameLimits(tc.b, tc.a, root); got != tc.same {
			t.Errorf("%q and %q: %v", tc.b, tc.a, got)
		}
	}
}
