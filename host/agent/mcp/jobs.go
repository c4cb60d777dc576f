package mcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hutch-run/hutch/host/result"
)

const (
	maxRunning = 32  // commands at once
	maxEnded   = 100 // jobs of which the output is kept after they ended
)

// job is one command.
type job struct {
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

// jobs are those of a server. The zero value needs init.
type jobs struct {
	mu   sync.Mutex
	next int
	all  []*job // oldest first
	wg   sync.WaitGroup
}

func (j *jobs) init() { j.next = 1 }

// start runs fn as a job, which ends when fn returns. ctx is that of the server.
func (j *jobs) start(ctx context.Context, sandbox, command string, fn func(ctx context.Context, job *job) (*result.Result, error)) (*job, error) {
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
	j.all = slices.DeleteFunc(j.all, func(other *job) bool {
		select {
		case <-other.done:
			ended--
			return ended >= maxEnded
		default:
			return false
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	n := &job{id: "job-" + strconv.Itoa(j.next), sandbox: sandbox, command: command, began: time.Now(), cancel: cancel, done: make(chan struct{})}
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

func (j *jobs) find(id string) (*job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range j.all {
		if n.id == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no job %q; sandbox_status lists those of a sandbox", clip(id))
}

// of lists the jobs of a sandbox, without their output.
func (j *jobs) of(sandbox string) []jobOut {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []jobOut{}
	for _, n := range j.all {
		if n.sandbox == sandbox {
			out = append(out, n.view())
		}
	}
	return out
}

// stop ends the jobs of a sandbox and waits for them.
func (j *jobs) stop(ctx context.Context, sandbox string) {
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

// wait waits for all jobs, which somebody has cancelled.
func (j *jobs) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { j.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// jobOut is a job as a client sees it.
type jobOut struct {
	Job      string `json:"job"`
	Sandbox  string `json:"sandbox"`
	Command  string `json:"command"`
	Running  bool   `json:"running"`
	Seconds  int    `json:"seconds" jsonschema:"how long it has run, or ran"`
	OK       bool   `json:"ok" jsonschema:"it ended with exit code 0"`
	ExitCode *int   `json:"exit_code,omitempty" jsonschema:"missing while it runs, and when it did not end by itself"`
	Cause    string `json:"cause,omitempty" jsonschema:"how it ended: exited, signaled, timeout, oom, pids, disk, output, cancelled, setup_failed or backend_error"`
	Evidence string `json:"evidence,omitempty" jsonschema:"what the cause was read from"`
	Problem  string `json:"problem,omitempty" jsonschema:"why there was nothing to run, or what broke"`
	Run      string `json:"run,omitempty" jsonschema:"id of its record, for hutch show and hutch logs"`
}

func (n *job) view() jobOut {
	out := jobOut{Job: n.id, Sandbox: n.sandbox, Command: n.command}
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
		if r.Error != nil {
			out.Problem = r.Error.Error()
		}
	}
	return out
}
