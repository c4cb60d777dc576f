package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/term"

	"github.com/hutch-run/hutch/host/agent/clients"
	"github.com/hutch-run/hutch/host/store"
)

type mcpInstallCmd struct {
	Client string `arg:"" name:"client" help:"claude, codex, cursor, gemini, opencode or vscode." complete:"claude|codex|cursor|gemini|opencode|vscode"`
	Name   string `default:"hutch" placeholder:"NAME" help:"Name of the server in the client."`
	Remove bool   `help:"Remove it again."`
	Yes    bool   `short:"y" help:"Do not ask."`
}

// Usage replaces the synopsis, which does not know of --.
func (*mcpInstallCmd) Usage() []string {
	return []string{"hutch mcp install [flags] CLIENT [-- FLAG...]"}
}

// Help is the text below the synopsis.
func (*mcpInstallCmd) Help() string {
	return `Adds hutch mcp with the current directory as its workspace to the configuration of a client, after showing
the change and asking. Claude Code and Codex do it by their own commands: Claude Code for this project and you alone,
Codex for all projects. The others have a file in the project, of which everything else stays as it is. What stands
after -- are flags of hutch mcp.

    hutch mcp install claude
    hutch mcp install cursor -- -m 2g --timeout 5m
    hutch mcp install codex --name shop --yes
    hutch mcp install codex --remove`
}

func (c *mcpInstallCmd) Run(ctx context.Context, u *ui, call *call) error {
	client, err := clients.Find(c.Client)
	if err != nil {
		return err
	}
	if err := store.CheckName(c.Name); err != nil {
		return fmt.Errorf("--name: %w", err)
	}
	project, err := os.Getwd()
	if err != nil {
		return err
	}
	var argv []string
	if !c.Remove {
		self, err := ownCommand()
		if err != nil {
			return err
		}
		argv = append([]string{self, "mcp", "--workspace", cmp.Or(client.Workspace, project)}, call.tail...)
	}
	change, err := client.Plan(project, c.Name, argv)
	if err != nil {
		return err
	}
	if change.Text == "" {
		u.note("%s needs no change", client.Title)
		return nil
	}
	if _, err := fmt.Fprint(u.out, change.Text); err != nil {
		return err
	}
	if !c.Yes {
		if !term.IsTerminal(int(u.in.Fd())) {
			return hint(errors.New("nobody can be asked"), "--yes does it without asking")
		}
		if !u.yes("Do this [y,n]? ") {
			return errors.New("nothing was changed")
		}
	}
	if err := change.Do(ctx); err != nil {
		return err
	}
	if !c.Remove {
		u.note("%s starts it from now on; see %s", client.Title, client.Source)
	}
	return nil
}

// ownCommand is how another program starts this one: by its name where PATH leads to it.
func ownCommand() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	found, err := exec.LookPath("hutch")
	if err == nil {
		a, aerr := os.Stat(found)
		b, berr := os.Stat(self)
		if aerr == nil && berr == nil && os.SameFile(a, b) {
			return "hutch", nil
		}
	}
	return self, nil
}
