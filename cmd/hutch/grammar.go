package main

import (
	"errors"

	"github.com/alecthomas/kong"

	"github.com/hutch-run/hutch/cmd/hutch/internal/pages"
)

// grammar is the whole command line. Field tags are what the parser, the help, the man page, the reference pages and
// the shell completions are made from: there is no second description of any flag.
type grammar struct {
	runGrammar `embed:""`

	Agent agentCmd `cmd:"" group:"run" help:"Start a coding agent in a sandbox on this project, and review what it did."`

	ACP acpCmd `cmd:"" name:"acp" group:"run" help:"Serve a coding agent in a sandbox to an editor, over the Agent Client Protocol."`

	Observe  observeCmd  `cmd:"" group:"write" help:"Run something with an open network, and print the run file that would have sufficed."`
	Validate validateCmd `cmd:"" group:"write" help:"Check run files without running anything."`
	Fmt      fmtCmd      `cmd:"" group:"write" help:"Put run files into the canonical layout."`
	Plan     planCmd     `cmd:"" group:"write" help:"Show what would run where, and how each limit would be held."`
	Generate generateCmd `cmd:"" group:"write" help:"Have a model write a program, and run it until it works."`
	Cycle    cycleCmd    `cmd:"" group:"write" help:"Have a model work a specification in a sandbox."`
	Ingest   ingestCmd   `cmd:"" group:"write" help:"Make a run of a model's answer, or apply it to a directory."`

	Runs    runsCmd    `cmd:"" group:"look" help:"List runs."`
	Show    showCmd    `cmd:"" group:"look" help:"Show the result of a run."`
	Logs    logsCmd    `cmd:"" group:"look" help:"Print what a run printed."`
	Audit   auditCmd   `cmd:"" group:"look" help:"Check the records of runs."`
	Compare compareCmd `cmd:"" group:"look" help:"Show in what two runs, or two files of results, differ."`
	Replay  replayCmd  `cmd:"" group:"look" help:"Run a recorded run again, and explain what differs."`

	Create  createCmd  `cmd:"" group:"sandboxes" help:"Make a sandbox that lasts."`
	Exec    execCmd    `cmd:"" group:"sandboxes" help:"Run a command in a sandbox."`
	PS      psCmd      `cmd:"" name:"ps" group:"sandboxes" help:"List sandboxes."`
	Port    portCmd    `cmd:"" group:"sandboxes" help:"Lead ports of this machine to servers in a sandbox."`
	Inspect inspectCmd `cmd:"" group:"sandboxes" help:"Show all that is known of a sandbox."`
	Fork    forkCmd    `cmd:"" group:"sandboxes" help:"Make copies of a sandbox."`
	Reset   resetCmd   `cmd:"" group:"sandboxes" help:"Recreate a sandbox and keep its files."`
	Stop    stopCmd    `cmd:"" group:"sandboxes" help:"Stop sandboxes, and keep their files."`
	Start   startCmd   `cmd:"" group:"sandboxes" help:"Start sandboxes that are stopped or asleep."`
	RM      rmCmd      `cmd:"" name:"rm" group:"sandboxes" help:"Remove sandboxes."`
	CP      cpCmd      `cmd:"" name:"cp" group:"sandboxes" help:"Copy files between a sandbox and this host."`
	Project projectCmd `cmd:"" group:"sandboxes" help:"Make, list and remove shared project directories."`

	Push pushCmd `cmd:"" group:"sandboxes" help:"Send a branch and a plan into a sandbox, and run a command on them."`
	Pull pullCmd `cmd:"" group:"sandboxes" help:"Bring back what was committed in a sandbox."`

	FS    fsCmd    `cmd:"" name:"fs" group:"sandboxes" help:"List, read, search and change the files of a sandbox."`
	Diff  diffCmd  `cmd:"" group:"sandboxes" help:"Show what changed in a sandbox."`
	Apply applyCmd `cmd:"" group:"sandboxes" help:"Bring what changed in a sandbox back to its project."`
	UI    uiCmd    `cmd:"" name:"ui" group:"sandboxes" help:"Watch, review and apply in a browser."`
	MCP   mcpCmd   `cmd:"" name:"mcp" group:"sandboxes" help:"Serve sandboxes to a coding agent, and start MCP servers in sandboxes."`

	Init       initCmd       `cmd:"" group:"machine" help:"Install the backends that run files require, and lock them."`
	Backend    backendCmd    `cmd:"" group:"machine" help:"List, install, test, document, write and publish backends."`
	Doctor     doctorCmd     `cmd:"" group:"machine" help:"Check whether this machine can run sandboxes, and how to fix it."`
	Serve      serveCmd      `cmd:"" group:"machine" help:"Stay, and execute the user's commands with less delay."`
	GC         gcCmd         `cmd:"" name:"gc" group:"machine" help:"Finish what dead processes left behind, and remove old runs."`
	Version    versionCmd    `cmd:"" group:"machine" help:"Show the versions of hutch and its backends."`
	Help       helpCmd       `cmd:"" group:"machine" help:"Show the help of a command, or a page of the documentation."`
	Completion completionCmd `cmd:"" group:"machine" help:"Print the completion script of a shell."`
	Supervise  superviseCmd  `cmd:"" hidden:"" help:"Keep the command of hutch push --detach."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"Answer completion scripts."`
	Docs       docsCmd       `cmd:"" hidden:"" help:"Write the reference pages and the man page."`

	ShowVersion versionFlag `name:"version" short:"V" help:"Print the version and exit."`
}

