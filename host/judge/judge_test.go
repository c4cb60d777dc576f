package judge

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// on is a directory of this machine as a Place.
type on string

func (d on) Look(p string) Node {
	fi, err := os.Lstat(filepath.Join(string(d), p))
	if err != nil {
		return Node{}
	}
	link, _ := os.Readlink(filepath.Join(string(d), p))
	return Node{There: true, Mode: fi.Mode(), Link: link}
}

func (d on) Names(in string) (names []string) {
	list, _ := os.ReadDir(filepath.Join(string(d), in))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// land writes a file, "/" at its end makes a directory, "@" at the beginning of the content a symbolic link. Pieces
// that do not fit together are left out.
func land(top, p, content string) {
	at := filepath.Join(top, p)
	os.MkdirAll(filepath.Dir(at), 0o755)
	switch {
	case strings.HasSuffix(p, "/"):
		os.MkdirAll(at, 0o755)
	case strings.HasPrefix(content, "@"):
		os.RemoveAll(at)
		os.Symlink(content[1:], at)
	default:
		os.RemoveAll(at)
		os.WriteFile(at, []byte(content), 0o755)
	}
}

// TestS2NoLandingMakesARepository splits repositories over directories, and over what is on the host and what up to
// three landings bring, and asks git whether what the judge admits makes it run the sandbox's program. The control
// lands all.
func TestS2NoLandingMakesARepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	top := t.TempDir()
	marker := filepath.Join(top, "marker")
	program := filepath.Join(top, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch '"+marker+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	settings := func(monitor string) string {
		return "[core]\n\tfsmonitor = " + monitor + "\n\tbare = false\n\tworktree = ..\n\trepositoryformatversion = 0\n[extensions]\n\tworktreeConfig = true\n"
	}
	dirs := []string{"a", "b", "a/c"}
	commondir := map[string]string{"ab": "../b", "aa/c": "c", "ba": "../a", "ba/c": "../a/c", "a/ca": "..", "a/cb": "../../b"}
	heads := []string{"ref: refs/heads/main\n", "@refs/heads/main", strings.Repeat("0", 40) + "\n"}
	noise := []string{".git", "objects", "refs/", "HEAD", "HEAD/", "head", "commondir", "index", "packed-refs", "config", "gitdir", "readme"}
	rounds, control := 80, 0
	if testing.Short() {
		rounds = 20
	}
	for n := range rounds {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		judged, project := n%4 > 0, filepath.Join(top, fmt.Sprint(n))
		for _, d := range dirs {
			land(project, d+"/", "")
		}
		// One whole repository, its pieces dealt out to the host and to three landings, and some that belong to nothing.
		gitdir, common := dirs[rnd.IntN(3)], dirs[rnd.IntN(3)]
		pieces := [][2]string{
			{gitdir + "/HEAD", heads[rnd.IntN(3)]}, {common + "/objects/", ""}, {common + "/refs/", ""},
			{common + "/config", settings(program)}, {gitdir + "/config.worktree", settings(program)},
		}
		if common != gitdir {
			pieces = append(pieces, [2]string{gitdir + "/commondir", commondir[gitdir+common] + "\n"})
		}
		for range rnd.IntN(4) {
			pieces = append(pieces, [2]string{dirs[rnd.IntN(3)] + "/" + noise[rnd.IntN(len(noise))], []string{"x", "@../b/objects", "gitdir: ../b\n"}[rnd.IntN(3)]})
		}
		hand := make([][][2]string, 4)
		for _, p := range pieces {
			to := rnd.IntN(4)
			hand[to] = append(hand[to], p)
		}
		for _, p := range hand[0] { // the host's own, which runs nothing
			if path.Base(p[0]) != ".git" {
				land(project, p[0], strings.ReplaceAll(p[1], settings(program), settings("false")))
			}
		}
		for _, lands := range hand[1:] {
			var changes []Change
			for _, p := range lands {
				x := Change{Path: strings.TrimSuffix(p[0], "/"), New: Node{There: true, Mode: 0o644}}
				switch {
				case strings.HasSuffix(p[0], "/"):
					x.New.Mode = fs.ModeDir | 0o755
				case strings.HasPrefix(p[1], "@"):
					x.New.Mode, x.New.Link = fs.ModeSymlink|0o777, p[1][1:]
				}
				x.Old = on(project).Look(x.Path)
				changes = append(changes, x)
			}
			for i, v := range Judge(changes, on(project)) {
				if len(v.Refused) == 0 && rnd.IntN(10) > 0 || !judged {
					land(project, lands[i][0], lands[i][1])
				}
			}
		}
		for _, d := range dirs {
			cmd := exec.Command("git", "status")
			cmd.Dir = filepath.Join(project, d)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CEILING_DIRECTORIES=" + top, "GIT_CONFIG_NOSYSTEM=1", "HOME=" + top}
			_ = cmd.Run()
		}
		if _, err := os.Stat(marker); err == nil {
			os.Remove(marker)
			if judged {
				t.Fatalf("git ran the sandbox's program in %s (seed %d)", project, seed)
			}
			control++
		}
		os.RemoveAll(project)
	}
	if control == 0 && !testing.Short() {
		t.Error("git ran nothing of what landed unjudged either: the test shows nothing")
	}
}

