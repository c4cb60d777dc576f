package main

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-run/hutch/host/agent/preset"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
)

type mcpWrapCmd struct {
	Backend      string    `group:"sandbox" placeholder:"NAME" help:"Backend of the sandbox (default: bwrap, which shows the programs of this machine)." complete:"backend"`
	Workspace    *readable `group:"sandbox" placeholder:"DIR[:MODE]" help:"Show DIR at /workspace. MODE readonly (default), private for writes that are dropped at the end, or shared for writes that land in DIR at once. Without it, the server has an empty directory." complete:"dir"`
	networkFlags `group:"sandbox"`
	secretFlags  `group:"sandbox"`
	mountFlags   `group:"sandbox"`

	runfile.Limits `group:"limits"`

	Env     []string `group:"command" short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Set an environment variable; without a value, pass it on from here. No record has the value. Repeatable."`
	EnvFile []string `group:"command" sep:"none" placeholder:"FILE" help:"Read NAME=VALUE lines. Repeatable." complete:"file"`
	Workdir string   `group:"command" short:"w" placeholder:"DIR" help:"Directory inside the sandbox to start in (default /workspace)."`
}

// readable is a workspace that is read-only unless it says otherwise.
type readable mount

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *readable) UnmarshalText(text []byte) error {
	m := (*mount)(r)
	err := m.UnmarshalText(text)
	if m.dir == string(text) { // no mode
		m.mode = string(runfile.MountReadOnly)
	}
	return err
}

// Usage replaces the synopsis, which does not know of --.
func (*mcpWrapCmd) Usage() []string {
	return []string{"hutch mcp wrap [flags] [--] COMMAND [ARG...]"}
}

// Help is the text below the synopsis.
func (*mcpWrapCmd) Help() string {
	return `Runs a server of the Model Context Protocol that speaks on stdin and stdout in a sandbox, for the
configuration of any client: put "hutch mcp wrap FLAGS --" before its command. It sees no files but those of
--workspace and --mount, reaches no host but those of --allow-host and --secret, and has no variables of this machine
but those of -e. Nothing but what it prints is on stdout. It runs until the client hangs up, and is recorded like
every run.

    hutch mcp wrap --allow-host registry.npmjs.org:443 -- npx -y @modelcontextprotocol/server-everything
    hutch mcp wrap --workspace . -- mcp-server-filesystem /workspace
    hutch mcp wrap --secret GITHUB_TOKEN=env@api.github.com -- github-mcp-server stdio`
}

// wrappedTimeout is the wall time of a server without --timeout: a client may keep it for weeks.
const wrappedTimeout = 365 * 24 * time.Hour

func (c *mcpWrapCmd) Run(ctx context.Context, u *ui, call *call) error {
	if len(call.tail) == 0 {
		return hint(errors.New("nothing to run: name the command of an MCP server"), "hutch mcp wrap -- npx -y SERVER")
	}
	r := &runCmd{Interactive: true, Output: "text", runFlags: runFlags{
		Backend: c.Backend, Workspace: (*mount)(c.Workspace), networkFlags: c.networkFlags, secretFlags: c.secretFlags,
		mountFlags: c.mountFlags,
		Limits:     c.Limits, Env: c.Env, EnvFile: c.EnvFile, Workdir: c.Workdir,
	}}
	if r.Timeout == 0 {
		r.Timeout = units.Duration(wrappedTimeout)
	}
	if r.Backend == "" {
		r.Backend = agentBackend
	}
	if r.Backend == agentBackend {
		if err := r.showProgram(call.tail); err != nil {
			return err
		}
	}
	return r.Run(ctx, u, call)
}

// showProgram makes a program of this machine, with what it needs, visible at the same path. What is not installed is
// left for the sandbox to miss.
func (c *runFlags) showProgram(argv []string) error {
	prog, err := preset.Find(argv[0])
	if missing := (*preset.NotFoundError)(nil); errors.As(err, &missing) {
		return nil
	} else if err != nil {
		return err
	}
	argv[0] = prog.Path
	for _, dir := range prog.Dirs {
		c.Mount = append(c.Mount, hostDir{Source: dir, Target: dir, Mode: runfile.MountReadOnly})
	}
	if prog.Bin != "" {
		c.Env = append([]string{"PATH=" + prog.Bin + ":/usr/local/bin:/usr/bin:/bin"}, c.Env...)
	}
	return nil
}
