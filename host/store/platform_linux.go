package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
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
	s, err := procstat.Of(pid)
	return s.Start, err == nil && !s.Dead()
}

// syncTree forces everything below dir to the disk, and with it whatever else waits for the same file system: one call
// is much faster than one for each of ten thousand files.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// processes kills processes that still have the state directory of a sandbox mounted which nothing speaks of any
// more. Backends end theirs by themselves; one that was stopped or hangs does not. It comes after everything that
// removes sandboxes.
func (c *collector) processes(ctx context.Context) error {
	var dir unix.Stat_t
	if err := unix.Stat(c.store.paths.Sandboxes(), &dir); err != nil {
		return diskError("look at", c.store.paths.Sandboxes(), err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(dir.Dev), unix.Minor(dir.Dev))
	files, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		return err
	}
	found := map[Process]string{} // and the sandbox that each has
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if id := c.mountedState(file, device); id != "" {
			found[ProcessOf(pid)] = id
		}
	}
	if len(found) == 0 {
		return nil
	}
	// Read after the processes were listed, so that a sandbox which begins meanwhile is not taken for lost.
	intents, err := c.store.Intents()
	if err != nil {
		return nil // reported before
	}
	known := map[string]bool{}
	for _, r := range intents {
		known[r.ID] = true
	}
	for p, id := range found {
		if known[id] || c.hasRecord(id) || !p.Alive() {
			continue
		}
		c.do(GCItem{Kind: GCProcess, Name: fmt.Sprintf("%d of sandbox %s", p.PID, id)}, func() error {
			if err := unix.Kill(p.PID, unix.SIGKILL); err != nil && err != syscall.ESRCH {
				return fmt.Errorf("kill process %d: %w", p.PID, err)
			}
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if p.End(ctx, time.Second); p.Alive() {
				return fmt.Errorf("process %d does not end", p.PID)
			}
			return nil
		})
	}
	return nil
}

// mountedState returns the id of a sandbox of which a process has the state directory, or something in it, mounted; ""
// without one, or where the file cannot be read, as that of a process that has ended or is another user's. The
// kernel writes the directory from the root of its file system: that is the end of our path where a file system is
// mounted above it. A line of mountinfo has no bound: that of an overlay names every layer.
func (c *collector) mountedState(mountinfo, device string) string {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[2] != device {
			continue
		}
		at, _, ok := strings.Cut(fields[3], stateSuffix)
		id := filepath.Base(at)
		if ok && isSandboxID(id) && strings.HasSuffix(c.store.paths.Sandbox(id), at) {
			return id
		}
	}
	return ""
}
