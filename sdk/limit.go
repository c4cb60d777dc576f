package sdk

import (
	"fmt"
	"time"

	"github.com/hutch-run/hutch/sdk/contract"
)

// Limit names a limit as run files, flags, results and the wire spell it.
type Limit = contract.Limit

// The limits that a backend holds. (output and output_total are the host's own.)
const (
	LimitTimeout Limit = "timeout" // wall time of one command
	LimitMemory  Limit = "memory"  // bytes, all processes together, swap included
	LimitCPUs    Limit = "cpus"    // CPU seconds per second, all processes together
	LimitPIDs    Limit = "pids"    // processes and threads at once
	LimitDisk    Limit = "disk"    // bytes written to workspace, output and temporary directories
	LimitFiles   Limit = "files"   // open file descriptors per process
)

// Limits is what a run asks for. Zero means not asked for.
type Limits struct {
	Timeout time.Duration
	Memory  int64
	CPUs    float64
	PIDs    int64
	Disk    int64
	Files   int64
}

// Hold says how one limit is held.
type Hold struct {
	Limit   Limit
	Value   string // with its unit: "512MiB", "1.5", "64", "30s"
	Default bool   // the backend's own default, which nobody asked for
	// HeldBy is the mechanism, e.g. "cgroup v2 memory.max" or "sampled every 10
	// to 250 ms". Empty means that the limit cannot be held.
	HeldBy string
	// Visible says where commands see the limit, e.g. "/proc/meminfo"; empty: what they look at describes the machine.
	Visible string
	// Reason and Fix say why a limit cannot be held and what would change that.
	Reason, Fix string
}

// Holds says how the limits of one sandbox are held, in the order in which they were decided.
type Holds []Hold

// Hold adds a limit that somebody asked for and that is held.
func (h *Holds) Hold(l Limit, value, by string) {
	*h = append(*h, Hold{Limit: l, Value: value, HeldBy: by})
}

// Refuse adds a limit that cannot be held.
func (h *Holds) Refuse(l Limit, value, reason, fix string) {
	*h = append(*h, Hold{Limit: l, Value: value, Reason: reason, Fix: fix})
}

// Default adds a limit that nobody asked for and that is held.
func (h *Holds) Default(l Limit, value, by string) {
	*h = append(*h, Hold{Limit: l, Value: value, Default: true, HeldBy: by})
}

// Show sets Visible of the limits that are held, given where commands see each one.
func (h Holds) Show(where map[string]string) {
	for i := range h {
		if h[i].HeldBy != "" {
			h[i].Visible = where[string(h[i].Limit)]
		}
	}
}

// Err is the refusal of a sandbox for the first limit that was asked for and cannot be held, or nil. A default that
// cannot be held refuses nothing; see Notes.
func (h Holds) Err() error {
	for _, hold := range h {
		if hold.HeldBy == "" && !hold.Default {
			return &Error{
				Reason: ReasonLimit, Limit: hold.Limit, Fix: hold.Fix,
				Summary: fmt.Sprintf("the %s limit of %s cannot be held: %s", hold.Limit, hold.Value, hold.Reason),
			}
		}
	}
	return nil
}

// Notes says, for the notes of a plan and of a sandbox, which defaults cannot be held and why.
func (h Holds) Notes() (notes []string) {
	for _, hold := range h {
		if hold.HeldBy == "" && hold.Default {
			notes = append(notes, fmt.Sprintf("no %s limit is held by default: %s", hold.Limit, hold.Reason))
		}
	}
	return notes
}
