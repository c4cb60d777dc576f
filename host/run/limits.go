package run

import (
	"cmp"
	"slices"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// timeoutOf is the timeout of the command, 0 for none.
func timeoutOf(d *runfile.Definition, tty bool) time.Duration {
	if d.Limits.Timeout == 0 && !tty {
		return DefaultTimeout
	}
	return time.Duration(d.Limits.Timeout)
}

func outputOf(d *runfile.Definition) units.Size { return cmp.Or(d.Limits.Output, DefaultOutput) }

// limitsOf joins what the backend holds with what hutch holds.
func limitsOf(d *runfile.Definition, holds []sdk.Hold, tty bool) []result.Limit {
	l := []result.Limit{{
		Limit: runfile.LimitOutput, Asked: d.Limits.Output > 0, Value: outputOf(d).String(),
		HeldBy: "hutch: of each stream the log keeps the end, the rest is counted and dropped",
	}}
	if n := d.Limits.OutputTotal; n > 0 {
		l = append(l, result.Limit{Limit: runfile.LimitOutputTotal, Asked: true, Value: n.String(),
			HeldBy: "hutch: counts both streams and stops the command"})
	}
	timeout := false
	for _, h := range holds {
		// it is each command's own, which may have another one than the sandbox was made with
		if h.Limit == sdk.LimitTimeout {
			t := timeoutOf(d, tty)
			if t <= 0 {
				continue
			}
			timeout, h.Value = true, t.String()
		}
		l = append(l, result.Limit{Limit: h.Limit, Asked: isAsked(d, h.Limit), Value: h.Value, HeldBy: h.HeldBy,
			Visible: h.Visible})
	}
	if t := timeoutOf(d, tty); !timeout && t > 0 {
		l = append(l, result.Limit{Limit: sdk.LimitTimeout, Asked: d.Limits.Timeout > 0, Value: t.String(),
			HeldBy: "sdk: cancels the command's context"})
	}
	// defaults that this machine cannot hold are no limits
	l = slices.DeleteFunc(l, func(x result.Limit) bool { return x.HeldBy == "" })
	sortLimits(l)
	return l
}

func sortLimits(l []result.Limit) {
	slices.SortStableFunc(l, func(a, b result.Limit) int {
		return runfile.LimitIndex(a.Limit) - runfile.LimitIndex(b.Limit)
	})
}
