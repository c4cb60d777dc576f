package language

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func reader(files map[string]string) func(string) ([]byte, bool) {
	return func(name string) ([]byte, bool) { s, ok := files[name]; return []byte(s), ok }
}

func keys(m map[string]string) []string {
	var l []string
	for k := range m {
		l = append(l, k)
	}
	slices.Sort(l)
	return l
}

func TestTableIsConsistent(t *testing.T) {
	names, exts := map[string]bool{}, map[string]string{}
	for _, l := range Table {
		if names[l.Name] {
			t.Errorf("%s is there twice", l.Name)
		}
		names[l.Name] = true
		if len(l.Interpreter) == 0 || len(l.Extensions) == 0 {
			t.Errorf("%s has no interpreter or no extension", l.Name)
		}
		for _, e := range l.Extensions {
			if o := exts[e]; o != "" || e[0] != '.' || e != strings.ToLower(e) {
				t.Errorf("extension %q of %s: also of %q, or malformed", e, l.Name, o)
			}
			exts[e] = l.Name
		}
		if d := l.Deps; d != nil && (!strings.HasPrefix(d.Target, "/") || strings.HasPrefix(d.Target, "/workspace")) {
			t.Errorf("%s mounts dependencies at %q", l.Name, d.Target)
		}
		if got, ok := ByName(l.Name); !ok || got.Name != l.Name {
			t.Errorf("ByName(%q) = %v, %v", l.Name, got, ok)
		}
	}
	if l, ok := ByPath("a/B.PY"); !ok || l.Name != "python" {
		t.Errorf("B.PY is %v", l)
	}
	for _, p := range []string{"Makefile", "a.b/c", "x.exe", ".py/x"} {
		if l, ok := ByPath(p); ok {
			t.Errorf("%s is %s", p, l.Name)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, tc := range []struct {
		name      string
		lang      string
		entry     string
		files     map[string]string
		args      []string
		interp    []string
		workspace bool
		network   bool
		argv      string
		env       []string // NAME=VALUE that must be there
		generated map[string]string
	}{
		{name: "python", lang: "python", entry: "main.py", args: []string{"-x", "a b"},
			argv: "python3|/workspace/input/main.py|-x|a b", env: []string{"PYTHONPATH=/workspace/input:/workspace", "PYTHONUNBUFFERED=1"}},
		{name: "python in the workspace", lang: "python", entry: "src/main.py", workspace: true,
			argv: "python3|/workspace/src/main.py"},
		{name: "explicit interpreter", lang: "python", entry: "main.py", interp: []string{"python3.11", "-I"},
			argv: "python3.11|-I|/workspace/input/main.py", env: []string{"PYTHONPATH=/workspace/input:/workspace"}},
		{name: "interpreter alone", entry: "p.awk", interp: []string{"awk", "-f"}, argv: "awk|-f|/workspace/input/p.awk"},
		{name: "node", lang: "javascript", entry: "a.mjs", argv: "node|/workspace/input/a.mjs",
			env: []string{"NODE_PATH=/workspace/input:/workspace"}},
		{name: "ruby", lang: "ruby", entry: "a.rb", argv: "ruby|/workspace/input/a.rb", env: []string{"RUBYLIB=/workspace/input:/workspace"}},
		{name: "perl", lang: "perl", entry: "a.pl", argv: "perl|/workspace/input/a.pl", env: []string{"PERL5LIB=/workspace/input:/workspace"}},
		{name: "sh", lang: "shell", entry: "a.sh", files: map[string]string{"a.sh": "echo\n"}, argv: "sh|/workspace/input/a.sh"},
		{name: "bash by extension", lang: "shell", entry: "a.bash", files: map[string]string{"a.bash": ""}, argv: "bash|/workspace/input/a.bash"},
		{name: "bash by first line", lang: "shell", entry: "a.sh", files: map[string]string{"a.sh": "#!/bin/bash -e\necho"},
			args: []string{"1"}, argv: "bash|-e|/workspace/input/a.sh|1"},
		{name: "bash by env", lang: "shell", entry: "a.sh", files: map[string]string{"a.sh": "#!/usr/bin/env -S bash -eu\r\n"},
			argv: "bash|-eu|/workspace/input/a.sh"},
		{name: "a first line that names no shell", lang: "shell", entry: "a.sh", files: map[string]string{"a.sh": "#!/usr/bin/evil\n"},
			argv: "sh|/workspace/input/a.sh"},
		{name: "an explicit interpreter beats the first line", lang: "shell", entry: "a.sh", interp: []string{"dash"},
			files: map[string]string{"a.sh": "#!/bin/bash\n"}, argv: "dash|/workspace/input/a.sh"},
		{name: "go file by file", lang: "go", entry: "main.go", files: map[string]string{"main.go": "", "b.go": "", "b_test.go": "", "x.txt": ""},
			args: []string{"x"}, argv: "go|run|/workspace/input/b.go|/workspace/input/main.go|x", env: []string{"GOPROXY=off", "GOTOOLCHAIN=local"}},
		{name: "go with a package beside", lang: "go", entry: "main.go", files: map[string]string{"main.go": "", "util/u.go": ""},
			argv: "go|run|/workspace/input", env: []string{"GOWORK=/workspace/input/go.work"},
			generated: map[string]string{"go.mod": "module run\n\ngo 1.22\n", "go.work": "go 1.22\n\nuse .\n"}},
		{name: "go with an argument that looks like a file", lang: "go", entry: "main.go", files: map[string]string{"main.go": ""},
			args: []string{"x.go"}, argv: "go|run|/workspace/input|x.go",
			generated: map[string]string{"go.mod": "module run\n\ngo 1.22\n", "go.work": "go 1.22\n\nuse .\n"}},
		{name: "go with a module", lang: "go", entry: "m/cmd/main.go",
			files: map[string]string{"m/go.mod": "module m\ngo 1.21.3 // x\n", "m/cmd/main.go": "", "m/a.go": ""},
			argv:  "go|run|/workspace/input/m/cmd", generated: map[string]string{"go.work": "go 1.21.3\n\nuse ./m\n"}},
		{name: "go in the workspace, no module", lang: "go", entry: "cmd/main.go", workspace: true, argv: "go|run|/workspace/cmd/main.go"},
		{name: "go in the workspace, module", lang: "go", entry: "cmd/main.go", workspace: true, files: map[string]string{"go.mod": "module x"},
			argv: "go|run|/workspace/cmd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &Program{Interpreter: tc.interp, Entrypoint: tc.entry, InWorkspace: tc.workspace, Args: tc.args,
				Input: "/workspace/input", Workspace: "/workspace", Network: tc.network, Files: keys(tc.files), Read: reader(tc.files)}
			if tc.lang != "" {
				p.Language, _ = ByName(tc.lang)
			}
			c := p.Command()
			if diff := cmp.Diff(tc.argv, strings.Join(c.Argv, "|")); diff != "" {
				t.Error(diff)
			}
			env := map[string]string{}
			c.Merge(env)
			for _, e := range tc.env {
				k, v, _ := strings.Cut(e, "=")
				if env[k] != v {
					t.Errorf("%s is %q, want %q", k, env[k], v)
				}
			}
			gen := map[string]string{}
			for _, g := range c.Generated {
				gen[g.Path] = g.Content
			}
			if tc.generated == nil {
				tc.generated = map[string]string{}
			}
			if diff := cmp.Diff(tc.generated, gen); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMergeKeepsWhatTheRunSets(t *testing.T) {
	l, _ := ByName("python")
	c := Env(l, "/i", "/w", true)
	env := map[string]string{"PYTHONPATH": "/mine", "PYTHONUNBUFFERED": ""}
	c.Merge(env)
	if env["PYTHONPATH"] != "/mine:/i:/w" || env["PYTHONUNBUFFERED"] != "" {
		t.Errorf("%v", env)
	}
	l, _ = ByName("go")
	if c := Env(l, "/i", "/w", true); c.Env["GOPROXY"] != "" {
		t.Error("a run with network cannot reach its module proxy")
	}
	if l.Env["GOPROXY"] != "" {
		t.Error("the table was changed")
	}
}

// TestGoCommandsWork runs what the table says about go with the real toolchain, read-only sources included.
func TestGoCommandsWork(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("go is not there: ", err)
	}
	const uses = "package main\nimport (\"fmt\";\"os\";\"run/util\")\nfunc main() { wd, _ := os.Getwd(); fmt.Print(wd, os.Args[1:], util.F()) }\n"
	const plain = "package main\nimport (\"fmt\";\"os\")\nfunc main() { wd, _ := os.Getwd(); fmt.Print(wd, os.Args[1:], f()) }\n"
	for name, tc := range map[string]struct {
		files map[string]string
		args  []string
	}{
		"files":   {map[string]string{"main.go": plain, "f.go": "package main\nfunc f() int { n := 0; for range 7 { n++ }; return n }\n"}, []string{"a"}},
		"package": {map[string]string{"main.go": uses, "util/u.go": "package util\nfunc F() int { return 7 }\n"}, []string{"x.go"}},
	} {
		t.Run(name, func(t *testing.T) {
			in, ws := t.TempDir(), t.TempDir()
			l, _ := ByName("go")
			p := &Program{Language: l, Entrypoint: "main.go", Args: tc.args, Input: in, Workspace: ws, Files: keys(tc.files), Read: reader(tc.files)}
			c := p.Command()
			for _, g := range c.Generated {
				tc.files[g.Path] = g.Content
			}
			for path, content := range tc.files {
				path = filepath.Join(in, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o444); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
			cmd.Dir = ws
			cmd.Env = os.Environ()
			for k, v := range c.Env {
				if k != "GOCACHE" && k != "GOPATH" { // the sandbox has a /tmp of its own, this test has not
					cmd.Env = append(cmd.Env, k+"="+v)
				}
			}
			out, err := cmd.CombinedOutput()
			if want := ws + "[" + tc.args[0] + "] 7"; string(out) != want {
				t.Errorf("%q: %v, %s; want %s", c.Argv, err, out, want)
			}
		})
	}
}

// FuzzCommand starts programs whose first line, or whose go.mod, says anything.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"#!/usr/bin/env -S bash -eu\r\n", "#!", "#! \n", "#!env", "#!/bin/zsh\t-x y", "module m\ngo 1.21 // x\n", "go 1.2\u2028(\n", "go //\ngo"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, entry := range map[string]string{"shell": "a.sh", "go": "m/cmd/main.go"} {
			p := &Program{Entrypoint: entry, Args: []string{"last"}, Input: "/in", Read: reader(map[string]string{"a.sh": s, "m/go.mod": s})}
			p.Language, _ = ByName(name)
			c := p.Command()
			if n := len(c.Argv); n < 3 || c.Argv[n-1] != "last" || !strings.HasPrefix(c.Argv[n-2], "/in/") || c.Argv[0] != "go" && !slices.Contains(shells, c.Argv[0]) {
				t.Errorf("%q", c.Argv)
			}
			for _, g := range c.Generated {
				if strings.Count(g.Content, "\n") != 3 {
					t.Errorf("%s is %q", g.Path, g.Content)
				}
			}
		}
	})
}
