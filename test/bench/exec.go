package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// warmExec runs commands in one sandbox from one host process, against bubblewrap
// started from the same process.
func warmExec(b *bench) (h, base sample, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("/tmp", "hb-") // sockets need a short path
	if err != nil {
		return h, base, err
	}
	defer os.RemoveAll(dir)
	pool := backend.NewPool(backend.Options{Dir: dir, Executable: b.hutch()})
	defer func() { err = errors.Join(err, pool.Close(ctx)) }()
	plugin, err := pool.Get(ctx, "bwrap")
	if err != nil {
		return h, base, err
	}
	ws, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	state := filepath.Join(b.tmp, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return h, base, err
	}
	sandbox, err := plugin.Create(ctx, &sdk.CreateRequest{
		ID: "bench", Owner: "bench", StateDir: state,
		Spec: sdk.Spec{Config: json.RawMessage("{}"), Network: sdk.NetworkNone,
			Workspace: sdk.Workspace{Source: ws, Mode: sdk.WorkspacePrivate}},
		Allocated: func(sdk.Handle) error { return nil },
	})
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, sandbox.Destroy(ctx)) }()

	argv := bwrap(ws, "true")
	h, base, err = interleave(b.rounds(500),
		timed(func() error {
			exit, err := sandbox.Exec(ctx, &client.Command{Argv: []string{"true"}, Dir: "/workspace", Stdout: io.Discard, Stderr: io.Discard})
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("true ended with %d", exit.Code)
			}
			return err
		}),
		timed(func() error { return exec.Command(argv[0], argv[1:]...).Run() }))
	base.what = "bare bwrap from the same process"
	return h, base, err
}
