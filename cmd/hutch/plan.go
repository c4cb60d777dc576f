package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/agent/cycle"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
)

type planCmd struct {
	vars
	Args         []string `arg:"" name:"file" help:"Run files, and after them the names of the blocks wanted; without names, all of them." complete:"hcl"`
	Backend      string   `placeholder:"NAME" help:"Look at this backend instead of those that the file names." complete:"backend"`
	MinIsolation string   `enum:",none,process,namespace,container,vm,remote-vm" default:"" placeholder:"LEVEL" help:"Refuse a backend that isolates less: none, process, namespace, container, vm or remote-vm."`
	Output       string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one plan a line."`
}

// Usage replaces the synopsis: there are two kinds of operands.
func (*planCmd) Usage() []string { return []string{"hutch plan [flags] FILE... [NAME...]"} }

// Help is the text below the synopsis.
func (*planCmd) Help() string {
	return `For each run, and for the generate and cycle blocks what is known before a model is asked: the backend that
would be used, and why others would not; the command; the files that the sandbox would see; and for each limit the
mechanism that would hold it on this machine. Nothing is made and nothing is run. Exit code 1 means that a run would
be refused.

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
	if err := c.named(files); err != nil {
		return err
	}
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	u.reading.Store(true)
	loaded, ds := runfile.Load(files, runOptions(s.Store(), c.Var, c.VarFile))
	u.reading.Store(false)
	u.diagnostics(ds)
	if ds.HasErrors() && c.Output == "json" {
		err = json.NewEncoder(u.out).Encode(run.Plan{Schema: run.PlanSchema, File: files[0], Diagnostics: ds})
	}
	if ds.HasErrors() {
		return errors.Join(err, exit(exitNo))
	}
	blocks, err := plannedBlocks(loaded, names)
	if err != nil {
		return err
	}
	refused := false
	for i, b := range blocks {
		o := run.Overrides{}
		if c.Backend != "" {
			o.Backends = []string{c.Backend}
		}
		runner, err := s.Runner(c.MinIsolation, run.Options{Keep: b.cycle != nil})
		if err != nil {
			return err
		}
		p, err := runner.Plan(ctx, o.Apply(b.def))
		if err != nil {
			return err
		}
		refused = refused || p.Backend == "" || p.Diagnostics.HasErrors()
		if c.Output == "json" {
			err = json.NewEncoder(u.out).Encode(loopPlan{p, b.generate, b.cycle})
		} else {
			err = b.show(u, p, i > 0)
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

// plannedBlock is a block of a run file that has a plan: a run, what all attempts of a generate block have in common,
// or the sandbox of a cycle.
type plannedBlock struct {
	def      *runfile.Definition
	generate *runfile.Generate // nil for all others
	cycle    *runfile.Cycle    // nil for all others
}

// plannedBlocks are the blocks with these names; without names, all of them.
func plannedBlocks(conf *runfile.Config, names []string) ([]plannedBlock, error) {
	var loops []plannedBlock
	var known []string
	rest := slices.Clone(names)
	add := func(name string, b plannedBlock) {
		if known = append(known, name); len(names) == 0 || slices.Contains(names, name) {
			loops = append(loops, b)
			rest = slices.DeleteFunc(rest, func(n string) bool { return n == name })
		}
	}
	for _, g := range conf.Generates() {
		add(g.Name, plannedBlock{def: g.Run, generate: g})
	}
	for _, y := range conf.Cycles() {
		b := plannedBlock{def: y.Box, cycle: y}
		// it may be a file of the sandbox's input; a specification that the convention names is not known before the id is
		if y.SpecFile != "" {
			w, err := cycle.Prepare(y.Name, y)
			if err != nil {
				return nil, err
			}
			b.def = w.Block.Box
		}
		add(y.Name, b)
	}
	var out []plannedBlock
	switch runs := conf.Runs(); {
	case len(rest) > 0 && len(runs) == 0:
		return nil, noSuch("block", rest[0], known)
	case len(rest) > 0 || len(names) == 0 && (len(runs) > 0 || len(loops) == 0):
		defs, err := choose(runs, rest)
		if err != nil {
			return nil, err
		}
		for _, d := range defs {
			out = append(out, plannedBlock{def: d})
		}
	}
	return append(out, loops...), nil
}

// loopPlan is a plan, with the block that is more than a run.
type loopPlan struct {
	*run.Plan
	Generate *runfile.Generate `json:"generate,omitempty"`
	Cycle    *runfile.Cycle    `json:"cycle,omitempty"`
}

// show writes a plan, below what is known of a loop before the model is asked.
func (b plannedBlock) show(u *ui, p *run.Plan, more bool) error {
	if more {
		if err := u.line(""); err != nil {
			return err
		}
	}
	head := &strings.Builder{}
	row := func(label, text string) { fmt.Fprintf(head, "  %-10s %s\n", label, text) }
	model := func(m *runfile.Model) {
		row("model", fmt.Sprintf("%s: %s of %s", termsafe.Line(m.Config.Name), termsafe.Line(m.Config.Model),
			m.Config.Provider))
	}
	switch g, y := b.generate, b.cycle; {
	case g != nil:
		fmt.Fprintf(head, "generate %s\n", termsafe.Line(g.Name))
		model(g.Model)
		row("attempts", fmt.Sprintf("at most %d", g.Attempts))
		row("installs", map[runfile.Policy]string{
			runfile.DependenciesAllowed: "what the model asks for",
			runfile.DependenciesAsk:     "what the model asks for and the user agrees to",
			runfile.DependenciesBlocked: "nothing that the model asks for",
		}[g.Policy])
		head.WriteString("each attempt, with the program of the model as its command:\n")
	case y != nil:
		fmt.Fprintf(head, "cycle %s\n", termsafe.Line(y.Name))
		model(y.Model)
		row("spec", termsafe.Line(cmp.Or(y.SpecFile, cycle.Convention("<ID>")+" of the workspace")))
		if y.Setup != nil {
			row("setup", termsafe.Line(fmt.Sprintf("%q", y.Setup)))
		}
		if y.Check != nil {
			row("check", termsafe.Line(fmt.Sprintf("%q", y.Check)))
		}
		of := y.Model.Config.Budget.WithDefaults()
		row("bounds", fmt.Sprintf("%s, %s, %s, %s; %s for each command", count(y.ToolCalls, "tool call"),
			count(of.Turns, "turn"), count(int(of.Tokens), "token"), of.Time, y.CommandTime()))
		row("apply", cmp.Or(y.Apply, string(cycle.Never)))
		head.WriteString("the sandbox, in which the model's tools work and nowhere else:\n")
	}
	if head.Len() > 0 {
		if err := u.line("%s", strings.TrimSuffix(head.String(), "\n")); err != nil {
			return err
		}
	}
	return showPlan(u, p)
}

// showPlan writes one plan as text, and what is wrong with it as diagnostics.
func showPlan(u *ui, p *run.Plan) error {
	if err := p.WriteText(u.out); err != nil {
		return err
	}
	u.diagnostics(p.Diagnostics)
	return nil
}
