package netns

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Attempts watches a network namespace that has nothing but a loopback for programs that look for a network. A nil one
// sees none.
type Attempts struct {
	snmp *os.File // of /proc: it stays that of its namespace
	was  uint64
}

// WatchAttempts begins to watch the network namespace of a process, nil where /proc does not let it.
func WatchAttempts(pid int) *Attempts {
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/snmp", pid))
	if err != nil {
		return nil
	}
	a := &Attempts{snmp: f}
	a.was = a.count()
	return a
}

// Any reports whether a packet found no route since the beginning, or a datagram no listener: so end lookups of names,
// which go to the loopback where no name server is configured.
func (a *Attempts) Any() bool { return a != nil && a.count() > a.was }

// Close stops watching.
func (a *Attempts) Close() {
	if a != nil {
		a.snmp.Close()
	}
}

// count is the sum of the kernel's counters of both. Each protocol has a line of names, and one of numbers.
func (a *Attempts) count() (n uint64) {
	b := make([]byte, 16<<10)
	size, _ := a.snmp.ReadAt(b, 0)
	var names []string
	for line := range strings.Lines(string(b[:size])) {
		fields := strings.Fields(line)
		if len(fields) > 0 && len(fields) == len(names) && fields[0] == names[0] {
			for i, name := range names {
				if key := fields[0] + name; key == "Ip:OutNoRoutes" || key == "Udp:NoPorts" {
					value, _ := strconv.ParseUint(fields[i], 10, 64)
					n += value
				}
			}
		}
		names = fields
	}
	return n
}
