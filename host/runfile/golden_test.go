package runfile

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares got with a file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if wd, err := os.Getwd(); err == nil { // absolute paths in messages differ between machines
		got = strings.ReplaceAll(got, filepath.ToSlash(wd), "{dir}")
	}
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update to make it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-want +got), -update accepts it:\n%s", path, diff)
	}
}

// fileOptions reads the options of a test from a comment in its first line.
func fileOptions(src []byte) Options {
	o := Options{Environ: []string{}, Languages: []string{"python", "javascript", "shell", "go", "ruby", "perl"}}
	line, _, _ := strings.Cut(string(src), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "# options:"))
	if !strings.HasPrefix(line, "# options:") {
		return o
	}
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "--var":
			i++
			o.Vars = append(o.Vars, words[i])
		case words[i] == "--var-file":
			i++
			o.VarFiles = append(o.VarFiles, words[i])
		case words[i] == "--allow-missing":
			o.AllowMissing = true
		default:
			o.Environ = append(o.Environ, words[i])
		}
	}
	return o
}

// TestBad loads every bad file and compares the whole message with its golden file.
func TestBad(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 60 {
		t.Fatalf("only %d bad files", len(files))
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".hcl"), func(t *testing.T) {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			_, diags := Load([]string{f}, fileOptions(src))
			if len(diags) == 0 {
				t.Fatal("loads without a word")
			}
			var out bytes.Buffer
			if err := diags.Write(&out, diag.Style{Width: 100}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "hunter2") {
				t.Error("the message holds the secret")
			}
			if strings.ContainsAny(out.String(), "\x1b\x00\r") {
				t.Error("the message holds control characters")
			}
			if !utf8.Valid(out.Bytes()) {
				t.Error("S16: the message holds bytes that are not UTF-8")
			}
			golden(t, strings.TrimSuffix(f, ".hcl")+".golden", out.String())
		})
	}
}

// TestGood loads every good file and compares its definitions with its golden file.
func TestGood(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no good files: %v", err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, autoHCL) {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(f), ".hcl"), func(t *testing.T) {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			config, diags := Load([]string{f}, fileOptions(src))
			var out bytes.Buffer
			if err := diags.Write(&out, diag.Style{}); err != nil {
				t.Fatal(err)
			}
			if diags.HasErrors() {
				t.Fatal(out.String())
			}
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			all := map[string]any{"variables": config.Files[0].Variables, "runs": config.Runs()}
			if m := config.Files[0].Models; len(m) > 0 {
				all["models"] = m
			}
			if c := config.Cycles(); len(c) > 0 {
				all["cycles"] = c
			}
			if err := enc.Encode(all); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "hunter2") {
				t.Error("the definition holds the secret")
			}
			golden(t, strings.TrimSuffix(f, ".hcl")+".golden.json", out.String())
		})
	}
}
