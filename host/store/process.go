package store

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies one process beyond the reuse of its number.
type Process struct {
	PID       int    `json:"pid"`
	Start     uint64 `json:"start"`            // start time in clock ticks since boot
	Boot      string `json:"boot"`             // the kernel's boot id
	Namespace string `json:"pid_ns,omitempty"` // the pid namespace that PID counts in
}

// Self identifies this process.
func Self() Process { return self() }

var self = sync.OnceValue(readSelf)

// ProcessOf identifies a process of this pid namespace, such as a child of this one that was not waited for yet.
func ProcessOf(pid int) Process {
	p := Self()
	p.PID = pid
	p.Start, _ = processStart(pid)
	return p
}

// End waits until the process has ended, or ctx has. One that takes longer than timeout is killed, with its process
// group.
func (p Process) End(ctx context.Context, timeout time.Duration) {
	late := time.NewTimer(timeout)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for p.Alive() && p.Namespace == Self().Namespace {
		select {
		case <-tick.C:
		case <-late.C:
			_ = unix.Kill(-p.PID, unix.SIGKILL)
			_ = unix.Kill(p.PID, unix.SIGKILL)
		case <-ctx.Done():
			return
		}
	}
}

// Alive reports whether the process may still be running. A process of another pid namespace on this boot counts as
// alive, because its number says nothing here.
func (p Process) Alive() bool {
	me := Self()
	switch {
	case p == me:
		return true
	case p.PID <= 0 || p.Boot != me.Boot:
		return false
	case p.Namespace != me.Namespace:
		return true
	}
	start, ok := processStart(p.PID)
	return ok && start == p.Start
}

// The names of temporary files say which process they belong to, so that gc knows what a dead one left behind:
// .NAME.tmp.PID.START.NAMESPACE.RANDOM.

const tempMark = ".tmp."

// ownedName is a fresh name that says that it belongs to this process.
func ownedName() string {
	me := Self()
	return fmt.Sprintf("%d.%d.%s.%08x", me.PID, me.Start, me.namespaceDigits(), rand.Uint32())
}

// tempPath names a temporary sibling of path.
func tempPath(path string) string {
	dir, name := filepath.Split(path)
	return dir + "." + name + tempMark + ownedName()
}

// TempName is the name of a new file or directory for what only this process needs, in the directory for temporary
// files. gc removes it once the process is gone.
func TempName(kind string) string {
	return filepath.Join(os.TempDir(), tempPrefix+kind+tempMark+ownedName())
}

// MkdirTemp makes a private directory by [TempName].
func MkdirTemp(kind string) (string, error) {
	dir := TempName(kind)
	return dir, os.Mkdir(dir, 0o700)
}

const tempPrefix = "hutch-"

// namespaceDigits is the number in "pid:[4026531836]", or 0.
func (p Process) namespaceDigits() string {
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, p.Namespace)
	return cmp.Or(digits, "0")
}

// isTemp reports whether name was made by tempPath or TempName.
func isTemp(name string) bool {
	return (strings.HasPrefix(name, ".") || strings.HasPrefix(name, tempPrefix)) && strings.Contains(name, tempMark)
}

// strangerAge is how old a file of another pid namespace must be to count as left behind.
const strangerAge = 24 * time.Hour

// tempOwnerDead reports whether the process that made a temporary name is gone, given the age of the file.
func tempOwnerDead(name string, age time.Duration) bool {
	parts := strings.Split(name[strings.LastIndex(name, tempMark)+len(tempMark):], ".")
	if len(parts) != 4 {
		return false
	}
	pid, err1 := strconv.Atoi(parts[0])
	start, err2 := strconv.ParseUint(parts[1], 10, 64)
	if err1 != nil || err2 != nil {
		return false
	}
	me := Self()
	if parts[2] != me.namespaceDigits() {
		return age > strangerAge
	}
	return !Process{PID: pid, Start: start, Boot: me.Boot, Namespace: me.Namespace}.Alive()
}
