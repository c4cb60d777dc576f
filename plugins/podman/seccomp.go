package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// seccompPlaces are where Podman's default filter of system calls lies; the first one that is there counts, as for Podman.
var seccompPlaces = []string{"/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json"}

// refusedCalls are what Podman's default filter lets every program do, and a sandbox has no use for: namespaces and mounts,
// with which most ways out of containers began, other processes' memory, keyrings, and much code with many holes.
var refusedCalls = []string{
	"unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "clone3",
	"open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
	"add_key", "keyctl", "request_key",
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "name_to_handle_at", "open_by_handle_at",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	"mbind", "get_mempolicy", "set_mempolicy", "set_mempolicy_home_node", "move_pages", "migrate_pages", "syslog", "quotactl", "quotactl_fd", "acct",
}

// mountCalls are what the agent needs to mount an overlay inside.
var mountCalls = []string{"mount", "umount2"}

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = 0x7e020000

// seccompRule is one rule of a filter, as far as it is looked at; the rest is kept as it is.
type seccompRule struct {
	Names    []string        `json:"names"`
	Action   string          `json:"action"`
	Args     json.RawMessage `json:"args,omitempty"`
	Comment  string          `json:"comment,omitempty"`
	Includes json.RawMessage `json:"includes,omitempty"`
	Excludes json.RawMessage `json:"excludes,omitempty"`
	Errno    *uint           `json:"errnoRet,omitempty"`
	ErrnoTxt string          `json:"errno,omitempty"`
}

// writeSeccomp writes the filter of a sandbox to path: Podman's default, without what is refused here. It says false when
// this machine has none to begin with.
func writeSeccomp(path, over string) (bool, error) {
	data, err := readFirst(seccompPlaces)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if data, err = narrow(data, over == overlayInside); err != nil {
		return false, fmt.Errorf("the system call filter of podman: %w", err)
	}
	return true, os.WriteFile(path, data, 0o600)
}

func readFirst(places []string) (data []byte, err error) {
	for _, p := range places {
		if data, err = os.ReadFile(filepath.Clean(p)); !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
	}
	return nil, err
}

// narrow takes the refused calls out of a filter, from clone the making of namespaces, and from socket all families but the
// everyday ones, AF_VSOCK among them.
func narrow(profile []byte, mounts bool) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(profile, &all); err != nil {
		return nil, err
	}
	var rules []seccompRule
	if err := json.Unmarshal(all["syscalls"], &rules); err != nil {
		return nil, err
	}
	const allow = "SCMP_ACT_ALLOW"
	var out []seccompRule
	for _, r := range rules {
		if slices.Equal(r.Names, []string{"socket"}) {
			continue
		}
		if r.Action == allow {
			r.Names = slices.DeleteFunc(r.Names, func(name string) bool {
				return name == "clone" || slices.Contains(refusedCalls, name) && (!mounts || !slices.Contains(mountCalls, name))
			})
		}
		if len(r.Names) > 0 {
			out = append(out, r)
		}
	}
	when := func(name, args string) {
		out = append(out, seccompRule{Names: []string{name}, Action: allow, Args: json.RawMessage(args)})
	}
	when("clone", fmt.Sprintf(`[{"index":0,"value":%d,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]`, newNamespaces))
	for _, family := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		when("socket", fmt.Sprintf(`[{"index":0,"value":%d,"op":"SCMP_CMP_EQ"}]`, family))
	}
	when("socket", fmt.Sprintf(`[{"index":0,"value":%d,"op":"SCMP_CMP_EQ"},{"index":2,"value":%d,"op":"SCMP_CMP_NE"}]`, unix.AF_NETLINK, unix.NETLINK_AUDIT))
	var err error
	if all["syscalls"], err = json.Marshal(out); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
