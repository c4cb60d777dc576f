package ship

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestScripts goes the ways of a publisher and of a user through registries.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			private := newRegistry(t, private)
			env.Setenv("PATH", filepath.Join(e2e.Dir, "bin")+":"+env.Getenv("PATH"))
			env.Setenv("HUTCH_HOME", filepath.Join(env.WorkDir, ".hutch"))
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("DOCKER_CONFIG", filepath.Join(env.WorkDir, ".docker"))
			env.Setenv("FAKE", filepath.Join(e2e.Dir, "fakes", "hutch-backend-fake"))
			env.Setenv("REPO", newRegistry(t, nil)+"/acme/hutch-backend-fake")
			env.Setenv("PRIVATE", private+"/acme/hutch-backend-fake")
			env.Setenv("PRIVATE_HOST", private)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"minisign": sign, "replace": replace},
	})
}

// sign makes a key pair, writes the public key's line of a configuration for a source, and signs a file: minisign SOURCE FILE.
func sign(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: minisign SOURCE FILE")
	}
	public, key, err := minisign.GenerateKey(rand.Reader)
	ts.Check(err)
	path := ts.MkAbs(args[1])
	raw, err := os.ReadFile(path)
	ts.Check(err)
	ts.Check(os.WriteFile(path+".minisig", minisign.Sign(key, raw), 0o600))
	ts.Check(os.MkdirAll(ts.Getenv("HUTCH_HOME"), 0o700))
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("HUTCH_HOME"), "config.hcl"), fmt.Appendf(nil, "trusted_keys = { %q = %q }\n", args[0], public), 0o600))
}

// replace replaces text in a file: replace OLD NEW FILE.
func replace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace OLD NEW FILE")
	}
	path := ts.MkAbs(args[2])
	raw, err := os.ReadFile(path)
	ts.Check(err)
	if !strings.Contains(string(raw), args[0]) {
		ts.Fatalf("%s does not hold %q", args[2], args[0])
	}
	ts.Check(os.WriteFile(path, []byte(strings.ReplaceAll(string(raw), args[0], args[1])), 0o600))
}
