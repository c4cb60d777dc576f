// Command bench measures what hutch adds to the tools underneath it.
//
// Every figure is a ratio taken in one run: the two sides are interleaved, so
// that a busy machine slows both. It prints medians, the ratio, and the goal
// the project has set itself, with "yes" where it was reached in this very run;
// it never fails because of a figure. The fastest tenth says what is lost least
// in the noise of a machine that does other things too. docs/performance.md has more.
//
//	go run ./test/bench [-bin DIR] [-only REGEX] [-quick]
//
// DIR holds bin/hutch and libexec/hutch/hutch-backend-bwrap.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// measurement is one line of the report.
type measurement struct {
	name    string
	goal    string
	reached func(hutch, base sample) bool
	run     func(b *bench) (hutch, base sample, err error)
}

// sample is a set of timings of one side.
type sample struct {
	what   string
	times  []time.Duration
	note   string
	memory int64 // most that one process had resident, in bytes; 0 where it is not looked at
}

func (s sample) quantile(q float64) time.Duration {
	if len(s.times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.times))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// ratio is how many times the other sample's median fits into this one's.
func (s sample) ratio(base sample) float64 {
	return float64(s.quantile(0.5)) / float64(base.quantile(0.5))
}

// adds is by how much a quantile is above the other sample's.
func (s sample) adds(base sample, q float64) time.Duration { return s.quantile(q) - base.quantile(q) }

// bench is what the measurements share.
type bench struct {
	dir   string // holds bin/ and libexec/
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
	b := &bench{dir: dir, home: filepath.Join(tmp, "home"), tmp: tmp, quick: quick}

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\thutch p10\tp50\tp99\tbase p10\tp50\tp99\tratio\tadds\treached\tgoal")
	var notes []string
	for _, m := range measurements {
		start := time.Now()
		if !pattern.MatchString(m.name) {
			continue
		}
		h, base, err := m.run(b)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		hp, bp := h.quantile(0.5), base.quantile(0.5)
		reached := "no"
		if m.reached(h, base) {
			reached = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2fx\t%s\t%s\t%s\n", m.name, ms(h.quantile(0.1)), ms(hp), ms(h.quantile(0.99)),
			ms(base.quantile(0.1)), ms(bp), ms(base.quantile(0.99)), h.ratio(base), ms(hp-bp), reached, m.goal)
		notes = append(notes, fmt.Sprintf("%s: against %s, %d rounds%s", m.name, base.what, len(h.times), h.note))
		fmt.Fprintf(os.Stderr, "%s: done in %s\n", m.name, time.Since(start).Round(time.Second))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println("\nTimes are milliseconds.", strings.Join(notes, ". ")+".")
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// interleave runs both sides n times in turn, each side once beforehand to warm up.
func interleave(n int, hutch, base func() error) (h, b []time.Duration, err error) {
	for i := range n + 1 {
		for side, f := range []func() error{hutch, base} {
			start := time.Now()
			if err := f(); err != nil {
				return nil, nil, err
			}
			took := time.Since(start)
			switch {
			case i == 0:
			case side == 0:
				h = append(h, took)
			default:
				b = append(b, took)
			}
		}
	}
	return h, b, nil
}

// command returns a function that runs argv and complains with its output.
func (b *bench) command(argv ...string) func() error {
	return func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+b.home)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, stderr.String())
		}
		return nil
	}
}
