package descendants

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// UsageOf is what the living processes below pid use now.
func UsageOf(pid int) (u Usage) {
	for _, p := range Of(pid) {
		u.Processes++
		if st, err := procstat.Of(p); err == nil {
			u.CPU += st.CPU
		}
		u.Memory += resident(p)
	}
	return u
}

func resident(pid int) (n uint64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		name, value, _ := strings.Cut(string(line), ":")
		if name == "RssAnon" || name == "RssShmem" || name == "VmSwap" {
			kb, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			n += kb << 10
		}
	}
	return n
}
