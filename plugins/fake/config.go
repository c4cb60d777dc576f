package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// config is the backend block. The zero value is a healthy backend.
type config struct {
	CreateError string        `hutch:"create_error" doc:"fail every creation with this reason: missing, denied, quota, unavailable, internal"`
	CreateDelay time.Duration `hutch:"create_delay" doc:"how long a creation takes, in which it reports progress"`
	ExecDelay   time.Duration `hutch:"exec_delay" doc:"how long it takes until a command is started"`
	CrashDuring string        `hutch:"crash_during" doc:"the call in the middle of which the process kills itself: plan, create, exec, put, get, remove, changes, reset, destroy, inspect"`
	HangDuring  string        `hutch:"hang_during" doc:"the call that never returns, whatever its context says; the same names"`
	Freeze      string        `hutch:"freeze_during" doc:"the call in the middle of which the process is stopped, as by SIGSTOP; the same names"`
	PanicDuring string        `hutch:"panic_during" doc:"the call that panics; the same names"`
	Garbage     string        `hutch:"garbage_during" doc:"the call in the middle of which the process writes what is no protocol into its connection; the same names"`
	FloodDuring string        `hutch:"flood_during" doc:"the call in the middle of which the process logs 32 MiB of warnings; the same names"`
	HoldDuring  string        `hutch:"hold_during" doc:"the call that goes on only once there is a file named as fault_once is, with .go after it; the same names"`
	FaultOnce   string        `hutch:"fault_once" doc:"a file: a fault happens only while it is there, and takes it away first"`
	StderrJunk  bool          `hutch:"stderr_junk" doc:"write lines to stderr, at each creation and command, that are no log: {\"@message\":42}, NULs, 100 kB without an end"`
	Refuse      []string      `hutch:"refuse_limits" doc:"limits that cannot be held on this pretended machine"`
	Lie         []string      `hutch:"lies" doc:"promises of the contract to break without saying so; faults.go has the list"`
	Marker      string        `hutch:"marker" doc:"text that Inspect gives back; it has no meaning"`
	Exchange    bool          `hutch:"exchange" doc:"offer a directory that host and commands both see"`
	Defaults    bool          `hutch:"defaults" doc:"hold open files to 512 in sandboxes for which nobody asked"`
	Option      []option      `hutch:"option,block" doc:"a nested block to test diagnostics with; it has no meaning"`
}

// option is a nested block whose values can be wrong in ways that only the backend knows.
type option struct {
	Even  int               `hutch:"even,required" doc:"an even number"`
	Words []string          `hutch:"words" doc:"none of them may be \"wrong\""`
	Table map[string]string `hutch:"table" doc:"none of the values may be \"wrong\""`
}

// calls are what crash_during and the others like it may name.
var calls = []string{"", "plan", "create", "exec", "put", "get", "remove", "changes", "reset", "stop", "start",
	"destroy", "inspect"}

// Validate implements [sdk.Validator]. Its paths lead into lists, maps and blocks.
func (c *config) Validate() []sdk.Diagnostic {
	if c.lies("config_ignored") {
		return nil
	}
	var out []sdk.Diagnostic
	bad := func(path, format string, args ...any) {
		out = append(out, sdk.Diagnostic{Severity: sdk.SeverityError, Summary: fmt.Sprintf(format, args...), Path: path})
	}
	for path, call := range map[string]string{"crash_during": c.CrashDuring, "hang_during": c.HangDuring,
		"freeze_during": c.Freeze, "panic_during": c.PanicDuring,
		"garbage_during": c.Garbage, "flood_during": c.FloodDuring, "hold_during": c.HoldDuring} {
		if !slices.Contains(calls, call) {
			bad(path, "there is no call %q", call)
		}
	}
	for i, l := range c.Refuse {
		if !slices.Contains(holdable, sdk.Limit(l)) {
			bad(fmt.Sprintf("refuse_limits[%d]", i), "%q is not one of the limits that this backend holds", l)
		}
	}
	for i, l := range c.Lie {
		if _, ok := lies[l]; !ok {
			bad(fmt.Sprintf("lies[%d]", i), "there is no lie %q", l)
		}
	}
	for i, o := range c.Option {
		if o.Even%2 != 0 {
			bad(fmt.Sprintf("option[%d].even", i), "%d is not even", o.Even)
		}
		for j, w := range o.Words {
			if w == "wrong" {
				bad(fmt.Sprintf("option[%d].words[%d]", i, j), "this word is wrong")
			}
		}
		for k, v := range o.Table {
			if v == "wrong" {
				bad(fmt.Sprintf("option[%d].table[%q]", i, k), "this value is wrong")
			}
		}
	}
	slices.SortFunc(out, func(a, b sdk.Diagnostic) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func (c *config) lies(name string) bool { return slices.Contains(c.Lie, name) }
