package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
)

type planCmd struct {
	vars
	Args         []string `arg:"" name:"file" help:"Run files, and after them the names of the runs wanted; without names, all of them." complete:"hcl"`
	Backend      string   `placeholder:"NAME" help:"Look at this backend instead of those that the file names." complete:"backend"`
	MinIsolation string   `enum:",none,namespace,container,vm,remote-vm" default:"" placeholder:"LEVEL" help:"Refuse a backend that isolates less: none, namespace, container, vm or remote-vm."`
	Output       string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one plan a line."`
}

// Usage replaces the synopsis: there are two kinds of operands.
func (*planCmd) Usage() []string { return []string{"hutch plan [flags] FILE... [RUN...]"} }

// Help is the text below the synopsis.
func (*planCmd) Help() string {
	return `For each run: the backend that would be used, and why others would not; the command; the files that the sandbox would see; and for each limit the mechanism that would hold it on this machine. Nothing is made and nothing is run. Exit code 1 means that a run would be refused.

    hutch plan ci.hcl
    hutch plan ci.hcl test -o json`
}

func (c *planCmd) Run(ctx context.Context, u *ui) error {
	files, names := splitOperands(c.Args)
	switch {
	case len(files) == 0 && isDir(names[0]):
		return directory("plan", names[0])
	case len(files) == 0:
		return fmt.Errorf("no run file %q", names[0])
	}
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	users, err := s.Config()
	if err != nil {
		return err
	}
	conf := *users
	if err := conf.Require(c.MinIsolation); err != nil {
		return err
	}
	u.reading.Store(true)
	loaded, ds := runfile.Load(files, runOptions(s.Store(), c.Var, c.VarFile))
	u.reading.Store(false)
	u.diagnostics(ds)
	if ds.HasErrors() {
		return exit(exitNo)
	}
	defs, err := choose(loaded.Runs(), names)
	if err != nil {
		return err
	}
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	var o run.Overrides
	if c.Backend != "" {
		o.Backends = []string{c.Backend}
	}
	runner := run.New(run.Options{Store: s.Store(), Backends: pool, MinIsolation: conf.MinIsolation})
	refused := false
	for i, d := range defs {
		p, err := runner.Plan(ctx, o.Apply(d))
		if err != nil {
			return err
		}
		refused = refused || p.Backend == "" || p.Diagnostics.HasErrors()
		if c.Output == "json" {
			err = json.NewEncoder(u.out).Encode(p)
		} else {
			err = showPlan(u, p, i > 0)
		}
		if err != nil {
			return err
		}
	}
	if refused {
		return exit(exitNo)
	}
	return nil
}

// showPlan writes one plan as text, and what is wrong with it as diagnostics.
func showPlan(u *ui, p *run.Plan, more bool) error {
	if more {
		if err := u.line(""); err != nil {
			return err
		}
	}
	if err := p.WriteText(u.out); err != nil {
		return err
	}
	u.diagnostics(p.Diagnostics)
	return nil
}
