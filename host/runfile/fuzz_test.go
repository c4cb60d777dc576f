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

// FuzzValues gives variables any value, by each way there is: no panic, no hang, and nothing of a sensitive one in a
// message.
func FuzzValues(f *testing.F) {
	for _, s := range []string{
		"n = 3\ns = \"x\"\nsecret = [1]\n", `{"n": "3", "l": [{"a": 1}], "secret": {"a": "hunter2"}}`, "l = [for x in [1,2]: {a = x}]", "n = 1e400", "s {}", `{"a": 1, "a": 2}`, `{"s": "${1+1}"}`,
		"[", "hunter2", "\xff", "s = s",
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	const src = `
variable "n" { default = 1 }
variable "s" {
  type    = string
  default = ""
}
variable "l" {
  type    = list(object({ a = number, b = optional(string, "x") }))
  default = []
}
variable "secret" {
  type      = map(number)
  sensitive = true
  default   = {}
}
run "a" {
  command = ["echo", var.s, tostring(var.n), jsonencode(var.l)]
  env     = { S = jsonencode(var.secret) }
}
`
	if err := os.WriteFile(filepath.Join(dir, "run.hcl"), []byte(src), 0o644); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		hcl, js := filepath.Join(dir, "v.hcl"), filepath.Join(dir, "v.json")
		for _, p := range []string{hcl, js} {
			if err := os.WriteFile(p, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		text := string(data)
		for _, o := range []Options{
			{Environ: []string{}, VarFiles: []string{hcl}}, {Environ: []string{}, VarFiles: []string{js}}, {Environ: []string{"HUTCH_VAR_l=" + text, "HUTCH_VAR_n=" + text}},
			{Environ: []string{"HUTCH_VAR_secret=hunter2" + text}}, {Environ: []string{}, Vars: []string{text, "s=" + text}},
		} {
			config, diags := Load([]string{filepath.Join(dir, "run.hcl")}, o)
			if !diags.HasErrors() && len(config.Runs()) != 1 {
				t.Errorf("%d runs", len(config.Runs()))
			}
			var said bytes.Buffer
			if err := diags.Write(&said, diag.Style{Width: 80}); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(said.String(), func(r rune) bool { return r < 0x20 && r != '\n' || r == 0x7f }); i >= 0 {
				t.Errorf("control character in %q", said.String())
			}
			if len(o.Environ) == 1 && strings.Contains(said.String(), "hunter2") {
				t.Errorf("the secret is in %q", said.String())
			}
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
