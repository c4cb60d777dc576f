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
)

// planLimits says how each limit that was asked for is held. What the template's machines have is what the configuration
// says they have; checkMachine asks the service whether that is true.
func planLimits(l sdk.Limits, c *Config) (holds []sdk.Hold) {
	fixed := func(limit sdk.Limit, value string, asked, has float64, is, attribute string) {
		h := sdk.Hold{Limit: limit, Value: value}
		switch {
		case has <= 0:
			h.Reason = "what the template's machines have is not known"
			h.Fix = fmt.Sprintf("say it in the backend block (%s = …), or leave the limit out", attribute)
		case has > asked:
			h.Reason = fmt.Sprintf("machines of the template %s have %s, and the service bounds a machine by its template alone", c.Template, is)
			h.Fix = fmt.Sprintf("ask for %s or more, or use a smaller template and say so (template, %s)", is, attribute)
		default:
			h.HeldBy = heldByTemplate
		}
		holds = append(holds, h)
	}
	if l.Timeout > 0 {
		holds = append(holds, sdk.Hold{Limit: sdk.LimitTimeout, Value: l.Timeout.String(), HeldBy: heldByHutch})
	}
	if l.Memory > 0 {
		fixed(sdk.LimitMemory, sdk.Bytes(l.Memory).String(), float64(l.Memory), float64(c.Memory), c.Memory.String(), "memory")
	}
	if l.CPUs > 0 {
		n := strconv.FormatFloat(c.VCPUs, 'g', -1, 64)
		fixed(sdk.LimitCPUs, strconv.FormatFloat(l.CPUs, 'g', -1, 64), l.CPUs, c.VCPUs, n, "vcpus")
	}
	if l.Disk > 0 {
		fixed(sdk.LimitDisk, sdk.Bytes(l.Disk).String(), float64(l.Disk), float64(c.Disk), c.Disk.String(), "disk")
	}
	return holds
}

// limitError is the first limit that is not held, nil when all are.
func limitError(holds []sdk.Hold) error {
	for _, h := range holds {
		if h.HeldBy == "" {
			return &sdk.Error{Reason: sdk.ReasonLimit, Limit: h.Limit, Summary: fmt.Sprintf("the limit %s = %s cannot be held: %s", h.Limit, h.Value, h.Reason), Fix: h.Fix}
		}
	}
	return nil
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

// fixedLimits reports whether a limit is asked for that the template has to hold.
func fixedLimits(l sdk.Limits) bool { return l.Memory > 0 || l.CPUs > 0 || l.Disk > 0 }

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
