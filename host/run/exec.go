package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// exec runs the command of the run and notes how it ended. It reports whether there is anything to collect.
func (j *job) exec(ctx context.Context, p *place) bool {
	sp := j.span.child("exec")
	defer sp.end()
	defer j.watchRepositories()()
	ready := p.Ready()
	at := j.places(ready)
	j.res.Workspace.Path = at.workspace
	inv := invoke(j.d, j.id, at, len(j.mounts) > 0)
	j.res.Command, j.res.Workdir = inv.argv, inv.dir

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, errs, err := j.sinks(cancel)
	if err != nil {
		j.fail("exec", err)
		return false
	}
	cmd := &client.Command{
		Argv: inv.argv, Env: inv.env, Dir: inv.dir, Stdin: j.s.Stdin, Stdout: out,
		User: j.user, TTY: j.s.TTY, Timeout: timeoutOf(j.d, j.s.TTY != nil), Allow: j.allow,
	}
	if errs != nil {
		cmd.Stderr = errs
	}
	j.withSecrets(cmd)
	cmd.Observe = j.d.Observe && p.b.Facts.Has(sdk.CapObserve)
	j.res.Observed = cmd.Observe
	if j.d.Stdin != nil {
		cmd.Stdin = strings.NewReader(*j.d.Stdin)
	}
	j.event(store.EventExecStart, map[string]any{"argv": j.secrets.Argv(inv.argv), "dir": inv.dir,
		"env": envNames(inv.env), "tty": j.s.TTY != nil})

	decided := j.watchDecisions(cmd)
	j.progress("", 0, 0) // all that was shown was about what is over now
	start := time.Now()
	var exit *sdk.Exit
	ex, err := p.Start(ctx, cmd)
	if err == nil {
		for _, port := range j.published {
			port.Serve(p.Dial)
		}
		stop := make(chan struct{})
		go j.control(ex, stop)
		endOpening := decided.open(ctx, ex, p.b.Facts.Has(sdk.CapAllow))
		if j.r.opt.Processes && p.b.Facts.Has(sdk.CapInspect) {
			if st, err := p.Inspect(ctx); err == nil {
				j.r.opt.Progress(Progress{Run: j.id, Name: j.d.Instance, PID: st.Details[sdk.DetailPID]})
			}
		}
		exit, err = ex.Wait()
		close(stop)
		endOpening()
		j.unpublish()
	}
	wall := time.Since(start)
	j.note(decided.err, "record what the network decided")
	for _, rule := range decided.opened {
		j.res.Notes = append(j.res.Notes, "its network was opened for "+rule+" while it ran")
	}
	j.closeSinks(out, errs)
	if exit == nil {
		if cause := context.Cause(ctx); cause != nil && err == nil {
			err = cause
		}
		j.fail("exec", err)
		j.res.Usage.Wall = result.Seconds(wall)
	} else {
		j.exited(exit, wall)
		if err != nil { // a writer of ours, or the disk
			j.note(err, "pass on the output")
		}
	}
	data := map[string]any{
		"cause": j.res.Cause, "evidence": j.res.Evidence, "exit_code": j.res.ExitCode, "signal": j.res.Signal,
		"usage":        j.res.Usage,
		"stdout_bytes": j.res.Stdout.Bytes, "stderr_bytes": j.res.Stderr.Bytes,
	}
	if n := j.res.Network.TrafficMore; n > 0 {
		data["traffic_more"] = n
	}
	for i, t := range j.res.Network.Traffic {
		j.decided(t)
		for requests := range slices.Chunk(j.requests[i], maxRequestsEvent) {
			j.event(store.EventNetworkRequests, map[string]any{"name": t.Name, "port": t.Port, "requests": requests})
		}
	}
	j.event(store.EventExecEnd, data, j.refs("stdout.log", "stderr.log")...)
	return exit != nil
}

