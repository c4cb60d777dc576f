package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// lies are the promises that can be broken in silence, each with what breaks.
// The meta-test of the conformance suite names the check that catches each.
var lies = map[string]string{
	"exit_code":           "a command that fails with 7 is reported to have ended well",
	"signal_as_exit":      "death by a signal is reported as an ordinary exit",
	"not_found_exit":      "a command that is not found is reported as one that ran and gave 127",
	"last_bytes":          "the last bytes of a big output are lost",
	"nul_bytes":           "NUL bytes are dropped from the output",
	"merge_streams":       "stderr arrives on stdout",
	"ignore_stdin":        "the command gets no stdin",
	"leave_process":       "a creation starts a process that nobody ever ends",
	"leave_file":          "a creation leaves a file that nobody ever removes",
	"keep_setsid":         "a descendant in a session of its own survives the end",
	"ignore_output":       "a command that printed too much runs on",
	"no_grace":            "SIGKILL comes at once",
	"ignore_signals":      "signals are not delivered",
	"wrong_cause":         "a timeout is reported as a cancellation",
	"env_leak":            "commands see the environment of the plugin",
	"fd_leak":             "commands inherit a descriptor that is not theirs",
	"wrong_dir":           "commands start in the workspace whatever was asked for",
	"split_args":          "arguments are joined and split again at spaces",
	"empty_args":          "empty arguments are dropped",
	"serial":              "commands of one sandbox run one after the other",
	"zero_usage":          "neither processor time nor memory of a command is reported",
	"allocated_late":      "the sandbox is made before the host has its handle",
	"get_follows":         "fetching a file follows a symbolic link",
	"claims_namespace":    "a plain process is said to be isolated by namespaces",
	"claims_vm":           "a plain process is said to be a virtual machine",
	"no_usage":            "the time a command took is reported as a second more",
	"destroy_unknown":     "destroying an unknown sandbox is an error",
	"destroy_needs_self":  "only the process that made a sandbox is able to destroy it",
	"destroy_keeps":       "destroying leaves the files of the workspace",
	"list_all":            "listing gives the sandboxes of every owner",
	"list_gone":           "listing gives destroyed sandboxes",
	"attach_gone":         "attaching to a destroyed sandbox succeeds",
	"attach_needs_self":   "only the process that made a sandbox is able to attach to it",
	"put_modes":           "put loses the modes of files",
	"put_file_mode":       "a file that is put loses the permissions of the one it replaces",
	"put_escape":          "put follows .. out of the destination",
	"get_symlinks":        "get follows symbolic links",
	"get_no_size":         "the size of a file is not said before its bytes",
	"get_missing":         "getting what does not exist gives an empty answer",
	"remove_unasked":      "a directory is removed without being asked for all that is in it",
	"remove_follows":      "removing a symbolic link removes what it points to",
	"remove_missing":      "removing what does not exist succeeds",
	"layers_missing":      "the workspace is said to lie in a directory that is not there",
	"layers_stale":        "the directory that is said to hold what was written does not",
	"default_unsaid":      "a plan leaves out the defaults",
	"default_stays":       "a default stays although a limit is asked for",
	"default_unheld":      "a default is said to hold and does not",
	"exchange_missing":    "the exchange is said to be a directory that is not there",
	"exchange_apart":      "host and commands have two directories for the exchange",
	"changes_deleted":     "deleted files are not among the changes",
	"changes_order":       "changes come in no order",
	"host_write":          "the private workspace is the host's own directory",
	"stub_file":           "a creation leaves an empty file in the workspace's source",
	"unheld_limit":        "a limit is claimed to be held, and is not",
	"tty_size":            "the terminal has another size than asked for",
	"no_tty":              "there is no terminal",
	"network_leak":        "network mode none has a network",
	"reset_keeps":         "a hard reset leaves the workspace as it is",
	"reset_soft_wipes":    "a soft reset loses the workspace",
	"stop_wipes":          "a stop loses what is in the output",
	"stop_deaf":           "a sandbox that is asleep takes no command",
	"stop_unseen":         "a stopped sandbox is said to be ready",
	"stop_needs_self":     "only the process that stopped a sandbox is able to start it",
	"fork_without_output": "a fork has an empty output",
	"fork_shares":         "a fork has the workspace of its parent",
	"untyped_errors":      "errors have no reason",
	"plan_differs":        "the plan promises another mechanism than the creation",
	"plan_holds_less":     "the plan says that a limit cannot be held which is",
	"plan_gives_less":     "the plan says that there is no network where there is",
	"check_no_fix":        "a finding that is not well has no fix",
	"config_ignored":      "a block that is wrong is accepted",
	"sigpipe_ignored":     "commands inherit that SIGPIPE is ignored",
}

