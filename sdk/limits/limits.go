package limits

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limit names one limit. The strings are those of run files, flags and results.
type Limit string

// The limits this package knows. Disk is held by a [Sampler] only; time and output are held elsewhere.
const (
	Memory   Limit = "memory"
	CPUs     Limit = "cpus"
	PIDs     Limit = "pids"
	Disk     Limit = "disk"
	Files    Limit = "files"
	FileSize Limit = "file_size"
)

// Request is what is asked for. A zero asks for no limit.
type Request struct {
	Memory   uint64  // bytes of all processes together, page cache they cause and swap included
	CPUs     float64 // cores' worth of processor time, all processes together
	PIDs     int64   // processes and threads alive at one time
	Files    uint64  // open files of each process
	FileSize uint64  // bytes of any one file written
}

// The least that makes sense: below these a program cannot even be loaded, and the kernel's error would be obscure.
const (
	MinMemory = 1 << 20 // bytes
	MinCPUs   = 0.01    // cores: the smallest quota of a 100 ms period that the kernel takes
)

// Check reports an amount that no mechanism can hold: negative, not a number, or below the least.
func (r Request) Check() error {
	switch {
	case r.Memory != 0 && r.Memory < MinMemory:
		return fmt.Errorf("memory limit of %d bytes: at least 1MiB is needed to load a program", r.Memory)
	case r.CPUs != 0 && !(r.CPUs >= MinCPUs && r.CPUs <= 1<<20):
		return fmt.Errorf("cpus limit of %v: give a number of cores from %v up", r.CPUs, MinCPUs)
	case r.PIDs < 0 || r.PIDs > 1<<22:
		return fmt.Errorf("pids limit of %d: want 1 to %d, which the kernel can number", r.PIDs, 1<<22)
	}
	return nil
}

// Scope says over what a limit is summed up.
type Scope string

// A limit over the whole group is what users mean; the other two are what rlimits can do.
const (
	WholeGroup  Scope = "group"   // all processes together
	EachProcess Scope = "process" // every process on its own: n processes may use n times as much
	EachUser    Scope = "user"    // all processes of the same user in the same user namespace
)

// How is the mechanism of one limit on this machine, or why it has none.
type How struct {
	By     string // the mechanism as results print it, "cgroup v2 memory.max"; empty when it cannot be held
	Scope  Scope
	Reason string // why not, or what to know about the mechanism; one clause
	Fix    string // a command that makes it possible, or a better mechanism possible; may be empty
}

// Hold is the plan for one limit that was asked for.
type Hold struct {
	Limit Limit
	Asked float64 // in the unit of the Request
	How
}

// Err is nil for a limit that is held, else an error that names the limit, the reason and the fix.
func (h Hold) Err() error {
	if h.By != "" {
		return nil
	}
	msg := fmt.Sprintf("%s limit cannot be held here: %s", h.Limit, h.Reason)
	if h.Fix != "" {
		msg += "; to fix it: " + h.Fix
	}
	return errors.New(msg)
}

// Mechanism is a kind of enforcement.
type Mechanism string

// The mechanisms, the best first.
const (
	CgroupV2 Mechanism = "cgroup v2"
	CgroupV1 Mechanism = "cgroup v1"
	Rlimit   Mechanism = "rlimit"
)

// Plan says for every limit that r asks for, in a fixed order, how it would be held. It does no input or output.
func (s *Support) Plan(r Request) (out []Hold) {
	for _, h := range []Hold{
		{Limit: Memory, Asked: float64(r.Memory)}, {Limit: CPUs, Asked: r.CPUs}, {Limit: PIDs, Asked: float64(r.PIDs)},
		{Limit: Files, Asked: float64(r.Files)}, {Limit: FileSize, Asked: float64(r.FileSize)},
	} {
		if h.Asked != 0 {
			h.How = s.Limits[h.Limit]
			out = append(out, h)
		}
	}
	return out
}

// dirPrefix begins the name of every directory that New makes, so that Sweep can tell them from anybody else's.
const dirPrefix = "hutch."

// checkID goes byte by byte: to compile an expression for it took a third of a millisecond of every start.
func checkID(id string) error {
	ok := id != "" && len(id) <= 128
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.' || c == '_' || c == '-':
			ok = ok && i > 0
		default:
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("group id %q: want a letter or digit, then at most 127 of letters, digits, \".\", \"_\", \"-\"", id)
	}
	return nil
}

// refuse turns the limits of r that s cannot hold into one error, nil if there are none.
func (s *Support) refuse(r Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	var errs []error
	for _, h := range s.Plan(r) {
		if err := h.Err(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Errors that callers can tell apart.
var (
	// ErrNoCgroup means that the group has no cgroup, so the kernel keeps neither its list of processes nor its counters.
	ErrNoCgroup = errors.New("no cgroup on this machine that this process may use")
	// ErrGone means that the group's cgroups do not exist, any more or at all.
	ErrGone = errors.New("cgroup is gone")
)

// Stats are the kernel's counters of a group, since it was made. A zero means none, or that this kernel does not
// count it.
type Stats struct {
	MemoryPeak uint64 // most bytes in use at one time
	OOMKills   uint64 // processes that the kernel killed for want of memory
	PIDsPeak   uint64 // most processes and threads at one time
	PIDsHits   uint64 // forks refused because of the pids limit
}

// Handle is all that another process needs to find a group again with Open. It survives JSON.
type Handle struct {
	ID        string    `json:"id"`
	Mechanism Mechanism `json:"mechanism"`
	Dirs      []string  `json:"dirs"` // absolute cgroup directories, one for v2, one per hierarchy for v1
}

// Support is what one process can hold on this machine, as found by Probe. It does not change afterwards.
type Support struct {
	Mechanism Mechanism     // the one that groups will use
	Limits    map[Limit]How // every limit of this package has an entry
	Where     []string      // the cgroup directories below which groups are made; empty for Rlimit
	place     place
}

// String is a line for people: the mechanism, and where.
func (s *Support) String() string {
	if len(s.Where) == 0 {
		return string(s.Mechanism)
	}
	return fmt.Sprintf("%s in %s", s.Mechanism, strings.Join(s.Where, ", "))
}

// Overrun says that a sampled limit was exceeded, and that the command was killed for it.
type Overrun struct {
	Limit       Limit // Memory, Disk or PIDs
	Used, Asked uint64
	Unit        string        // of both, such as "bytes" or "files"
	After       time.Duration // since the sample before, in which the limit was not exceeded
	Note        string        // how it was found, where that needs an explanation
}

// String is one clause for the evidence of a result.
func (o *Overrun) String() string {
	s := fmt.Sprintf("sampled %s use %d of %d %s, %d over, %v after the sample before", o.Limit, o.Used, o.Asked, o.Unit,
		o.Used-o.Asked, o.After.Round(time.Millisecond))
	if o.Note != "" {
		s += "; " + o.Note
	}
	return s
}