// TestS2Repositories has splits by hand: what is on the host, what lands, and which of it is refused as git's.
func TestS2Repositories(t *testing.T) {
	for name, c := range map[string]struct{ host, lands, refused string }{
		"all in one":                         {"", "b/HEAD b/objects/ b/refs/ b/config", "b/HEAD b/config b/objects b/refs"},
		"over commondir":                     {"", "b/HEAD b/commondir b/config.worktree c/config c/objects/ c/refs/", "b/HEAD b/commondir b/config.worktree c/config c/objects c/refs"},
		"its store is on the host":           {"c/objects/ c/refs/", "b/HEAD b/commondir", "b/HEAD b/commondir"},
		"its HEAD is on the host":            {"b/HEAD", "b/commondir", "b/commondir"},
		"its settings":                       {"b/HEAD b/commondir c/objects/ c/refs/", "c/config", "c/config"},
		"the last part of a store":           {"c/objects/ c/config", "c/refs/", "c/refs"},
		"a whole one loses HEAD":             {"b/HEAD b/objects/ b/refs/ b/config", "-b/HEAD b/config", "b/HEAD b/config"},
		"in capitals":                        {"", "b/Head b/COMMONDIR", "b/COMMONDIR b/Head"},
		"spelled two ways":                   {"", "B/HEAD b/commondir", "B B/HEAD b/commondir"},
		"objects is no directory":            {"", "b/HEAD b/objects b/refs b/config", "b/HEAD b/config b/objects b/refs"},
		"files in objects":                   {"", "HEAD objects/x refs/y hooks/post-index-change", "HEAD hooks/post-index-change objects/x refs/y"},
		"the names of a project":             {"src/objects/a.ts src/refs/b.ts", "src/objects/c.ts src/refs/d.ts src/index src/info/x HEAD config", ""},
		"HEAD is a directory":                {"", "b/HEAD/x b/objects/x b/refs/x", ""},
		"another name":                       {"", "b/HEADS b/commondir b/refs/", ""},
		"a nested .git":                      {"", "x/.git", "x/.git"},
		"what lies beside a bare repository": {"b/HEAD b/objects/ b/refs/", "b/readme", ""},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			rt := func(p string) {
				if err := os.MkdirAll(filepath.Join(top, filepath.Dir(p)), 0o755); err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(p, "/") {
					os.MkdirAll(filepath.Join(top, p), 0o755)
				} else {
					os.WriteFile(filepath.Join(top, p), []byte("x"), 0o644)
				}
			}
			for p := range strings.FieldsSeq(c.host) {
				rt(p)
			}
			var changes []Change
			for p := range strings.FieldsSeq(c.lands) {
				x := Change{New: Node{There: true, Mode: 0o644}}
				if strings.HasSuffix(p, "/") {
					x.New.Mode = fs.ModeDir | 0o755
				}
				if strings.HasPrefix(p, "-") {
					x.New = Node{}
				}
				x.Path = strings.Trim(p, "-/")
				x.Old = on(top).Look(x.Path)
				changes = append(changes, x)
			}
			if name == "spelled two ways" {
				changes = append(changes, Change{Path: "b", New: Node{There: true, Mode: fs.ModeDir | 0o755}}, Change{Path: "B", New: Node{There: true, Mode: fs.ModeDir | 0o755}})
			}
			var got []string
			for i, v := range Judge(changes, on(top)) {
				if len(v.Refused) > 0 {
					got = append(got, changes[i].Path)
				}
			}
			slices.Sort(got)
			if g := strings.Join(got, " "); g != c.refused {
				t.Errorf("refused %q, want %q", g, c.refused)
			}
		})
	}
}

