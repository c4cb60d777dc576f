package main

import (
	"context"
	"errors"
	"os/exec"
)

// warmExec runs commands in one sandbox from one host process, against bubblewrap
// started from the same process.
func warmExec(b *bench) (h, base sample, err error) {
	ctx := context.Background()
	plugin, stop, err := b.plugin(ctx, "bwrap")
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ws, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	sandbox, err := b.sandbox(ctx, plugin, "bench", "{}", ws)
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, sandbox.Destroy(ctx)) }()

	argv := bwrap(ws, "true")
	h, base, err = interleave(b.rounds(500),
		timed(func() error { return execTrue(ctx, sandbox) }),
		timed(func() error { return exec.Command(argv[0], argv[1:]...).Run() }))
	base.what = "bare bwrap from the same process"
	return h, base, err
}
