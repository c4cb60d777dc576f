package backendtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// limitNames are all limits, in the order of reports.
var limitNames = []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitDisk, sdk.LimitFiles}

// fewCPUs is so little processor time that a list of processors cannot hold it.
const fewCPUs = 0.25

// limitOf asks for one limit alone.
func limitOf(name sdk.Limit, v float64) (l sdk.Limits) {
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
	return l
}

// someValue is a generous value of a limit.
func (c *C) someValue(name sdk.Limit) float64 {
	return map[sdk.Limit]float64{
		sdk.LimitTimeout: float64(time.Minute), sdk.LimitMemory: 256 << 20, sdk.LimitCPUs: 1, sdk.LimitPIDs: 100, sdk.LimitDisk: 64 << 20, sdk.LimitFiles: 256,
	}[name]
}

// trip is how one limit is brought to its end with a shell and coreutils.
type trip struct {
	limit sdk.Limit
	value float64
	below string // stays under the limit and ends with 0
	above string // runs into it
	free  string // what above prints when nothing held it
	cause sdk.Cause
	fix   string
}

var trips = []trip{
	{sdk.LimitMemory, 96 << 20, `head -c 8M /dev/zero | tail -n 1 | wc -c`, `head -c 600M /dev/zero | tail -n 1 | wc -c; exit 9`, "629145600", sdk.CauseOOM, "memory.max, with swap; read oom_kill from memory.events"},
	{sdk.LimitPIDs, 24, `for i in 1 2 3 4 5; do sleep 0.1 & done; wait`, `i=0; while [ $i -lt 200 ]; do sleep 20 & i=$((i+1)); done; echo $i; exit 9`, "200", sdk.CausePIDs, "pids.max; read max from pids.events"},
	{sdk.LimitDisk, 8 << 20, `head -c 1M /dev/zero > small && rm small`, `head -c 64M /dev/zero > big || exit 9`, "", sdk.CauseDisk, "a file system of that size, or a quota"},
	{sdk.LimitFiles, 64, `mkdir -p t && cd t && tee $(seq 20) < /dev/null`, `mkdir -p t && cd t && tee $(seq 200) < /dev/null || exit 9`, "", "", "RLIMIT_NOFILE"},
}

