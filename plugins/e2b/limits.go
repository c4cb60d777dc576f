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

// planLimits says how each limit is held by a machine of size has: that of the configuration, which checkMachine
// compares with what the service says. What nobody asked for is bounded by the machine, too: that is the default.
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
		{sdk.LimitMemory, float64(l.Memory), float64(has.memory), sdk.Bytes(l.Memory).String(), has.memory.String(), "memory"},
		{sdk.LimitCPUs, l.CPUs, has.cpus, number(l.CPUs), number(has.cpus), "vcpus"},
		{sdk.LimitDisk, float64(l.Disk), float64(has.disk), sdk.Bytes(l.Disk).String(), has.disk.String(), "disk"},
	} {
		h := sdk.Hold{Limit: f.limit, Value: f.value, Visible: machineShows}
		switch {
		case f.asked <= 0 && f.has > 0:
			h.Default, h.Value, h.HeldBy = true, f.is, heldByTemplate
		case f.asked <= 0:
			h.Default, h.Value, h.Visible = true, "", ""
			h.Reason = "the template's machines have a bound that is not known here; say it in the backend block (" + f.set + ")"
		case f.has <= 0:
			h.Visible, h.Reason = "", "what the template's machines have is not known"
			h.Fix = fmt.Sprintf("say it in the backend block (%s = …), or leave the limit out", f.set)
		case f.has > f.asked:
			h.Visible, h.Reason = "", fmt.Sprintf("machines of the template %s have %s, and the service bounds a machine by its template alone", c.Template, f.is)
			h.Fix = fmt.Sprintf("ask for %s or more, or use a smaller template and say so (template, %s)", f.is, f.set)
		default:
			h.HeldBy = heldByTemplate
		}
		holds = append(holds, h)
	}
	return holds
}

// checkMachine refuses a machine that has more than a limit allows: the configuration said otherwise, or the template
// has changed.
func checkMachine(l sdk.Limits, d *control.Detail) error {
	tooMuch := func(limit sdk.Limit, attribute, has string) error {
		return &sdk.Error{Reason: sdk.ReasonLimit, Limit: limit, Path: attribute,
			Summary: fmt.Sprintf("the limit %s is not held by the template: the service says that its machine has %s", limit, has),
			Fix:     fmt.Sprintf("set %s in the backend block to what the template really has, and the limit to no less", attribute)}
	}
	switch {
	case l.Memory > 0 && (d.MemoryMB<<20 > l.Memory || d.MemoryMB <= 0):
		return tooMuch(sdk.LimitMemory, "memory", mebibytes(d.MemoryMB))
	case l.CPUs > 0 && (float64(d.CPUs) > l.CPUs || d.CPUs <= 0):
		return tooMuch(sdk.LimitCPUs, "vcpus", strconv.FormatInt(d.CPUs, 10))
	case l.Disk > 0 && (d.DiskMB<<20 > l.Disk || d.DiskMB <= 0):
		return tooMuch(sdk.LimitDisk, "disk", mebibytes(d.DiskMB))
	}
	return nil
}

func mebibytes(n int64) string {
	if n <= 0 {
		return "an unknown amount"
	}
	return sdk.Bytes(n << 20).String()
}

// notes are what a careful user should know of a sandbox of spec.
func notes(spec *sdk.Spec) (out []string) {
	out = append(out, "the code, and what of the project is sent, is on a machine of "+whereabouts(spec))
	if spec.Network == sdk.NetworkFull {
		out = append(out, "network is full: commands reach the whole internet from there")
	}
	return out
}

func whereabouts(spec *sdk.Spec) string {
	s, err := configOf(spec).service()
	if err != nil {
		return "the service"
	}
	return strings.TrimPrefix(strings.TrimPrefix(s.apiURL, "https://"), "http://")
}
