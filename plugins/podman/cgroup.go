package main

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk/limits"
)

// cgroupOf finds the cgroup of a container's first process, made by the OCI runtime; nil when the container has no
// cgroup that is not others' as well.
func cgroupOf(pid int) *limits.Foreign {
	return limits.Of(pid, func(path string) bool {
		return strings.Contains(path, "libpod-") || strings.Contains(path, "/container")
	})
}

// mountLines yields the fields before and after the dash of each line of a mountinfo file: at least five and three. A
// line may be longer than a bufio.Scanner takes, as that of an overlay with many layers.
func mountLines(mountinfo string) iter.Seq2[[]string, []string] {
	return func(yield func(head, tail []string) bool) {
		for line := range strings.Lines(mountinfo) {
			before, after, _ := strings.Cut(line, " - ")
			head, tail := strings.Fields(before), strings.Fields(after)
			if len(head) >= 5 && len(tail) >= 3 && !yield(head, tail) {
				return
			}
		}
	}
}

// processes lists the processes of a container: those of its first process's pid namespace.
func processes(pid int) (out []int) {
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if other, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && other == ns {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
