package backendtest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// limitNames are all limits, in the order of reports.
var limitNames = []sdk.Limit{
	sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitDisk, sdk.LimitFiles,
}

// someValue has a generous value of each limit.
var someValue = map[sdk.Limit]float64{
	sdk.LimitTimeout: float64(time.Minute), sdk.LimitMemory: 256 << 20, sdk.LimitCPUs: 1,
	sdk.LimitPIDs: 100, sdk.LimitDisk: 64 << 20, sdk.LimitFiles: 256,
}

// fewCPUs is so little processor time that a list of processors cannot hold it.
const fewCPUs = 0.25

// limitOf asks for one limit alone.
func limitOf(name sdk.Limit, v float64) (l sdk.Limits) {
	setLimit(&l, name, v)
	return l
}

func setLimit(l *sdk.Limits, name sdk.Limit, v float64) {
	switch name {
	case sdk.LimitTimeout:
		l.Timeout = time.Duration(v)
	case sdk.LimitMemory:
		l.Memory = int64(v)
	case sdk.LimitCPUs:
		l.CPUs = v
	case sdk.LimitPIDs:
		l.PIDs = int64(v)
	case sdk.LimitDisk:
		l.Disk = int64(v)
	case sdk.LimitFiles:
		l.Files = int64(v)
	}
}

// someLimits asks for every limit that is claimed and that this machine can hold, generously, and names them.
func (c *C) someLimits() (l sdk.Limits, names []sdk.Limit) {
	for _, name := range limitNames {
		if c.facts.Holds(name) {
			setLimit(&l, name, someValue[name])
			names = append(names, name)
		}
	}
	for _, h := range c.unheld(l) {
		setLimit(&l, h.Limit, 0)
		names = slices.DeleteFunc(names, func(n sdk.Limit) bool { return n == h.Limit })
	}
	return l, names
}

// generous asks for [C.someLimits].
func (c *C) generous(r *sdk.CreateRequest) { r.Limits, _ = c.someLimits() }

// trips are how each limit is brought to its end with a shell and coreutils.
var trips = []trip{
	{limit: sdk.LimitMemory, value: 96 << 20, cause: sdk.CauseOOM,
		below: `head -c 8M /dev/zero | tail -n 1 | wc -c`,
		above: `head -c 600M /dev/zero | tail -n 1 | wc -c; exit 9`, free: "629145600",
		fix: "memory.max, with swap; read oom_kill from memory.events"},
	{limit: sdk.LimitPIDs, value: 24, cause: sdk.CausePIDs,
		below: `for i in 1 2 3 4 5; do sleep 0.1 & done; wait`,
		above: `i=0; while [ $i -lt 200 ]; do sleep 20 & i=$((i+1)); done; echo $i; sleep 1; exit 9`, free: "200", // it sleeps for a sampled limit
		fix: "pids.max; read max from pids.events"},
	{limit: sdk.LimitDisk, value: 8 << 20, cause: sdk.CauseDisk,
		below: `head -c 1M /dev/zero > small && rm small`,
		above: `head -c 64M /dev/zero > big || exit 9`,
		fix:   "a file system of that size, or a quota"},
	{limit: sdk.LimitFiles, value: 64,
		below: `mkdir -p t && cd t && tee $(seq 20) < /dev/null`,
		above: `mkdir -p t && cd t && tee $(seq 200) < /dev/null || exit 9`,
		fix:   "RLIMIT_NOFILE"},
}

type trip struct {
	limit sdk.Limit
	value float64
	below string    // stays under the limit and ends with 0
	above string    // runs into it
	free  string    // what above prints when nothing held it
	cause sdk.Cause // "" for the program's own failure
	fix   string
}

