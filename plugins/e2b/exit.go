package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/sdk"
)

// exit says how the command ended.
func (r *running) exit(ctx context.Context, end *envd.End, err error) (*sdk.Exit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stopped := sdk.CauseOf(ctx)
	r.s.lost(err)
	switch {
	case err != nil && stopped != "":
		evidence := "stopped by hutch; " + oneLine(err.Error())
		return &sdk.Exit{Cause: stopped, Code: 137, Signal: "SIGKILL", Evidence: evidence}, nil
	case err != nil:
		var lost *envd.LostError
		if errors.As(err, &lost) && !envd.Gone(err) {
			return nil, &sdk.Error{Reason: sdk.ReasonUnavailable, Summary: oneLine(lost.Error()), Err: err,
				Fix: "see whether the service can be reached, and run the command again"}
		}
		return nil, typed(userError(err, r.job.user), "run the command")
	case r.broken != nil && stopped == "":
		return nil, &sdk.Error{Reason: sdk.ReasonUnavailable, Err: r.broken, Fix: "run the command again",
			Summary: "the command's input broke off: " + oneLine(r.broken.Error())}
	}
	exit := &sdk.Exit{Cause: sdk.CauseExited, Code: end.Code, Evidence: "the daemon says: " + end.Status}
	if !end.Exited {
		exit.Cause = sdk.CauseSignaled
		exit.Signal, exit.Code = signalNamed(end.Status)
	}
	if end.Breaks > 0 {
		times := "once"
		if end.Breaks > 1 {
			times = fmt.Sprintf("%d times", end.Breaks)
		}
		exit.OutputLost = "the connection to the command broke " + times + ", and what it printed meanwhile is lost"
		sdk.Logger().Warn(exit.OutputLost, "sandbox", r.s.id)
	}
	switch {
	case stopped != "":
		exit.Cause, exit.Evidence = stopped, "stopped by hutch; "+exit.Evidence
	case r.refusal != "" && r.code == 124:
		dir := cmp.Or(r.c.Dir, workspacePath)
		return nil, sdk.Errorf(sdk.ReasonConfig, "the directory %q cannot be entered in the sandbox", dir)
	case r.refusal != "" && (r.code == 126 || r.code == 127):
		return &sdk.Exit{Cause: sdk.CauseExited, Code: r.code, NotStarted: true, Evidence: r.refusal}, nil
	case r.refusal != "":
		return nil, sdk.Errorf(sdk.ReasonInternal, "the command was not started: %s", r.refusal)
	case !r.hasBegun():
		said := cmp.Or(oneLine(string(r.first)), "nothing")
		return nil, sdk.Errorf(sdk.ReasonUnavailable,
			"the command was not started: the machine's shell ended with %s; it said: %s", end.Status, said)
	case exit.Signal == "SIGKILL":
		r.outOfMemory(ctx, exit)
	}
	return exit, nil
}

func (r *running) hasBegun() bool {
	select {
	case <-r.begun:
		return true
	default:
		return false
	}
}

// outOfMemory blames a kill on the memory limit, which the machine's size holds, if its kernel has killed anything for
// want of memory since the last time.
func (r *running) outOfMemory(ctx context.Context, exit *sdk.Exit) {
	if r.s.spec.Limits.Memory <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	var out strings.Builder
	const script = `grep '^oom_kill ' /proc/vmstat`
	err := r.s.sh(ctx, "read the kernel's counters", rootUser, script, func(b []byte) error {
		out.Write(b[:min(len(b), 100)])
		return nil
	})
	var kills int64
	if _, serr := fmt.Sscanf(out.String(), "oom_kill %d", &kills); err != nil || serr != nil {
		return
	}
	if before := r.s.kills.Swap(kills); kills > before {
		exit.Cause = sdk.CauseOOM
		exit.Evidence = fmt.Sprintf("oom_kill of the machine's /proc/vmstat rose to %d; %s", kills, exit.Evidence)
	}
}

// userError replaces a refusal to start a command because its user does not exist.
func userError(err error, user string) error {
	var e *envd.Error
	if errors.As(err, &e) && e.Status != 502 && strings.Contains(e.Message, user) &&
		(strings.Contains(e.Message, "user") || e.Status == 401) {
		return sdk.Errorf(sdk.ReasonConfig, "the template has no user %s: %w", user, err)
	}
	return err
}

// signalNamed reads the daemon's word for a signal, as Go prints it: "signal: killed".
func signalNamed(status string) (name string, code int) {
	word := strings.TrimSuffix(strings.TrimPrefix(status, "signal: "), " (core dumped)")
	for n := syscall.Signal(1); n < 65; n++ {
		if n.String() == word {
			if name = unix.SignalName(n); name == "" {
				name = fmt.Sprintf("SIG%d", int(n))
			}
			return name, 128 + int(n)
		}
	}
	return "SIGKILL", 137
}
