package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

var factsOfX = sdk.Facts{Name: "x"}

func get(t *testing.T, p *Pool, name string) *Backend {
	t.Helper()
	b, err := p.Get(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sandbox(t *testing.T, b *Backend) *client.Sandbox {
	t.Helper()
	sb, err := b.Create(context.Background(), &sdk.CreateRequest{ID: "one", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// A plugin starts with nothing of its host but what it is given.
func TestTheProcess(t *testing.T) {
	b := get(t, pool(t, nil, "facts"), "facts")
	findings, err := b.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range findings {
		got[f.Name] = f.Detail
	}
	want := map[string]string{
		"stdin": "/dev/null",           // and not the host's
		"group": "true",                // Ctrl-C does not reach it
		"cwd":   "/",                   // so that it holds no mount busy
		"exe":   "hutch-backend-facts", // the file that was hashed
		"arg0":  "hutch-backend-facts",
		"comm":  "hutch-backend-f", // and not the number of a descriptor
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a command sees of the environment and of open files is nothing of ours.
func TestNothingLeaksIntoCommands(t *testing.T) {
	t.Setenv("OF_THE_HOST", "secret") // go-plugin passes all of it on by default
	// What the process that started hutch left open, such as a lock, is inherited by the plugin.
	inherited, err := syscall.Dup(int(open(t, filepath.Join(t.TempDir(), "inherited")).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	for _, name := range []string{"plain", "declares"} {
		t.Run(name, func(t *testing.T) {
			sb := sandbox(t, get(t, pool(t, nil, name), name))
			var out bytes.Buffer
			if _, err := sb.Exec(context.Background(), &client.Command{Argv: []string{"/bin/sh", "-c", "env; ls -l /proc/self/fd | sed 's/.* //;/^0$/d'"}, Stdout: &out}); err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{"PLUGIN_", "HUTCH_", "OTHER=", "OF_THE_HOST"} {
				if strings.Contains(out.String(), bad) {
					t.Errorf("%s leaked:\n%s", bad, out.String())
				}
			}
			if got, want := strings.Contains(out.String(), "SECRET_KEY=hush"), name == "declares"; got != want {
				t.Errorf("sees SECRET_KEY: %t, want %t", got, want)
			}
			for _, line := range strings.Split(out.String(), "\n") {
				if strings.HasPrefix(line, "socket:") || strings.HasPrefix(line, "anon_inode:") || strings.HasSuffix(line, "/inherited") {
					t.Errorf("an open file leaked: %s", line)
				}
			}
		})
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sink is a logger's output that several may write.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// Nothing that a plugin prints blocks it, panics the host, or passes for
// something else than a line of that plugin.
func TestNoise(t *testing.T) {
	var out sink
	logs := t.TempDir()
	p := pool(t, func(o *Options) {
		o.Log = func(l Line) {
			fmt.Fprintf(&out, "[%s] %s: %s sandbox=%q\n", strings.ToUpper(l.Level.String()), l.Backend, l, l.Sandbox)
		}
		o.LogLevel = hclog.Debug
		o.LogDir = logs
	}, "noisy")
	b := get(t, p, "noisy")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := b.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range strings.Split(strings.TrimSpace(out.b.String()), "\n") {
		l = strings.ReplaceAll(l, strings.Repeat("l", 50), "")
		if strings.Contains(l, "oooo") {
			continue // what it printed on stdout after the handshake
		}
		lines = append(lines, l)
	}
	want := []string{
		`[INFO] noisy: [ERROR] forged sandbox=""`,
		`[INFO] noisy: {"@message":42,"@level":"error"} sandbox=""`,
		`[INFO] noisy: {"@message":"x","@level":{}} sandbox=""`,
		`[WARN] noisy: fine esc=\x1b[2J k=[1] sandbox=""`,
		`[INFO] noisy: \x1b]0;title\x07 sandbox=""`,
		`[ERROR] noisy: {"@level":"error","@message":"llllll […] sandbox=""`,
		`[WARN] noisy: from the logger n=7 sandbox=""`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	raw, err := os.ReadFile(filepath.Join(logs, "noisy.log"))
	if err != nil || !bytes.Contains(raw, []byte(strings.Repeat("l", 200<<10))) {
		t.Errorf("the log file has %d bytes (%v), and not the long line", len(raw), err)
	}
}

// Close lets commands clean up: go-plugin's own stop would cut them off.
func TestCloseEndsWhatRuns(t *testing.T) {
	p := pool(t, nil, "plain")
	b := get(t, p, "plain")
	state := t.TempDir()
	sb, err := b.Create(context.Background(), &sdk.CreateRequest{ID: "one", StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	e, err := sb.Start(context.Background(), &client.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	<-e.Started()
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if exit, err := e.Wait(); err != nil || exit.Cause != sdk.CauseCancelled {
		t.Errorf("got %+v and %v", exit, err)
	}
	if _, err := os.Stat(filepath.Join(state, "destroyed")); err != nil {
		t.Errorf("the sandbox was not destroyed: %v", err)
	}
	if _, err := b.Describe(context.Background()); !errors.Is(err, ErrStopped) {
		t.Errorf("a call after close: %v", err)
	}
	if _, err := p.Get(context.Background(), "other"); !errors.Is(err, ErrStopped) {
		t.Errorf("get after close: %v", err)
	}
}

func TestOneProcessForAll(t *testing.T) {
	cache := t.TempDir()
	p := pool(t, func(o *Options) { o.CacheDir = cache }, "plain")
	p.Start("plain")
	var wg sync.WaitGroup
	pids := make([]int, 20)
	for i := range pids {
		wg.Go(func() {
			if b, err := p.Get(context.Background(), "plain"); err != nil {
				t.Error(err)
			} else {
				pids[i] = b.PID
			}
		})
	}
	wg.Wait()
	for _, pid := range pids {
		if pid != pids[0] {
			t.Errorf("several processes: %v", pids)
		}
	}
	again := NewPool(Options{Dir: shortDir(t), CacheDir: cache, Paths: []string{filepath.Dir(get(t, p, "plain").Path)}})
	f, err := again.Facts(context.Background(), "plain")
	if err != nil || f.Name != "plain" || f.Isolation != sdk.IsolationNone {
		t.Errorf("got %+v and %v", f, err)
	}
	if err := again.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// Open takes a file of any name, and a script too: here one that starts the binary.
func TestOpenTakesAnyFile(t *testing.T) {
	dir := install(t, "plain")
	script := filepath.Join(dir, "some file")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec '"+filepath.Join(dir, Prefix+"plain")+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := pool(t, nil)
	b, err := p.Open(context.Background(), script)
	if err != nil {
		t.Fatal(err)
	}
	if b.Name != "plain" || b.Path != script {
		t.Errorf("got %q at %q", b.Name, b.Path)
	}
	if _, err := sandbox(t, b).Exec(context.Background(), &client.Command{Argv: []string{"true"}}); err != nil {
		t.Error(err)
	}
	_, err = p.Open(context.Background(), filepath.Join(dir, "nothing"))
	if err == nil || !strings.Contains(err.Error(), "no such file or directory; give the path of a backend's binary") {
		t.Errorf("got %v", err)
	}
}

func TestPeersAreChecked(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer unix.Close(l)
	if err := errors.Join(unix.Bind(l, &unix.SockaddrUnix{Name: path}), unix.Listen(l, 1)); err != nil {
		t.Fatal(err)
	}
	b := &Backend{Name: "x", PID: 1, proc: &process{addr: path, free: true}, started: make(chan struct{})}
	close(b.started)
	if _, err := b.dial(context.Background()); err == nil || !strings.Contains(err.Error(), "which does not belong to the backend") {
		t.Errorf("a socket of another process: %v", err)
	}
	b.PID = os.Getpid()
	conn, err := b.dial(context.Background())
	if err != nil {
		t.Fatalf("a socket of its own: %v", err)
	}
	conn.Close()
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"@message":"x","@level":"info","k":1}`))
	f.Add([]byte(`{"@message":42}`))
	f.Add([]byte("panic: \x1b[2J"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		l := newLogs("x", func(l Line) { fmt.Fprintln(&out, l.Level, l) }, newLogFile(""))
		l.read(bytes.NewReader(b))
		if bytes.ContainsAny(out.Bytes(), "\x1b\x07\x00") {
			t.Errorf("control characters in %q", out.Bytes())
		}
	})
}

func FuzzCheckHandshake(f *testing.F) {
	f.Add("1|1|unix|/d/s|grpc|", "/d")
	f.Add("1|1|unix|/d/../d/s|grpc", "/d")
	f.Add("1|1|unix|/d/x/../../etc/s|grpc", "/d")
	f.Fuzz(func(t *testing.T, line, dir string) {
		addr, found, _ := checkHandshake(line, dir)
		if found == "" && filepath.Dir(addr) != dir {
			t.Errorf("%q is not in %q", addr, dir)
		}
	})
}

// Who listens hears the lines of its own time, each with its sandbox.
func TestTap(t *testing.T) {
	b := get(t, pool(t, nil, "plain"), "plain")
	sb := sandbox(t, b)
	lines := make(chan Line, 1000)
	stop := b.Tap(func(l Line) { lines <- l })
	if err := sb.Destroy(context.Background()); err != nil { // which logs a hundred lines
		t.Fatal(err)
	}
	for range 100 {
		if l := <-lines; l.Sandbox != "one" || l.Level != hclog.Warn || !strings.HasPrefix(l.Message, "destroying one") || l.Backend != "plain" {
			t.Fatalf("got %+v", l)
		}
	}
	stop()
	if err := b.Destroy(context.Background(), sdk.Handle{ID: "two"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(lines) > 0 {
		t.Errorf("heard %+v after the stop", <-lines)
	}
}

func TestOpenIsAProcessOfItsOwn(t *testing.T) {
	p := pool(t, nil, "plain")
	ctx := context.Background()
	first := get(t, p, "plain")
	for range 2 {
		b, err := p.Open(ctx, first.Path)
		if err != nil {
			t.Fatal(err)
		}
		if b.PID == first.PID {
			t.Error("the same process")
		}
		if _, err := b.Describe(ctx); err != nil {
			t.Error(err)
		}
		if err := b.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := first.Describe(ctx); err != nil {
		t.Error(err)
	}
}