// decided records what rules said of a destination.
func (j *job) decided(t sdk.Traffic) {
	typ := store.EventNetworkDenied
	if t.Allowed {
		typ = store.EventNetworkAllowed
	}
	j.event(typ, t)
}

// exited takes in how the backend says that the command ended.
func (j *job) exited(x *sdk.Exit, wall time.Duration) {
	r := j.res
	j.code = x.Code
	r.Cause, r.Evidence, r.Signal, r.NotStarted = x.Cause, x.Evidence, x.Signal, x.NotStarted
	switch {
	case x.NotStarted:
		r.Cause = sdk.CauseSetupFailed
	case x.Signal == "" && (x.Cause == sdk.CauseExited || x.Cause == sdk.CausePIDs || x.Cause == sdk.CauseDisk):
		code := x.Code
		r.ExitCode = &code
	}
	if x.OutputLost != "" {
		j.lost(&r.Stdout, x.OutputLost)
		if j.s.TTY == nil { // else there is one stream only
			j.lost(&r.Stderr, x.OutputLost)
		}
	}
	for _, t := range x.Traffic {
		r.Network.Traffic = append(r.Network.Traffic, bounded(t))
		for i := range t.Requests {
			q := &t.Requests[i]
			q.Time, q.Method, q.Path, q.Model = clip(q.Time, maxRequestText), j.secrets.Text(clip(q.Method, maxRequestText)),
				j.secrets.Text(clip(q.Path, maxRequestText)), j.secrets.Text(clip(q.Model, maxRequestText))
		}
		j.requests = append(j.requests, t.Requests)
	}
	r.Network.TrafficMore, r.Network.Missed = x.TrafficMore, x.NetworkMissed
	if r.Observed {
		r.Files = x.Files
	}
	u := x.Usage
	if u.Wall == 0 {
		u.Wall = wall
	}
	r.Usage.Wall = result.Seconds(u.Wall)
	if u.User > 0 || u.Sys > 0 {
		user, sys := result.Seconds(u.User), result.Seconds(u.Sys)
		r.Usage.User, r.Usage.Sys = &user, &sys
	}
	if u.PeakMemory > 0 {
		r.Usage.PeakMemory = &u.PeakMemory
	}
	if u.PIDs > 0 {
		r.Usage.PIDs = &u.PIDs
	}
	switch r.Cause {
	case sdk.CauseBackend, "":
		r.Cause = sdk.CauseBackend
		r.Error = &result.Failure{Phase: "exec", Summary: "the backend could not say how the command ended",
			Detail: x.Evidence, Reason: sdk.ReasonInternal}
	case sdk.CauseSetupFailed:
		if !x.NotStarted {
			r.Error = &result.Failure{Phase: "exec", Summary: "the command was never started", Detail: x.Evidence}
		}
	}
}

// Bounds of what a record has of one destination. A name has at most 253 bytes.
const (
	maxTrafficText    = 512 // bytes of each text
	maxTrafficSecrets = 100
	// maxRequestsEvent is how many requests one event has, whose texts JSON may write with six bytes for one.
	maxRequestsEvent = 100
	maxRequestText   = 256
)

func clip(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "\ufffd") }

// bounded is a destination as it may be recorded: what the sandbox asked for and the backend says of it has any length.
func bounded(t sdk.Traffic) sdk.Traffic {
	for _, s := range []*string{&t.Name, &t.Rule, &t.Reason, &t.Add} {
		*s = clip(*s, maxTrafficText)
	}
	t.Requests = nil // events of their own
	t.Secrets = slices.Clone(t.Secrets[:min(len(t.Secrets), maxTrafficSecrets)])
	for i, s := range t.Secrets {
		t.Secrets[i] = clip(s, maxTrafficText)
	}
	return t
}

// lost notes that a part of a stream may never have come.
func (j *job) lost(s *result.Stream, why string) {
	if s.Lost != "" {
		why = s.Lost + "; " + why
	}
	s.Lost = why
}

