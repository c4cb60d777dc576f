package scaffold

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// generate writes a project outside the repository's tree, below a directory with a space.
func generate(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a project", "hutch-backend-acme")
	files, err := New(Options{Name: "acme", Module: "example.org/acme/hutch-backend-acme", Dir: dir, Replace: repository(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"main.go", "sandbox.go", "config.go", "main_test.go", "go.mod", "Makefile", "README.md", "LICENSE", "example.hcl", ".goreleaser.yaml", ".gitignore", ".github/workflows/ci.yml", ".github/workflows/release.yml"} {
		if !slices.Contains(files, want) {
			t.Errorf("%s is missing; there are %v", want, files)
		}
	}
	return dir
}

// run runs a command in the project. The modules are those of this one; what go wants to know of others that a fresh
// machine does not have yet, it asks where it asked for them.
func run(t *testing.T, dir string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOSUMDB=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestProjectBuildsAndPassesTheSuite does what a third party does.
func TestProjectBuildsAndPassesTheSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a project and runs the conformance suite")
	}
	dir := generate(t)
	// The sums of what hutch itself needs are those of the project.
	sums, err := os.ReadFile(filepath.Join(repository(t), "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "build", "-o", "bin/hutch-backend-acme", ".")
	run(t, dir, "go", "vet", "./...")
	run(t, dir, "go", "test", "./...")
	if out := run(t, dir, filepath.Join(dir, "bin", "hutch-backend-acme"), "describe"); !strings.Contains(out, `"name": "acme"`) {
		t.Errorf("describe says %s", out)
	}
	// hutch itself, as its users have it: the whole suite process by process, and the example.
	bin := filepath.Join(t.TempDir(), "hutch")
	run(t, repository(t), "go", "build", "-o", bin, "./cmd/hutch")
	report := run(t, dir, bin, "backend", "test", "-q", filepath.Join(dir, "bin", "hutch-backend-acme"))
	if !strings.Contains(report, " 0 failed,") || !strings.Contains(report, "ok 1 - death/host ") {
		t.Errorf("the report of the suite:\n%s", report)
	}
	t.Setenv("HUTCH_BACKEND_PATH", filepath.Join(dir, "bin"))
	t.Setenv("HUTCH_HOME", t.TempDir())
	if out := run(t, dir, bin, "run", "example.hcl"); !strings.Contains(out, "hello from acme") {
		t.Errorf("hutch run example.hcl: %s", out)
	}
	if bytes.Contains([]byte(run(t, dir, "gofmt", "-l", ".")), []byte(".go")) {
		t.Error("the project is not formatted")
	}
}

func TestMainIsShort(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(generate(t), "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n > 66 {
		t.Errorf("main.go has %d lines", n)
	}
}

func TestMakefileExplainsItself(t *testing.T) {
	out := run(t, generate(t), "make", "help")
	for _, want := range []string{"build", "test", "conformance", "example", "release", "snapshot"} {
		if !strings.Contains(out, want) {
			t.Errorf("make help does not name %s:\n%s", want, out)
		}
	}
}

func TestRefusals(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"empty name", Options{}, `cannot be the name`},
		{"upper case", Options{Name: "Acme"}, `cannot be the name`},
		{"slash", Options{Name: "a/b"}, `cannot be the name`},
		{"dots", Options{Name: "..", Dir: t.TempDir()}, `cannot be the name`},
		{"long", Options{Name: strings.Repeat("a", 33)}, `cannot be the name`},
		{"module", Options{Name: "acme", Module: "not a module"}, `cannot be a module path`},
		{"module that ends the line", Options{Name: "acme", Module: "example.org/a\nreplace x => y"}, `cannot be a module path`},
		{"full directory", Options{Name: "acme", Dir: full}, `is not empty`},
		{"file", Options{Name: "acme", Dir: filepath.Join(full, "file")}, `cannot be used`},
		{"replace", Options{Name: "acme", Dir: filepath.Join(t.TempDir(), "new"), Replace: full}, `not the source of hutch`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if left, _ := os.ReadDir(full); len(left) != 1 {
		t.Errorf("a refusal wrote something: %v", left)
	}
}

// The versions in the template are hutch's own.
func TestVersions(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(repository(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if mod.Go.Version != goVersion {
		t.Errorf("hutch needs go %s, the template says %s", mod.Go.Version, goVersion)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == "golang.org/x/sys" && r.Mod.Version != sysVersion {
			t.Errorf("hutch needs %s, the template says %s", r.Mod, sysVersion)
		}
	}
}

func TestLicenseIsHutchs(t *testing.T) {
	ours, err := os.ReadFile(filepath.Join(repository(t), "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := templates.ReadFile("template/LICENSE.tmpl")
	if err != nil || !bytes.Equal(ours, theirs) {
		t.Errorf("the license of a generated project differs from hutch's: %v", err)
	}
}
