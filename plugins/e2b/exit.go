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
	switch {
	case err != nil && stopped != "":
		r.s.lost(err)
		return &sdk.Exit{Cause: stopped, Code: 137, Signal: "SIGKILL", Evidence: "stopped by hutch; " + oneLine(err.Error())}, nil
	case err != nil:
		r.s.lost(err)
		var lost *envd.LostError
		if errors.As(err, &lost) && !envd.Gone(err) {
			return nil, &sdk.Error{Reason: sdk.ReasonUnavailable, Summary: oneLine(lost.Error()), Err: err, Fix: "see whether the service can be reached, and run the command again"}
		}
		return nil, typed(userError(err, r.job.user), "run the command")
	case r.broken != nil && stopped == "":
		return nil, &sdk.Error{Reason: sdk.ReasonUnavailable, Summary: "the command's input broke off: " + oneLine(r.broken.Error()), Err: r.broken, Fix: "run the command again"}
	}
	exit := &sdk.Exit{Cause: sdk.CauseExited, Code: end.Code, Evidence: "the daemon says: " + end.Status}
	if !end.Exited {
		exit.Cause = sdk.CauseSignaled
		exit.Signal, exit.Code = signalNamed(end.Status)
	}
	if end.Breaks > 0 {
		exit.OutputLost = fmt.Sprintf("the connection to the command broke %s, and what it printed meanwhile is lost", times(end.Breaks))
		sdk.Logger().Warn("the connection to the command broke, and what it printed meanwhile is lost", "sandbox", r.s.id, "times", end.Breaks)
	}
	switch {
	case stopped != "":
		exit.Cause, exit.Evidence = stopped, "stopped by hutch; "+exit.Evidence
	case r.refusal != "" && r.code == 124:
		return nil, sdk.Errorf(sdk.ReasonConfig, "the directory %q cannot be entered in the sandbox", cmp.Or(r.c.Dir, workspacePath))
	case r.refusal != "" && (r.code == 126 || r.code == 127):
		return &sdk.Exit{Cause: sdk.CauseExited, Code: r.code, NotStarted: true, Evidence: r.refusal}, nil
	case r.refusal != "":
		return nil, sdk.Errorf(sdk.ReasonInternal, "the command was not started: %s", r.refusal)
	case !r.hasBegun():
		return nil, sdk.Errorf(sdk.ReasonUnavailable, "the command was not started: the machine's shell ended with %s; it said: %s", end.Status, cmp.Or(oneLine(string(r.first)), "nothing"))
	}
	if exit.Cause == sdk.CauseSignaled && exit.Signal == "SIGKILL" {
		r.outOfMemory(ctx, exit)
	}
	return exit, nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (r *running) hasBegun() bool {
	select {
	case <-r.begun:
		return true
	default:
		return false
	}
}

// outOfMemory asks the machine's kernel whether it has killed anything for want of memory, when a limit of memory is
// held by the machine's size.
func (r *running) outOfMemory(ctx context.Context, exit *sdk.Exit) {
	if r.s.spec.Limits.Memory <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	var out strings.Builder
	err := r.s.sh(ctx, "read the kernel's counters", rootUser, `grep '^oom_kill ' /proc/vmstat`, func(b []byte) error {
		out.Write(b[:min(len(b), 100)])
		return nil
	})
	var kills int64
	if _, serr := fmt.Sscanf(out.String(), "oom_kill %d", &kills); err != nil || serr != nil {
		return
	}
	if before := r.s.kills.Swap(kills); kills > before {
		exit.Cause, exit.Evidence = sdk.CauseOOM, fmt.Sprintf("oom_kill of the machine's /proc/vmstat rose to %d; %s", kills, exit.Evidence)
	}
}

// userError says that a user does not exist from other refusals to start a command.
func userError(err error, user string) error {
	var e *envd.Error
	if errors.As(err, &e) && e.Status != 502 && (strings.Contains(e.Message, "user") || e.Status == 401) && strings.Contains(e.Message, user) {
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