func limitChecks() []Check {
	var out []Check
	for _, name := range limitNames {
		if name == sdk.LimitTimeout {
			continue // it belongs to each command; see end/timeout
		}
		out = append(out,
			Check{ID: "limits/" + string(name) + "-refused", Needs: []Need{needNoLimit(name)}, Proves: "asking for the limit " + string(name) + ", which is not claimed, is refused with reason limit, and leaves nothing", Fix: "refuse in Create every limit that you do not hold",
				run: func(c *C) {
					req := c.request(withLimits(limitOf(name, c.someValue(name))))
					_, err := c.create(c.shared(), req)
					if e := c.wantReason(err, "asking for the limit "+string(name), sdk.ReasonLimit); e.Limit != name {
						c.Fatalf("the failure names the limit %q and not %q", e.Limit, name)
					}
					c.nothingLeft(req.ID)
				}})
	}
	// A sandbox in which a command stayed below the limit is good for the one that goes beyond it.
	limited := func(c *C, t trip) *box {
		c.needHeld(limitOf(t.limit, t.value))
		return c.usedFor("limit "+string(t.limit), withLimits(limitOf(t.limit, t.value)))
	}
	for _, t := range trips {
		out = append(out, Check{ID: "limits/" + string(t.limit) + "-below", Needs: []Need{needLimit(t.limit)}, Proves: "a command that stays below the limit " + string(t.limit) + " is not touched", Fix: "let the limit count what it is about, and nothing else",
			run: func(c *C) { limited(c, t).must(t.below) }})
	}
	for _, t := range trips {
		out = append(out, Check{ID: "limits/" + string(t.limit) + "-trips", Needs: []Need{needLimit(t.limit)}, Proves: "a command that goes beyond the limit " + string(t.limit) + " is held, and the cause says so", Fix: t.fix,
			run: func(c *C) { c.trips(limited(c, t), t) }})
	}
	return append(out, Check{ID: "limits/cpus-holds", Needs: []Need{needLimit(sdk.LimitCPUs)}, Alone: true, Proves: "a command gets no more processor time than the limit cpus allows", Fix: "cpu.max",
		run: func(c *C) {
			c.needHeld(sdk.Limits{CPUs: fewCPUs})
			b := c.box(withLimits(sdk.Limits{CPUs: fewCPUs}))
			o := b.sh(`w() { while :; do :; done; }; w & w & sleep 1.2; kill $! %1 2>/dev/null; exit 0`, timeout(20*time.Second))
			used, wall := b.cpuOf(o), o.Usage.Wall
			if max := time.Duration(fewCPUs*1.5*float64(wall)) + 150*time.Millisecond; used > max {
				c.Fatalf("with cpus = %v it used %s in %s, more than %s", fewCPUs, used, wall, max)
			}
		}}, Check{ID: "limits/together", Proves: "all limits that are claimed can be asked for together", Fix: "see what each needs, and that they do not stand in each other's way",
		run: func(c *C) {
			c.eq("stdout", c.usedFor("limits", withLimits(c.someLimits())).must("echo works", timeout(time.Minute)), "works\n")
		}}, Check{ID: "limits/default-overridable", Needs: []Need{needCap(sdk.CapPlan)}, Proves: "a limit that is asked for takes the place of the default", Fix: "add the default only where the spec has no such limit",
		run: func(c *C) {
			n := 0
			limits := c.someLimits()
			holds := c.usedFor("limits", withLimits(limits)).Ready().Holds
			for _, d := range c.used().Ready().Holds {
				if !d.Default || d.HeldBy == "" || !slices.Contains(asked(limits), d.Limit) {
					continue
				}
				n++
				var got []sdk.Hold
				for _, h := range holds {
					if h.Limit == d.Limit {
						got = append(got, h)
					}
				}
				if len(got) != 1 || got[0].Default || got[0].Value == d.Value {
					c.Fatalf("with %s = %v it is held by %+v; the default is %+v", d.Limit, c.someValue(d.Limit), got, d)
				}
			}
			if n == 0 {
				c.skipf("there is no default that this machine could replace")
			}
		}}, Check{ID: "limits/default-holds", Proves: "a default holds: no process can have more open files than it says, and commands see the memory that it says", Fix: "apply a default in the same way as a limit that was asked for",
		run: func(c *C) {
			b := c.used()
			n := 0
			for _, d := range b.Ready().Holds {
				script := ""
				switch {
				case !d.Default || d.HeldBy == "":
				case d.Limit == sdk.LimitFiles:
					script = "ulimit -Hn"
				case d.Limit == sdk.LimitMemory && strings.Contains(d.Visible, "/proc/meminfo"):
					script = `while read -r k v u; do case $k in MemTotal:) echo $((v * 1024));; esac; done < /proc/meminfo`
				}
				if script == "" {
					continue
				}
				n++
				most, err := sdk.ParseBytes(d.Value)
				got, gerr := strconv.ParseInt(strings.TrimSpace(b.must(script)), 10, 64)
				if err != nil || gerr != nil || got > int64(most) {
					c.Fatalf("%s prints %d; the default of %s is %q (%v, %v)", script, got, d.Limit, d.Value, err, gerr)
				}
			}
			if n == 0 {
				c.skipf("there is no default of open files or of visible memory")
			}
		}}, Check{ID: "limits/visible", Proves: "commands see each limit that is said to be visible, also after a reset", Fix: "mount the files of sdk/visible, and run commands on its Processors; or leave Hold.Visible empty",
		run: func(c *C) {
			l := c.someLimits()
			b := c.box(withLimits(l))
			c.wantVisible(b, l)
			if c.facts.Has(sdk.CapReset) {
				if err := b.Reset(c.ctx, false); err != nil {
					c.Fatalf("reset: %v", err)
				}
				c.wantVisible(b, l)
			}
		}})
}

// wantVisible looks at where programs find out how much of the machine is theirs.
func (c *C) wantVisible(b *box, l sdk.Limits) {
	sees := map[sdk.Limit]string{}
	for _, h := range b.Ready().Holds {
		if !h.Default {
			sees[h.Limit] = h.Visible
		}
	}
	if sees[sdk.LimitMemory] == "" && sees[sdk.LimitCPUs] == "" && sees[sdk.LimitPIDs] == "" {
		c.skipf("the backend claims of no limit that is asked for that it is visible")
	}
	// A cgroup of version 1 has other names; hutch's own processes may come on top of a limit of processes.
	for _, look := range []struct {
		limit     sdk.Limit
		script    string
		min, most int64
	}{
		{sdk.LimitMemory, `while read -r k v u; do case $k in MemTotal:) echo $((v * 1024));; esac; done < /proc/meminfo`, 1, l.Memory},
		{sdk.LimitMemory, `while read -r k v u; do case $k in MemAvailable:) echo $((v * 1024));; esac; done < /proc/meminfo`, 1, l.Memory},
		{sdk.LimitMemory, `while read -r k v u; do case $k in SwapTotal:) echo $v;; esac; done < /proc/meminfo`, 0, 0},
		{sdk.LimitMemory, `cd /sys/fs/cgroup && cat memory.max 2>/dev/null || cat memory/memory.limit_in_bytes`, l.Memory, l.Memory},
		{sdk.LimitCPUs, `nproc`, 1, 1},
		{sdk.LimitCPUs, `n=0; while read -r k v; do case $k in processor) n=$((n + 1));; esac; done < /proc/cpuinfo; echo $n`, 0, 1},
		{sdk.LimitCPUs, `n=0; while read -r k v; do case $k in cpu[0-9]*) n=$((n + 1));; esac; done < /proc/stat; echo $n`, 1, 1},
		{sdk.LimitCPUs, `n=0; IFS=,; for r in $(cat /sys/devices/system/cpu/online); do n=$((n + ${r#*-} - ${r%-*} + 1)); done; echo $n`, 1, 1},
		{sdk.LimitCPUs, `cd /sys/fs/cgroup && read -r q p < cpu.max 2>/dev/null || { read -r q < cpu/cpu.cfs_quota_us; read -r p < cpu/cpu.cfs_period_us; }; echo $((q / p))`, 1, 1},
		{sdk.LimitPIDs, `cd /sys/fs/cgroup && cat pids.max 2>/dev/null || cat pids/pids.max`, l.PIDs, l.PIDs + 16},
	} {
		if sees[look.limit] == "" || strings.Contains(look.script, "/sys/fs/cgroup") && !strings.Contains(sees[look.limit], "/sys/fs/cgroup") {
			continue
		}
		got := strings.TrimSpace(b.must("set -e; " + look.script))
		if n, err := strconv.ParseInt(got, 10, 64); err != nil || n < look.min || n > look.most {
			c.Fatalf("the limit %s is said to be visible, and\n%s\nprints %s; want %d to %d", look.limit, look.script, quote(got), look.min, look.most)
		}
	}
}

