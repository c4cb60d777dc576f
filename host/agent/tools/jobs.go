package tools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
)

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
func (j *Jobs) start(sandbox, command string, fn func(ctx context.Context, job *Job) (*result.Result, error)) (*Job, error) {
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
	n := &Job{id: "job-" + strconv.Itoa(j.next), sandbox: sandbox, command: command, began: time.Now(), cancel: cancel, done: make(chan struct{})}
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