func limitChecks() []Check {
	var refused, below, above []Check
	for _, l := range limitNames[1:] { // the timeout belongs to each command; see end/timeout
		refused = append(refused, row("limits/"+string(l)+"-refused",
			"asking for the limit "+string(l)+", which is not claimed, is refused with reason limit, and leaves nothing",
			"refuse in Create every limit that you do not hold", func(c *C) {
				req := c.request(withLimits(limitOf(l, someValue[l])))
				e := c.refused("asking for the limit "+string(l), req, sdk.ReasonLimit)
				c.eq("the limit that the failure names", string(e.Limit), string(l))
				c.nothingLeft(req.ID)
			}, needNoLimit(l)))
	}
	for _, t := range trips {
		// A sandbox in which a command stayed below the limit is good for the one that goes beyond it.
		limited := func(c *C) *box {
			c.needHeld(limitOf(t.limit, t.value))
			return c.usedFor("limit "+string(t.limit), withLimits(limitOf(t.limit, t.value)))
		}
		below = append(below, row("limits/"+string(t.limit)+"-below",
			"a command that stays below the limit "+string(t.limit)+" is not touched",
			"let the limit count what it is about, and nothing else",
			func(c *C) { limited(c).must(t.below) }, needLimit(t.limit)))
		above = append(above, row("limits/"+string(t.limit)+"-trips",
			"a command that goes beyond the limit "+string(t.limit)+" is held, and the cause says so", t.fix,
			func(c *C) { limited(c).trips(t) }, needLimit(t.limit)))
	}
	return slices.Concat(refused, below, above, []Check{
		alone("limits/cpus-holds", "a command gets no more processor time than the limit cpus allows",
			"cpu.max", func(c *C) {
				c.needHeld(sdk.Limits{CPUs: fewCPUs})
				b := c.box(withLimits(sdk.Limits{CPUs: fewCPUs}))
				o := b.sh(`w() { while :; do :; done; }; w & w & sleep 1.2; kill $! %1 2>/dev/null; exit 0`,
					timeout(20*time.Second))
				used, wall := o.Usage.User+o.Usage.Sys, o.Usage.Wall
				if max := time.Duration(fewCPUs*1.5*float64(wall)) + 150*time.Millisecond; used > max {
					c.Fatalf("with cpus = %v it used %s in %s, more than %s", fewCPUs, used, wall, max)
				}
			}, needLimit(sdk.LimitCPUs)),
		row("limits/together", "all limits that are claimed can be asked for together",
			"see what each needs, and that they do not stand in each other's way", func(c *C) {
				c.usedFor("limits", c.generous).prints("works\n", "echo works", timeout(time.Minute))
			}),
		row("limits/default-overridable", "a limit that is asked for takes the place of the default",
			"add the default only where the spec has no such limit", func(c *C) {
				n := 0
				limits, names := c.someLimits()
				holds := c.usedFor("limits", withLimits(limits)).Ready().Holds
				for _, d := range c.used().Ready().Holds {
					if !d.Default || d.HeldBy == "" || !slices.Contains(names, d.Limit) {
						continue
					}
					n++
					got := slices.DeleteFunc(slices.Clone(holds), func(h sdk.Hold) bool { return h.Limit != d.Limit })
					if len(got) != 1 || got[0].Default || got[0].Value == d.Value {
						c.Fatalf("with %s = %v it is held by %+v; the default is %+v", d.Limit, someValue[d.Limit], got, d)
					}
				}
				if n == 0 {
					c.skipf("there is no default that this machine could replace")
				}
			}, needCap(sdk.CapPlan)),
		row("limits/default-holds",
			"a default holds: no process can have more open files than it says, and commands see the memory that it says",
			"apply a default in the same way as a limit that was asked for", used(func(b *box) {
				n := 0
				for _, d := range b.Ready().Holds {
					script := ""
					switch {
					case !d.Default || d.HeldBy == "":
					case d.Limit == sdk.LimitFiles:
						script = "ulimit -Hn"
					case d.Limit == sdk.LimitMemory && strings.Contains(d.Visible, "/proc/meminfo"):
						script = meminfo("MemTotal")
					}
					if script == "" {
						continue
					}
					n++
					most, err := sdk.ParseBytes(d.Value)
					got, gerr := strconv.ParseInt(strings.TrimSpace(b.must(script)), 10, 64)
					if err != nil || gerr != nil || got > int64(most) {
						b.Fatalf("%s prints %d; the default of %s is %q (%v, %v)", script, got, d.Limit, d.Value, err, gerr)
					}
				}
				if n == 0 {
					b.skipf("there is no default of open files or of visible memory")
				}
			})),
		row("limits/visible", "commands see each limit that is said to be visible, also after a reset",
			"mount the files of sdk/visible, and run commands on its Processors; or leave Hold.Visible empty", func(c *C) {
				l, _ := c.someLimits()
				b := c.box(withLimits(l))
				b.wantVisible(l)
				if c.facts.Has(sdk.CapReset) {
					b.reset(false)
					b.wantVisible(l)
				}
			}),
	})
}

// meminfo is a script that prints a line of /proc/meminfo in bytes.
func meminfo(name string) string {
	return `while read -r k v u; do case $k in ` + name + `:) echo $((v * 1024));; esac; done < /proc/meminfo`
}

