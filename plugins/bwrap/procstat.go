package main

import (
	"strconv"
	"strings"
)

// parseStartTime reads field 22 of /proc/PID/stat. The name in field 2 may hold
// anything, parentheses and spaces included.
func parseStartTime(stat string) uint64 {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return 0
	}
	fields := strings.Fields(stat[i+1:])
	if len(fields) < 20 {
		return 0
	}
	n, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
