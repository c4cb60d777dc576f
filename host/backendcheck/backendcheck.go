// Package backendcheck is the door of `hutch backend test`: it runs the
// conformance suite of sdk/backendtest against a compiled plugin, in whatever
// language it is written.
//
// The plugin is started by nothing but what docs/writing-a-backend.md says about
// the handshake, and not through host/backend: what passes here works with any host
// that keeps to the document.
package backendcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/backendtest"
	"github.com/hutch-run/hutch/sdk/client"
)

// Options say what `hutch backend test` was asked for.
type Options struct {
	Path   string         // the plugin's executable
	Config string         // file with the backend block's body as .hcl or .json; "" for an empty block
	Only   *regexp.Regexp // picks checks by id; nil for all
	Format backendtest.Format
	// CheckTime is how long one check may take; 0 means two minutes.
	CheckTime time.Duration
	Out       io.Writer // where the report goes
	// Progress, when set, gets one line per check as it ends.
	Progress io.Writer
}

// Run tests the plugin and writes the report. The error says why the suite could
// not be run at all, or not to its end when ctx ended; whether it passed is in the report: [backendtest.Report.OK].
// A mistake in the configuration file is a [diag.Diagnostics].
func Run(ctx context.Context, o Options) (*backendtest.Report, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, diag.Errorf("there is no program %s", path)
	}
	target := &backendtest.Process{Path: path}
	facts, err := describe(ctx, target)
	if err != nil {
		return nil, diag.Errorf("this program is no backend that could be tested: %v", err).
			WithFix("a backend prints a handshake when hutch starts it; see docs/writing-a-backend.md")
	}
	for _, name := range facts.Environment {
		if v, ok := os.LookupEnv(name); ok && !strings.HasPrefix(name, "HUTCH_") && !strings.HasPrefix(name, "PLUGIN_") {
			target.Env = append(target.Env, name+"="+v)
		}
	}
	config, err := block(o.Config, facts)
	if err != nil {
		return nil, err
	}
	r := &backendtest.Runner{Target: target, Config: config, Only: o.Only, CheckTime: o.CheckTime}
	if o.Progress != nil {
		r.Progress = func(res backendtest.Result) { progress(o.Progress, res) }
	}
	report, stopped := r.Run(ctx)
	if report == nil {
		return nil, stopped
	}
	if len(report.Results) == 0 {
		return nil, diag.Errorf("no check has an id that matches %q",
			o.Only).WithFix("ids look like exec/exit-7; run all once to see them")
	}
	out := o.Out
	if o.Format == backendtest.Text || o.Format == "" {
		out = termsafe.NewWriter(out) // messages quote what the plugin said
	}
	return report, errors.Join(report.Write(out, o.Format), stopped)
}

// describe starts the plugin once to learn its schema and what it wants to see.
func describe(ctx context.Context, t *backendtest.Process) (*sdk.Facts, error) {
	p, err := t.Start(ctx, backendtest.StartOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.Stop(context.WithoutCancel(ctx)) }()
	return client.New(p.Conn(), client.Options{Timeout: 10 * time.Second}).Describe(ctx)
}

// block reads the body of the backend block and checks it by the schema, defaults
// filled in, as a run would.
func block(file string, facts *sdk.Facts) (json.RawMessage, error) {
	b := runfile.NewBackend(facts.Name)
	switch filepath.Ext(file) {
	case ".hcl":
		var diags diag.Diagnostics
		if b, diags = runfile.LoadBackend(facts.Name, file); diags.HasErrors() {
			return nil, diags
		}
	case ".json": // the value itself, as the backend gets it
		raw, err := os.ReadFile(file)
		if err == nil && !json.Valid(raw) {
			err = diag.Errorf("%s is no JSON", diag.Quote(file))
		}
		return raw, err
	default:
		if file != "" {
			return nil, diag.Errorf("the configuration %s is neither .hcl nor .json", diag.Quote(file)).
				WithFix("write what would stand in the backend block into a file that ends in .hcl")
		}
	}
	config, diags := b.Decode(&facts.Schema)
	if diags.HasErrors() {
		return nil, diags
	}
	return config.Value, nil
}

// progress writes one line of a check that has ended.
func progress(w io.Writer, r backendtest.Result) {
	switch r.Outcome {
	case backendtest.Failed:
		first, _, _ := strings.Cut(r.Message, "\n")
		fmt.Fprintf(w, "FAIL %s: %s\n", r.ID, termsafe.Line(first))
	case backendtest.Skipped:
		fmt.Fprintf(w, "skip %s\n", r.ID)
	default:
		fmt.Fprintf(w, "ok   %s (%s)\n", r.ID, r.Duration.Round(time.Millisecond))
	}
}
