package tools

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RunIn are the arguments of [Box.Run].
type RunIn struct {
	Command  string            `json:"command,omitempty" jsonschema:"a line for sh; this or argv"`
	Argv     []string          `json:"argv,omitempty" jsonschema:"a program and its arguments, run without a shell"`
	Workdir  string            `json:"workdir,omitempty" jsonschema:"directory to start in, absolute or relative to the workspace"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"variables to add to the environment"`
	Stdin    string            `json:"stdin,omitempty" jsonschema:"what the command reads"`
	Timeout  string            `json:"timeout,omitempty" jsonschema:"wall time after which it is ended, such as 90s or 5m"`
	MaxBytes int               `json:"max_bytes,omitempty" jsonschema:"bytes of each stream in the answer; default 16384, at most 262144"`
}

// endPatience is how long a command that was ended is waited for.
const endPatience = time.Minute

// Run runs a command in the sandbox and waits until it has ended, with all its processes. The answer has the end of
// each stream; [Jobs.Output] reads what stands before it. When ctx ends, the command is ended, and the answer, where
// there is one in time, comes with the error.
func (b *Box) Run(ctx context.Context, in RunIn) (ExecOut, error) {
	j, err := b.start(ctx, ExecIn{Command: in.Command, Argv: in.Argv, Workdir: in.Workdir, Env: in.Env, Stdin: in.Stdin, Timeout: in.Timeout})
	if err != nil {
		return ExecOut{}, err
	}
	select {
	case <-j.done:
		return j.read(-1, -1, in.MaxBytes), nil
	case <-ctx.Done():
	}
	j.cancel()
	t := time.NewTimer(endPatience)
	defer t.Stop()
	select {
	case <-j.done:
		return j.read(-1, -1, in.MaxBytes), context.Cause(ctx)
	case <-t.C:
		return ExecOut{}, errors.Join(context.Cause(ctx), errors.New("the command does not end"))
	}
}

// Ended says in words how a command ended; "" while it runs, and when there is none.
func (o *JobOut) Ended() string {
	switch {
	case o.Job == "" || o.Running:
		return ""
	case o.ExitCode != nil && o.Cause == "exited":
		return fmt.Sprintf("exit code %d", *o.ExitCode)
	case o.Problem != "":
		return o.Problem
	case o.Evidence != "":
		return o.Cause + ": " + o.Evidence
	}
	return o.Cause
}

// OutputIn are the arguments of the tool that reads on in the output of a command.
type OutputIn struct {
	Job          string `json:"job" jsonschema:"id of the command, as run_command told it"`
	StdoutOffset int64  `json:"stdout_offset,omitempty" jsonschema:"where to begin in stdout; a negative one means the end"`
	StderrOffset int64  `json:"stderr_offset,omitempty" jsonschema:"where to begin in stderr; a negative one means the end"`
	MaxBytes     int    `json:"max_bytes,omitempty" jsonschema:"bytes of each stream in the answer; default 16384, at most 262144"`
}

// Output reads on in the output of a command that Run ran.
func (b *Box) Output(ctx context.Context, in OutputIn) (ExecOut, error) {
	return b.Jobs.Output(ctx, JobOutputIn{Job: in.Job, StdoutOffset: in.StdoutOffset, StderrOffset: in.StderrOffset, MaxBytes: in.MaxBytes})
}
