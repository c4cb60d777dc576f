package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
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
	gens, names := c.generates(loaded, names)
	var defs []*runfile.Definition
	if len(gens) == 0 || len(names) > 0 || len(loaded.Runs()) > 0 && len(splitNames(c.Args)) == 0 {
		if defs, err = choose(loaded.Runs(), names); err != nil {
			if len(loaded.Cycles()) > 0 {
				err = hint(err, "a cycle block has no plan: hutch validate checks it, hutch cycle works it")
			}
			return err
		}
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
	for i, g := range gens {
		p, err := runner.Plan(ctx, o.Apply(g.Run))
		if err != nil {
			return err
		}
		refused = refused || p.Backend == "" || p.Diagnostics.HasErrors()
		if c.Output == "json" {
			err = json.NewEncoder(u.out).Encode(generatePlan{p, g})
		} else {
			err = showGenerate(u, g, p, i+len(defs) > 0)
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

func splitNames(args []string) []string { _, names := splitOperands(args); return names }

// generates are the generate blocks that are meant, and the names that are none of theirs.
func (c *planCmd) generates(conf *runfile.Config, names []string) (gens []*runfile.Generate, rest []string) {
	rest = slices.Clone(names)
	for _, g := range conf.Generates() {
		if len(names) == 0 || slices.Contains(names, g.Name) {
			gens = append(gens, g)
			rest = slices.DeleteFunc(rest, func(n string) bool { return n == g.Name })
		}
	}
	return gens, rest
}

// generatePlan is the plan of what all attempts have in common, and the block.
type generatePlan struct {
	*run.Plan
	Generate *runfile.Generate `json:"generate"`
}

// showGenerate writes what is known of a generate block before the model is asked.
func showGenerate(u *ui, g *runfile.Generate, p *run.Plan, more bool) error {
	if more {
		if err := u.line(""); err != nil {
			return err
		}
	}
	m := g.Model.Config
	if err := u.line("generate %s\n  %-10s %s: %s of %s\n  %-10s at most %d\n  %-10s %s\neach attempt, with the program of the model as its command:", termsafe.Line(g.Name),
		"model", termsafe.Line(m.Name), termsafe.Line(m.Model), m.Provider, "attempts", g.Attempts, "installs", map[runfile.Policy]string{
			runfile.DependenciesAllowed: "what the model asks for", runfile.DependenciesAsk: "what the model asks for and the user agrees to", runfile.DependenciesBlocked: "nothing that the model asks for",
		}[g.Policy]); err != nil {
		return err
	}
	return showPlan(u, p, false)
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