// control passes signals and sizes on to the command until it ended.
func (j *job) control(ex *client.Exec, stop <-chan struct{}) {
	resizes := j.s.Resizes
	if j.s.TTY == nil {
		resizes = nil
	}
	select { // there is nothing to signal before
	case <-ex.Started():
	case <-stop:
		return
	}
	for {
		// Both fail only when the backend is gone, which the end of the command will tell.
		select {
		case w, ok := <-resizes:
			if !ok {
				resizes = nil
				continue
			}
			_ = ex.Resize(w)
		case n, ok := <-j.s.Signals:
			if !ok {
				<-stop
				return
			}
			_ = ex.Signal(n)
		case <-stop:
			return
		}
	}
}

// sink is where one stream of the command goes: to the log first, then to the caller. It is written to by one
// goroutine.
type sink struct {
	name  string
	log   *store.LogWriter
	live  io.Writer
	total *total

	logErr  error // the log went wrong; the stream goes on for those who watch
	liveErr error // nobody watches any more
}

// total counts the bytes of both streams.
type total struct {
	n, max int64
	cancel context.CancelCauseFunc
}

func (t *total) add(n int) {
	if t.max > 0 && atomic.AddInt64(&t.n, int64(n)) > t.max {
		t.cancel(sdk.ErrOutputLimit)
	}
}

// Write implements [io.Writer]. When the caller stops reading the stream ends, and the command learns it as it would
// from a closed pipe.
func (s *sink) Write(p []byte) (int, error) {
	s.total.add(len(p))
	if _, err := s.log.Write(p); err != nil && s.logErr == nil {
		s.logErr = err
	}
	if s.live != nil {
		if _, err := s.live.Write(p); err != nil {
			s.liveErr = err
			return 0, err
		}
	}
	return len(p), nil
}

// sinks opens the logs. errs is nil with a terminal.
func (j *job) sinks(cancel context.CancelCauseFunc) (out, errs *sink, err error) {
	t := &total{max: int64(j.d.Limits.OutputTotal), cancel: cancel}
	keep := int64(outputOf(j.d))
	log, err := j.rec.OpenLog(store.Stdout, keep)
	if err != nil {
		return nil, nil, err
	}
	out = &sink{name: "stdout", log: log, live: j.s.Stdout, total: t}
	if j.s.TTY != nil {
		return out, nil, nil
	}
	log, err = j.rec.OpenLog(store.Stderr, keep)
	if err != nil {
		return nil, nil, errors.Join(err, out.log.Close())
	}
	return out, &sink{name: "stderr", log: log, live: j.s.Stderr, total: t}, nil
}

// closeSinks completes the logs and takes their ends into the result.
func (j *job) closeSinks(sinks ...*sink) {
	for _, s := range sinks {
		if s == nil {
			continue
		}
		j.note(s.log.Close(), "close the log of "+s.name)
		bytes, dropped := s.log.Counts()
		if s.liveErr != nil {
			j.res.Notes = append(j.res.Notes, fmt.Sprintf("nobody read %s any more: %v", s.name, s.liveErr))
		}
		stream := result.Stream{Bytes: bytes, Dropped: dropped, Path: s.name + ".log"}
		if s.logErr != nil {
			stream.Lost = s.logErr.Error()
			j.res.Notes = append(j.res.Notes, fmt.Sprintf("the log of %s is incomplete: %v", s.name, s.logErr))
		}
		text, err := j.tail(s.name, bytes, dropped)
		j.note(err, "read the log of "+s.name)
		stream.Text, stream.Truncated = text.text, text.cut
		if s.name == "stdout" {
			j.res.Stdout = stream
		} else {
			j.res.Stderr = stream
		}
	}
}

// refs hashes files of the record for an event; those that are not there are left out.
func (j *job) refs(paths ...string) []store.FileRef {
	var l []store.FileRef
	for _, p := range paths {
		if ref, err := j.rec.Ref(p); err == nil {
			l = append(l, ref)
		}
	}
	return l
}
