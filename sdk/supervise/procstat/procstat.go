// Package procstat reads /proc/PID/stat, where a process's own name may hold anything that separates the other fields.
// It imports nothing of the module. On systems without /proc every process is reported as gone.
package procstat

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Stat is what the kernel says about a process or a thread.
type Stat struct {
	State  byte   // R, S, D, T, …; Z and X are dead
	Parent int    // the parent's process id, 0 when it lies outside the pid namespace
	Start  uint64 // start time in clock ticks since the boot
	CPU    uint64 // processor time in clock ticks, that of children it has waited for included
}

// Dead reports whether the process has ended: it is a zombie, or even that is being removed.
func (s Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' }

// Alive reports whether a process exists and is not just waiting to be reaped.
func Alive(pid int) bool {
	s, err := Of(pid)
	return err == nil && !s.Dead()
}

// Of reads the state of a process. The error of one that is gone is fs.ErrNotExist or ESRCH.
func Of(pid int) (Stat, error) { return Read("/proc/" + strconv.Itoa(pid) + "/stat") }

// Read reads one stat file, of a process or of a thread.
func Read(file string) (s Stat, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	if s, err = parse(b); err != nil {
		return s, fmt.Errorf("%s has an unknown form: %q: %w", file, b, err)
	}
	return s, nil
}

func parse(b []byte) (s Stat, err error) {
	// "PID (NAME) STATE PARENT …": count from the last parenthesis, because NAME may hold parentheses and spaces.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from field 3, the state
	if len(fields) < 20 || len(fields[0]) != 1 {
		return s, errors.New("fields are missing")
	}
	s.State = fields[0][0]
	if s.Parent, err = strconv.Atoi(fields[1]); err == nil {
		s.Start, err = strconv.ParseUint(fields[19], 10, 64)
	}
	for _, f := range fields[11:15] {
		n, _ := strconv.ParseInt(f, 10, 64)
		s.CPU += uint64(max(n, 0))
	}
	return s, err
}
