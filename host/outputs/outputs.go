// Package outputs collects the files a run left for its caller. The tree it reads is hostile, the tree it writes is a
// fresh directory of the host's own.
package outputs

import (
	"context"
	"errors"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Caps bound what is collected. Zero means the default.
type Caps struct {
	File    int64 // bytes of one file; default 1 GiB
	Total   int64 // bytes of all files; default 4 GiB
	Count   int   // files; default 10,000
	Entries int   // entries looked at, directories included; default 100,000
	Depth   int   // default 32
}

// Output is one file that was collected.
type Output struct {
	Path   string `json:"path"` // below the output directory, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
	Mode   string `json:"mode"`   // permission bits in octal
}

// Skipped is something that was there and was not collected.
type Skipped struct {
	Path   string          `json:"path"`
	Reason safefile.Reason `json:"reason"`
	Detail string          `json:"detail"`
}

// Result is what Collect found.
type Result struct {
	Outputs []Output  `json:"outputs"`
	Skipped []Skipped `json:"skipped"`
	// More counts what was skipped beyond the first 1,000 that are listed.
	More int `json:"more,omitempty"`
}

// Collect copies the regular files below src that match one of the patterns (doublestar, against the slash path; none
// means everything) to dst, which must exist. Links, devices, hard links, and what exceeds the caps is skipped with its
// reason. Modes lose set-id and write bits for others. An error means that collecting could not go on (ctx ended, dst is full); what was
// collected until then is in the result.
func Collect(ctx context.Context, src, dst string, patterns []string, caps Caps) (*Result, error) {
	return nil, errors.New("not implemented")
}
