package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The table stands between these lines of the page.
const begin, end = "<!-- soak -->\n", "<!-- end of soak -->"

func main() {
	o := options{}
	flag.StringVar(&o.hutch, "hutch", "bin/hutch", "`path` of the command")
	flag.IntVar(&o.runs, "runs", 2000, "`number` of runs on bwrap")
	flag.IntVar(&o.sandboxes, "sandboxes", 200, "`number` of persistent sandboxes on bwrap")
	share := flag.Int("podman", 10, "podman makes one of so `many` of each; 0 leaves it out")
	flag.IntVar(&o.jobs, "j", 8, "`number` of commands at once, on each backend")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of what is random")
	page := flag.String("page", "", "markdown `file` that gets the table")
	flag.Parse()
	if err := report(o, *share, *page); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(o options, share int, page string) (err error) {
	if o.hutch, err = filepath.Abs(o.hutch); err != nil {
		return err
	}
	o.backend = "bwrap"
	soaks := []options{o}
	if share > 0 {
		o.backend, o.runs, o.sandboxes = "podman", o.runs/share, o.sandboxes/share
		soaks = append(soaks, o)
	}
	all, errs := make([]*figures, len(soaks)), make([]error, len(soaks))
	var wg sync.WaitGroup
	for i, o := range soaks {
		wg.Go(func() { all[i], errs[i] = soak(o) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var problems []string
	for _, f := range all {
		problems = append(problems, f.problems()...)
	}
	table := table(all)
	fmt.Print(table)
	if page != "" {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		before, rest, ok := strings.Cut(string(text), begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			return fmt.Errorf("%s has no place for the table: the lines %s and %s", page, strings.TrimSpace(begin), end)
		}
		if err := os.WriteFile(page, []byte(before+begin+"\n"+table+"\n"+end+after), 0o644); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%d problems:\n%s", len(problems), strings.Join(problems, "\n"))
	}
	return nil
}
