// Package call is what `hutch mcp` asks of the program hutch-mcp. They are two programs, because the protocol's library
// would add a tenth of a millisecond and five megabytes to every start of hutch.
package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// Program is the file name of the program, in ../libexec/hutch beside hutch.
const Program = "hutch-mcp"

// Call is its only argument, as JSON.
type Call struct {
	Version    string         `json:"version"` // of hutch: both are of one build
	Hutch      string         `json:"hutch"`   // its path, beside which backends lie
	Backend    string         `json:"backend"` // "" takes that of the configuration, else bwrap
	Workspaces []string       `json:"workspaces,omitempty"`
	Sandboxes  []string       `json:"sandboxes,omitempty"`
	Network    bool           `json:"network,omitempty"`
	Apply      bool           `json:"apply,omitempty"`
	Allow      []judge.Rule   `json:"allow,omitempty"`
	Keep       bool           `json:"keep,omitempty"`
	Limits     runfile.Limits `json:"limits"`
	Listen     string         `json:"listen,omitempty"` // "" serves stdin and stdout
	TokenFile  string         `json:"token_file,omitempty"`
	// RemoverOf makes the program the remover of a server's sandboxes, which survives the server, see mcp.Serve.
	RemoverOf *store.Process `json:"remover_of,omitempty"`
}

// Argv is the command line of the program that belongs to the hutch which is running. It fills in Hutch.
func (c *Call) Argv() ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if c.Hutch, err = filepath.EvalSymlinks(exe); err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(c.Hutch), "..", "libexec", "hutch", Program)
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is not installed: there is no %s", Program, path)
	case err != nil:
		return nil, err
	}
	b, err := json.Marshal(c)
	return []string{path, string(b)}, err
}

// Parse reads the command line of the program.
func Parse(argv []string) (*Call, error) {
	c := &Call{}
	if len(argv) != 2 {
		return nil, errors.New("this is a part of hutch: start it with hutch mcp")
	}
	if err := json.Unmarshal([]byte(argv[1]), c); err != nil {
		return nil, fmt.Errorf("this is a part of hutch, and its argument makes no sense: %w", err)
	}
	return c, nil
}