// wantVisible looks at where programs find out how much of the machine is theirs.
func (b *box) wantVisible(l sdk.Limits) {
	sees := map[sdk.Limit]string{}
	for _, h := range b.Ready().Holds {
		if !h.Default {
			sees[h.Limit] = h.Visible
		}
	}
	if sees[sdk.LimitMemory] == "" && sees[sdk.LimitCPUs] == "" && sees[sdk.LimitPIDs] == "" {
		b.skipf("the backend claims of no limit that is asked for that it is visible")
	}
	count := func(what, file string) string {
		return `n=0; while read -r k v; do case $k in ` + what + `) n=$((n + 1));; esac; done < ` + file + `; echo $n`
	}
	// A cgroup of version 1 has other names; hutch's own processes may come on top of a limit of processes.
	for _, look := range []struct {
		limit     sdk.Limit
		script    string
		min, most int64
	}{
		{sdk.LimitMemory, meminfo("MemTotal"), 1, l.Memory},
		{sdk.LimitMemory, meminfo("MemAvailable"), 1, l.Memory},
		{sdk.LimitMemory, meminfo("SwapTotal"), 0, 0},
		{sdk.LimitMemory, `cd /sys/fs/cgroup && cat memory.max 2>/dev/null || cat memory/memory.limit_in_bytes`,
			l.Memory, l.Memory},
		{sdk.LimitCPUs, `nproc`, 1, 1},
		{sdk.LimitCPUs, count("processor", "/proc/cpuinfo"), 0, 1},
		{sdk.LimitCPUs, count("cpu[0-9]*", "/proc/stat"), 1, 1},
		{sdk.LimitCPUs, `n=0; IFS=,
for r in $(cat /sys/devices/system/cpu/online); do n=$((n + ${r#*-} - ${r%-*} + 1)); done; echo $n`, 1, 1},
		{sdk.LimitCPUs, `cd /sys/fs/cgroup && read -r q p < cpu.max 2>/dev/null ||
{ read -r q < cpu/cpu.cfs_quota_us; read -r p < cpu/cpu.cfs_period_us; }; echo $((q / p))`, 1, 1},
		{sdk.LimitPIDs, `cd /sys/fs/cgroup && cat pids.max 2>/dev/null || cat pids/pids.max`, l.PIDs, l.PIDs + 16},
	} {
		const cgroups = "/sys/fs/cgroup"
		at := sees[look.limit]
		if at == "" || strings.Contains(look.script, cgroups) && !strings.Contains(at, cgroups) {
			continue
		}
		got := strings.TrimSpace(b.must("set -e; " + look.script))
		if n, err := strconv.ParseInt(got, 10, 64); err != nil || n < look.min || n > look.most {
			b.Fatalf("the limit %s is said to be visible, and\n%s\nprints %s; want %d to %d",
				look.limit, look.script, quote(got), look.min, look.most)
		}
	}
}

// trips runs into a limit and looks at the cause.
func (b *box) trips(t trip) {
	by := ""
	for _, h := range b.Ready().Holds {
		if h.Limit == t.limit {
			by = h.HeldBy
		}
	}
	o := b.sh(t.above, timeout(time.Minute))
	switch {
	case o.Cause == sdk.CauseTimeout:
		b.Fatalf("it timed out before the limit (held by %q) did anything: %s", by, o.how())
	case o.Code == 0 || t.free != "" && strings.TrimSpace(o.stdout) == t.free:
		b.Fatalf("nothing held it (%q should): %s, stdout %s", by, o.how(), quote(o.stdout))
	case t.cause == "":
		b.wantExit(o, 9)
	// An rlimit leaves no trace that it was met: the program only fails.
	case o.Cause != t.cause && !strings.Contains(strings.ToLower(by), "rlimit"):
		b.Fatalf("got %s; want cause %q, for the limit is held by %q", o.how(), t.cause, by)
	case o.Cause == t.cause && o.Evidence == "":
		b.Fatalf("the cause %q has no evidence", o.Cause)
	}
}

func resetChecks() []Check {
	return needing([]Need{needCap(sdk.CapReset)},
		row("reset/soft-keeps", "a reset keeps the writes to the workspace",
			"recreate what surrounds the workspace", func(c *C) {
				b := c.box(c.someSource)
				b.must("echo kept > kept; mkdir -p empty; " + vandal)
				before := b.must(describeTree)
				b.reset(false)
				b.eq("the tree", b.must(describeTree), before)
			}),
		row("reset/hard-restores", "a hard reset brings the workspace back to its source",
			"throw the overlay or copy away and begin again", func(c *C) {
				b := c.box(withSource(c.project("project"), sdk.WorkspacePrivate))
				before := b.must(describeTree)
				b.must(vandal)
				b.reset(true)
				b.eq("the tree", b.must(describeTree), before)
			}, needPrivate),
		row("reset/ends-processes", "a reset ends every process of the sandbox",
			"kill them all, and wait", boxed(func(b *box) {
				r := b.beating()
				b.reset(false)
				b.notByItself(r)
				b.still()
			})),
		row("reset/usable", "a sandbox can be used after a reset, four times over",
			"leave nothing behind that is in the way of the next time", boxed(func(b *box) {
				for i := range 4 {
					b.reset(i%2 == 0)
					b.prints("works\n", "echo works")
				}
			})),
		row("reset/output", "a reset leaves the paths of the sandbox as they were",
			"recreate what Ready names at the same place", boxed(func(b *box) {
				b.reset(true)
				b.must(`test -d "$W" && { test -z "$O" || { test -d "$O" && echo x > "$O/x"; }; }`,
					env("W", b.Ready().Workspace, "O", b.Ready().Output))
			})),
	)
}

func (b *box) reset(hard bool) { b.ok("reset", b.Reset(b.ctx, hard)) }

// someSource gives the sandbox a source where that is claimed.
func (c *C) someSource(r *sdk.CreateRequest) {
	if len(c.facts.Workspaces) > 0 && r.Workspace.Mode == sdk.WorkspacePrivate {
		r.Workspace.Source = c.project("source")
	}
}
