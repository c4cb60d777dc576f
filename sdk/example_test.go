package sdk_test

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/hutch-run/hutch/sdk"
)

// plain runs commands as plain processes in a temporary directory: it isolates
// nothing, and shows what a backend must have at the least.
type plain struct{}

type config struct {
	Nice int `hutch:"nice" default:"0" doc:"Niceness of every command, 0 to 19."`
}

func (plain) Describe() sdk.Description {
	return sdk.Description{
		Name: "plain", Version: "0.1.0", Summary: "plain processes, for tests only",
		Isolation: sdk.IsolationNone, Config: config{}, Limits: []sdk.Limit{sdk.LimitTimeout},
	}
}

func (plain) Check(context.Context) ([]sdk.Finding, error) {
	return []sdk.Finding{{Name: "processes", Status: sdk.SeverityOK, Detail: "this system has them"}}, nil
}

func (plain) Create(_ context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	dir := req.StateDir + "/workspace"
	if err := req.Allocated(sdk.Handle{Data: []byte(`{}`)}); err != nil {
		return nil, err
	}
	return &place{dir: dir}, os.Mkdir(dir, 0o700)
}

// The host removes the state directory, which is all there is.
func (plain) Destroy(context.Context, sdk.Handle) error { return nil }

type place struct{ dir string }

func (p *place) Ready() sdk.Ready { return sdk.Ready{Workspace: p.dir} }

func (p *place) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.dir, c.Stdin, c.Stdout, c.Stderr
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if err := cmd.Start(); err != nil {
		return &sdk.Exit{Code: 127, NotStarted: true, Evidence: err.Error()}, nil
	}
	c.Started()
	if err := cmd.Wait(); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && !exit.Exited() {
		return &sdk.Exit{Code: 137, Signal: "SIGKILL"}, nil
	}
	return &sdk.Exit{Code: cmd.ProcessState.ExitCode()}, nil
}

// A whole backend: its main calls Serve.
func ExampleServe() {
	sdk.Serve(plain{})
}
