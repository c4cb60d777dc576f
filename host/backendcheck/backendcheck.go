// Package backendcheck is the door of `hutch backend test`: it runs the
// conformance suite of sdk/backendtest against a compiled plugin, in whatever
// language it is written.
//
// It starts the plugin itself, by nothing but what docs/writing-a-backend.md
// says about the handshake, and not through host/backend: what passes here works
// with any host that keeps to the document.
package backendcheck

import (
	"context"
	"errors"
	"io"
	"regexp"

	"github.com/hutch-run/hutch/sdk/backendtest"
)

// Options say what `hutch backend test` was asked for.
type Options struct {
	Path   string         // the plugin's executable
	Config string         // file with the backend block's body as .hcl or .json; "" for an empty block
	Only   *regexp.Regexp // picks checks by id; nil for all
	Format backendtest.Format
	Out    io.Writer // where the report goes
	// Progress, when set, gets one line per check as it ends.
	Progress io.Writer
}

// Run tests the plugin and writes the report. The error says why the suite could
// not be run at all; whether it passed is in the report: [backendtest.Report.OK].
func Run(ctx context.Context, o Options) (*backendtest.Report, error) {
	return nil, errors.New("not implemented")
}
