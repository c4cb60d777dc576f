package runfile

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/diag"
)

// FuzzLoad loads whatever it is given: no panic, no hang, no control characters in the messages, and JSON that holds.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.hcl", "testdata/bad/*.hcl"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range files {
			src, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(src) < 10_000 {
				f.Add(src)
			}
		}
	}
	dir := f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "src", "main.py"), []byte("x\n"), 0o644); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		p := filepath.Join(dir, "run.hcl")
		if err := os.WriteFile(p, src, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{Environ: []string{"APP_TOKEN=hunter2"}}, {Environ: []string{}, AllowMissing: true}} {
			start := time.Now()
			config, diags := Load([]string{p}, o)
			var text bytes.Buffer
			if err := diags.Write(&text, diag.Style{Width: 80}); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(text.String(), func(r rune) bool { return r < 0x20 && r != '\n' || r == 0x7f }); i >= 0 {
				t.Fatalf("control character in %q", text.String())
			}
			if _, err := json.Marshal(diags); err != nil {
				t.Fatal(err)
			}
			if diags.HasErrors() {
				continue
			}
			for _, d := range config.Runs() {
				if _, err := json.Marshal(d); err != nil {
					t.Fatal(err)
				}
				for _, b := range d.Backends {
					b.Decode(schema)
				}
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Fatalf("took %v", took)
			}
		}
	})
}

// FuzzFormat checks that formatting changes nothing but layout, and nothing more the second time.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{"a=1\n", "run \"a\" {\nx={a=1,\nb=2}}\n", "x = <<-E\n  a\n E\n", "a = [1,\n2 ,3]\n#c\n", "  "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		once, diags := Format("x.hcl", src)
		if diags.HasErrors() {
			if !bytes.Equal(once, src) {
				t.Fatal("a file with errors was changed")
			}
			return
		}
		twice, diags := Format("x.hcl", once)
		if diags.HasErrors() {
			t.Fatalf("%q became %q, which is no run file: %v", src, once, diags)
		}
		if !bytes.Equal(once, twice) {
			t.Fatalf("%q became %q became %q", src, once, twice)
		}
	})
}
