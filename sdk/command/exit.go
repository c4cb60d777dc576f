//go:build unix

package command

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
)

// Ended says how a command ended by its wait status.
func Ended(ws syscall.WaitStatus) *sdk.Exit {
	if !ws.Signaled() {
		return &sdk.Exit{Cause: sdk.CauseExited, Code: ws.ExitStatus(),
			Evidence: fmt.Sprintf("wait status: exit %d", ws.ExitStatus())}
	}
	n := int(ws.Signal())
	e := &sdk.Exit{Cause: sdk.CauseSignaled, Code: 128 + n, Signal: unix.SignalName(ws.Signal()),
		Evidence: fmt.Sprintf("wait status: signal %d", n)}
	if e.Signal == "" {
		e.Signal = fmt.Sprintf("SIG%d", n)
	}
	return e
}

// Met are the limits that a sandbox ran into while a command ran.
type Met struct {
	OOMKills uint64          // processes that the kernel killed for want of memory
	PIDsHits uint64          // processes that the kernel refused to start
	Full     func() bool     // says whether a sized file system of it has no room left; nil where it has none
	Over     *limits.Overrun // the sampled limit for which it was killed; nil for none
	Memory   uint64          // the memory limit in bytes; 0 for none
	Files    []*os.File      // files or directories on each memory file system of it, which counts to that limit
}

// filled says what to do about files in memory that take so much of the limit that later commands die, too; "" where
// they do not.
func (m *Met) filled() string {
	var used uint64
	for _, f := range m.Files {
		var st unix.Statfs_t
		if unix.Fstatfs(int(f.Fd()), &st) == nil {
			used += (st.Blocks - st.Bfree) * uint64(st.Bsize)
		}
	}
	if m.Memory == 0 || used < m.Memory/2 {
		return ""
	}
	return fmt.Sprintf("files in memory take %s of the limit of %s and stay for later commands: remove them with hutch "+
		"fs rm, or empty /tmp and /dev/shm with hutch reset; ",
		sdk.Bytes(used), sdk.Bytes(m.Memory))
}

// Blame decides why a command ended. What stopped it, as ctx says, counts before what it ran into; a limit counts only
// for a command that failed.
func Blame(ctx context.Context, e *sdk.Exit, met Met) {
	if stopped := sdk.CauseOf(ctx); stopped != "" {
		e.Cause = stopped
		e.Evidence = "stopped by hutch; " + e.Evidence
		return
	}
	if e.Code == 0 {
		return
	}
	switch {
	case met.Over != nil:
		filled := ""
		switch met.Over.Limit {
		case limits.Memory:
			e.Cause, filled = sdk.CauseOOM, met.filled()
		case limits.PIDs:
			e.Cause = sdk.CausePIDs
		default:
			e.Cause = sdk.CauseDisk
		}
		e.Evidence = met.Over.String() + "; " + filled + e.Evidence
	case met.OOMKills > 0:
		e.Cause = sdk.CauseOOM
		e.Evidence = fmt.Sprintf("cgroup oom_kill %d; %s%s", met.OOMKills, met.filled(), e.Evidence)
	case met.PIDsHits > 0:
		e.Cause = sdk.CausePIDs
		e.Evidence = fmt.Sprintf("cgroup pids.events max %d; %s", met.PIDsHits, e.Evidence)
	case met.Full != nil && met.Full():
		e.Cause = sdk.CauseDisk
		e.Evidence = "statfs: no free block or inode in the sandbox's file system; " + e.Evidence
	}
}

// Since is how much a counter has grown; one that could not be read, and is 0, has not.
func Since(before, after uint64) uint64 {
	if after < before {
		return 0
	}
	return after - before
}

// Lend lets a sandbox's user open a stream again, through /dev/stdout, where the stream is a FIFO that is ours to give.
// Any other one is left as it is.
func Lend(f *os.File, uid, gid int) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		_ = unix.Fchown(int(f.Fd()), uid, gid)
	}
}