func TestS12Obeyed(t *testing.T) {
	want := map[bool]string{
		true: ".hg/hgrc sub/.Rprofile .pdbrc .opencode/plugin/x.js .mvn/extensions.xml .pylintrc bunfig.toml .bundle/config .terraform/providers/x " +
			"any.code-workspace .envrc .npmrc .yarnrc.yml .pnpmfile.cjs .cargo/config.toml rust-toolchain.toml .pre-commit-config.yaml .husky/pre-commit " +
			"lefthook.yml .vscode/tasks.json .idea/workspace.xml .devcontainer/devcontainer.json .gdbinit .lldbinit .vimrc .exrc .nvim.lua .dir-locals.el " +
			".claude/settings.json .codex/config.toml .cursor/mcp.json .gemini/settings.json .mcp.json sitecustomize.py .venv/bin/python " +
			"venv/lib/python3/site-packages/x.pth .irbrc .pryrc gradle/wrapper/gradle-wrapper.jar .mise.toml .tool-versions .bazelrc .buckconfig .sbtopts .Renviron " +
			"LocalPreferences.toml .eslintrc.js eslint.config.mjs .prettierrc.js .gitattributes .gitmodules .lfsconfig .CLAUDE/x .svn/x .bsp/sbt.json tools/bazel",
		false: "CLAUDE.md docs/AGENTS.md .github/workflows/ci.yml .gitlab-ci.yml Makefile conftest.py pyproject.toml tox.ini setup.cfg package.json jest.config.js " +
			".rspec __pycache__/x.cpython-312.pyc .github/copilot-instructions.md",
	}
	for refused, list := range want {
		for p := range strings.FieldsSeq(list) {
			if tool, r := Obeyed(p); tool == "" || r != refused {
				t.Errorf("Obeyed(%q) = %q, %v, want refused %v", p, tool, r, refused)
			}
		}
	}
	for p := range strings.FieldsSeq("main.py README.md src/cargo/config.toml model.pth github/workflows/x tools/bazel/x .github/ISSUE_TEMPLATE.md codex/x gitattributes") {
		if tool, _ := Obeyed(p); tool != "" {
			t.Errorf("%q is taken for a file of %s", p, tool)
		}
	}
	for _, x := range ToolList() {
		if x.Name == "" || !strings.HasPrefix(x.Source, "https://") || len(x.Runs)+len(x.Marks) == 0 {
			t.Errorf("an entry lacks something: %+v", x)
		}
	}
}

var update = flag.Bool("update", false, "rewrite docs/reference/tools.md")

// TestS12TheListInTheDocs holds docs/reference/tools.md to the table; -update writes it.
func TestS12TheListInTheDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Files that tools obey\n\n<!-- Made from host/judge/tools.txt by `go test ./host/judge -update`. -->\n\n" +
		"What comes out of a sandbox lands in a project. *Refused* files are those from which a tool runs programs when a user\nonly enters or opens the directory, " +
		"or gives a command that is not about the file: `--allow-tools` lets them in. *Marked*\nfiles land, and a review names them. " +
		"A name counts in any directory, a slash at its end means all in it, and an asterisk\nstands for any part of a name. The list cannot be complete.\n\n" +
		"| tool | refused | marked |\n|---|---|---|\n")
	code := func(names []string) (text string) {
		for _, name := range names {
			text += " `" + name + "`"
		}
		return strings.TrimPrefix(text, " ")
	}
	for _, x := range ToolList() {
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s |\n", x.Name, x.Source, code(x.Runs), code(x.Marks))
	}
	const page = "../../docs/reference/tools.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != b.String() {
		t.Errorf("%s is not the table (%v): run go test ./host/judge -update", page, err)
	}
}
