package run

import (
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/result"
)

// PlanSchema identifies the JSON of a [Plan].
const PlanSchema = "hutch.plan/v1"

// Plan is what would be run where, and why there.
type Plan struct {
	Schema    string            `json:"schema"`
	Name      string            `json:"name"`
	File      string            `json:"file,omitempty"`
	Backend   string            `json:"backend"` // "" when none is able
	Command   []string          `json:"command"`
	Workdir   string            `json:"workdir"`
	Env       map[string]string `json:"env"` // secrets redacted
	Files     []PlannedFile     `json:"files"`
	Network   string            `json:"network"`
	Workspace result.Workspace  `json:"workspace"`
	Limits    []result.Limit    `json:"limits"` // as the chosen backend would hold them
	Installs  []Install         `json:"dependencies,omitempty"`
	Outputs   []string          `json:"outputs"`
	Notes     []string          `json:"notes,omitempty"`

	Candidates  []Candidate      `json:"candidates"` // every backend of the run in order
	Diagnostics diag.Diagnostics `json:"diagnostics,omitempty"`
}

// PlannedFile is one file that the sandbox would see.
type PlannedFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	From string `json:"from"` // its source, or "content"
}

// Install is what would be installed before the run.
type Install struct {
	Language string   `json:"language"`
	Packages []string `json:"packages"`
	Key      string   `json:"key"` // of the cache entry
}

// Candidate is one backend that was looked at.
type Candidate struct {
	Name      string           `json:"name"`
	Version   string           `json:"version,omitempty"`
	Isolation string           `json:"isolation,omitempty"`
	Chosen    bool             `json:"chosen"`
	Reasons   []string         `json:"reasons,omitempty"` // why it is not able; empty when it is, or was not needed
	Limits    []PlannedLimit   `json:"limits,omitempty"`
	Problems  diag.Diagnostics `json:"problems,omitempty"` // the same, with place and fix
}

// PlannedLimit is how one backend would hold one limit.
type PlannedLimit struct {
	result.Limit
	Reason string `json:"reason,omitempty"` // why it cannot be held
	Fix    string `json:"fix,omitempty"`
}
