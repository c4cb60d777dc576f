package sdk_test

import (
	"context"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// plain runs commands as plain processes and isolates nothing.
type plain struct{}

type config struct {
	Mode uint32 `hutch:"mode" default:"448" doc:"Permissions of the workspace; 448 is 0700."`
}

func (plain) Describe() sdk.Description {
	return sdk.Description{Name: "plain", Version: "0.1.0", Summary: "plain processes, for tests only",
		Isolation: sdk.IsolationNone, Config: config{}, Limits: []sdk.Limit{sdk.LimitTimeout},
		Networks: []sdk.NetworkMode{sdk.NetworkFull}} // it cannot take the network away
}

func (plain) Check(context.Context) ([]sdk.Finding, error) {
	return []sdk.Finding{{Name: "processes", Status: sdk.SeverityOK}}, nil
}

func (plain) Create(_ context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	dir := req.StateDir + "/workspace"
	return place(dir), os.Mkdir(dir, os.FileMode(req.Config.(*config).Mode))
}

// The host removes the state directory, which is all there is.
func (plain) Destroy(context.Context, sdk.Handle) error { return nil }

type place string

func (p place) Ready() sdk.Ready { return sdk.Ready{Workspace: string(p)} }

func (p place) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = string(p), c.Stdin, c.Stdout, c.Stderr
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	run, err := supervise.Start(cmd, supervise.Options{Grace: c.Grace})
	if err != nil {
		return &sdk.Exit{Code: 127, NotStarted: true, Evidence: err.Error()}, nil
	}
	c.Started()
	end := run.Wait(ctx) // when ctx ends, the whole tree does
	return &sdk.Exit{Code: end.Code, Signal: unix.SignalName(end.Signal)}, end.Err
}

// A whole backend: its main calls Serve.
func ExampleServe() { sdk.Serve(plain{}) }
