package runfile

import (
	"encoding/json"

	"github.com/hutch-run/hutch/host/diag"
)

// Backend is one backend block of a run: a name, and a body that only the backend's schema can explain.
type Backend struct {
	Name  string
	Range diag.Range // of the block's header
}

// NewBackend makes a backend block with an empty body, for runs that come from flags.
func NewBackend(name string) *Backend { return &Backend{Name: name} }

// BackendConfig is the body of a backend block after it was checked against the schema.
type BackendConfig struct {
	Value    json.RawMessage // in clear, defaults filled in: what the backend gets
	Redacted json.RawMessage // without what is sensitive by the schema or by its origin: what is stored and printed
	Secrets  []string        // the strings that Redacted leaves out
}
