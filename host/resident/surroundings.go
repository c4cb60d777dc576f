//go:build linux

package resident

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// namespaces are the links below /proc/PID/ns.
var namespaces = []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"}

// inherited are the lines of /proc/PID/status about what a process inherits.
var inherited = []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
	"Seccomp", "Seccomp_filters", "Cpus_allowed", "Mems_allowed"}

// fixed reports whether Go reads a variable of the environment once, so that a running process keeps what it had.
func fixed(name string) bool {
	return name == "TZ" || name == "ZONEINFO" || strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "SSL_CERT_") ||
		strings.HasSuffix(strings.ToLower(name), "_proxy")
}

func fixedEnv(env []string) (out []string) {
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); fixed(name) {
			out = append(out, kv)
		}
	}
	slices.Sort(out)
	return out
}

// surroundings is what a process inherits and a client does not send, by name. What cannot be read is an error.
func surroundings(pid int) (map[string]string, error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	out := map[string]string{}
	for _, ns := range namespaces {
		link, err := os.Readlink(proc + "ns/" + ns)
		if err != nil && !(ns == "time" && os.IsNotExist(err)) { // Linux before 5.6
			return nil, err
		}
		out[ns+" namespace"] = link
	}
	var err error
	if out["root"], err = os.Readlink(proc + "root"); err != nil {
		return nil, err
	}
	for _, file := range []string{"cgroup", "limits", "oom_score_adj", "status", "stat"} {
		b, err := os.ReadFile(proc + file)
		if err != nil {
			return nil, err
		}
		out[file] = string(b)
	}
	for line := range strings.Lines(out["status"]) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains(inherited, name) {
			out[name] = value
		}
	}
	delete(out, "status")
	// The fields after the name, from the third on: the 19th is the nice value, the 41st the scheduling policy.
	fields := strings.Fields(out["stat"][strings.LastIndexByte(out["stat"], ')')+1:])
	if len(fields) < 39 {
		return nil, fmt.Errorf("%sstat is too short", proc)
	}
	delete(out, "stat")
	out["nice value"], out["scheduling policy"] = fields[19-3], fields[41-3]
	return out, nil
}

// differs says in what a client's surroundings differ from the resident's, "" when they do not. One that only controls
// the resident must not be in a sandbox; the rest does not matter then. cgroups is where version 2 of them is mounted.
func differs(mine, theirs map[string]string, control bool, cgroups string) string {
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		value := mine[name]
		if control && name != "root" && !strings.HasSuffix(name, " namespace") {
			continue
		}
		if theirs[name] != value && (name != "cgroup" || !sameLimits(value, theirs[name], cgroups)) {
			return "it has another " + name
		}
	}
	return ""
}

// limitFiles are the files of a cgroup, version 2, that hold its processes to less than those outside of it.
var limitFiles = []string{"cpu.max", "memory.high", "memory.max", "memory.swap.max", "pids.max", "io.max"}

// sameLimits reports whether two processes are held to the same by their cgroups, given as /proc/PID/cgroup has them:
// on version 2, when no cgroup that has only one of them has a limit. root is where version 2 is mounted.
func sameLimits(a, b, root string) bool {
	pathA, okA := strings.CutPrefix(strings.TrimSuffix(a, "\n"), "0::")
	pathB, okB := strings.CutPrefix(strings.TrimSuffix(b, "\n"), "0::")
	if !okA || !okB || strings.Contains(pathA+pathB, "\n") || strings.Contains(pathA+pathB, "..") {
		return false // version 1, or outside of the cgroup namespace
	}
	within := func(dir, path string) bool { return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/") }
	for _, pair := range [][2]string{{pathA, pathB}, {pathB, pathA}} {
		for dir := pair[0]; !within(dir, pair[1]); dir = filepath.Dir(dir) {
			for _, name := range limitFiles {
				b, err := os.ReadFile(filepath.Join(root, dir, name))
				text := strings.TrimSpace(string(b))
				if err != nil && !os.IsNotExist(err) || text != "" && !strings.HasPrefix(text, "max") {
					return false
				}
			}
		}
	}
	return true
}
