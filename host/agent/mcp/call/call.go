// Package call is what `hutch mcp` passes to hutch-agent, which serves the protocol: its library would add a tenth of a
// millisecond and five megabytes to every start of hutch.
package call

import (
	"encoding/json"
	"fmt"

	"github.com/hutch-run/hutch/host/helper"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// Subcommand is that of hutch-agent; the call follows it as JSON.
const Subcommand = "mcp"

// Call is what the server shall do.
type Call struct {
	Version string `json:"version"` // of hutch: both are of one build
	Hutch   string `json:"hutch"`   // its path, beside which backends lie
	Backend string `json:"backend"` // of the sandboxes that are made; "" takes that of the configuration, else bwrap
	// Workspaces are directories, absolute, that sandboxes may be made on, privately; the first one unless a client asks
	// for another.
	Workspaces []string       `json:"workspaces,omitempty"`
	Sandboxes  []string       `json:"sandboxes,omitempty"`   // that exist and may be used; they cannot be destroyed
	Network    bool           `json:"network,omitempty"`     // sandboxes may ask for the whole network, or any part of it
	AllowHosts []string       `json:"allow_hosts,omitempty"` // rules that sandboxes may ask for, without Network
	Apply      bool           `json:"apply,omitempty"`       // changes may be brought back to projects
	Allow      []judge.Rule   `json:"allow,omitempty"`       // although they are refused by default
	Keep       bool           `json:"keep,omitempty"`        // the sandboxes that were made stay
	Limits     runfile.Limits `json:"limits"`                // of every sandbox that is made
	Listen     string         `json:"listen,omitempty"`      // "" serves stdin and stdout
	TokenFile  string         `json:"token_file,omitempty"`
	// RemoverOf makes the program the remover of a server's sandboxes, which survives the server, see mcp.Serve.
	RemoverOf *store.Process `json:"remover_of,omitempty"`
}

// Argv returns the command line of the server that belongs to the running hutch. It sets Hutch.
func (c *Call) Argv() (argv []string, err error) {
	var agent string
	if c.Hutch, agent, err = helper.Find(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(c)
	return []string{agent, Subcommand, string(b)}, err
}

// Parse reads the argument that Argv wrote.
func Parse(argument string) (*Call, error) {
	c := &Call{}
	if err := json.Unmarshal([]byte(argument), c); err != nil {
		return nil, fmt.Errorf("this is a part of hutch; start it with hutch mcp: decode the argument: %w", err)
	}
	return c, nil
}
