package e2b

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-backend-e2b": "plugins/e2b"}))
}

// TestScripts runs what a person types. Afterwards the service has no machine, and nothing on the disk holds the key.
func TestScripts(t *testing.T) {
	server := e2btest.ForTest(t, e2btest.Options{})
	var mu sync.Mutex
	var homes []string
	t.Cleanup(func() {
		for _, home := range homes {
			withoutKey(t, home, server.Key)
		}
		for _, r := range server.Requests() {
			if r.Sandbox != "" && (strings.Contains(r.Query, server.Key) || strings.Contains(headers(r), server.Key)) {
				t.Errorf("the key was sent to a machine: %s %s", r.Method, r.Path)
			}
		}
	})
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: append(scripts, "../e2e/testdata/push_again.txtar"), // the last one is for every backend
		Setup: func(env *testscript.Env) error {
			home, err := os.MkdirTemp(e2e.Dir, "home-")
			if err != nil {
				return err
			}
			mu.Lock()
			homes = append(homes, home)
			mu.Unlock()
			env.Vars = append(env.Vars, "HUTCH_HOME="+home, "HOME="+home, "NO_COLOR=1", "KEY="+server.Key, "TMPDIR="+home, `BLOCK=backend "e2b" {}`)
			for _, v := range server.Env() {
				env.Setenv(strings.SplitN(v, "=", 2)[0], strings.SplitN(v, "=", 2)[1])
			}
			env.Setenv("PATH", filepath.Dir(e2e.Hutch())+":"+os.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": e2e.Status},
	})
}

func headers(r e2btest.Request) string {
	var b bytes.Buffer
	_ = r.Header.Write(&b)
	return b.String()
}

// withoutKey looks into every file below dir, and at every name.
func withoutKey(t *testing.T, dir, key string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.Contains(p, key) {
			t.Errorf("the key is in the name %s", p)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if seen++; bytes.Contains(b, []byte(key)) || bytes.Contains(b, []byte(strings.TrimPrefix(key, "e2b_"))) {
			t.Errorf("the key is in %s", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if seen < 10 {
		t.Errorf("only %d files were there to look into", seen)
	}
}
