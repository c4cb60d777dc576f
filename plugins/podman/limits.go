package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hold"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// maxProcesses is the rlimit of processes where a cgroup holds the limit: podman lowers its own, and where that cannot
// be raised again a container that asks for more does not start.
const maxProcesses = 16384

// held says how the limits of one sandbox are held.
type held struct {
	hold.Plan
	flags []string // of podman run
	// checks are the kernel's values that must stand in the container's cgroup once it runs; a limit that is not there
	// after all ends the creation.
	cgroup bool
	memory int64
	pids   int64 // with the room for our own processes
	files  uint64
	nproc  uint64
	cpus   []int // the processors that commands run on; nil means all
}

// machine is what this machine lets Podman hold, found without starting anything.
type machine struct {
	rootless bool
	limits   map[limits.Limit]limits.How
}

// probeMachine looks at the cgroups.
func probeMachine() *machine {
	m := &machine{rootless: os.Geteuid() != 0, limits: map[limits.Limit]limits.How{}}
	if !m.rootless {
		m.limits = limits.Probe().Limits
		return m
	}
	controllers := delegated()
	for l, file := range map[limits.Limit]string{limits.Memory: "memory.max", limits.CPUs: "cpu.max",
		limits.PIDs: "pids.max"} {
		name, _, _ := strings.Cut(file, ".")
		switch {
		case slices.Contains(controllers, name):
			m.limits[l] = limits.How{By: "cgroup v2 " + file, Scope: limits.WholeGroup}
		case !unifiedCgroups():
			m.limits[l] = limits.How{Reason: "without root Podman holds it only on cgroup v2, and this machine has v1",
				Fix: "boot with systemd.unified_cgroup_hierarchy=1, run hutch as root, or use the backend bwrap"}
		default:
			m.limits[l] = limits.How{Reason: "the controller " + name +
				" is not delegated to this user, or the user has no systemd session",
				Fix: "log in through systemd and set Delegate=cpu cpuset io memory pids for user@.service"}
		}
	}
	return m
}

// delegated lists the cgroup v2 controllers that systemd lets this user hand on.
func delegated() []string {
	if !unifiedCgroups() || !systemdManages(true) {
		return nil
	}
	uid := os.Geteuid()
	b, err := os.ReadFile(fmt.Sprintf("/sys/fs/cgroup/user.slice/user-%d.slice/user@%d.service/cgroup.controllers", uid,
		uid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// planLimits decides how each limit is held, for a sandbox whose files lie in dir. One that cannot be held has an empty
// HeldBy. defaultMemory is that of a sandbox that exists already; 0 computes one.
func planLimits(spec *sdk.Spec, keep bool, dir string, m *machine, defaultMemory int64) *held {
	h := &held{Plan: hold.Plan{DefaultMemory: defaultMemory}}
	l, c := spec.Limits, configOf(spec)
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to all that the command started")
	}
	if h.Memory(l.Memory, m.limits[limits.Memory], true, "all commands are killed") {
		h.cgroup, h.memory = true, int64(h.Shown.Memory)
		h.flag("--memory=%db", h.memory)
		h.flag("--memory-swap=%db", h.memory)
	}
	if l.CPUs > 0 {
		h.byCgroup(sdk.LimitCPUs, strconv.FormatFloat(l.CPUs, 'g', -1, 64), m.limits[limits.CPUs], func() {
			h.Shown.CPUs = l.CPUs
			h.flag("--cpus=%s", strconv.FormatFloat(l.CPUs, 'f', -1, 64))
		})
	}
	h.cpus = visible.Processors(l.CPUs)
	h.holdPIDs(l.PIDs, m)
	d := hold.Disk{Dir: dir, Keep: keep}
	if !m.rootless && len(c.Tmpfs) == 0 { // where commands are root they can write to /dev, too
		d.Memory = "workspace, output, /tmp and /dev/shm are held in memory; with /dev " + limits.Sampled
	}
	if !c.Root {
		d.Reason, d.Fix = "the image's own files can be written to, and Podman's storage has no quota", "set read_only = true"
	}
	h.HoldDisk(spec, d)
	if h.InMemory {
		h.Disk = uint64(l.Disk) // with /dev
	}
	h.files = h.Rlimit(sdk.LimitFiles, unix.RLIMIT_NOFILE, l.Files, limits.DefaultFiles, 0, "rlimit RLIMIT_NOFILE",
		limits.How{})
	h.Show(visible.Where)
	return h
}

func (h *held) holdPIDs(n int64, m *machine) {
	how := m.limits[limits.PIDs]
	if how.By != "" && how.Scope == limits.WholeGroup {
		asked := n > 0
		if !asked {
			n = limits.DefaultPIDs
		}
		h.cgroup, h.pids, h.Shown.PIDs = true, n+ownProcesses, n
		h.flag("--pids-limit=%d", h.pids)
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitPIDs, Value: strconv.FormatInt(n, 10), Default: !asked,
			HeldBy: how.By})
		h.nproc = hardLimit(unix.RLIMIT_NPROC, maxProcesses)
		return
	}
	h.flag("--pids-limit=0")
	if n > 0 {
		h.Refuse(sdk.LimitPIDs, strconv.FormatInt(n, 10), how.Reason, how.Fix)
		h.nproc = hardLimit(unix.RLIMIT_NPROC, maxProcesses)
		return
	}
	h.nproc = h.Rlimit(sdk.LimitPIDs, unix.RLIMIT_NPROC, 0, limits.DefaultPIDs, 0,
		"rlimit RLIMIT_NPROC, of all containers of this user together", how)
}

// hardLimit returns the hard limit of this process, at the most atMost. Where it cannot be raised, a container that
// asks for more does not start.
func hardLimit(resource int, atMost uint64) uint64 { return min(limits.HardLimit(resource), atMost) }

// byCgroup holds a limit by the container's cgroup, or refuses it.
func (h *held) byCgroup(l sdk.Limit, value string, how limits.How, flags func()) {
	if how.By == "" || how.Scope != limits.WholeGroup {
		reason := how.Reason
		if reason == "" {
			reason = "this machine has no cgroup that Podman could use for it"
		}
		h.Refuse(l, value, reason, how.Fix)
		return
	}
	h.cgroup = true
	flags()
	h.Hold(l, value, how.By)
}

func (h *held) flag(format string, args ...any) {
	h.flags = append(h.flags, fmt.Sprintf(format, args...))
}
