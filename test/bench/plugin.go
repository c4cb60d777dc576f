package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// plugin starts a backend, which is there until stop is called.
func (b *bench) plugin(ctx context.Context, name string) (p *backend.Backend, stop func() error, err error) {
	dir, err := os.MkdirTemp("/tmp", "hb-") // sockets need a short path
	if err != nil {
		return nil, nil, err
	}
	pool := backend.NewPool(backend.Options{Dir: dir, Executable: b.hutch()})
	stop = func() error { return errors.Join(pool.Close(ctx), os.RemoveAll(dir)) }
	if p, err = pool.Get(ctx, name); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return p, stop, nil
}

// sandbox makes a sandbox with a private workspace; config is the backend's block as JSON.
func (b *bench) sandbox(ctx context.Context, p *backend.Backend, id, config, workspace string) (*client.Sandbox,
	error) {
	state, err := os.MkdirTemp(b.tmp, "state-")
	if err != nil {
		return nil, err
	}
	return p.Create(ctx, &sdk.CreateRequest{
		ID: id, Owner: "bench", StateDir: state,
		Spec: sdk.Spec{Config: json.RawMessage(config), Network: sdk.NetworkNone,
			Workspace: sdk.Workspace{Source: workspace, Mode: sdk.WorkspacePrivate}},
		Allocated: func(sdk.Handle) error { return nil },
	})
}

// execTrue runs the shortest command in a sandbox.
func execTrue(ctx context.Context, s *client.Sandbox) error {
	exit, err := s.Exec(ctx, &client.Command{Argv: []string{"true"}, Dir: "/workspace", Stdout: io.Discard,
		Stderr: io.Discard})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("true ended with %d", exit.Code)
	}
	return err
}
