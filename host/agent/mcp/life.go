package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

// lifeTools are the tools for the life of sandboxes.
func (s *Server) lifeTools() {
	where := "Its workspace, /workspace, is empty."
	if len(s.o.Workspaces) > 0 {
		where = "Its workspace, /workspace, shows a project directory; what is written there stays in the sandbox."
	}
	if len(s.o.AllowHosts) > 0 {
		where += " allow_hosts may name " + strings.Join(s.o.AllowHosts, ", ") + "."
	}
	tool(s, tools.Def{Name: "create_sandbox", Title: "Make a sandbox",
		Description: "Makes a sandbox that lasts until destroy_sandbox, and returns its name. " + where, Effect: tools.Adds},
		s.create)
	tool(s, tools.Def{Name: "list_sandboxes", Title: "List sandboxes",
		Description: "Lists the sandboxes that can be used here.", Effect: tools.Reads}, s.list)
	tool(s, tools.Def{Name: "sandbox_status", Title: "Look at a sandbox",
		Description: "Says how a sandbox is, which limits hold in it, how much changed in its workspace, and which jobs " +
			"it has.", Effect: tools.Reads}, s.status)
	tool(s, tools.Def{Name: "reset_sandbox", Title: "Recreate a sandbox",
		Description: "Ends what runs in a sandbox and recreates its surroundings. Its workspace is kept, unless hard.",
		Effect:      tools.Destroys}, s.reset)
	tool(s, tools.Def{Name: "destroy_sandbox", Title: "Destroy a sandbox",
		Description: "Ends what runs in a sandbox and removes it with everything that was not applied. Destroying one " +
			"that is gone is no error.", Effect: tools.Destroys}, s.destroy)
}

type createIn struct {
	Name      string `json:"name,omitempty" jsonschema:"name for the sandbox: letters, digits and dashes; one is chosen when it is left out"`
	Workspace string `json:"workspace,omitempty" jsonschema:"project directory to show, one of those that this server allows; the first of them when it is left out"`
	Network   bool   `json:"network,omitempty" jsonschema:"give it the whole network, if this server allows that"`
	// AllowHosts are rules of package network.
	AllowHosts []string `json:"allow_hosts,omitempty" jsonschema:"what it may reach, of what this server allows: names, *.names, addresses or ranges of addresses, each with an optional :PORT"`
}

type sandboxOut struct {
	Name      string `json:"name"`
	ID        string `json:"id"`
	Backend   string `json:"backend"`
	Workspace string `json:"workspace,omitempty" jsonschema:"project directory that its workspace was made on; empty for none"`
	Network   string `json:"network,omitempty" jsonschema:"none, full, or filtered with its rules"`
	Made      bool   `json:"made_here" jsonschema:"it was made through this server, and can be destroyed"`
}

func (s *Server) create(ctx context.Context, in createIn) (out sandboxOut, err error) {
	d := &runfile.Definition{
		Name: "mcp", Instance: "mcp", Backends: []*runfile.Backend{runfile.NewBackend(s.o.Backend)},
		Env: map[string]string{}, Limits: s.o.Limits, Network: network.Network{Mode: sdk.NetworkNone},
	}
	switch {
	case in.Network && !s.o.Network && len(s.o.AllowHosts) > 0:
		return out, fmt.Errorf("this server gives no sandbox the whole network; allow_hosts may name %q", s.o.AllowHosts)
	case in.Network && !s.o.Network:
		return out, fmt.Errorf("this server gives no sandbox the network; it was started without --allow-network")
	case in.Network:
		d.Network.Mode = sdk.NetworkFull
	case len(in.AllowHosts) > 0:
		for _, host := range in.AllowHosts {
			if !s.o.Network && !slices.Contains(s.o.AllowHosts, host) {
				return out,
					fmt.Errorf("this server lets no sandbox reach %q; allow_hosts may name %q, as it was started with --allow-host",
						tools.Clip(host), s.o.AllowHosts)
			}
		}
		if d.Network, err = network.Filtered(in.AllowHosts); err != nil {
			return out, fmt.Errorf("allow_hosts: %w", err)
		}
	}
	switch {
	case in.Workspace == "" && len(s.o.Workspaces) > 0:
		in.Workspace = s.o.Workspaces[0]
	case in.Workspace != "" && !slices.Contains(s.o.Workspaces, in.Workspace):
		return out, fmt.Errorf("this server makes no sandbox on %q; it allows %q", tools.Clip(in.Workspace), s.o.Workspaces)
	}
	if in.Workspace != "" {
		d.Workspace = &runfile.Workspace{Source: in.Workspace, Mode: string(sdk.WorkspacePrivate)}
	}
	if in.Name != "" {
		if err := store.CheckName(in.Name); err != nil {
			return out, err
		}
	}
	if s.o.Remover != nil {
		if err := s.o.Remover(); err != nil {
			return out, err
		}
	}
	info, err := s.o.Manager.Create(ctx, d, in.Name)
	if err != nil {
		return out, tools.Explain(err)
	}
	s.mu.Lock()
	s.made[info.Name] = true
	s.mu.Unlock()
	return s.about(*info), nil
}