// cpuOf is the processor time of a command: as reported, or as the shell counted.
func (b *box) cpuOf(o *out) time.Duration { return o.Usage.User + o.Usage.Sys }

// trips runs into a limit and looks at the cause.
func (c *C) trips(b *box, t trip) {
	by := ""
	for _, h := range b.Ready().Holds {
		if h.Limit == t.limit {
			by = h.HeldBy
		}
	}
	o := b.sh(t.above, timeout(time.Minute))
	if o.Cause == sdk.CauseTimeout {
		c.Fatalf("it timed out before the limit (held by %q) did anything: %s", by, o.how())
	}
	if o.Code == 0 || t.free != "" && strings.TrimSpace(o.stdout) == t.free {
		c.Fatalf("nothing held it (%q should): %s, stdout %s", by, o.how(), quote(o.stdout))
	}
	if t.cause == "" {
		if o.Cause != sdk.CauseExited || o.Code != 9 {
			c.Fatalf("got %s; want the program's own failure", o.how())
		}
		return
	}
	// An rlimit leaves no trace that it was met: the program only fails.
	if o.Cause != t.cause && !strings.Contains(strings.ToLower(by), "rlimit") {
		c.Fatalf("got %s; want cause %q, for the limit is held by %q", o.how(), t.cause, by)
	}
	if o.Cause == t.cause && o.Evidence == "" {
		c.Fatalf("the cause %q has no evidence", o.Cause)
	}
}

func resetChecks() []Check {
	needs := []Need{needCap(sdk.CapReset)}
	reset := func(b *box, hard bool) {
		if err := b.Reset(b.c.ctx, hard); err != nil {
			b.c.Fatalf("reset: %v", err)
		}
	}
	return []Check{
		{ID: "reset/soft-keeps", Needs: needs, Proves: "a reset keeps the writes to the workspace", Fix: "recreate what surrounds the workspace",
			run: func(c *C) {
				b := c.box(c.someSource)
				b.must("echo kept > kept; mkdir -p empty; " + vandal)
				before := b.must(describeTree)
				reset(b, false)
				c.eq("the tree", b.must(describeTree), before)
			}},
		{ID: "reset/hard-restores", Needs: append([]Need{needWorkspace(sdk.WorkspacePrivate)}, needs...), Proves: "a hard reset brings the workspace back to its source", Fix: "throw the overlay or copy away and begin again",
			run: func(c *C) {
				dir := c.project("project")
				b := c.box(withSource(dir, sdk.WorkspacePrivate))
				before := b.must(describeTree)
				b.must(vandal)
				reset(b, true)
				c.eq("the tree", b.must(describeTree), before)
			}},
		{ID: "reset/ends-processes", Needs: needs, Proves: "a reset ends every process of the sandbox", Fix: "kill them all, and wait",
			run: func(c *C) {
				b := c.box()
				r := b.beating()
				reset(b, false)
				if o := r.end(2 * soon); o.Cause == sdk.CauseExited {
					c.Fatalf("the command that ran is said to have ended by itself: %s", o.how())
				}
				c.still(b)
			}},
		{ID: "reset/usable", Needs: needs, Proves: "a sandbox can be used after a reset, four times over", Fix: "leave nothing behind that is in the way of the next time",
			run: func(c *C) {
				b := c.box()
				for i := range 4 {
					reset(b, i%2 == 0)
					c.eq("stdout", b.must("echo works"), "works\n")
				}
			}},
		{ID: "reset/output", Needs: needs, Proves: "a reset leaves the paths of the sandbox as they were", Fix: "recreate what Ready names at the same place",
			run: func(c *C) {
				b := c.box()
				reset(b, true)
				b.must(`test -d "$W" && { test -z "$O" || { test -d "$O" && echo x > "$O/x"; }; }`, env(map[string]string{"W": b.Ready().Workspace, "O": b.Ready().Output}))
			}},
	}
}

// someSource gives the sandbox a source where that is claimed.
func (c *C) someSource(r *sdk.CreateRequest) {
	if len(c.facts.Workspaces) > 0 && r.Workspace.Mode == sdk.WorkspacePrivate {
		r.Workspace.Source = c.project(fmt.Sprintf("source-%d", c.boxes))
	}
}
