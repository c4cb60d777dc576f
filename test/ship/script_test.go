package ship

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"aead.dev/minisign"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-run/hutch/internal/gobuild"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestScripts goes the ways of a publisher and of a user through registries.
func TestScripts(t *testing.T) {
	minors := buildMinors(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			private := newRegistry(t, private)
			door := &door{}
			env.Values["door"] = door
			env.Setenv("PATH", filepath.Join(e2e.Dir, "bin")+":"+env.Getenv("PATH"))
			env.Setenv("HUTCH_HOME", filepath.Join(env.WorkDir, ".hutch"))
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("DOCKER_CONFIG", filepath.Join(env.WorkDir, ".docker"))
			env.Setenv("HUTCH", e2e.Hutch())
			env.Setenv("FAKE", filepath.Join(e2e.Dir, "fakes", "hutch-backend-fake"))
			env.Setenv("MINORS", minors)
			env.Setenv("REPO", newRegistry(t, door.before)+"/acme/hutch-backend-fake")
			env.Setenv("PRIVATE", private+"/acme/hutch-backend-fake")
			env.Setenv("PRIVATE_HOST", private)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"minisign": sign, "replace": replace, "registry": theDoor},
	})
}

// door is what a registry that anybody may use is behind.
type door struct {
	silent atomic.Bool
	asked  atomic.Int32 // while it was silent
}

func (d *door) before(rw http.ResponseWriter, _ *http.Request) bool {
	if !d.silent.Load() {
		return false
	}
	d.asked.Add(1)
	rw.WriteHeader(http.StatusServiceUnavailable)
	return true
}

// theDoor has the registry answer nothing, checks how often it was asked meanwhile, and has it answer again:
// registry silent|open, registry asked N.
func theDoor(ts *testscript.TestScript, neg bool, args []string) {
	d := ts.Value("door").(*door)
	switch what := strings.Join(args, " "); {
	case neg:
		ts.Fatalf("registry knows no !")
	case what == "silent", what == "open":
		d.asked.Store(0)
		d.silent.Store(what == "silent")
	case len(args) == 2 && args[0] == "asked":
		if got := fmt.Sprint(d.asked.Load()); got != args[1] {
			ts.Fatalf("the registry was asked %s times, want %s", got, args[1])
		}
	default:
		ts.Fatalf("usage: registry silent|open|asked N")
	}
}

// buildMinors builds one backend three times: as it is, and under the names older and newer as it would be with the
// first minor version of the protocol, and with a later one than today's. It returns the directory that they are in.
func buildMinors(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(e2e.Dir, "minors")
	for _, name := range []string{"older", "fake", "newer"} {
		if err := gobuild.Build(filepath.Join(dir, "hutch-backend-"+name), "../../plugins/fake", "-ldflags=-X main.name="+name+" -X main.minor="+name); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sign makes a key pair, writes the public key's line of a configuration for a source, and signs a file: minisign
// SOURCE FILE.
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
