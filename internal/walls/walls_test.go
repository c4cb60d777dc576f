package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hutch-run/hutch"

// wall forbids packages below from to depend on anything below one of the prefixes in deny.
// Direct walls look at the import statements of a package and its tests, deep ones at all that is linked.
type wall struct {
	from  string
	deny  []string
	but   string // a package that is allowed although deny covers it
	deep  bool
	tests bool // for the test files too
}

var hcl = []string{"github.com/hashicorp/hcl", "github.com/zclconf/go-cty"}

// heavy are the libraries, and the packages that need them, which are linked into hutch-agent alone.
var heavy = []string{"github.com/openai/openai-go", "github.com/anthropics/anthropic-sdk-go",
	module + "/host/agent/model/provider",
	module + "/host/agent/model/scripted", module + "/host/agent/mcp", module + "/host/install/oci",
	"github.com/modelcontextprotocol/go-sdk", "oras.land/oras-go",
	module + "/host/ui", "github.com/buildkite/terminal-to-html"}

var walls = []wall{
	{from: "sdk", deny: []string{module + "/host", module + "/plugins", module + "/cmd"}, deep: true, tests: true},
	{from: "sdk", deny: append([]string{"github.com/alecthomas/kong"}, hcl...), deep: true},
	{from: "host", deny: []string{module + "/plugins", module + "/cmd", "github.com/alecthomas/kong"}, deep: true,
		tests: true},
	{from: "plugins", deny: []string{module + "/host", module + "/cmd", "github.com/alecthomas/kong"}, deep: true},
	{from: "plugins", deny: hcl, deep: true},
	{from: "cmd", deny: []string{module + "/sdk", module + "/plugins"}},
	// What would cost every start of hutch is its own program.
	{from: "cmd/hutch", deny: heavy, but: module + "/host/agent/mcp/call", deep: true},
	// Go initialises it before the packages of other modules.
	{from: "host/resident/handover", deny: []string{"github.com", "golang.org", "google.golang.org"}, deep: true},
}

type pkg struct {
	ImportPath                         string
	Imports, Deps                      []string
	TestImports, XTestImports, GoFiles []string
}

func TestWalls(t *testing.T) {
	pkgs := list(t)
	for _, part := range []string{"sdk", "host", "plugins", "cmd"} {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return below(p.ImportPath, module+"/"+part) }) {
			t.Errorf("no package below %s: this test looks at the wrong tree", part)
		}
	}
	for _, p := range pkgs {
		for _, bad := range violations(p) {
			t.Error(bad)
		}
	}
}

// TestWallsBite checks that each wall finds what it is there to find.
func TestWallsBite(t *testing.T) {
	for _, p := range []pkg{
		{ImportPath: module + "/sdk", Deps: []string{module + "/host/run"}},
		{ImportPath: module + "/sdk/limits", Deps: []string{"github.com/hashicorp/hcl/v2"}},
		{ImportPath: module + "/sdk/limits", TestImports: []string{module + "/plugins/fake"}},
		{ImportPath: module + "/host/run", Deps: []string{module + "/plugins/bwrap"}},
		{ImportPath: module + "/plugins/bwrap", Deps: []string{module + "/host/store"}},
		{ImportPath: module + "/plugins/bwrap", Imports: []string{module + "/plugins/podman"}},
		{ImportPath: module + "/cmd/hutch", Imports: []string{module + "/sdk"}},
		{ImportPath: module + "/cmd/hutch", Deps: []string{"github.com/openai/openai-go/v3/option"}},
		{ImportPath: module + "/host/resident/handover", Deps: []string{"golang.org/x/sys/unix"}},
		{ImportPath: module + "/cmd/hutch", Deps: []string{"github.com/anthropics/anthropic-sdk-go"}},
		{ImportPath: module + "/cmd/hutch", Deps: []string{"github.com/modelcontextprotocol/go-sdk/mcp"}},
		{ImportPath: module + "/cmd/hutch", Deps: []string{"oras.land/oras-go/v2"}},
		{ImportPath: module + "/cmd/hutch", Deps: []string{module + "/host/ui"}},
	} {
		if len(violations(p)) == 0 {
			t.Errorf("no wall in front of %+v", p)
		}
	}
}

func violations(p pkg) []string {
	var found []string
	for _, w := range walls {
		if !below(p.ImportPath, module+"/"+w.from) {
			continue
		}
		deps := slices.Clone(p.Imports)
		if w.deep {
			deps = append(deps, p.Deps...)
		}
		if w.tests {
			deps = append(append(deps, p.TestImports...), p.XTestImports...)
		}
		for _, d := range deps {
			if slices.ContainsFunc(w.deny, func(bad string) bool { return below(d, bad) && d != w.but }) {
				found = append(found, p.ImportPath+" must not depend on "+d)
			}
		}
	}
	// A plugin is one program: what lies below plugins/X belongs to X alone.
	if rest, ok := strings.CutPrefix(p.ImportPath, module+"/plugins/"); ok {
		own, _, _ := strings.Cut(rest, "/")
		for _, d := range append(slices.Clone(p.Imports), p.Deps...) {
			if below(d, module+"/plugins") && !below(d, module+"/plugins/"+own) {
				found = append(found, p.ImportPath+" must not depend on "+d)
			}
		}
	}
	return found
}

// below reports whether path is root or lies below it, a major version after root included.
func below(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports,GoFiles", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
