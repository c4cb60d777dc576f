package runfile

import (
	"fmt"
	"os"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
)

// LoadBackend reads a file that holds the body of a backend block and nothing else, as `hutch backend test --config`
// takes it. Functions work as in a run file; there are no variables. The Backend is nil after an error.
func LoadBackend(name, path string) (*Backend, diag.Diagnostics) {
	l := newLoader(path, &Options{}, &given{lookupEnv: os.LookupEnv})
	body := l.parse()
	if body == nil {
		return nil, inOrder(l.diags)
	}
	s := &scope{loader: l, ctx: l.ctx, context: fmt.Sprintf("backend %q", name), origin: &origin{ranges: ranges{}}}
	// The file has no header; its first character stands for one.
	header := hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}
	return &Backend{Name: name, Range: hcldiag.Range(header), body: s.expand(body), header: header, scope: s}, inOrder(l.diags)
}
