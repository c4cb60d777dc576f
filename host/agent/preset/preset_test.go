package preset

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agents")
	names, err := Names(dir)
	if diff := cmp.Diff([]string{"aider", "claude", "codex", "gemini", "opencode"}, names); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	for _, name := range names {
		if p, err := Load(dir, "", name); err != nil || p.File != "" || p.Description == "" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	mine := write(t, filepath.Join(dir, "claude.hcl"), `description = "mine"
program = "my-claude"
`)
	if p, err := Load(dir, "", "claude"); err != nil || p.File != mine || p.Program != "my-claude" {
		t.Errorf("%+v, %v", p, err)
	}
	other := write(t, filepath.Join(t.TempDir(), "other.hcl"), "description = \"other\"\nprogram = \"x\"\n")
	if p, err := Load(dir, "", other); err != nil || p.File != other || p.Name != "other" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{mine, write(t, filepath.Join(t.TempDir(), "Bad.hcl"), ""), filepath.Join(dir, "none.hcl")} {
		if _, err := Load(dir, "", bad); err == nil {
			t.Errorf("%s was loaded", bad)
		}
	}
	var unknown *UnknownError
	if _, err := Load(dir, "", "clod"); !errors.As(err, &unknown) || len(unknown.Known) != 5 {
		t.Errorf("%v", err)
	}
	for content, want := range map[string]string{
		`description = "x"`: `bad.hcl:1:1`,
		`description = "x"
program = "a/b"`: `program "a/b" is not a name in PATH`,
		`description = "x"
program = "x"
colour = "red"`: `bad.hcl:3:1`,
		`description = "x"
program = "x"
home "../x" { content = "" }`: `home "../x"`,
	} {
		write(t, filepath.Join(dir, "bad.hcl"), content)
		if _, err := Load(dir, "", "bad"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("description = \"x\"\nprogram = \"x\"\nhome \"a\" { content = \"\" }\n")
	f.Fuzz(func(t *testing.T, content string) {
		p := &Preset{Name: "x"}
		if err := p.parse("x.hcl", []byte(content)); err == nil && p.Program == "" {
			t.Error("a preset without a program")
		}
	})
}

func TestFind(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	script := write(t, filepath.Join(dir, "lib/node_modules/@acme/agent/cli.js"), "#!/usr/bin/env -S node --harmony\n")
	write(t, filepath.Join(dir, "node/node"), "\x7fELF")
	snake := write(t, filepath.Join(dir, "venv/bin/snake"), "#!"+filepath.Join(dir, "venv/bin/python")+"\n")
	write(t, filepath.Join(dir, "venv/pyvenv.cfg"), "")
	python := write(t, filepath.Join(dir, "cpython/bin/python3.12"), "\x7fELF")
	if err := os.Symlink(python, filepath.Join(dir, "venv/bin/python")); err != nil {
		t.Fatal(err)
	}
	binary := write(t, filepath.Join(dir, "share/versions/1.2"), "\x7fELF")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"agent": script, "snake": snake, "binary": binary, "node": filepath.Join(dir, "node/node")} {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	for name, want := range map[string]*Program{
		"agent":  {Path: script, Dirs: []string{filepath.Join(dir, "lib/node_modules"), filepath.Join(dir, "node")}, Bin: filepath.Join(dir, "node")},
		"binary": {Path: binary, Dirs: []string{filepath.Join(dir, "share/versions")}},
		"snake":  {Path: snake, Dirs: []string{filepath.Join(dir, "venv"), filepath.Join(dir, "cpython")}, Bin: filepath.Join(dir, "cpython/bin")},
		"env":    {Path: "/usr/bin/env"},
	} {
		got, err := Find(name)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Program{})); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	for home, refused := range map[string]bool{"share/versions": true, "share/versions/me": true, "share": false, "lib": false} {
		home = filepath.Join(dir, home)
		if err := os.MkdirAll(home, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HOME", home)
		if _, err := Find("binary"); (err != nil) != refused {
			t.Errorf("at home in %s: %v", home, err)
		}
	}
	var missing *NotFoundError
	if _, err := Find("no-such-agent"); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
}

func TestDefinition(t *testing.T) {
	p, err := Load(t.TempDir(), "", "claude")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"ANTHROPIC_BASE_URL": "http://localhost:8080/v1", "ANTHROPIC_API_KEY": "secret"}
	d, unset, err := p.Definition(&Program{Path: "/opt/claude/claude", Dirs: []string{"/opt/claude"}}, Options{
		Project: "/srv/shop", Home: "/srv/home", Backend: "bwrap", Environ: func(name string) string { return env[name] },
	})
	if err != nil || !slices.Equal(unset, []string{"CLAUDE_CODE_OAUTH_TOKEN"}) {
		t.Fatal(unset, err)
	}
	if diff := cmp.Diff([]runfile.Mount{{Target: HomeDir, Source: "/srv/home", Mode: "writable"}, {Target: "/opt/claude", Source: "/opt/claude", Mode: "readonly"}}, d.Mounts); diff != "" {
		t.Error(diff)
	}
	if d.Env["ANTHROPIC_BASE_URL"] != "http://host:8080/v1" || d.Env["HOME"] != HomeDir || d.Env["ANTHROPIC_API_KEY"] != "" {
		t.Errorf("%v", d.Env)
	}
	s := d.Network.Secrets
	if d.Network.Mode != sdk.NetworkFiltered || len(s) != 1 || s[0].From.Env != "ANTHROPIC_API_KEY" || s[0].Hosts[0] != "host:8080" {
		t.Errorf("%+v", d.Network)
	}
	d, _, err = p.Definition(&Program{Path: "/x"}, Options{Project: "/srv/shop", Backend: "bwrap", Environ: func(name string) string { return env[name] }, Network: network.Network{Mode: sdk.NetworkFull}})
	if err != nil || d.Network.Mode != sdk.NetworkFull || !slices.Equal(d.Network.Allow, []string{"host:8080"}) {
		t.Errorf("%+v, %v", d.Network, err)
	}
	env = map[string]string{"ANTHROPIC_BASE_URL": "gateway"}
	if _, _, err := p.Definition(&Program{Path: "/x"}, Options{Project: "/srv/shop", Backend: "bwrap", Environ: func(name string) string { return env[name] }}); err == nil {
		t.Error("a base URL without a host")
	}
}

func TestCommand(t *testing.T) {
	none := func(string) string { return "" }
	for _, tt := range []struct {
		agent, prompt string
		again         bool
		want          string
	}{
		{"claude", "", false, "/x --dangerously-skip-permissions --more"},
		{"claude", "do it", true, "/x --continue --dangerously-skip-permissions --more -p do it"},
		{"codex", "do it", true, "/x exec --skip-git-repo-check resume --last --dangerously-bypass-approvals-and-sandbox --more do it"},
		{"opencode", "do it", false, "/x run --more do it"},
	} {
		p, err := Load(t.TempDir(), "", tt.agent)
		if err != nil {
			t.Fatal(err)
		}
		argv, err := p.Command(&Program{Path: "/x"}, tt.prompt, tt.again, []string{"--more"}, none)
		if got := strings.Join(argv, " "); got != tt.want || err != nil {
			t.Errorf("%s: %s, %v", tt.agent, got, err)
		}
	}
}

// TestFill finds what an agent left in its home: links that lead out of it are not followed.
func TestFill(t *testing.T) {
	p := &Preset{Home: []File{{".a/settings.json", "ours"}, {"there", "ours"}}}
	dir, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "there"), "theirs")
	if err := p.Fill(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{".a/settings.json": "ours", "there": "theirs"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, ".a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, ".a")); err != nil {
		t.Fatal(err)
	}
	if err := p.Fill(dir); err == nil {
		t.Error("a link that leads out of the home directory was followed")
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("%v", left)
	}
}
