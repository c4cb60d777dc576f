package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/plugins/e2b/internal/control"
	"github.com/hutch-run/hutch/sdk"
)

const (
	heldByHutch    = "hutch, which ends the command and all that it started"
	heldByTemplate = "the template: its machines have no more"
	machineShows   = "all that describes the machine" // where commands see what it has
)

// size is what the machines of a template have. A zero is unknown.
type size struct {
	memory, disk sdk.Bytes
	cpus         float64
}

func (c *Config) size() size { return size{c.Memory, c.Disk, c.VCPUs} }

// sizeOf is what the service says that a machine has.
func sizeOf(d *control.Detail) size {
	return size{sdk.Bytes(d.MemoryMB << 20), sdk.Bytes(d.DiskMB << 20), float64(d.CPUs)}
}

// planLimits says how each limit is held by a machine of size has: in a plan the size that the configuration declares,
// then the one that the service reports. A machine also bounds limits that were not asked for: that is the default.
func planLimits(l sdk.Limits, c *Config, has size) (holds sdk.Holds) {
	if l.Timeout > 0 {
		holds.Hold(sdk.LimitTimeout, l.Timeout.String(), heldByHutch)
	}
	number := func(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }
	for _, f := range []struct {
		limit          sdk.Limit
		asked, has     float64
		value, is, set string
	}{
		{sdk.LimitMemory, float64(l.Memory), float64(has.memory), sdk.Bytes(l.Memory).String(), has.memory.String(),
			"memory"},
		{sdk.LimitCPUs, l.CPUs, has.cpus, number(l.CPUs), number(has.cpus), "vcpus"},
		{sdk.LimitDisk, float64(l.Disk), float64(has.disk), sdk.Bytes(l.Disk).String(), has.disk.String(), "disk"},
	} {
		h := sdk.Hold{Limit: f.limit, Value: f.value}
		switch {
		case f.asked <= 0 && f.has > 0:
			h.Default, h.Value, h.HeldBy = true, f.is, heldByTemplate
		case f.asked <= 0:
			h.Default, h.Value = true, ""
			h.Reason = "the size of the template's machines is not known; declare it in the backend block (" + f.set + ")"
		case f.has <= 0:
			h.Reason = "the size of the template's machines is not known"
			h.Fix = fmt.Sprintf("declare it in the backend block (%s = …), or leave the limit out", f.set)
		case f.has > f.asked:
			h.Reason = fmt.Sprintf("machines of the template %s have %s, and the service bounds a machine by its template alone",
				c.Template, f.is)
			h.Fix = fmt.Sprintf("ask for %s or more, or use a smaller template and declare its size (template, %s)", f.is, f.set)
		default:
			h.HeldBy = heldByTemplate
		}
		if h.HeldBy != "" {
			h.Visible = machineShows
		}
		holds = append(holds, h)
	}
	return holds
}

// notes are what a careful user should know of a sandbox of spec.
func notes(spec *sdk.Spec) []string {
	where := "the service"
	if s, err := configOf(spec).service(); err == nil {
		where = strings.TrimPrefix(strings.TrimPrefix(s.apiURL, "https://"), "http://")
	}
	out := []string{"the code, and what of the project is sent, is on a machine of " + where}
	if spec.Network == sdk.NetworkFull {
		out = append(out, "network is full: commands reach the whole internet from there")
	}
	return out
}
