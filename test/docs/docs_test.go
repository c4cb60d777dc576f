package docs

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/test/e2e"
)

const root = "../.."

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-backend-podman": "plugins/podman", "libexec/hutch/hutch-backend-lima": "plugins/lima", "libexec/hutch/hutch-backend-e2b": "plugins/e2b", "libexec/hutch/hutch-backend-kubernetes": "plugins/kubernetes"}))
}

func hutch(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e2e.Hutch(), args...)
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+t.TempDir(), "HUTCH_BACKEND_PATH=")
	return cmd
}

// TestGeneratedPagesAreCurrent recreates every generated page.
func TestGeneratedPagesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	gen := exec.CommandContext(t.Context(), "go", "run", "./internal/genref", dir)
	gen.Dir = root
	for _, cmd := range []*exec.Cmd{gen, hutch(t, "docs", "all", dir)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	n := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		name, _ := filepath.Rel(dir, path)
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, _ := os.ReadFile(filepath.Join(root, "docs/reference", name))
		if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); d != "" {
			t.Errorf("docs/reference/%s is out of date; make generate (-should be +is)\n%s", name, d)
		}
		return nil
	})
	if err != nil || n < 4 {
		t.Fatalf("%d pages were generated, %v", n, err)
	}
}

// TestRunFileReference compares the page on run files with the schemas and the table of functions in the parser's
// source: each name must be there, and nothing else.
func TestRunFileReference(t *testing.T) {
	page := readPage(t, "docs/reference/runfile.md")
	blocks := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^##+ ([a-z_]+)").FindAllStringSubmatch(page, -1) {
		blocks[m[1]] = true
	}
	arguments, functions, _ := strings.Cut(page, "## Functions")
	functions, _, _ = strings.Cut(functions, "## Bounds")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ").FindAllStringSubmatch(arguments, -1) {
		named[m[1]] = true
	}
	funcs := map[string]bool{}
	for line := range strings.Lines(functions) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z0-9]+)`").FindAllStringSubmatch(line, -1) {
			funcs[m[1]] = true
		}
	}
	attrs, kinds := schemas(t)
	if d := cmp.Diff(attrs, keys(named)); d != "" {
		t.Errorf("arguments (-parser +page)\n%s", d)
	}
	for _, k := range kinds {
		if !blocks[k] && !strings.Contains(page, "`"+k+"`") {
			t.Errorf("the page says nothing about the block %s", k)
		}
	}
	if d := cmp.Diff(functionNames(t), keys(funcs)); d != "" {
		t.Errorf("functions (-parser +page)\n%s", d)
	}
}

// schemas are the names of arguments and blocks in calls of schemaOf, and the limits.
func schemas(t *testing.T) (attrs, blocks []string) {
	a, b := map[string]bool{}, map[string]bool{}
	for _, file := range parseDir(t, root+"/host/runfile") {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if fn, ok := call.Fun.(*ast.Ident); !ok || fn.Name != "schemaOf" {
				return true
			}
			for i, arg := range call.Args {
				words := strings.Fields(text(t, arg))
				if i > 0 {
					b[words[0]] = true
					continue
				}
				for _, w := range words {
					a[strings.TrimSuffix(w, "!")] = true
				}
			}
			return true
		})
	}
	for _, l := range runfile.AllLimits {
		a[string(l.Name)] = true
	}
	if len(a) < 30 || len(b) < 7 {
		t.Fatalf("found only %d arguments and %d blocks in the source", len(a), len(b))
	}
	return keys(a), keys(b)
}

// text is the value of a constant string.
func text(t *testing.T, e ast.Expr) string {
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(e))
	if err != nil {
		t.Fatal(err)
	}
	return constant.StringVal(v.Value)
}

func functionNames(t *testing.T) []string {
	names := map[string]bool{}
	for _, file := range parseDir(t, root+"/host/runfile/internal/functions") {
		ast.Inspect(file, func(n ast.Node) bool {
			fn, ok := n.(*ast.FuncDecl)
			if !ok || fn.Name.Name != "Table" {
				return true
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				var name ast.Expr
				switch n := n.(type) {
				case *ast.KeyValueExpr:
					name = n.Key
				case *ast.IndexExpr:
					name = n.Index
				}
				if lit, ok := name.(*ast.BasicLit); ok {
					s, _ := strconv.Unquote(lit.Value)
					names[s] = true
				}
				return true
			})
			return false
		})
	}
	if len(names) < 80 {
		t.Fatalf("found only %d functions in the source", len(names))
	}
	return keys(names)
}

func parseDir(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source in %s, %v", dir, err)
	}
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// TestRunFilesInText validates every ```hcl block of the pages. One that is marked as a fragment is what stands inside
// a run block.
func TestRunFilesInText(t *testing.T) {
	models, loops := regexp.MustCompile(`(?m)^model `), regexp.MustCompile(`(?m)^(run|generate|cycle) `)
	n := 0
	for _, page := range pages(t) {
		for i, block := range fenced(readPage(t, page), "hcl") {
			n++
			dir := t.TempDir()
			src := block.text
			if block.info == "hcl fragment" {
				src = "run \"snippet\" {\n  backend \"bwrap\" {}\n"
				if !strings.Contains(block.text, "command") && !strings.Contains(block.text, "entrypoint") {
					src += "  command = [\"true\"]\n"
				}
				src += block.text + "}\n"
			} else if models.MatchString(src) && !loops.MatchString(src) { // which a file needs for something
				src += "\nrun \"snippet\" {\n  backend \"bwrap\" {}\n  command = [\"true\"]\n}\n"
			}
			for name, content := range map[string]string{
				"snippet.hcl": src, "src/main.py": "print()\n", "main.py": "print()\n", "tests/test_it.py": "\n", "answers.txtar": "-- answer --\n",
			} {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := hutch(t, "validate", filepath.Join(dir, "snippet.hcl")).CombinedOutput(); err != nil {
				t.Errorf("%s, run file %d: %v\n%s", page, i+1, err, out)
			} else if strings.Contains(string(out), "arning") {
				t.Errorf("%s, run file %d is valid with a warning:\n%s", page, i+1, out)
			}
		}
	}
	if n < 5 {
		t.Fatalf("found only %d run files in the pages", n)
	}
}

// TestLinks follows every relative link.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	n := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			n++
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			st, err := os.Stat(filepath.Join(root, path))
			if err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, m[1])
				continue
			}
			if anchor == "" || st.IsDir() {
				continue
			}
			found := false
			for _, h := range heading.FindAllStringSubmatch(readPage(t, path), -1) {
				slug := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
				found = found || strings.ReplaceAll(slug, " ", "-") == anchor
			}
			if !found {
				t.Errorf("%s: there is no heading for %s", page, m[1])
			}
		}
	}
	if n < 10 {
		t.Fatalf("found only %d links", n)
	}
}

