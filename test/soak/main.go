package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The table stands between these lines of the page.
const begin, end = "<!-- soak -->\n", "<!-- end of soak -->"

func main() {
	o := options{}
	flag.StringVar(&o.hutch, "hutch", "bin/hutch", "`path` of the command")
	flag.IntVar(&o.runs, "runs", 2000, "`number` of runs")
	flag.IntVar(&o.sandboxes, "sandboxes", 200, "`number` of persistent sandboxes")
	flag.IntVar(&o.jobs, "j", 8, "`number` of commands at once")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of what is random")
	page := flag.String("page", "", "markdown `file` that gets the table")
	flag.Parse()
	if err := report(o, *page); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(o options, page string) (err error) {
	if o.hutch, err = filepath.Abs(o.hutch); err != nil {
		return err
	}
	f, err := soak(o)
	if err != nil {
		return err
	}
	table := f.table(o)
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
	if p := f.problems(); len(p) > 0 {
		return fmt.Errorf("%d problems:\n%s", len(p), strings.Join(p, "\n"))
	}
	return nil
}
