package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-run/hutch/host/agent/acp"
	"github.com/hutch-run/hutch/host/agent/preset"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
)

type acpCmd struct {
	Agent string `arg:"" name:"agent" help:"claude, gemini, opencode, or a preset of yours with an acp block."`

	Workspace    string `group:"sandbox" placeholder:"DIR" help:"The project that the editor has open (default: the current directory)." complete:"dir"`
	networkFlags `group:"sandbox"`
	secretFlags  `group:"sandbox"`
	mountFlags   `group:"sandbox"`

	runfile.Limits `group:"limits"`
}

// Help is the text below the synopsis.
func (*acpCmd) Help() string {
	return `Speaks the Agent Client Protocol on stdin and stdout, for editors such as Zed and those of JetBrains: the
agent works in the same sandbox, with the same home directory, as that of hutch agent. Editor and agent name the same
files, but what the agent writes stays in its sandbox until you apply it with hutch diff and hutch apply. It works
with its own tools: it cannot read or write files and run commands through the editor, and it gets none of the
editor's MCP servers. Log in with hutch agent first, or set the provider's key where the editor starts hutch.

    hutch acp claude
    hutch acp gemini --allow-host registry.npmjs.org:443`
}

func (c *acpCmd) Run(ctx context.Context, u *ui, call *call) error {
	return withSandboxes(u, func(m *sandbox.Manager, s *session.Session) error {
		project, err := filepath.Abs(c.Workspace) // of "" it is the current directory
		if err != nil {
			return err
		}
		p, err := loadPreset(s, project, c.Agent)
		if err != nil {
			return err
		}
		if p.ACP == nil {
			return hint(fmt.Errorf("the preset %s has no acp block", p.Name),
				"claude, gemini and opencode have one; a preset of yours can")
		}
		if err := preset.CheckProject(project); err != nil {
			return err
		}
		prog, err := findProgram(u, p, p.ACP.Program, p.ACP.Install)
		if err != nil {
			return err
		}
		if own, err := preset.Find(p.Program); err == nil { // so that the sandbox is that of hutch agent, too
			prog.Add(own)
		}
		like := &agentStartCmd{networkFlags: c.networkFlags, secretFlags: c.secretFlags, mountFlags: c.mountFlags,
			Limits: c.Limits}
		home, err := like.prepare(ctx, u, m, s, p, prog, project)
		if err != nil {
			return err
		}
		argv := append(append([]string{prog.Path}, p.ACP.Args...), call.tail...)
		return c.bridge(ctx, u, m, home.Name, project, argv)
	})
}

// hangUpTime is how long an agent has to end by itself once its editor is gone.
const hangUpTime = 5 * time.Second

// bridge runs the agent in its sandbox until the editor or the agent hangs up.
func (c *acpCmd) bridge(ctx context.Context, u *ui, m *sandbox.Manager, name, project string, argv []string) error {
	sb, err := m.Open(ctx, name, sandbox.Shared)
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close() }()
	stdin, toAgent := io.Pipe()
	fromAgent, stdout := io.Pipe()
	b := &acp.Bridge{Host: project, Guest: sb.Ready().Workspace, Editor: os.Stdout, Agent: toAgent, Log: u.err}
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	go func() {
		if err := b.FromEditor(u.in); err != nil {
			u.note("%v", err)
		}
		toAgent.Close()
		time.AfterFunc(hangUpTime, hangUp)
	}()
	passed := make(chan error, 1)
	go func() {
		err := b.FromAgent(fromAgent)
		fromAgent.CloseWithError(errors.Join(err, io.EOF))
		passed <- err
	}()
	timeout := time.Duration(c.Timeout)
	if timeout == 0 {
		timeout = wrappedTimeout
	}
	r, err := sb.Run(ctx, sandbox.Command{Argv: argv, Timeout: timeout},
		run.Streams{Stdin: stdin, Stdout: stdout, Stderr: u.err})
	stdout.Close()
	if err = errors.Join(err, <-passed); err != nil {
		return err
	}
	u.note("hutch diff %s shows what changed, hutch apply %[1]s takes it", name)
	return exit(u.status(result.ExitCode(r)))
}