// runGrammar is the part of the command line that is used most and in a hurry, see parse.
type runGrammar struct {
	globals `embed:""`

	Run runCmd `cmd:"" group:"run" help:"Run what run files say, or one command, in a sandbox."`
}

// globals are the flags of every command.
type globals struct {
	NoColor noColor `hidden:"" help:"No colors, as with NO_COLOR=1."`
}

// noColor is --no-color.
type noColor bool

// BeforeReset takes effect before anything is shown.
func (noColor) BeforeReset(u *ui) error {
	u.color = false
	return nil
}

var groups = kong.Groups{
	"run":          "Run",
	"write":        "Write run files",
	"look":         "Look at runs",
	"sandboxes":    "Persistent sandboxes",
	"machine":      "This machine",
	"sandbox":      "The sandbox",
	"allow":        "Allow what is refused by default",
	"ingest-run":   "A run",
	"ingest-apply": "A directory",
	"model":        "The model",
	"limits":       "Limits: one that cannot be held refuses the run",
	"http":         "HTTP",
	"command":      "The command",
	"file":         "Run files",
	"output":       "Output",
}

// built is a parser whose command has not come yet.
type built struct {
	parser *kong.Kong
	err    error
	u      *ui
}

// of returns the parser for a command, once.
func (b *built) of(u *ui) (*kong.Kong, error) {
	if b.err != nil {
		return nil, b.err
	}
	b.u = u
	return b.parser, errors.Join(kong.Bind(u).Apply(b.parser), kong.Writers(u.out, u.err).Apply(b.parser))
}

// build builds the parser of a grammar, which is a *grammar or one of the quick ones.
func build(g any) *built {
	b := &built{}
	b.parser, b.err = kong.New(g, append(numbers,
		kong.Name("hutch"),
		kong.Description("hutch runs code that nobody has to trust."),
		groups,
		kong.Exit(func(code int) { b.u.host.end(code) }),
		kong.Help(func(_ kong.HelpOptions, ctx *kong.Context) error {
			node := ctx.Selected()
			if node == nil {
				node = ctx.Model.Node
			}
			return pages.Help(ctx.Stdout, node, b.u.width)
		}),
	)...)
	return b
}

// versionFlag is --version where it does not stand alone; see main for the quick way.
type versionFlag bool

// BeforeReset prints the version before anything else is checked.
func (versionFlag) BeforeReset(u *ui) error {
	if err := u.line("hutch %s", version); err != nil {
		return err
	}
	return exit(0)
}
