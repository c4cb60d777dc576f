// Command bench measures what hutch adds to the tools underneath it.
//
// Every figure is a ratio taken in one run: the two sides are interleaved, so
// that a busy machine slows both. It prints medians, the ratio, and the goal
// the project has set itself, with "yes" where it was reached in this very run;
// it never fails because of a figure. The fastest tenth says what is lost least
// in the noise of a machine that does other things too, and the processor time of
// all processes together says even less of it. docs/performance.md has more.
//
// The base is bubblewrap, started by hand with the namespaces and mounts of such a sandbox, for "one run" (the
// workspace is bound), the lines with "served", "1,000 runs" (xargs -P), "exec in a sandbox" and "1 GB of output" (one
// CPU, because a pipe between two is a matter of luck). For the other lines it is
//
//	one run, beside another     the other sandbox, of npm (srt) and Debian; left out where it is not installed
//	version                     a Go program that links the same packages and does nothing
//	exec in a Podman sandbox    podman exec in the same container, one to ten
//	project of 50,000 files     hutch with a workspace of 5 files
//	search, list                ripgrep, find -printf on the mounted overlay
//	diff of 10,000 changes      diff -rq, and git status, of the same tree changed
//	push of 5,000 files         git bundle create and git clone; by hand also git status, and three bubblewraps
//	E2B push of 2,000 files     POST /sandboxes, tar -cz into an upload, tar -xz, on the local E2B server
//
// Programs are copied before they are measured, as make install does: a binary as the linker leaves it is mapped in
// single pages, and one run of it took 3 ms longer.
//
//	go run ./test/bench [-bin DIR] [-only REGEX] [-quick]
//
// DIR holds bin/hutch and libexec/hutch/hutch-backend-bwrap.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// measurement is one line of the report.
type measurement struct {
	name    string
	goal    string
	reached func(hutch, base sample) bool
	run     func(b *bench) (hutch, base sample, err error)
}

// cost is what one round took.
type cost struct{ wall, cpu time.Duration } // cpu of all processes together; 0 where it is not known

// sample is a set of timings of one side.
type sample struct {
	what   string
	times  []time.Duration
	cpu    []time.Duration // empty where it is not known
	note   string
	memory int64 // most that one process had resident, in bytes; 0 where it is not looked at
}

func (s sample) quantile(q float64) time.Duration { return quantile(s.times, q) }

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// add takes in what one round took.
func (s *sample) add(c cost) {
	s.times = append(s.times, c.wall)
	if c.cpu > 0 {
		s.cpu = append(s.cpu, c.cpu)
	}
}

// ratio is how many times the other sample's median fits into this one's.
func (s sample) ratio(base sample) float64 {
	return float64(s.quantile(0.5)) / float64(base.quantile(0.5))
}

// adds is by how much a quantile is above the other sample's.
func (s sample) adds(base sample, q float64) time.Duration { return s.quantile(q) - base.quantile(q) }

// bench is what the measurements share.
type bench struct {
	dir   string // holds bin/ and libexec/: copies, see install
	from  string // what they are copies of
	home  string // HUTCH_HOME
	tmp   string
	quick bool
}

func (b *bench) hutch() string { return filepath.Join(b.dir, "bin", "hutch") }

// rounds is how often a cheap pair is measured.
func (b *bench) rounds(n int) int {
	if b.quick {
		return max(3, n/10)
	}
	return n
}

func main() {
	dir := flag.String("bin", ".", "directory with bin/ and libexec/")
	only := flag.String("only", "", "measure only what matches this expression")
	quick := flag.Bool("quick", false, "a tenth of the rounds: a smoke test of the benchmark itself")
	flag.Parse()
	if err := run(*dir, *only, *quick); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, only string, quick bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "hutch-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{dir: tmp, from: dir, home: filepath.Join(tmp, "home"), tmp: tmp, quick: quick}
	for _, program := range []string{"bin/hutch", "libexec/hutch/hutch-backend-bwrap"} {
		if err := install(filepath.Join(dir, program), filepath.Join(tmp, program)); err != nil {
			return err
		}
	}
	// What a killed process leaves for a moment is ours then, and its processor time is counted.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\thutch p10\tp50\tp99\tcpu\tbase p10\tp50\tp99\tcpu\tratio\tadds\treached\tgoal")
	var notes []string
	for _, m := range measurements {
		start := time.Now()
		if !pattern.MatchString(m.name) {
			continue
		}
		h, base, err := m.run(b)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Fprintf(os.Stderr, "%s: left out: %v\n", m.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		hp, bp := h.quantile(0.5), base.quantile(0.5)
		reached := "no"
		if m.reached(h, base) {
			reached = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.name,
			ms(h.quantile(0.1)), ms(hp), ms(h.quantile(0.99)), ms(quantile(h.cpu, 0.5)),
			ms(base.quantile(0.1)), ms(bp), ms(base.quantile(0.99)), ms(quantile(base.cpu, 0.5)), times(h.ratio(base)),
			ms(hp-bp), reached, m.goal)
		notes = append(notes, fmt.Sprintf("%s: against %s, %d rounds%s", m.name, base.what, len(h.times), h.note))
		fmt.Fprintf(os.Stderr, "%s: done in %s\n", m.name, time.Since(start).Round(time.Second))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println("\nTimes are milliseconds.", strings.Join(notes, ". ")+".")
	return nil
}

// times writes a ratio, one far below 1 as what it is a fraction of.
func times(ratio float64) string {
	if ratio < 0.2 {
		return fmt.Sprintf("1/%.0fx", 1/ratio)
	}
	return fmt.Sprintf("%.2fx", ratio)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// interleave runs both sides n times in turn, each side once beforehand to warm up.
func interleave(n int, hutch, base func() (cost, error)) (h, b sample, err error) {
	for i := range n + 1 {
		for _, side := range []struct {
			run func() (cost, error)
			s   *sample
		}{{hutch, &h}, {base, &b}} {
			c, err := side.run()
			if err != nil {
				return h, b, err
			}
			if i > 0 {
				side.s.add(c)
			}
		}
	}
	return h, b, nil
}

// timed makes a round of a function whose processor time is not known.
func timed(f func() error) func() (cost, error) {
	return func() (cost, error) {
		start := time.Now()
		err := f()
		return cost{wall: time.Since(start)}, err
	}
}

// command returns a function that runs argv and complains with its output.
func (b *bench) command(argv ...string) func() (cost, error) {
	return func() (cost, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+b.home)
		return b.spend(cmd)
	}
}

// linger is how long the processes that a command leaves have to end. The holder of a persistent sandbox goes on for
// good.
const linger = 50 * time.Millisecond

// spend runs a command. Its processor time is that of all its processes, also of those that end a moment after it.
func (b *bench) spend(cmd *exec.Cmd) (cost, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	before := childrenTime()
	start := time.Now()
	err := cmd.Run()
	c := cost{wall: time.Since(start)}
	if err != nil {
		return c, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	for until := time.Now().Add(linger); time.Now().Before(until); {
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); {
		case err != nil && err != unix.EINTR:
			until = time.Time{} // none is left
		case pid == 0:
			time.Sleep(time.Millisecond)
		}
	}
	c.cpu = childrenTime() - before
	return c, nil
}

// childrenTime is the processor time of all processes that this one has waited for, and those below them.
func childrenTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// install copies a program, as an installation does. It matters: a linker writes through a mapping, which leaves the
// program in memory page by page, while a copy lies there in large pieces that need fewer page faults to start.
func install(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	// By our own buffer: the memory of this process counts as that of its children before they are executed.
	_, err = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 1<<20))
	return errors.Join(err, dst.Close())
}
