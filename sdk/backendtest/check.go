package backendtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// Check is one row of the table.
type Check struct {
	ID     string // group/name; stable, so that reports can be compared
	Proves string // what is true when it passes, one sentence
	Fix    string // what the author should look at when it fails
	Needs  []Need // what the backend must claim for the check to apply
	Alone  bool   // must not run beside other checks

	run func(*C)
}

// row is a check of the table.
func row(id, proves, fix string, run func(*C), needs ...Need) Check {
	return Check{ID: id, Proves: proves, Fix: fix, Needs: needs, run: run}
}

// alone is a check that must not run beside others.
func alone(id, proves, fix string, run func(*C), needs ...Need) Check {
	return Check{ID: id, Proves: proves, Fix: fix, Needs: needs, Alone: true, run: run}
}

// needing adds what each check of a group needs.
func needing(needs []Need, checks ...Check) []Check {
	for i := range checks {
		checks[i].Needs = slices.Concat(needs, checks[i].Needs)
	}
	return checks
}

// Group returns the part of the id before the slash.
func (c Check) Group() string {
	g, _, _ := strings.Cut(c.ID, "/")
	return g
}

// Need is something a backend claims, or a door offers, without which a check
// does not apply.
type Need struct {
	Name string // as it stands in reports: "capability put", "limit memory"
	has  func(*facts) bool
}

// facts is what needs are decided from.
type facts struct {
	*sdk.Facts
	process    bool
	badConfigs bool
	standIn    bool
}

func needCap(c sdk.Capability) Need {
	return Need{"capability " + string(c), func(f *facts) bool { return f.Has(c) }}
}

func needLimit(l sdk.Limit) Need {
	return Need{"limit " + string(l), func(f *facts) bool { return f.Holds(l) }}
}

func needNoLimit(l sdk.Limit) Need {
	return Need{"a backend without the limit " + string(l), func(f *facts) bool { return !f.Holds(l) }}
}

func needWorkspace(m sdk.WorkspaceMode) Need {
	return Need{"workspace mode " + string(m), func(f *facts) bool { return slices.Contains(f.Workspaces, m) }}
}

func needNetwork(m sdk.NetworkMode) Need {
	return Need{"network mode " + string(m), func(f *facts) bool { return slices.Contains(f.Networks, m) }}
}

func needFormat(m sdk.Format) Need {
	return Need{"format " + string(m), func(f *facts) bool { return slices.Contains(f.Formats, m) }}
}

var (
	needAttach   = needCap(sdk.CapAttach)
	needPrivate  = needWorkspace(sdk.WorkspacePrivate)
	needFiltered = needNetwork(sdk.NetworkFiltered)
	needFile     = needFormat(sdk.FormatFile)
	needTar      = needFormat(sdk.FormatTar)

	needAnyWorkspace = Need{"a workspace mode", func(f *facts) bool { return len(f.Workspaces) > 0 }}
	// needIsolation holds for backends that put anything between code and host.
	needIsolation = Need{"isolation above none", func(f *facts) bool { return f.Isolation.Rank() > 0 }}
	// needOwnKernel holds for backends that claim machines, unless the suite says that those are stand-ins.
	needOwnKernel = Need{"isolation vm or remote-vm, and a real machine", func(f *facts) bool {
		return f.Isolation.Rank() >= sdk.IsolationVM.Rank() && !f.standIn
	}}
	// needSharedKernel holds for backends that isolate on the host's kernel.
	needSharedKernel = Need{"isolation namespace or container", func(f *facts) bool {
		return f.Isolation.Rank() >= sdk.IsolationNamespace.Rank() && f.Isolation.Rank() < sdk.IsolationVM.Rank()
	}}
	// needProc holds for backends whose commands have a /proc: one of the host's would show other processes.
	needProc = Need{"isolation other than process", func(f *facts) bool { return f.Isolation != sdk.IsolationProcess }}
	// needLocal holds for backends whose commands are processes of a kernel that they can ask.
	needLocal = Need{"isolation other than remote-vm", func(f *facts) bool {
		return f.Isolation != sdk.IsolationRemoteVM
	}}
	// needProcess holds at the door that starts compiled plugins.
	needProcess = Need{"a plugin process (hutch backend test)", func(f *facts) bool { return f.process }}
	// needBadConfigs holds when the author listed configurations that must be refused.
	needBadConfigs = Need{"Suite.BadConfigs", func(f *facts) bool { return f.badConfigs }}
)

// Checks returns the whole table, in the order of reports.
func Checks() []Check {
	return slices.Concat(
		describeChecks(), configChecks(), machineChecks(), planChecks(), createChecks(),
		execChecks(), streamChecks(), commandChecks(), endChecks(), ttyChecks(),
		putChecks(), getChecks(), removeChecks(), layersChecks(), exchangeChecks(), changesChecks(),
		workspaceChecks(), inputChecks(), networkChecks(), filteredChecks(), dialChecks(), isolationChecks(),
		limitChecks(), resetChecks(), stopChecks(), forkChecks(), aheadChecks(), lifeChecks(), robustChecks(), deathChecks(),
		leftoverChecks(),
	)
}

// missing says what a check needs and the backend does not claim; "" when it applies.
func (c Check) missing(f *facts) string {
	for _, n := range c.Needs {
		if !n.has(f) {
			return n.Name
		}
	}
	return ""
}

// failure ends a check; it travels by panic from C.Fatalf to the runner.
type failure struct{ msg string }

// skipped ends a check that finds out while running that it does not apply.
type skipped struct{ msg string }

// Fatalf ends the check as failed.
func (c *C) Fatalf(format string, args ...any) {
	panic(failure{fmt.Sprintf(format, args...)})
}

// skipf ends the check as not applicable; only for things that a backend does not claim, or this machine cannot do.
func (c *C) skipf(format string, args ...any) {
	panic(skipped{fmt.Sprintf(format, args...)})
}
