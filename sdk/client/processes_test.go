package client_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// processes is a backend of plain processes whose every step a test can replace.
type processes struct {
	describe func(*sdk.Description)
	check    func(context.Context) error
	create   func(context.Context, *sdk.CreateRequest) (sdk.Sandbox, error)
	destroy  func(context.Context, sdk.Handle) error
	exec     func(context.Context, *sdk.Command) (*sdk.Exit, error)
}

func (p *processes) Describe() sdk.Description {
	d := sdk.Description{Name: "processes", Version: "1.2.3", Summary: "plain processes", Isolation: sdk.IsolationNone,
		Limits: []sdk.Limit{sdk.LimitTimeout}, Networks: []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull}}
	if p.describe != nil {
		p.describe(&d)
	}
	return d
}

func (p *processes) Check(ctx context.Context) ([]sdk.Finding, error) {
	if p.check != nil {
		return nil, p.check(ctx)
	}
	return nil, nil
}

func (p *processes) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	if p.create != nil {
		return p.create(ctx, req)
	}
	return &box{p: p}, nil
}

func (p *processes) Destroy(ctx context.Context, h sdk.Handle) error {
	if p.destroy != nil {
		return p.destroy(ctx, h)
	}
	return nil
}

type box struct{ p *processes }

func (b *box) Ready() sdk.Ready { return sdk.Ready{Workspace: "/workspace"} }

func (b *box) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if b.p.exec != nil {
		return b.p.exec(ctx, c)
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Stdin, c.Stdout, c.Stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return &sdk.Exit{Code: 127, NotStarted: true, Evidence: err.Error()}, nil
	}
	c.Started()
	err := cmd.Wait()
	if err != nil && ctx.Err() != nil {
		return &sdk.Exit{Cause: sdk.CauseOf(ctx), Code: 137, Signal: "SIGKILL"}, nil
	}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return &sdk.Exit{Cause: sdk.CauseSignaled, Code: 128 + int(ws.Signal()), Signal: ws.Signal().String()}, nil
	}
	return &sdk.Exit{Cause: sdk.CauseExited, Code: cmd.ProcessState.ExitCode()}, nil
}

func serve(t *testing.T, b sdk.Backend) *client.Local {
	t.Helper()
	c, err := client.InProcess(b, client.Options{PipeDir: t.TempDir(), Timeout: 5 * time.Minute}) // the race detector on a busy machine
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return c
}

func create(t *testing.T, c *client.Local, id string) *client.Sandbox {
	t.Helper()
	sb, err := c.Create(context.Background(), &sdk.CreateRequest{ID: id, Owner: "test", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// killPrinted kills the process whose id a script printed.
func killPrinted(t *testing.T, text string) {
	t.Helper()
	var pid int
	if _, err := fmt.Sscan(text, &pid); err != nil {
		t.Fatalf("no process id in %q", text)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
