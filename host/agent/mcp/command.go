package mcp

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

// commandTools are the tools that run commands.
func (s *Server) commandTools() {
	tool(s, "exec", "Run a command", "Runs a command in a sandbox and waits for it, up to \"wait\"; a longer one goes on as a job, of which job_output tells more. "+
		"Its output is the beginning of each stream; \"next\" says where job_output reads on.", adds, s.exec)
	tool(s, "job_output", "Read a job's output", "Reads on in the output of a command, and says whether it runs still. With \"wait\", waits until it has ended, up to that.", reads, s.jobOutput)
	tool(s, "stop_job", "End a job", "Ends a command and all its processes. One that has ended is left as it is.", idempotent, s.stopJob)
}

type execIn struct {
	Sandbox    string            `json:"sandbox" jsonschema:"name of the sandbox"`
	Command    string            `json:"command,omitempty" jsonschema:"a line for sh; this or argv"`
	Argv       []string          `json:"argv,omitempty" jsonschema:"a program and its arguments, run without a shell"`
	Workdir    string            `json:"workdir,omitempty" jsonschema:"directory to start in, absolute or relative to the workspace"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"variables to add to the environment"`
	Stdin      string            `json:"stdin,omitempty" jsonschema:"what the command reads"`
	Timeout    string            `json:"timeout,omitempty" jsonschema:"wall time after which it is ended, such as 90s or 5m"`
	Wait       string            `json:"wait,omitempty" jsonschema:"how long to wait for its end before it goes on as a job, such as 30s; default 60s, at most 10m"`
	Background bool              `json:"background,omitempty" jsonschema:"do not wait at all"`
	MaxBytes   int               `json:"max_bytes,omitempty" jsonschema:"bytes of each stream in the answer; default 16384, at most 262144"`
}

type execOut struct {
	jobOut
	Stdout streamOut `json:"stdout"`
	Stderr streamOut `json:"stderr"`
}

func (s *Server) exec(ctx context.Context, in execIn) (out execOut, err error) {
	if err := s.may(in.Sandbox); err != nil {
		return out, err
	}
	argv := in.Argv
	switch {
	case (in.Command == "") == (len(argv) == 0):
		return out, errors.New("give either command, a line for sh, or argv, a list of strings")
	case in.Command != "":
		argv = []string{"sh", "-c", in.Command}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		if name == "" || strings.ContainsAny(name, "= \t\x00") || strings.ContainsRune(in.Env[name], 0) {
			return out, fmt.Errorf("env: %q is no name of a variable, or its value holds a zero byte", clip(name))
		}
	}
	wait, err := duration("wait", in.Wait, defaultWait)
	if err != nil {
		return out, err
	}
	timeout, err := duration("timeout", in.Timeout, 0)
	if err != nil {
		return out, err
	}
	if in.Background {
		wait = 0
	}
	sb, err := s.o.Manager.Open(ctx, in.Sandbox, sandbox.Shared)
	if err != nil {
		return out, explain(err)
	}
	j, err := s.jobs.start(s.ctx, in.Sandbox, clip(strings.Join(argv, " ")), func(ctx context.Context, j *job) (*result.Result, error) {
		defer func() { _ = sb.Close() }()
		return sb.Run(ctx, sandbox.Command{Argv: argv, Env: in.Env, Workdir: in.Workdir, Timeout: timeout},
			run.Streams{Stdin: strings.NewReader(in.Stdin), Stdout: &j.stdout, Stderr: &j.stderr})
	})
	if err != nil {
		return out, errors.Join(err, sb.Close())
	}
	if err := j.await(ctx, wait); err != nil {
		j.cancel() // the client does not want it any more
		return out, err
	}
	return j.read(0, 0, in.MaxBytes), nil
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
func (n *job) await(ctx context.Context, wait time.Duration) error {
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

func (n *job) read(stdout, stderr int64, max int) execOut {
	if max <= 0 {
		max = defaultOutput
	}
	max = min(max, maxOutput)
	view := n.view() // before the output: when it has ended, that is complete
	return execOut{view, n.stdout.read(stdout, max), n.stderr.read(stderr, max)}
}

type jobOutputIn struct {
	Job          string `json:"job" jsonschema:"id of the job"`
	StdoutOffset int64  `json:"stdout_offset,omitempty" jsonschema:"where to begin in stdout; a negative one means the end"`
	StderrOffset int64  `json:"stderr_offset,omitempty" jsonschema:"where to begin in stderr; a negative one means the end"`
	Wait         string `json:"wait,omitempty" jsonschema:"wait for the end of the job, up to so long, such as 30s; default not at all"`
	MaxBytes     int    `json:"max_bytes,omitempty" jsonschema:"bytes of each stream in the answer; default 16384, at most 262144"`
}

func (s *Server) jobOutput(ctx context.Context, in jobOutputIn) (out execOut, err error) {
	j, err := s.jobs.find(in.Job)
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

type jobIn struct {
	Job string `json:"job" jsonschema:"id of the job"`
}

func (s *Server) stopJob(ctx context.Context, in jobIn) (out jobOut, err error) {
	j, err := s.jobs.find(in.Job)
	if err != nil {
		return out, err
	}
	j.cancel()
	if err := j.await(ctx, maxWait); err != nil {
		return out, err
	}
	return j.view(), nil
}
