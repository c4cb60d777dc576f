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

// mounts are this process's, as the kernel lists them. What cannot be read here, such as the inside of a virtual
// machine, is not looked at; Destroy removes it with the machine.
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
	if f := fileNamed(id); f != "" {
		return "a file: " + f
	}
	return c.processes(id)
}

// fileNamed finds a file where temporary ones lie; "" when nothing has the name.
func fileNamed(text string) string {
	for _, dir := range []string{os.TempDir(), os.Getenv("XDG_RUNTIME_DIR"), "/run", "/dev/shm"} {
		for _, name := range names(dir) {
			if dir != "" && strings.Contains(name, text) {
				return filepath.Join(dir, name)
			}
		}
	}
	return ""
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
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err == nil && strings.Contains(cwd, text) && procstat.Alive(pid) {
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
	c.absent(soon, "no process of the check's commands is left", func() string { return c.processes(c.marker) })
}

// stateEmpty ends the check unless the state directory holds nothing of the
// sandbox's files any more. Files of the backend's own, a log for example, may stay:
// the host removes them.
func (b *box) stateEmpty() {
	b.absent(soon, "the sandbox's files are gone", func() (left string) {
		filepath.WalkDir(b.req.StateDir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && p != b.req.StateDir {
				left += " " + p
			}
			return nil
		})
		return left
	})
}

func leftoverChecks() []Check {
	return []Check{
		alone("leftovers/destroy", "each sandbox of the suite was destroyed without an error, and each instance stopped",
			"see the errors", func(c *C) {
				c.session.mu.Lock()
				defer c.session.mu.Unlock()
				if n := len(c.complaints); n > 0 {
					c.Fatalf("%d errors:\n%s", n, strings.Join(c.complaints[:min(n, 10)], "\n"))
				}
			}),
		alone("leftovers/processes", "no process of any command of the suite is left, nor any that a sandbox started",
			"kill the whole tree in Destroy", func(c *C) {
				c.absent(soon, "no process is left", func() string {
					if left := c.processes(c.base + "/c/"); left != "" {
						return left
					}
					return c.processes(c.short + "/")
				})
			}),
		alone("leftovers/mounts", "no mount is left",
			"mount in a namespace that dies with the sandbox, or unmount in Destroy", func(c *C) {
				for _, m := range mounts() {
					if !slices.Contains(c.before, m) && (strings.Contains(m, c.base) || strings.Contains(m, c.short)) {
						c.Fatalf("%s", m)
					}
				}
			}),
		alone("leftovers/cgroups", "no control group is left", "remove it in Destroy, after its last process", func(c *C) {
			c.absent(soon, "no control group is left", func() string { return cgroupNamed(c.short) })
		}),
		alone("leftovers/files", "no file is left in temporary or runtime directories",
			"write below the state directory only", func(c *C) {
				if f := fileNamed(c.short); f != "" {
					c.Fatalf("%s", f)
				}
			}),
		alone("leftovers/state", "the state directories hold nothing that cannot be removed",
			"unmount, and leave no file that is immutable or another user's", func(c *C) {
				c.mu.Lock()
				boxes := slices.Clone(c.session.boxes)
				c.mu.Unlock()
				for _, b := range boxes {
					if strings.HasPrefix(b.ID, c.short) {
						c.absent(soon/2, "nothing is left of "+b.ID, func() string {
							makeWritable(b.StateDir)
							if err := os.RemoveAll(b.StateDir); err != nil {
								return err.Error()
							}
							return ""
						})
					}
				}
			}),
		alone("leftovers/descriptors", "six sandboxes and commands later the process has no more descriptors than before",
			"close what you open, on every path", func(c *C) {
				pid := c.shared().PID()
				if pid == 0 {
					pid = os.Getpid()
				}
				count := func() int { return len(names(fmt.Sprintf("/proc/%d/fd", pid))) }
				round := func() {
					b := c.box()
					b.must("echo x")
					b.destroy()
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
			}),
		alone("leftovers/stop", "the instance that served the suite stops in the ordinary way, at once",
			"answer Drain when nothing is left, and exit", func(c *C) {
				i := c.shared()
				began := time.Now()
				c.halt(i)
				if took := time.Since(began); took > soon {
					c.Fatalf("it took %s", took)
				}
			}),
	}
}