// TestWhereItHappens looks for each name of the architecture's table in its package.
func TestWhereItHappens(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("`(\\w+)` in `([a-z/]+)`").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 10 {
		t.Fatalf("the table has %d names", len(rows))
	}
	for _, row := range rows {
		name, dir := row[1], row[2]
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declared := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type )` + name + `\b`)
		if !slices.ContainsFunc(files, func(f string) bool {
			src, err := os.ReadFile(f)
			return err == nil && !strings.HasSuffix(f, "_test.go") && declared.Match(src)
		}) {
			t.Errorf("%s declares no %s", dir, name)
		}
	}
}

// TestTheLeastBackendRuns builds the first program of the page on backends and runs the command that the page shows.
func TestTheLeastBackendRuns(t *testing.T) {
	const name = "docs/writing-a-backend.md"
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(fenced(readPage(t, name), "go")[0].text), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "hutch-backend-plain"), source)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	shown := strings.Split(strings.TrimSpace(fenced(readPage(t, name), "console")[0].text), "\n")
	line, found := strings.CutPrefix(shown[0], "$ hutch ")
	if !found || len(shown) != 2 {
		t.Fatalf("%s shows %q", name, shown)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-c", e2e.Hutch()+" "+line)
	sh.Env = append(os.Environ(), "HUTCH_HOME="+t.TempDir(), "HUTCH_BACKEND_PATH="+dir)
	if out, err := sh.CombinedOutput(); err != nil || string(out) != shown[1]+"\n" {
		t.Errorf("%s: %v\n%s", shown[0], err, out)
	}
}

// TestTheShownMistake makes the mistake in the guide's run file that the guide shows, and compares the message.
func TestTheShownMistake(t *testing.T) {
	page := readPage(t, "docs/user-guide.md")
	_, shown, found := strings.Cut(page, "```\nerror: ")
	shown, _, closed := strings.Cut(shown, "```\n")
	if !found || !closed {
		t.Fatal("the guide shows no mistake")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	source := strings.Replace(fenced(page, "hcl")[0].text, "memory ", "memry  ", 1)
	for name, content := range map[string]string{"report.hcl": source, "src/main.py": "print()\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := hutch(t, "validate", "report.hcl")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if d := cmp.Diff("error: "+shown, string(out)); err == nil || d != "" {
		t.Errorf("%v (-page +hutch)\n%s", err, d)
	}
}

var placeholder = regexp.MustCompile(`\{\{[A-Z_]+\}\}|\b(TODO|FIXME|XXX|TBD)\b`)

// TestNoPlaceholders looks for what was meant to be filled in.
func TestNoPlaceholders(t *testing.T) {
	for _, page := range pages(t) {
		if bad := placeholder.FindString(readPage(t, page)); bad != "" {
			t.Errorf("%s has %s in it", page, bad)
		}
	}
}

type block struct{ info, text string }

// fenced are the code blocks of a page whose info string begins with a word.
func fenced(page, word string) []block {
	var out []block
	for _, m := range regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		if first, _, _ := strings.Cut(m[1], " "); first == word {
			out = append(out, block{m[1], m[2]})
		}
	}
	return out
}

func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			rel, _ := filepath.Rel(root, f)
			all = append(all, rel)
		}
	}
	if len(all) < 10 {
		t.Fatalf("found only %d pages", len(all))
	}
	return all
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

func keys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
