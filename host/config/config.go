// Package config reads the user's own configuration: what holds for every call on this machine, whatever a run file
// says. It is a small HCL file, $XDG_CONFIG_HOME/hutch/config.hcl (below $HUTCH_HOME when that is set):
//
//	min_isolation = "namespace" # refuse backends that isolate less
//	backend       = "bwrap"     # for hutch run -- COMMAND
//	jobs          = 4           # how many runs at once
//
//
//
//
//	trusted_keys  = { "registry.example.com/acme" = "RW…" } # public keys of minisign, by where they hold
//	backend_paths = { acme = "/home/me/acme/bin/hutch-backend-acme" } # a build of yours instead of what is installed
//
// A file that is missing is an empty one. It is read by commands that run or plan something and by no other.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"
	convertValue "github.com/zclconf/go-cty/cty/convert"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// maxSize bounds the file, in bytes.
const maxSize = 1 << 20

// minBackendTimeout is the least that a backend may be given for a call: less is met by a busy machine alone.
const minBackendTimeout = time.Second

// Config is what the user wants on this machine. The zero value wants nothing.
type Config struct {
	MinIsolation sdk.Isolation // "" means none
	Backend      string        // of a run without a file; "" when not set
	Jobs         int           // 0 means as many as there are processors

	BackendTimeout time.Duration // of one call, but for the running of a command; 0 means the default

	SignaturesRequired bool                // of every backend that is installed, when it is installed and when it is run
	TrustedKeys        map[string][]string // minisign public keys by source, or the beginning of one; not checked yet
	BackendPaths       map[string]string   // absolute paths of binaries by name of the backend
}

// Load reads the configuration at path. What is wrong with it comes back as diag.Diagnostics.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Config{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	if len(src) > maxSize {
		return nil, fmt.Errorf("the configuration %s is larger than %d bytes", path, maxSize)
	}
	return parse(path, src)
}

func parse(path string, src []byte) (*Config, error) {
	var raw struct {
		MinIsolation *string `hcl:"min_isolation"`
		Backend      *string `hcl:"backend"`
		Jobs         *int    `hcl:"jobs"`

		BackendTimeout *string `hcl:"backend_timeout"`

		Signatures   *string              `hcl:"signatures"`
		TrustedKeys  map[string]cty.Value `hcl:"trusted_keys,optional"`
		BackendPaths map[string]string    `hcl:"backend_paths,optional"`
	}
	file, ds := hclparse.NewParser().ParseHCL(src, path)
	if !ds.HasErrors() {
		ds = append(ds, gohcl.DecodeBody(file.Body, nil, &raw)...)
	}
	if ds.HasErrors() {
		return nil, explained(path, file, ds).Err()
	}
	c := &Config{}
	if raw.MinIsolation != nil {
		if err := c.Require(*raw.MinIsolation); err != nil {
			return nil, about(path, file, "min_isolation", err.Error())
		}
	}
	if raw.Jobs != nil {
		if *raw.Jobs < 1 {
			return nil, about(path, file, "jobs", "jobs must be at least 1")
		}
		c.Jobs = *raw.Jobs
	}
	if raw.BackendTimeout != nil {
		d, err := units.ParseDuration(*raw.BackendTimeout)
		if err == nil && d < minBackendTimeout {
			err = fmt.Errorf("it must be at least %s", minBackendTimeout)
		}
		if err != nil {
			return nil, about(path, file, "backend_timeout", fmt.Sprintf("backend_timeout: %s", err))
		}
		c.BackendTimeout = d
	}
	if raw.Backend != nil && *raw.Backend != "" {
		if err := backend.CheckName(*raw.Backend); err != nil {
			return nil, about(path, file, "backend", err.Error())
		}
		c.Backend = *raw.Backend
	}
	switch {
	case raw.Signatures == nil || *raw.Signatures == "warn":
	case *raw.Signatures == "required":
		c.SignaturesRequired = true
	default:
		return nil, about(path, file, "signatures", `signatures must be "required" or "warn"`)
	}
	for source, v := range raw.TrustedKeys {
		keys, err := texts(v)
		if err != nil {
			return nil,
				about(path, file, "trusted_keys", fmt.Sprintf("trusted_keys: what %q has must be a key or a list of keys", source))
		}
		if c.TrustedKeys == nil {
			c.TrustedKeys = map[string][]string{}
		}
		c.TrustedKeys[source] = keys
	}
	for name, p := range raw.BackendPaths {
		if err := backend.CheckName(name); err != nil {
			return nil, about(path, file, "backend_paths", "backend_paths: "+err.Error())
		}
		if !filepath.IsAbs(p) {
			return nil, about(path, file, "backend_paths", fmt.Sprintf("backend_paths: the path for %q must be absolute", name))
		}
	}
	c.BackendPaths = raw.BackendPaths
	return c, nil
}

