package store

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

func readSelf() Process {
	p := Process{PID: os.Getpid()}
	p.Start, _ = processStart(p.PID)
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.Boot = strings.TrimSpace(string(b))
	}
	p.Namespace, _ = os.Readlink("/proc/self/ns/pid")
	return p
}

// processStart reads when a process began; false means that it is gone, or a zombie, which holds nothing any more.
func processStart(pid int) (uint64, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The command's name stands in parentheses and may hold anything, so count fields from its end.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, false
	}
	fields := strings.Fields(string(b[i+1:])) // from field 3, the state; the start time is field 22
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return start, err == nil
}