// fault does to the call named what the block asks for.
func (c *config) fault(call string) {
	if !slices.Contains([]string{c.PanicDuring, c.CrashDuring, c.HangDuring, c.Freeze, c.Garbage, c.FloodDuring,
		c.HoldDuring}, call) {
		return
	}
	if c.FaultOnce != "" && os.Remove(c.FaultOnce) != nil {
		return
	}
	switch call {
	case c.PanicDuring:
		panic("the block says panic_during = " + call)
	case c.CrashDuring:
		fmt.Fprintf(os.Stderr, "crashing during %s, as the block says\n", call)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	case c.Garbage:
		fmt.Fprintf(os.Stderr, "writing garbage during %s, as the block says\n", call)
		garbage()
		time.Sleep(time.Duration(1<<63 - 1))
	case c.FloodDuring:
		line := []byte(`{"@level":"warn","@message":"` + strings.Repeat("flood ", 170) + `"}` + "\n")
		for range 32 << 20 / len(line) {
			syscall.Write(2, line)
		}
	case c.Freeze:
		fmt.Fprintf(os.Stderr, "freezing during %s, as the block says\n", call)
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Duration(1<<63 - 1)) // the other threads stop a moment later than this one goes on
	case c.HoldDuring:
		fmt.Fprintf(os.Stderr, "holding during %s, as the block says\n", call)
		for {
			if _, err := os.Stat(c.FaultOnce + ".go"); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	case c.HangDuring:
		fmt.Fprintf(os.Stderr, "hanging during %s, as the block says\n", call)
		time.Sleep(time.Duration(1<<63 - 1)) // and not select {}, which the runtime may call a deadlock
	}
}

// garbage writes what is no HTTP/2 into every connection that this process has.
func garbage() {
	for fd := 3; fd < 256; fd++ {
		if _, err := syscall.Getpeername(fd); err == nil {
			syscall.Write(fd, bytes.Repeat([]byte("\xffgarbage"), 1000))
		}
	}
}

// junk writes to stderr what no host should choke on.
func (c *config) junk() {
	if !c.StderrJunk {
		return
	}
	for _, line := range []string{
		`{"@message":42,"@level":["no"],"@timestamp":{}}`, `{"@message":`, "\x00\x01\xff not utf-8 \x1b[31mred", "",
		"panic: not really", strings.Repeat("x", 100_000), strings.Repeat(`{"@level":"error",`, 6_000),
	} {
		syscall.Write(2, []byte(line+"\n"))
	}
}

// traffic is what commands are said to have done with a network, or nil.
var traffic []sdk.Traffic

// readTraffic reads traffic from the file EXECUTABLE.traffic, a list in JSON. Where there is one, the network mode
// filtered is claimed, although there is no network at all.
func readTraffic() {
	exe, err := os.Executable()
	if err != nil {
		return
	}
	b, err := os.ReadFile(exe + ".traffic")
	if err != nil {
		return // the usual case: no fault
	}
	if err := json.Unmarshal(b, &traffic); err != nil {
		fmt.Fprintf(os.Stderr, "%s.traffic is not a list of traffic: %v\n", exe, err)
		os.Exit(2)
	}
}
