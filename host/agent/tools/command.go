package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/units"
)

const (
	defaultWait = 60 * time.Second
	maxWait     = 10 * time.Minute
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

// ExecIn are the arguments of [Box.Exec].
type ExecIn struct {
	RunIn
	Wait       string `json:"wait,omitempty" jsonschema:"how long to wait for its end before it goes on as a job, such as 30s; default 60s, at most 10m"`
	Background bool   `json:"background,omitempty" jsonschema:"do not wait at all"`
}

// ExecOut is how a command is, and a piece of each of its streams.
type ExecOut struct {
	JobOut
	Stdout StreamOut `json:"stdout"`
	Stderr StreamOut `json:"stderr"`
}

// Exec runs a command in the sandbox and waits for it, for as long as is asked for; then it goes on as a job.
func (b *Box) Exec(ctx context.Context, in ExecIn) (out ExecOut, err error) {
	wait, err := duration("wait", in.Wait, defaultWait)
	if err != nil {
		return out, err
	}
	if in.Background {
		wait = 0
	}
	j, err := b.start(ctx, in.RunIn)
	if err != nil {
		return out, err
	}
	if err := j.await(ctx, wait); err != nil {
		j.cancel() // the client does not want it any more
		return out, err
	}
	return j.read(0, 0, in.MaxBytes), nil
}

// start begins a command in the sandbox.
func (b *Box) start(ctx context.Context, in RunIn) (*Job, error) {
	argv := in.Argv
	switch {
	case (in.Command == "") == (len(argv) == 0):
		return nil, errors.New("give either command, a line for sh, or argv, a list of strings")
	case in.Command != "":
		argv = []string{"sh", "-c", in.Command}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		if name == "" || strings.ContainsAny(name, "= \t\x00") || strings.ContainsRune(in.Env[name], 0) {
			return nil, fmt.Errorf("env: %q is no name of a variable, or its value holds a zero byte", Clip(name))
		}
	}
	timeout, err := duration("timeout", in.Timeout, 0)
	if err != nil {
		return nil, err
	}
	if b.MaxTimeout > 0 && (timeout == 0 || timeout > b.MaxTimeout) {
		timeout = b.MaxTimeout
	}
	sb, err := b.Manager.Open(ctx, b.Name, sandbox.Shared)
	if err != nil {
		return nil, Explain(err)
	}
	j, err := b.Jobs.start(b.Name, Clip(strings.Join(argv, " ")), func(ctx context.Context, j *Job) (*result.Result, error) {
		defer func() { _ = sb.Close() }()
		return sb.Run(ctx, sandbox.Command{Parent: b.Parent, Argv: argv, Env: in.Env, Workdir: in.Workdir, Timeout: timeout},
			run.Streams{Stdin: strings.NewReader(in.Stdin), Stdout: &j.stdout, Stderr: &j.stderr})
	})
	if err != nil {
		return nil, errors.Join(err, sb.Close())
	}
	return j, nil
}

// duration reads a duration of a request.
func duration(name, text string, or time.Duration) (time.Duration, error) {
	if text == "" {
		return or, nil
	}
	d, err := units.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if name == "wait" && d > maxWait {
		return maxWait, nil
	}
	return d, nil
}

// await waits until the job has ended, for at most so long. The error is the end of ctx.
func (n *Job) await(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-n.done:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (n *Job) read(stdout, stderr int64, max int) ExecOut {
	max = bounded(max, defaultOutput, maxOutput)
	view := n.view() // before the output: when it has ended, that is complete
	return ExecOut{view, n.stdout.read(stdout, max), n.stderr.read(stderr, max)}
}

// OutputIn are the arguments of [Box.Output].
type OutputIn struct {
	Job          string `json:"job" jsonschema:"id of the command, as it was answered"`
	StdoutOffset int64  `json:"stdout_offset,omitempty" jsonschema:"where to begin in stdout; a negative one means the end"`
	StderrOffset int64  `json:"stderr_offset,omitempty" jsonschema:"where to begin in stderr; a negative one means the end"`
	MaxBytes     int    `json:"max_bytes,omitempty" jsonschema:"bytes of each stream in the answer; default 16384, at most 262144"`
}

// JobOutputIn are the arguments of [Jobs.Output].
type JobOutputIn struct {
	OutputIn
	Wait string `json:"wait,omitempty" jsonschema:"wait for the end of the job, up to so long, such as 30s; default not at all"`
}

// Output reads on in the output of a command that Run ran.
func (b *Box) Output(ctx context.Context, in OutputIn) (ExecOut, error) {
	return b.Jobs.Output(ctx, JobOutputIn{OutputIn: in})
}

// Output reads on in the output of a command.
func (b *Jobs) Output(ctx context.Context, in JobOutputIn) (out ExecOut, err error) {
	j, err := b.find(in.Job)
	if err != nil {
		return out, err
	}
	wait, err := duration("wait", in.Wait, 0)
	if err != nil {
		return out, err
	}
	if err := j.await(ctx, wait); err != nil {
		return out, err
	}
	return j.read(in.StdoutOffset, in.StderrOffset, in.MaxBytes), nil
}

// JobIn names a job.
type JobIn struct {
	Job string `json:"job" jsonschema:"id of the job"`
}

// End ends a command and all its processes, and waits for that.
func (b *Jobs) End(ctx context.Context, in JobIn) (out JobOut, err error) {
	j, err := b.find(in.Job)
	if err != nil {
		return out, err
	}
	j.cancel()
	if err := j.await(ctx, maxWait); err != nil {
		return out, err
	}
	return j.view(), nil
}

// gracePeriod is how long to wait for a command that was ended.
const gracePeriod = time.Minute

// Run runs a command in the sandbox and waits until it has ended, with all its processes. The answer has the end of
// each stream; [Jobs.Output] reads what stands before it. When ctx ends, the command is ended, and the answer, where
// there is one in time, comes with the error.
func (b *Box) Run(ctx context.Context, in RunIn) (ExecOut, error) {
	j, err := b.start(ctx, in)
	if err != nil {
		return ExecOut{}, err
	}
	select {
	case <-j.done:
		return j.read(-1, -1, in.MaxBytes), nil
	case <-ctx.Done():
	}
	j.cancel()
	select {
	case <-j.done:
		return j.read(-1, -1, in.MaxBytes), context.Cause(ctx)
	case <-time.After(gracePeriod):
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
