package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// The test binary is every plugin of the tests: it is linked under the name of a
// backend, and behaves as that name says.
func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), Prefix); ok {
		behave(name)
		return
	}
	if dir := os.Getenv("HUTCH_TEST_HOST"); dir != "" {
		actAsHost(dir)
		return
	}
	os.Exit(m.Run())
}

// behave is the main of the plugin called name.
func behave(name string) {
	switch name {
	case "garbage":
		fmt.Println("Usage: garbage [options]")
		time.Sleep(time.Hour)
	case "endless":
		fmt.Print(strings.Repeat("x", 300<<10))
		time.Sleep(time.Hour)
	case "hang":
		time.Sleep(time.Hour)
	case "exit3":
		fmt.Fprintln(os.Stderr, "the licence has expired")
		os.Exit(3)
	case "core9":
		fmt.Println("9|1|unix|/tmp/x|grpc|")
		time.Sleep(time.Hour)
	case "app99":
		fmt.Println("1|99|unix|/tmp/x|grpc|")
		time.Sleep(time.Hour)
	case "tcp":
		fmt.Println("1|1|tcp|127.0.0.1:1|grpc|")
		time.Sleep(time.Hour)
	case "foreign":
		fmt.Println("1|1|unix|/tmp/somebody-elses.sock|grpc|")
		time.Sleep(time.Hour)
	case "nosocket":
		fmt.Printf("1|1|unix|%s/s|grpc|\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		time.Sleep(time.Hour)
	case "netrpc":
		fmt.Printf("1|1|unix|%s/s|netrpc|\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		time.Sleep(time.Hour)
	default:
		sdk.Serve(&fake{name: name})
	}
}

// fake is a backend of plain processes.
type fake struct{ name string }

func (f *fake) Describe() sdk.Description {
	d := sdk.Description{
		Name: f.name, Version: "1.0.0", Summary: "plain processes", Isolation: sdk.IsolationNone,
		Limits: []sdk.Limit{sdk.LimitTimeout}, Sandbox: (*place)(nil), Formats: []sdk.Format{sdk.FormatFile},
	}
	switch f.name {
	case "wrongname":
		d.Name = "another"
	case "declares":
		d.Environment = []string{"SECRET_KEY"}
	}
	return d
}

func (f *fake) Check(ctx context.Context) ([]sdk.Finding, error) {
	switch f.name {
	case "facts": // what it finds in its process
		stdin, _ := os.Readlink("/proc/self/fd/0")
		cwd, _ := os.Getwd()
		self, _ := os.Executable()
		comm, _ := os.ReadFile("/proc/self/comm")
		return []sdk.Finding{
			{Name: "stdin", Detail: stdin}, {Name: "group", Detail: fmt.Sprint(syscall.Getpgrp() == os.Getpid())}, {Name: "cwd", Detail: cwd},
			{Name: "exe", Detail: filepath.Base(self)}, {Name: "arg0", Detail: filepath.Base(os.Args[0])}, {Name: "comm", Detail: strings.TrimSpace(string(comm))},
		}, nil
	case "noisy": // on every stream, in every way
		for range 1 << 10 {
			fmt.Print(strings.Repeat("o", 1<<10))
			_, _ = syscall.Write(1, make([]byte, 1<<10))
		}
		fmt.Println()
		fmt.Fprintln(os.Stderr, "[ERROR] forged")
		fmt.Fprintln(os.Stderr, `{"@message":42,"@level":"error"}`)
		fmt.Fprintln(os.Stderr, `{"@message":"x","@level":{}}`)
		fmt.Fprintln(os.Stderr, `{"@message":"fine","@level":"warn","@timestamp":[],"k":[1],"esc":"\u001b[2J"}`)
		fmt.Fprintln(os.Stderr, "\x1b]0;title\x07")
		fmt.Fprintln(os.Stderr, `{"@level":"error","@message":"`+strings.Repeat("l", 200<<10)+`"}`)
		sdk.Logger().Warn("from the logger", "n", 7)
	case "child": // starts a process that stays in the group
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return []sdk.Finding{{Name: "child", Detail: fmt.Sprint(cmd.Process.Pid)}}, nil
	case "panics":
		go panic("in a goroutine of its own")
		<-ctx.Done()
	case "dies":
		fmt.Fprintln(os.Stderr, "about to die")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		<-ctx.Done()
	case "waits":
		fmt.Fprintln(os.Stderr, "waiting for the moon")
		<-ctx.Done()
	case "stops":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-ctx.Done() // the other threads stop a moment later than this one goes on
	}
	return []sdk.Finding{{Name: "machine", Status: sdk.SeverityOK}}, nil
}

func (f *fake) Create(_ context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	data, err := json.Marshal(req.StateDir)
	if err != nil {
		return nil, err
	}
	if err := req.Allocated(sdk.Handle{ID: req.ID, Data: data}); err != nil {
		return nil, err
	}
	return &place{f: f, dir: req.StateDir}, os.WriteFile(filepath.Join(req.StateDir, "exists"), nil, 0o600)
}

// Destroy logs first, and a lot: to a host that is gone.
func (f *fake) Destroy(ctx context.Context, h sdk.Handle) error {
	for range 100 {
		sdk.Log(ctx).Warn("destroying " + h.ID + strings.Repeat(".", 1000))
	}
	var dir string
	if h.Data == nil {
		return nil
	}
	if err := json.Unmarshal(h.Data, &dir); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(dir, "exists"))
	return os.WriteFile(filepath.Join(dir, "destroyed"), nil, 0o600)
}

type place struct {
	f   *fake
	dir string
}

func (p *place) Ready() sdk.Ready { return sdk.Ready{Workspace: p.dir} }

func (p *place) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if p.f.name == "deaf" { // does not hear that its time is up
		ctx = context.WithoutCancel(ctx)
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.dir, c.Stdin, c.Stdout, c.Stderr
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	// A deaf one is killed with its group, and the command must go with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: p.f.name != "deaf"}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return &sdk.Exit{Code: 127, NotStarted: true, Evidence: err.Error()}, nil
	}
	c.Started()
	if err := cmd.Wait(); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &sdk.Exit{Code: cmd.ProcessState.ExitCode()}, nil
}

// install links the test binary under the names of backends into a directory.
func install(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path := filepath.Join(dir, Prefix+n)
		if os.Link(exe, path) == nil {
			continue
		}
		b, err := os.ReadFile(exe)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shortDir is a directory whose path is short enough for a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hutch-t-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the private directory: %v %v", left, err)
		}
		os.RemoveAll(dir)
	})
	return dir
}

// pool makes a pool that finds the given backends and must leave nothing behind.
func pool(t testing.TB, change func(*Options), names ...string) *Pool {
	t.Helper()
	opt := Options{
		Dir: shortDir(t), Environ: []string{"PATH=" + os.Getenv("PATH"), "SECRET_KEY=hush", "OTHER=x", EnvPath + "=" + install(t, names...)},
		Executable: "/nonexistent/bin/hutch", StartTimeout: 10 * time.Second,
	}
	if change != nil {
		change(&opt)
	}
	p := NewPool(opt)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return p
}
