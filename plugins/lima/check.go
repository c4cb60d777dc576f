package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	goversion "github.com/hashicorp/go-version"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// minimumLima is the oldest Lima that has what the instance file asks for.
const minimumLima = "2.0.0"

// Check implements [sdk.Backend]. It starts no VM: that takes a minute, and a first one an image.
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	var out []sdk.Finding
	l, err := b.limactl()
	if err != nil {
		return []sdk.Finding{sdk.Failed("limactl", err)}, nil
	}
	raw, err := l.call(ctx, nil, "info")
	if err != nil {
		return append(out, sdk.Failed("limactl", err)), nil
	}
	var info struct {
		Version  string   `json:"version"`
		VMTypes  []string `json:"vmTypes"`
		LimaHome string   `json:"limaHome"`
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return append(out, sdk.Failed("limactl", fmt.Errorf("read what limactl info prints: %w", err))), nil
	}
	out = append(out, checkVersion(l.path, info.Version))
	out = append(out, sdk.Finding{Name: "vm types", Status: sdk.SeverityOK,
		Detail: strings.Join(info.VMTypes, ", ") + ", in " + info.LimaHome})
	if path, err := inPath("ssh", "install the OpenSSH client, which limactl needs too"); err != nil {
		out = append(out, sdk.Failed("ssh", err))
	} else {
		out = append(out, sdk.Finding{Name: "ssh", Status: sdk.SeverityOK, Detail: path})
	}
	if bin, err := findGuestProgram(); err != nil {
		out = append(out, sdk.Failed("guest program", err))
	} else {
		out = append(out, sdk.Finding{Name: "guest program", Status: sdk.SeverityOK, Detail: bin.host})
	}
	return append(out, b.checkVM(ctx, l)), nil
}

func checkVersion(path, v string) sdk.Finding {
	f := sdk.Finding{Name: "limactl", Status: sdk.SeverityOK, Detail: path + " " + v}
	got, err := goversion.NewVersion(strings.TrimPrefix(v, "v"))
	if err != nil {
		f.Detail += " (built without its version)"
		return f
	}
	if got.Core().LessThan(goversion.Must(goversion.NewVersion(minimumLima))) {
		f.Status, f.Fix = sdk.SeverityError, "install Lima "+minimumLima+" or newer: https://lima-vm.io/docs/installation/"
	}
	return f
}

// checkVM says how the VM of runs that name none is.
func (b *backend) checkVM(ctx context.Context, l *limactl) sdk.Finding {
	name := configOf(&sdk.Spec{}).Instance
	f := sdk.Finding{Name: "vm " + name, Status: sdk.SeverityOK}
	i, err := l.list(ctx, name)
	switch {
	case err != nil:
		return sdk.Failed(f.Name, err)
	case i == nil:
		f.Detail = "none yet; the first run makes it, and downloads an image for it"
	case i.Status != limaout.StatusRunning && i.Status != limaout.StatusStopped:
		f.Status, f.Detail, f.Fix = sdk.SeverityWarning, i.Status+": "+strings.Join(i.Errors, "; "),
			"the next run stops it by force and starts it again"
	default:
		f.Detail = i.Status
	}
	return f
}

// What a sandbox is held to when nobody asks, besides three quarters of the VM's memory, so that the VM itself goes on:
// enough for any build, and less than what stops a VM.
const (
	defaultPIDs  = 4096
	defaultFiles = 65536
)

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

// shown says where commands see each limit: in files as on the host, and in the cgroup that they really have.
var shown = map[string]string{
	"memory": "/proc/meminfo and the cgroup, not in sysinfo(2)",
	"cpus":   "sched_getaffinity, /proc/cpuinfo, /proc/stat and /sys/devices/system/cpu/online",
	"pids":   "the cgroup",
}

// planLimits decides how each limit is held. One that cannot be held has an empty HeldBy. Of a VM that has never run
// the configuration's size and the best are expected, and looked at when the sandbox is made.
func planLimits(l sdk.Limits, cfg *Config, facts *guestFacts) *held {
	can, vm := expected, wire.Machine{}
	if facts != nil {
		can, vm = facts.Limits, facts.Size
	}
	vm = wire.Machine{Memory: cmp.Or(vm.Memory, int64(cfg.Memory)), CPUs: cmp.Or(vm.CPUs, cfg.CPUs),
		Disk: cmp.Or(vm.Disk, int64(cfg.Disk)), Files: cmp.Or(vm.Files, defaultFiles)}
	h := &held{}
	if l.Timeout > 0 {
		h.Hold(sdk.LimitTimeout, l.Timeout.String(), "SIGTERM, grace, then SIGKILL to the command's namespace in the VM")
	}
	memory := cmp.Or(l.Memory, vm.Memory/4*3)
	if h.inCgroup(sdk.LimitMemory, l.Memory == 0, sdk.Bytes(memory).String(), can[limits.Memory]) {
		h.request.Memory = uint64(memory)
	}
	if l.CPUs == 0 {
		h.Default(sdk.LimitCPUs, strconv.Itoa(vm.CPUs), "the VM: it has no more processors, and its sandboxes share them")
	} else if h.inCgroup(sdk.LimitCPUs, false, strconv.FormatFloat(l.CPUs, 'g', -1, 64), can[limits.CPUs]) {
		h.request.CPUs = l.CPUs
	}
	pids := cmp.Or(l.PIDs, defaultPIDs)
	if h.inCgroup(sdk.LimitPIDs, l.PIDs == 0, strconv.FormatInt(pids, 10), can[limits.PIDs]) {
		h.request.PIDs = pids
	}
	if l.Disk > 0 {
		h.Refuse(sdk.LimitDisk, sdk.Bytes(l.Disk).String(), "the sandboxes of a VM share its disk",
			"leave the limit away, and give the VM a disk of that size with dedicated = true")
	} else {
		h.Default(sdk.LimitDisk, sdk.Bytes(vm.Disk).String(), "the VM: its disk has no more, and its sandboxes share it")
	}
	switch n := l.Files; {
	case n == 0:
		h.request.Files = min(vm.Files, defaultFiles)
		h.Default(sdk.LimitFiles, strconv.FormatUint(h.request.Files, 10), "rlimit RLIMIT_NOFILE in the VM")
	case n < limits.MinFiles:
		h.Refuse(sdk.LimitFiles, strconv.FormatInt(n, 10), "no program can be loaded with so few descriptors",
			fmt.Sprintf("ask for at least %d", limits.MinFiles))
	default:
		h.Hold(sdk.LimitFiles, strconv.FormatInt(n, 10), "rlimit RLIMIT_NOFILE in the VM")
		h.request.Files = uint64(n)
	}
	h.Show(shown)
	return h
}

// inCgroup holds a limit by the sandbox's cgroup in the guest, or says why not.
func (h *held) inCgroup(l sdk.Limit, byDefault bool, value string, how limits.How) bool {
	hold := sdk.Hold{Limit: l, Value: value, Default: byDefault}
	ok := how.By != "" && how.Scope == limits.WholeGroup
	if ok {
		hold.HeldBy = how.By + " in the VM"
	} else {
		hold.Reason = cmp.Or(how.Reason,
			"the guest has no cgroup that could hold it for all processes of the sandbox together")
		hold.Fix = cmp.Or(how.Fix, "take an image whose kernel has the cgroup v2 controllers memory, cpu and pids")
	}
	h.Holds = append(h.Holds, hold)
	return ok
}
