package main

import (
	"fmt"
	"strconv"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// defaultPIDs is how many processes a sandbox gets when nobody asks: enough for any build, and less than what stops a VM.
const defaultPIDs = 4096

// minFiles is the least of open files with which a program can be loaded.
const minFiles = 8

// held says how the limits of one sandbox are held, all of them in the guest.
type held struct {
	sdk.Holds
	request limits.Request
}

// expected is what a guest holds of which nothing is known yet: any Linux with systemd does.
var expected = map[limits.Limit]limits.How{
	limits.Memory: {By: "cgroup v2 memory.max", Scope: limits.WholeGroup},
	limits.CPUs:   {By: "cgroup v2 cpu.max", Scope: limits.WholeGroup},
	limits.PIDs:   {By: "cgroup v2 pids.max", Scope: limits.WholeGroup},
}

// planLimits decides how each limit is held. One that cannot be held has an empty HeldBy. Of a VM that has never run the best is
// expected, and looked at when the sandbox is made.
func planLimits(l sdk.Limits, facts *guestFacts) *held {
	can := expected
	if facts != nil {
		can = facts.Limits
	}
	h := &held{}
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to the command's namespace in the VM")
	}
	if l.Memory > 0 {
		h.inCgroup(sdk.LimitMemory, sdk.Bytes(l.Memory).String(), can[limits.Memory], func() { h.request.Memory = uint64(l.Memory) })
	}
	if l.CPUs > 0 {
		h.inCgroup(sdk.LimitCPUs, strconv.FormatFloat(l.CPUs, 'g', -1, 64), can[limits.CPUs], func() { h.request.CPUs = l.CPUs })
	}
	h.holdPIDs(l.PIDs, can[limits.PIDs])
	if l.Disk > 0 {
		h.Refuse(sdk.LimitDisk, sdk.Bytes(l.Disk).String(), "the sandboxes of a VM share its disk", "leave the limit away, and give the VM a disk of that size with dedicated = true")
	}
	switch n := l.Files; {
	case n == 0:
	case n < minFiles:
		h.Refuse(sdk.LimitFiles, strconv.FormatInt(n, 10), "no program can be loaded with so few descriptors", fmt.Sprintf("ask for at least %d", minFiles))
	default:
		h.Hold(sdk.LimitFiles, strconv.FormatInt(n, 10), "rlimit RLIMIT_NOFILE in the VM")
		h.request.Files = uint64(n)
	}
	return h
}

func (h *held) holdPIDs(n int64, how limits.How) {
	switch {
	case n > 0:
		h.inCgroup(sdk.LimitPIDs, strconv.FormatInt(n, 10), how, func() { h.request.PIDs = n })
	case how.By != "" && how.Scope == limits.WholeGroup:
		h.request.PIDs = defaultPIDs
		h.Holds = append(h.Holds, sdk.Hold{Limit: sdk.LimitPIDs, Value: strconv.Itoa(defaultPIDs), Default: true, HeldBy: how.By + " in the VM"})
	}
}

// inCgroup holds a limit by the sandbox's cgroup in the guest, or refuses it.
func (h *held) inCgroup(l sdk.Limit, value string, how limits.How, take func()) {
	if how.By == "" || how.Scope != limits.WholeGroup {
		reason, fix := how.Reason, how.Fix
		if reason == "" {
			reason = "the guest has no cgroup that could hold it for all processes of the sandbox together"
		}
		if fix == "" {
			fix = "take an image whose kernel has the cgroup v2 controllers memory, cpu and pids"
		}
		h.Refuse(l, value, reason, fix)
		return
	}
	take()
	h.Hold(l, value, how.By+" in the VM")
}