func (s *Server) about(i store.SandboxInfo) sandboxOut {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sandboxOut{Name: i.Name, ID: i.ID, Backend: i.Backend, Workspace: i.Workspace.Source,
		Network: i.Network.String(), Made: s.made[i.Name]}
}

type none struct{}

type listOut struct {
	Sandboxes []sandboxOut `json:"sandboxes"`
}

func (s *Server) list(context.Context, none) (listOut, error) {
	out := listOut{Sandboxes: []sandboxOut{}}
	all, err := s.o.Manager.List()
	for _, i := range all {
		if s.may(i.Name) == nil {
			out.Sandboxes = append(out.Sandboxes, s.about(i))
		}
	}
	return out, err
}

type sandboxIn struct {
	Sandbox string `json:"sandbox" jsonschema:"name of the sandbox"`
}

type statusOut struct {
	sandboxOut
	State   string         `json:"state" jsonschema:"ready, stopped, gone, busy or unknown"`
	Problem string         `json:"problem,omitempty"`
	Limits  []result.Limit `json:"limits"`
	// Changes are nil where nobody can tell.
	Changes *sandbox.ChangeCount `json:"changes,omitempty" jsonschema:"what differs from the project"`
	Jobs    []tools.JobOut       `json:"jobs" jsonschema:"commands that run, and those that ended with output to read"`
}

func (s *Server) status(ctx context.Context, in sandboxIn) (out statusOut, err error) {
	if err := s.may(in.Sandbox); err != nil {
		return out, err
	}
	st, err := s.o.Manager.Inspect(ctx, in.Sandbox)
	if err != nil {
		return out, tools.Explain(err)
	}
	out = statusOut{sandboxOut: s.about(st.SandboxInfo), State: st.Condition, Problem: st.Problem,
		Limits:  []result.Limit{},
		Changes: st.Changes, Jobs: s.jobs.Of(in.Sandbox)}
	if len(st.Limits) > 0 {
		err = json.Unmarshal(st.Limits, &out.Limits)
	}
	return out, err
}

type resetIn struct {
	Sandbox string `json:"sandbox" jsonschema:"name of the sandbox"`
	Hard    bool   `json:"hard,omitempty" jsonschema:"drop what was written to the workspace as well"`
}

func (s *Server) reset(ctx context.Context, in resetIn) (out sandboxOut, err error) {
	if err := s.may(in.Sandbox); err != nil {
		return out, err
	}
	s.jobs.Stop(ctx, in.Sandbox)
	if err := s.o.Manager.Reset(ctx, in.Sandbox, in.Hard, true); err != nil {
		return out, tools.Explain(err)
	}
	sb, err := s.o.Manager.Look(ctx, in.Sandbox)
	if err != nil {
		return out, tools.Explain(err)
	}
	defer func() { _ = sb.Close() }()
	return s.about(sb.Record), nil
}

type destroyedOut struct {
	Sandbox   string `json:"sandbox"`
	Destroyed bool   `json:"destroyed" jsonschema:"false when there was none any more"`
}

func (s *Server) destroy(ctx context.Context, in sandboxIn) (destroyedOut, error) {
	out := destroyedOut{Sandbox: in.Sandbox}
	s.mu.Lock()
	made := s.made[in.Sandbox]
	s.mu.Unlock()
	if !made {
		if slices.Contains(s.o.Sandboxes, in.Sandbox) {
			return out, fmt.Errorf("sandbox %s was not made here; hutch rm %s removes it", in.Sandbox, in.Sandbox)
		}
		return out, nil
	}
	s.jobs.Stop(ctx, in.Sandbox)
	err := s.o.Manager.Remove(ctx, in.Sandbox, true)
	if out.Destroyed = err == nil; err != nil && !errors.Is(err, store.ErrNoSandbox) {
		return out, tools.Explain(err)
	}
	s.mu.Lock()
	delete(s.made, in.Sandbox)
	s.mu.Unlock()
	return out, nil
}
