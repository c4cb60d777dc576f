package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/term"

	mcpcall "github.com/hutch-run/hutch/host/agent/mcp/call"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
)

type mcpCmd struct {
	Serve   mcpServeCmd   `cmd:"" default:"withargs" help:"Serve sandboxes to a coding agent, over the Model Context Protocol: what hutch mcp does."`
	Wrap    mcpWrapCmd    `cmd:"" help:"Start an MCP server in a sandbox."`
	Install mcpInstallCmd `cmd:"" help:"Add hutch to the configuration of an MCP client."`
}

type mcpServeCmd struct {
	Backend   string   `group:"sandbox" placeholder:"NAME" help:"Backend of the sandboxes (default: the one of the configuration, else bwrap)." complete:"backend"`
	Workspace []string `group:"sandbox" sep:"none" placeholder:"DIR" help:"A directory that sandboxes may be made on, privately: what they write stays in them. Repeatable; without one, workspaces are empty." complete:"dir"`
	Sandbox   []string `group:"sandbox" sep:"none" placeholder:"NAME" help:"A sandbox that exists already and may be used too. Repeatable." complete:"sandbox"`
	Keep      bool     `group:"sandbox" help:"Leave the sandboxes that were made, instead of destroying them at the end."`

	runfile.Limits `group:"limits"`

	Listen    string `group:"http" placeholder:"ADDR" help:"Serve HTTP at http://ADDR/mcp instead of stdin and stdout: a loopback address, such as 127.0.0.1:8181."`
	TokenFile string `group:"http" placeholder:"FILE" help:"File with the bearer token of the clients (default: HUTCH_MCP_TOKEN, else one is made and printed on stderr)." complete:"file"`

	AllowNetwork bool     `group:"allow" help:"Sandboxes may ask for the network."`
	AllowHost    []string `group:"allow" sep:"none" placeholder:"RULE" help:"Sandboxes may ask to reach this name, *.name, address or range of addresses, each with an optional :PORT, over TCP. Repeatable."`
	AllowApply   bool     `group:"allow" help:"Clients may bring what changed in a sandbox back to the directory that it was made on."`
	allowFlags
}

// Help is the text below the synopsis.
func (*mcpServeCmd) Help() string {
	return `Serves sandboxes to a client of the Model Context Protocol, such as a coding agent: tools to make them, to
run commands in them, to work with their files, and to see what changed. The client decides what happens inside of
sandboxes, and these flags all the rest. It sees the sandboxes that it made, which are destroyed when it hangs up, and
those that --sandbox names.

docs/mcp.md shows how to add it to the common coding agents.

    hutch mcp --workspace . -m 2g --timeout 5m
    hutch mcp --workspace . --allow-apply
    hutch mcp --listen 127.0.0.1:8181 --token-file ~/.config/hutch/token`
}

func (c *mcpServeCmd) Run(u *ui) error {
	if c.Listen == "" && c.TokenFile != "" {
		return errors.New("--token-file goes with --listen")
	}
	if _, err := network.FromFlags("", c.AllowHost); err != nil {
		return err
	}
	o := mcpcall.Call{
		Version: version, Backend: c.Backend, Sandboxes: c.Sandbox, Network: c.AllowNetwork, AllowHosts: c.AllowHost,
		Apply: c.AllowApply, Keep: c.Keep, Listen: c.Listen, TokenFile: c.TokenFile,
		Limits: c.Limits,
	}
	for rule, allowed := range c.policy(false).Allow {
		if allowed {
			o.Allow = append(o.Allow, rule)
		}
	}
	for _, dir := range c.Workspace {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		if !isDir(abs) {
			return fmt.Errorf("--workspace: there is no directory %s", abs)
		}
		o.Workspaces = append(o.Workspaces, abs)
	}
	argv, err := o.Argv()
	if err != nil {
		return err
	}
	if c.Listen == "" && term.IsTerminal(int(u.in.Fd())) {
		u.note("a client is expected on stdin and stdout; docs/mcp.md shows how to add hutch to one")
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}
