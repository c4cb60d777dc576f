package backendtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// traces is what this machine held before the suite began.
type traces struct {
	mounts []string
	temp   []string
}

// lookAround records the machine. What cannot be read here, such as the inside of
// a virtual machine, is not looked at; Destroy removes it with the machine.
func lookAround(*session) *traces {
	return &traces{mounts: mounts(), temp: names(os.TempDir())}
}

func mounts() []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func names(dir string) []string {
	var out []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// traces says what can still be found of a sandbox by its id, outside its own state
// directory: mounts, control groups, processes, files where such things lie. It
// returns "" when nothing is found.
func (c *C) traces(id string) string {
	for _, m := range mounts() {
		if strings.Contains(m, id) || strings.Contains(m, c.dir) {
			return "a mount: " + m
		}
	}
	if d := cgroupNamed(id); d != "" {
		return "a control group: " + d
	}
	for _, dir := range []string{os.TempDir(), os.Getenv("XDG_RUNTIME_DIR"), "/run", "/var/run", "/dev/shm"} {
		for _, name := range names(dir) {
			if dir != "" && strings.Contains(name, id) {
				return "a file: " + filepath.Join(dir, name)
			}
		}
	}
	return c.processes(id)
}

func cgroupNamed(id string) (found string) {
	filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return nil
		case strings.Contains(d.Name(), id):
			found = p
			return fs.SkipAll
		case strings.Count(p, "/") > 9:
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// processes names the living processes whose command line, environment or working
// directory holds a text; "" when there are none. The suite's own is left out.
func (c *C) processes(text string) string {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, f := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, f))
			if err == nil && bytes.Contains(b, []byte(text)) && procstat.Alive(pid) {
				return fmt.Sprintf("process %d, whose %s has %q: %s", pid, f, text, commandOf(pid))
			}
		}
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && strings.Contains(cwd, text) && procstat.Alive(pid) {
			return fmt.Sprintf("process %d in %s: %s", pid, cwd, commandOf(pid))
		}
	}
	return ""
}

func commandOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return quote(strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")))
}

// noProcesses ends the check when a command of it lives on.
func (c *C) noProcesses() {
	c.eventually(soon, "no process of the check's commands is left", func() (bool, string) {
		left := c.processes(c.marker)
		return left == "", left
	})
}

// stateEmpty ends the check unless the state directory holds nothing of the
// sandbox's files any more. Files of the backend's own, a log for example, may stay:
// the host removes them.
func (c *C) stateEmpty(b *box) {
	c.eventually(soon, "the sandbox's files are gone", func() (bool, string) {
		var left []string
		filepath.WalkDir(b.req.StateDir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && p != b.req.StateDir {
				left = append(left, p)
			}
			return nil
		})
		return len(left) == 0, "there is " + strings.Join(left, ", ")
	})
}

// removeState removes what the host removes after Destroy.
func (c *C) removeState(b *box) {
	makeWritable(b.req.StateDir)
	if err := os.RemoveAll(b.req.StateDir); err != nil {
		c.Fatalf("the state directory cannot be removed: %v", err)
	}
}

func leftoverChecks() []Check {
	// all visits every sandbox that the suite made.
	all := func(c *C, look func(id, state string) string) {
		c.mu.Lock()
		boxes := slices.Clone(c.session.boxes)
		c.mu.Unlock()
		for _, b := range boxes {
			if b.ID == "" || !strings.HasPrefix(b.ID, c.short) {
				continue
			}
			c.eventually(soon/2, "nothing is left of "+b.ID, func() (bool, string) {
				left := look(b.ID, b.StateDir)
				return left == "", left
			})
		}
	}
	return []Check{
		{ID: "leftovers/destroy", Alone: true, Proves: "each sandbox of the suite was destroyed without an error, and each instance stopped", Fix: "see the errors",
			run: func(c *C) {
				c.session.mu.Lock()
				defer c.session.mu.Unlock()
				if n := len(c.complaints); n > 0 {
					c.Fatalf("%d errors:\n%s", n, strings.Join(c.complaints[:min(n, 10)], "\n"))
				}
			}},
		{ID: "leftovers/processes", Alone: true, Proves: "no process of any command of the suite is left, nor any that a sandbox started", Fix: "kill the whole tree in Destroy",
			run: func(c *C) {
				c.eventually(soon, "no process is left", func() (bool, string) {
					if left := c.processes(c.base + "/c/"); left != "" {
						return false, left
					}
					left := c.processes(c.short + "/")
					return left == "", left
				})
			}},
		{ID: "leftovers/mounts", Alone: true, Proves: "no mount is left", Fix: "mount in a namespace that dies with the sandbox, or unmount in Destroy",
			run: func(c *C) {
				for _, m := range mounts() {
					if !slices.Contains(c.before.mounts, m) && (strings.Contains(m, c.base) || strings.Contains(m, c.short)) {
						c.Fatalf("%s", m)
					}
				}
			}},
		{ID: "leftovers/cgroups", Alone: true, Proves: "no control group is left", Fix: "remove it in Destroy, after its last process",
			run: func(c *C) {
				c.eventually(soon, "no control group is left", func() (bool, string) {
					left := cgroupNamed(c.short)
					return left == "", left
				})
			}},
		{ID: "leftovers/files", Alone: true, Proves: "no file is left in temporary or runtime directories", Fix: "write below the state directory only",
			run: func(c *C) {
				for _, dir := range []string{os.TempDir(), os.Getenv("XDG_RUNTIME_DIR"), "/run", "/dev/shm"} {
					for _, name := range names(dir) {
						if dir != "" && strings.Contains(name, c.short) {
							c.Fatalf("%s", filepath.Join(dir, name))
						}
					}
				}
			}},
		{ID: "leftovers/state", Alone: true, Proves: "the state directories hold nothing that cannot be removed", Fix: "unmount, and leave no file that is immutable or another user's",
			run: func(c *C) {
				all(c, func(_, state string) string {
					makeWritable(state)
					if err := os.RemoveAll(state); err != nil {
						return err.Error()
					}
					return ""
				})
			}},
		{ID: "leftovers/descriptors", Alone: true, Proves: "six sandboxes and commands later the process has no more descriptors than before", Fix: "close what you open, on every path",
			run: func(c *C) {
				count := func() int {
					return len(names(fmt.Sprintf("/proc/%d/fd", max(c.shared().PID(), os.Getpid()*btoi(c.shared().PID() == 0)))))
				}
				round := func() {
					b := c.box()
					b.must("echo x")
					c.destroy(b)
				}
				for range 2 { // what is opened once and kept is fine
					round()
				}
				before := count()
				for range 6 { // of which each may leak one, and that is more than what is forgiven
					round()
				}
				c.eventually(soon, "descriptors are closed", func() (bool, string) {
					n := count()
					return n <= before+4, fmt.Sprintf("%d before, %d after", before, n)
				})
			}},
		{ID: "leftovers/stop", Alone: true, Proves: "the instance that served the suite stops in the ordinary way, at once", Fix: "answer Drain when nothing is left, and exit",
			run: func(c *C) {
				i := c.shared()
				began := time.Now()
				if err := c.stop(i); err != nil {
					c.Fatalf("%v", err)
				}
				if took := time.Since(began); took > soon {
					c.Fatalf("it took %s", took)
				}
			}},
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
