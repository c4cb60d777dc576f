package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hutch-run/hutch/host/network"
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
	j, err := b.Jobs.start(b.Name, Clip(strings.Join(argv, " ")),
		func(ctx context.Context, j *Job) (*result.Result, error) {
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
func (j *Jobs) Output(ctx context.Context, in JobOutputIn) (out ExecOut, err error) {
	n, err := j.find(in.Job)
	if err != nil {
		return out, err
	}
	wait, err := duration("wait", in.Wait, 0)
	if err != nil {
		return out, err
	}
	if err := n.await(ctx, wait); err != nil {
		return out, err
	}
	return n.read(in.StdoutOffset, in.StderrOffset, in.MaxBytes), nil
}

// JobIn names a job.
type JobIn struct {
	Job string `json:"job" jsonschema:"id of the job"`
}

// End ends a command and all its processes, and waits for that.
func (j *Jobs) End(ctx context.Context, in JobIn) (out JobOut, err error) {
	n, err := j.find(in.Job)
	if err != nil {
		return out, err
	}
	n.cancel()
	if err := n.await(ctx, maxWait); err != nil {
		return out, err
	}
	return n.view(), nil
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

// Ended says in words how a command ended; "" while it runs, and without a command.
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

const (
	maxRunning = 32  // commands at once
	maxDenied  = 20  // destinations in an answer
	maxEnded   = 100 // jobs of which the output is kept after they ended, unless Jobs.Keep says
)

// Job is one command.
type Job struct {
	id, sandbox, command string
	began                time.Time
	stdout, stderr       tail
	cancel               context.CancelFunc
	done                 chan struct{} // closed when it has ended

	// Written before done is closed.
	ended  time.Time
	result *result.Result
	err    error // when there is no result
}

// Jobs are the commands that run, and those that ended of which the output is kept. Its methods may be called
// concurrently.
type Jobs struct {
	// Keep is of how many commands that ended the output is kept to be read on; it is set before the first one starts.
	Keep int

	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	next int
	all  []*Job // oldest first
	wg   sync.WaitGroup
}

// NewJobs returns Jobs that end with ctx, or with [Jobs.Close].
func NewJobs(ctx context.Context) *Jobs {
	j := &Jobs{Keep: maxEnded, next: 1}
	j.ctx, j.cancel = context.WithCancel(ctx)
	return j
}

// Close ends all jobs and waits for them, until ctx ends.
func (j *Jobs) Close(ctx context.Context) {
	j.cancel()
	done := make(chan struct{})
	go func() { j.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// start runs fn as a job, which ends when fn returns.
func (j *Jobs) start(sandbox, command string, fn func(ctx context.Context, job *Job) (*result.Result, error)) (*Job,
	error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	running := 0
	ended := 0
	for _, other := range j.all {
		select {
		case <-other.done:
			ended++
		default:
			running++
		}
	}
	if running >= maxRunning {
		return nil, fmt.Errorf("%d commands run already; wait for one with job_output, or end one with stop_job", running)
	}
	j.all = slices.DeleteFunc(j.all, func(other *Job) bool {
		select {
		case <-other.done:
			ended--
			return ended >= j.Keep
		default:
			return false
		}
	})
	ctx, cancel := context.WithCancel(j.ctx)
	n := &Job{id: "job-" + strconv.Itoa(j.next), sandbox: sandbox, command: command, began: time.Now(), cancel: cancel,
		done: make(chan struct{})}
	j.next++
	j.all = append(j.all, n)
	j.wg.Go(func() {
		defer cancel()
		n.result, n.err = fn(ctx, n)
		n.ended = time.Now()
		close(n.done)
	})
	return n, nil
}

func (j *Jobs) find(id string) (*Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range j.all {
		if n.id == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no job %q", Clip(id))
}

// Of lists the jobs of a sandbox, without their output.
func (j *Jobs) Of(sandbox string) []JobOut {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []JobOut{}
	for _, n := range j.all {
		if n.sandbox == sandbox {
			out = append(out, n.view())
		}
	}
	return out
}

// Stop ends the jobs of a sandbox and waits for them.
func (j *Jobs) Stop(ctx context.Context, sandbox string) {
	j.mu.Lock()
	list := slices.Clone(j.all)
	j.mu.Unlock()
	for _, n := range list {
		if n.sandbox == sandbox {
			n.cancel()
			select {
			case <-n.done:
			case <-ctx.Done():
			}
		}
	}
}

// JobOut is a job as a model sees it.
type JobOut struct {
	Job      string `json:"job"`
	Sandbox  string `json:"sandbox"`
	Command  string `json:"command"`
	Running  bool   `json:"running"`
	Seconds  int    `json:"seconds" jsonschema:"how long it has run, or ran"`
	OK       bool   `json:"ok" jsonschema:"it ended with exit code 0"`
	ExitCode *int   `json:"exit_code,omitempty" jsonschema:"missing while it runs, and when it did not end by itself"`
	Cause    string `json:"cause,omitempty" jsonschema:"how it ended: exited, signaled, timeout, oom, pids, disk, output, cancelled, setup_failed or backend_error"`
	Evidence string `json:"evidence,omitempty" jsonschema:"what the cause was read from"`
	// Denied says what of the network the command asked for and must not have.
	Denied  []string `json:"denied,omitempty" jsonschema:"destinations on the network that were denied; trying again does not help"`
	Lost    string   `json:"lost,omitempty" jsonschema:"why a part of the output is missing"`
	Problem string   `json:"problem,omitempty" jsonschema:"why there was nothing to run, or what broke"`
	Run     string   `json:"run,omitempty" jsonschema:"id of its record, for hutch show and hutch logs"`
}

func (n *Job) view() JobOut {
	out := JobOut{Job: n.id, Sandbox: n.sandbox, Command: n.command}
	select {
	case <-n.done:
	default:
		out.Running = true
		out.Seconds = int(time.Since(n.began).Seconds())
		return out
	}
	out.Seconds = int(n.ended.Sub(n.began).Seconds())
	if n.err != nil {
		out.Problem = n.err.Error()
	}
	if r := n.result; r != nil {
		out.OK, out.ExitCode, out.Cause, out.Evidence, out.Run = r.OK, r.ExitCode, string(r.Cause), r.Evidence, r.ID
		for _, t := range r.Network.Denied() {
			if len(out.Denied) == maxDenied {
				break
			}
			text, _ := network.Denial(t)
			out.Denied = append(out.Denied, text)
		}
		out.Lost = cmp.Or(r.Stdout.Lost, r.Stderr.Lost)
		if r.Error != nil {
			out.Problem = r.Error.Error()
		}
	}
	return out
}

const (
	keptOutput    = 1 << 20  // bytes of each stream of a job that are kept to be read: the last ones
	defaultOutput = 16 << 10 // bytes of each stream in one answer
	maxOutput     = 256 << 10
)

// tail keeps the last bytes of a stream, and counts all of them.
type tail struct {
	mu    sync.Mutex
	kept  []byte
	total int64
}

// Write implements io.Writer; it never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*keptOutput {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-keptOutput:]...)
	}
	return len(p), nil
}

// StreamOut is a piece of a stream.
type StreamOut struct {
	Text    string `json:"text" jsonschema:"what is not UTF-8 shows as U+FFFD"`
	Offset  int64  `json:"offset" jsonschema:"where in the stream the text begins, in bytes"`
	Next    int64  `json:"next" jsonschema:"offset to go on reading at"`
	Total   int64  `json:"total" jsonschema:"bytes of the stream so far"`
	Skipped int64  `json:"skipped,omitempty" jsonschema:"bytes before the text that are no longer kept; all of them may be in the record of the run"`
}

// read returns the bytes from an offset on. A negative offset asks for the end.
func (t *tail) read(offset int64, max int) StreamOut {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.total - int64(len(t.kept))
	if len(t.kept) > keptOutput {
		first = t.total - keptOutput
	}
	if offset < 0 || offset > t.total {
		offset = t.total - int64(max)
		if offset < first {
			offset = first
		}
	}
	out := StreamOut{Total: t.total}
	if offset < first {
		out.Skipped, offset = first-offset, first
	}
	b := t.kept[int64(len(t.kept))-(t.total-offset):]
	if len(b) > max {
		b = b[:max]
		for cut := 1; cut < utf8.UTFMax && cut < len(b); cut++ { // not inside of a character
			if utf8.RuneStart(b[len(b)-cut]) {
				if !utf8.FullRune(b[len(b)-cut:]) {
					b = b[:len(b)-cut]
				}
				break
			}
		}
	}
	out.Offset, out.Next = offset, offset+int64(len(b))
	out.Text = strings.ToValidUTF8(string(b), "\uFFFD")
	return out
}
