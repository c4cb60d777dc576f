package sdk

import "slices"

// Facts is what the host learns from a backend's Describe: the [Description] with
// what the SDK derives from it. It is also what the describe subcommand of a
// backend prints as JSON.
type Facts struct {
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	SDKVersion   string          `json:"sdk_version"`
	Summary      string          `json:"summary"`
	Isolation    Isolation       `json:"isolation"`
	Schema       Schema          `json:"schema"`
	Capabilities []Capability    `json:"capabilities"`
	Limits       []Limit         `json:"limits"`
	Workspaces   []WorkspaceMode `json:"workspaces"`
	Networks     []NetworkMode   `json:"networks"`
	Formats      []Format        `json:"formats"`
	Environment  []string        `json:"environment"`
}

// Has reports whether the backend has capability c.
func (f *Facts) Has(c Capability) bool { return slices.Contains(f.Capabilities, c) }

// Holds reports whether the backend can hold limit l on a machine that has all it needs.
func (f *Facts) Holds(l Limit) bool { return slices.Contains(f.Limits, l) }
