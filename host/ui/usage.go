package ui

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

// limitRow is a limit with how close a run came to it.
type limitRow struct {
	result.Limit
	Came  string // "" where nobody knows
	Share int    // in percent, at most 100
}

// limitRows says how close a run came to its limits, where its result has what it used.
func limitRows(r *result.Result) (rows []limitRow) {
	for _, l := range r.Limits {
		row := limitRow{Limit: l}
		used, of, text := uint64(0), uint64(0), func(n uint64) string { return humanize.IBytes(n) }
		if b, err := humanize.ParseBytes(l.Value); err == nil {
			of = b
		}
		known := true
		switch l.Limit {
		case sdk.LimitMemory:
			if known = r.Usage.PeakMemory != nil; known {
				used = uint64(max(0, *r.Usage.PeakMemory))
			}
		case sdk.LimitPIDs:
			if known = r.Usage.PIDs != nil; known {
				used, text = uint64(max(0, *r.Usage.PIDs)), func(n uint64) string { return fmt.Sprint(n) }
			}
		case sdk.LimitTimeout:
			d, _ := time.ParseDuration(l.Value)
			used, of = uint64(max(0, r.Usage.Wall)), uint64(max(0, d))
			text = func(n uint64) string { return time.Duration(n).Round(time.Millisecond).String() }
		case sdk.LimitCPUs:
			f, _ := strconv.ParseFloat(l.Value, 64)
			if known = r.Usage.User != nil && r.Usage.Sys != nil && r.Usage.Wall > 0; known {
				used = uint64(100 * max(0, *r.Usage.User+*r.Usage.Sys) / r.Usage.Wall)
				of, text = uint64(100*f), func(n uint64) string { return fmt.Sprintf("%.2f on average", float64(n)/100) }
			}
		case runfile.LimitOutput:
			used = uint64(max(r.Stdout.Bytes, r.Stderr.Bytes))
		case runfile.LimitOutputTotal:
			used = uint64(r.Stdout.Bytes + r.Stderr.Bytes)
		default:
			known = false
		}
		if known && of > 0 {
			row.Share = int(min(100, used*100/of))
			row.Came = fmt.Sprintf("%s, %d %%", text(used), row.Share)
		}
		rows = append(rows, row)
	}
	return rows
}
