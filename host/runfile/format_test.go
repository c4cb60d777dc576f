package runfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFormat(t *testing.T) {
	src := "run   \"a\"{\ncommand=[\"true\"]\n  env={A=\"b\",\n CD = \"e\"}\n}"
	out, diags := Format("x.hcl", []byte(src))
	if len(diags) > 0 {
		t.Fatal(render(diags))
	}
	want := "run \"a\" {\n  command = [\"true\"]\n  env = { A = \"b\",\n  CD = \"e\" }\n}\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"run \"a\" {", "a = = 1\n", "\xef\xbb\xbf", "x = \"\xff\"", strings.Repeat("[", 5000)} {
		out, diags := Format("x.hcl", []byte(bad))
		if !diags.HasErrors() || string(out) != bad {
			t.Errorf("%.10q: %v, %q", bad, diags, out)
		}
	}
}

// TestFormatIsIdempotent formats every file at hand twice.
func TestFormatIsIdempotent(t *testing.T) {
	for _, pattern := range []string{"testdata/good/*.hcl", "testdata/bad/*.hcl", "../../examples/*.hcl"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			once, diags := Format(f, src)
			if diags.HasErrors() {
				continue
			}
			twice, _ := Format(f, once)
			if diff := cmp.Diff(string(once), string(twice)); diff != "" {
				t.Errorf("%s: %s", f, diff)
			}
		}
	}
}

func TestFindRunFiles(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"b.hcl", "a.hcl", "sub/c.hcl", ".hidden/d.hcl", "node_modules/e.hcl", "x.txt", "dir.hcl/f.hcl"} {
		p := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.hcl", filepath.Join(dir, "link.hcl")); err != nil {
		t.Fatal(err)
	}
	got, err := FindRunFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i], _ = filepath.Rel(dir, got[i])
	}
	if diff := cmp.Diff([]string{"a.hcl", "b.hcl", "dir.hcl/f.hcl", "sub/c.hcl"}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := FindRunFiles(filepath.Join(dir, "a.hcl")); err == nil {
		t.Error("a file is no directory")
	}
}
