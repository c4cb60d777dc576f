package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/sdk"
)

func TestLoad(t *testing.T) {
	for _, tc := range []struct {
		name, src string
		want      *Config
		err, fix  string // parts of the error
		line      int    // of the diagnostic, 0 for none
	}{
		{name: "empty", src: "", want: &Config{}},
		{name: "all", src: "min_isolation = \"vm\"\nbackend = \"bwrap\"\njobs = 4\nbackend_timeout = \"90s\"\n",
			want: &Config{MinIsolation: sdk.IsolationVM, Backend: "bwrap", Jobs: 4, BackendTimeout: 90 * time.Second}},
		{name: "unknown attribute", src: "\nmin_isolaton = \"vm\"\n", err: `no setting "min_isolaton"`,
			fix: `did you mean "min_isolation"?`, line: 2},
		{name: "strange attribute", src: "colour = 1", err: `no setting "colour"`, fix: "the settings are backend, backend_paths", line: 1},
		{name: "block", src: "run \"x\" {}", err: "no blocks", fix: "a run file", line: 1},
		{name: "no quotes", src: "backend = bwrap", err: "backend is a plain value", fix: `write backend = "bwrap"`, line: 1},
		{name: "no number", src: "jobs = \"x\"", err: "jobs cannot have this value: a number is required", line: 1},
		{name: "part of a job", src: "jobs = 1.5", err: "jobs cannot have this value: must be a whole number", line: 1},
		{name: "twice", src: "jobs = 4\njobs = 5", err: `"jobs" is set twice`, fix: "remove one of the two", line: 2},
		{name: "no closing quote", src: "backend = \"bwrap\njobs = 1\n", err: "string is not closed", fix: "closing quote", line: 1},
		{name: "unknown level", src: "# mine\nmin_isolation = \"jail\"\n", err: `"jail" is not a level`, line: 2},
		{name: "no time", src: "backend_timeout = \"1ms\"", err: "at least 1s", line: 1},
		{name: "no duration", src: "\n\nbackend_timeout = \"soon\"", err: "backend_timeout: ", line: 3},
		{name: "no jobs", src: "jobs = 0", err: "at least 1", line: 1},
		{name: "no name of a backend", src: "jobs = 1\nbackend = 3\n", err: `"3" is no name of a backend`, line: 2},
		{name: "no name of a path", src: "backend_paths = { Acme = \"/x\" }", err: `"Acme" is no name of a backend`, line: 1},
		{name: "a list", src: "backend = [\"bwrap\"]", err: "string required", fix: `write backend = "bwrap"`, line: 1},
		{name: "a setting as a block", src: "backend \"bwrap\" {}", err: "no blocks", fix: `write backend = "bwrap"`, line: 1},
		{name: "a function", src: "jobs = min(3)", err: "without variables and functions", fix: "write jobs = 4", line: 1},
		{name: "JSON", src: "{\"jobs\": 4}", err: "an argument or a block is expected here", line: 1},
		{name: "syntax", src: "jobs = \n", err: "a value is missing here", line: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.hcl")
			if err := os.WriteFile(path, []byte(tc.src), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Load(path)
			if tc.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Fatalf("(-want +got)\n%s", d)
				}
				return
			}
			var ds diag.Diagnostics
			if !errors.As(err, &ds) {
				t.Fatalf("got %v, want diagnostics", err)
			}
			if text := ds[0].Summary + " " + ds[0].Detail; !strings.Contains(strings.ToLower(text), tc.err) && !strings.Contains(text, tc.err) {
				t.Errorf("got %q, want something with %q", text, tc.err)
			}
			if !strings.Contains(ds[0].Fix, tc.fix) || len(ds) > 1 {
				t.Errorf("the fix is %q of %d errors, want one with %q", ds[0].Fix, len(ds), tc.fix)
			}
			if ds[0].Range == nil || ds[0].Range.Start.Line != tc.line || ds[0].Range.File != path {
				t.Errorf("points at %v, want line %d of %s", ds[0].Range, tc.line, path)
			}
			if s := ds[0].Snippet; s == nil || len(s.Lines) == 0 || s.Lines[0].Number != tc.line {
				t.Errorf("the excerpt is %+v, want line %d", s, tc.line)
			}
			if first := ds[0].Summary[:1]; first != strings.ToLower(first) {
				t.Errorf("the summary is a sentence: %s", ds[0].Summary)
			}
		})
	}
}

func TestLoadMissing(t *testing.T) {
	got, err := Load(filepath.Join(t.TempDir(), "none.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Config{}, got); d != "" {
		t.Fatal(d)
	}
}

func TestLoadTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.hcl")
	if err := os.WriteFile(path, make([]byte, maxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Fatalf("got %v", err)
	}
}

func TestRequireOnlyRaises(t *testing.T) {
	c := &Config{MinIsolation: sdk.IsolationContainer}
	for _, step := range []struct {
		level string
		want  sdk.Isolation
	}{{"namespace", "container"}, {"", "container"}, {"vm", "vm"}, {"none", "vm"}} {
		if err := c.Require(step.level); err != nil {
			t.Fatal(err)
		}
		if c.MinIsolation != step.want {
			t.Errorf("after %q: %q, want %q", step.level, c.MinIsolation, step.want)
		}
	}
}

// FuzzParse sees to it that a configuration which is taken is within its bounds, and that a refusal says where.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"min_isolation = \"vm\"\nbackend = \"bwrap\"\njobs = 4\nbackend_timeout = \"90s\"\nsignatures = \"required\"\n", "jobs = 1e400", "jobs = -1", "backend_timeout = \"-5s\"",
		"trusted_keys = { \"a/b\" = \"RW\", c = [\"x\", null] }", "backend_paths = { a = \"/x\", b = \"y\" }", "backend_paths = { a = null }", "backend = \"${x}\"", "a {", "jobs = \"\xff\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := parse("config.hcl", src)
		if err != nil {
			var ds diag.Diagnostics
			if !errors.As(err, &ds) || len(ds) == 0 || ds[0].Range == nil || ds[0].Range.Start.Line < 1 {
				t.Errorf("%#v", err)
			}
			return
		}
		if c.Jobs < 0 || c.BackendTimeout != 0 && c.BackendTimeout < minBackendTimeout || c.MinIsolation != "" && c.MinIsolation.Rank() < 0 {
			t.Errorf("%+v", c)
		}
		for name, p := range c.BackendPaths {
			if !filepath.IsAbs(p) {
				t.Errorf("%s is at %q", name, p)
			}
		}
	})
}
