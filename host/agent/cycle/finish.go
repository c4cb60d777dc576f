package cycle

import (
	"context"
	"fmt"
	"strings"

	"github.com/hutch-run/hutch/host/agent/record"
	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/termsafe"
)

// finish is the call with which the model ends its work.
func (w *coding) finish(ctx context.Context, args string) (*outcome, tools.Result, error) {
	var in finishIn
	if err := tools.Decode(args, finish.Schema, &in); err != nil {
		return nil, refuse(err.Error()), nil
	}
	word := Done
	switch in.Outcome {
	case "done":
	case "blocked":
		word = Blocked
	default:
		return nil, refuse(fmt.Sprintf("the outcome %q is neither done nor blocked", tools.Clip(in.Outcome))), nil
	}
	done, text, err := w.finished(ctx, word, in.Summary)
	if done == nil {
		return nil, refuse(text), err
	}
	return done, tools.Result{Text: "the work is ended"}, err
}

// ending is the outcome of a finish that was accepted before; nil for one that could not have been.
func ending(args string) *outcome {
	var in finishIn
	if tools.Decode(args, finish.Schema, &in) != nil {
		return nil
	}
	o := &outcome{Word: Done, Summary: termsafe.Clip(strings.TrimSpace(in.Summary), maxSummary)}
	if in.Outcome == "blocked" {
		o.Word, o.Reason = Blocked, gaveUp
	}
	return o
}

// gaveUp is the reason of an end that the model chose without being done.
const gaveUp = "the model says that it cannot go on"

// finished is the end of the work, unless the check does not agree; then it is what the model is shown.
func (w *coding) finished(ctx context.Context, word, summary string) (*outcome, string, error) {
	o := &outcome{Word: word, Summary: termsafe.Clip(strings.TrimSpace(summary), maxSummary)}
	argv := w.w.Block.Check
	if word == Blocked {
		o.Reason = gaveUp
		return o, "", nil
	}
	if len(argv) == 0 {
		return o, "", nil
	}
	check, out, err := w.command(ctx, argv)
	if ctx.Err() != nil {
		return &outcome{Word: Interrupted, Reason: "it was interrupted", Summary: o.Summary}, "", nil
	}
	w.res.Checks = append(w.res.Checks, *check)
	w.o.Progress(Progress{Check: check})
	class := "ok"
	if !check.OK {
		if class = check.Cause; class == "" || class == "exited" {
			class = "failed"
		}
	}
	if rerr := w.loop.Attempt(record.Attempt{N: len(w.res.Checks), Run: check.Run, OK: check.OK, Class: class, Detail: check.Ended}); rerr != nil {
		return nil, "", rerr
	}
	if check.OK {
		return o, "", nil
	}
	if err != nil {
		return nil, "the check " + quoted(argv) + " could not be run: " + err.Error() + "; the work is not done", nil
	}
	return nil, fmt.Sprintf("the check %s did not succeed (%s), so the work is not done.\nGo on, and call finish again. The end of what it printed:\n\nstdout:\n%s\n\nstderr:\n%s",
		quoted(argv), check.Ended, out.Stdout.Text, out.Stderr.Text), nil
}