// texts reads a string or a list of strings.
func texts(v cty.Value) ([]string, error) {
	if v.IsNull() || !v.IsWhollyKnown() {
		return nil, errors.New("null")
	}
	if v.Type() == cty.String {
		return []string{v.AsString()}, nil
	}
	list, err := convertValue.Convert(v, cty.List(cty.String))
	if err != nil || list.IsNull() {
		return nil, errors.New("neither a string nor a list of them")
	}
	var out []string
	for _, e := range list.AsValueSlice() {
		if e.IsNull() {
			return nil, errors.New("null")
		}
		out = append(out, e.AsString())
	}
	return out, nil
}

// Require raises the isolation that is asked for to level, and leaves it when it is stronger already.
func (c *Config) Require(level string) error {
	if level == "" {
		return nil
	}
	if sdk.Isolation(level).Rank() < 0 {
		return fmt.Errorf("%q is not a level of isolation: none, process, namespace, container, vm or remote-vm", level)
	}
	if l := sdk.Isolation(level); l.Rank() > c.MinIsolation.Rank() {
		c.MinIsolation = l
	}
	return nil
}

// AcceptsProcesses reports whether the user asks for so little isolation that a backend without namespaces will do. One
// who asks for nothing does not.
func (c *Config) AcceptsProcesses() bool {
	return c.MinIsolation == sdk.IsolationNone || c.MinIsolation == sdk.IsolationProcess
}

// about makes an error about one attribute.
func about(path string, file *hcl.File, name, text string) error {
	attrs, _ := file.Body.JustAttributes()
	d := diag.Errorf("%s", text)
	d.Range = &diag.Range{File: path, Start: diag.Pos{Line: 1, Column: 1}, End: diag.Pos{Line: 1, Column: 1}}
	if a, ok := attrs[name]; ok {
		at := hcldiag.Range(a.Expr.Range())
		d.Range = &at
	}
	d.Snippet = diag.Excerpt(file.Bytes, *d.Range)
	return diag.Diagnostics{d}
}

// forms are the settings, each with a value that it may have.
var forms = map[string]string{
	"min_isolation": `"container"`, "backend": `"bwrap"`, "jobs": "4", "backend_timeout": `"90s"`, "signatures": `"required"`,
	"trusted_keys": `{ "registry.example.com/acme" = "RW…" }`, "backend_paths": `{ acme = "/home/me/hutch-backend-acme" }`,
}

// explained says what the HCL library found as run files' errors say it, and of settings what they may be.
func explained(path string, file *hcl.File, found hcl.Diagnostics) diag.Diagnostics {
	attrs, _ := file.Body.JustAttributes()
	ds := runfile.Explain(path, file.Bytes, found)
	for i := range ds {
		d := &ds[i]
		name := "a setting"
		for _, a := range attrs {
			if d.Range != nil && a.Range.Start.Line <= d.Range.Start.Line && d.Range.Start.Line <= a.Range.End.Line {
				name = a.Name
			}
		}
		form := ""
		if forms[name] != "" {
			form = fmt.Sprintf("write %s = %s", name, forms[name])
		}
		switch d.Summary {
		case "unsupported argument":
			d.Summary, d.Detail = fmt.Sprintf("there is no setting %q", name), ""
			if d.Fix == "" {
				d.Fix = "the settings are " + strings.Join(slices.Sorted(maps.Keys(forms)), ", ")
			}
		case "unsupported block type":
			d.Summary, d.Detail = "a configuration has no blocks", "Its lines are NAME = VALUE."
			d.Fix = "runs are written into a run file, which hutch run FILE takes"
			for setting, value := range forms {
				if strings.HasPrefix(d.Snippet.Lines[0].Text, setting) {
					d.Fix = fmt.Sprintf("write %s = %s", setting, value)
				}
			}
		case "variables not allowed", "function calls not allowed":
			d.Summary, d.Detail, d.Fix = name+" is a plain value, without variables and functions", "", form
		case "unsuitable value type":
			_, why, _ := strings.Cut(d.Detail, ": ")
			d.Summary, d.Detail, d.Fix = name+" cannot have this value: "+strings.TrimPrefix(why, "value "), "", form
		}
	}
	return ds
}
