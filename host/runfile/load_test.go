package runfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

// loadText loads a run file and wants no errors.
func loadText(t *testing.T, text string, o Options) *Config {
	t.Helper()
	if o.Environ == nil {
		o.Environ = []string{}
	}
	config, diags := Load([]string{write(t, text)}, o)
	if diags.HasErrors() {
		t.Fatal(render(diags))
	}
	return config
}

// TestPrecedence sets one variable in every way and takes the ways off one after the other.
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"run.hcl":                 "variable \"v\" {\n  default = \"default\"\n}\nrun \"a\" {\n  command = [var.v]\n}\n",
		"a" + autoHCL:             "v = \"auto a\"\n",
		"b" + autoJSON:            "{\"v\": \"auto b\"}",
		"first.vars":              "v = \"first file\"\n",
		"second.json":             "{\"v\": \"second file\"}",
		"ignored.hutchvars.hcl":   "v = \"ignored\"\n",
		"ignored" + autoHCL + "~": "v = \"ignored\"\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	o := Options{Vars: []string{"v=first flag", "v=second flag"}, VarFiles: []string{in("first.vars"), in("second.json")}, Environ: []string{"HUTCH_VAR_v=environment"}}
	check := func(want, origin string) {
		t.Helper()
		config, diags := Load([]string{in("run.hcl")}, o)
		if len(diags) > 0 {
			t.Fatal(render(diags))
		}
		if got := config.Runs()[0].Command[0]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := config.Files[0].Variables[0].Origin; got != origin {
			t.Errorf("origin %q, want %q", got, origin)
		}
	}
	check("second flag", "--var")
	o.Vars = o.Vars[:1]
	check("first flag", "--var")
	o.Vars = nil
	check("second file", in("second.json"))
	o.VarFiles = o.VarFiles[:1]
	check("first file", in("first.vars"))
	o.VarFiles = nil
	check("auto b", in("b"+autoJSON))
	os.Remove(in("b" + autoJSON))
	check("auto a", in("a"+autoHCL))
	os.Remove(in("a" + autoHCL))
	check("environment", "HUTCH_VAR_v")
	o.Environ = []string{}
	check("default", "default")
}

// TestVariableText turns the text of flags into values of the declared type, as Terraform does.
func TestVariableText(t *testing.T) {
	for _, c := range []struct{ typ, text, want string }{
		{"", "plain text", `"plain text"`}, {"", "[1]", `"[1]"`}, {"string", "true", `"true"`}, {"number", "1.50", "1.5"},
		{"bool", "true", "true"}, {"list(string)", `["a", "b"]`, `["a","b"]`}, {"list(number)", `["1", 2]`, "[1,2]"},
		{"map(string)", "{ a = 1 }", `{"a":"1"}`}, {"set(string)", `["b", "a", "b"]`, `["a","b"]`}, {"any", `{ a = [1] }`, `{"a":[1]}`},
		{"object({ a = string, b = optional(number, 5) })", `{ a = "x" }`, `{"a":"x","b":5}`}, {"tuple([string, number])", `["x", 1]`, `["x",1]`},
		{"list(string)", "null", "null"}, {"string", "", `""`},
	} {
		typ := ""
		if c.typ != "" {
			typ = "  type = " + c.typ + "\n"
		}
		config := loadText(t, "variable \"v\" {\n"+typ+"}\nrun \"a\" {\n  command = [jsonencode(var.v)]\n}\n", Options{Vars: []string{"v=" + c.text}})
		if got := config.Runs()[0].Command[0]; got != c.want {
			t.Errorf("%s as %s: got %s, want %s", c.text, c.typ, got, c.want)
		}
	}
}

func TestNullable(t *testing.T) {
	for _, c := range []struct{ decl, want string }{
		{"default = \"d\"", `null`}, {"default = \"d\"\n  nullable = false", `"d"`}, {"type = any\n  default = \"d\"", "null"},
	} {
		p := write(t, "variable \"v\" {\n  "+c.decl+"\n}\nrun \"a\" {\n  command = [jsonencode(var.v)]\n}\n")
		vars := filepath.Join(filepath.Dir(p), "v.vars")
		if err := os.WriteFile(vars, []byte("v = null\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		config, diags := Load([]string{p}, Options{VarFiles: []string{vars}, Environ: []string{}})
		if diags.HasErrors() {
			t.Fatal(render(diags))
		}
		if got := config.Runs()[0].Command[0]; got != c.want {
			t.Errorf("%q: got %s, want %s", c.decl, got, c.want)
		}
	}
}

// TestSeveralFiles loads two files in one call: each stands for itself, and a flag need fit only one of them.
func TestSeveralFiles(t *testing.T) {
	a := write(t, "variable \"x\" {\n}\nlocals {\n  l = 1\n}\nrun \"r\" {\n  command = [var.x]\n}\n")
	b := write(t, "locals {\n  l = 2\n}\nrun \"r\" {\n  command = [local.l]\n}\n")
	config, diags := Load([]string{a, b}, Options{Vars: []string{"x=1"}, Environ: []string{}})
	if len(diags) > 0 {
		t.Fatal(render(diags))
	}
	var got []string
	for _, d := range config.Runs() {
		got = append(got, d.File, d.Command[0])
	}
	if diff := cmp.Diff([]string{a, "1", b, "2"}, got); diff != "" {
		t.Error(diff)
	}
	_, diags = Load([]string{a, b + "x", filepath.Dir(b)}, Options{Environ: []string{}})
	if len(diags) != 3 {
		t.Fatal(render(diags))
	}
	for i, want := range []string{"has no value", "there is no run file", "is a directory, and a run file is wanted"} {
		if !strings.Contains(diags[i].Summary, want) {
			t.Errorf("got %q, want %q", diags[i].Summary, want)
		}
	}
	if !strings.Contains(diags[1].Fix, "run.hcl") || !strings.Contains(diags[2].Fix, b) {
		t.Errorf("fixes: %q, %q", diags[1].Fix, diags[2].Fix)
	}
}

// TestAllowMissing checks what can be checked without the values.
func TestAllowMissing(t *testing.T) {
	text := `variable "v" {}
variable "m" {
  type = map(string)
}
run "a" {
  backend "bwrap" {
    x = var.v
  }
  command = ["echo", var.v, "x-${var.v}"]
  env     = var.m
  stdin   = var.v
  file "f" {
    content = var.v
  }
  file "g" {
    source = var.v
  }
  limits {
    memory = var.v
    pids   = var.v
    cpus   = var.v
  }
  workspace {
    source = var.v
    mode   = var.v
  }
  dynamic "file" {
    for_each = var.m
    labels   = ["x-${file.key}"]
    content {
      content = file.value
    }
  }
  expect {
    exit_code = var.v
    stdout {
      contains = [var.v]
      matches  = var.v
      empty    = var.v
    }
  }
}
run "b" {
  for_each   = var.m
  entrypoint = each.value
  limits {
    timeout = each.key
  }
}
`
	p := write(t, text)
	o := Options{AllowMissing: true, Environ: []string{}}
	if _, diags := Load([]string{p}, o); len(diags) > 0 {
		t.Error(render(diags))
	}
	if _, diags := Load([]string{p}, Options{Environ: []string{}}); !diags.HasErrors() {
		t.Error("variables without values were accepted")
	}
	bad := write(t, strings.Replace(strings.Replace(text, "pids   = var.v", "pids   = \"x\"", 1), "timeout = each.key", "timeuot = each.key", 1))
	_, diags := Load([]string{bad}, o)
	if diff := cmp.Diff("20:14 pids must be a number, not a string\n47:5 a limits block has no argument \"timeuot\" (did you mean \"timeout\"?)\n", short(diags)); diff != "" {
		t.Error(render(diags), diff)
	}
}

// TestDefinition checks what the runner asks a definition.
func TestDefinition(t *testing.T) {
	config := loadText(t, `variable "token" {
  default   = "hunter2-long"
  sensitive = true
}
variable "pin" {
  default   = 42
  sensitive = true
}
run "a" {
  entrypoint = "main.py"
  args       = ["x", var.token, "pin=${var.pin}"]
  env = {
    TOKEN = "Bearer ${var.token}"
    PLAIN = "plain"
  }
  backend "bwrap" {}
  backend "podman" {}
  file "main.py" {
    content = ""
  }
  limits {
    memory  = "1g"
    timeout = "250ms"
  }
}
run "b" {
  command = ["true"]
}
`, Options{})
	d := config.Runs()[0]
	if d.Args[1] != "hunter2-long" || d.Env["TOKEN"] != "Bearer hunter2-long" || d.Limits.Memory != 1<<30 || d.Limits.Timeout != units.Duration(250*time.Millisecond) {
		t.Errorf("got %+v", d)
	}
	for path, want := range map[string]string{
		"":                 "9:1",
		"entrypoint":       "10:16",
		"args":             "11:16",
		"args[1]":          "11:22",
		"args[9]":          "11:16",
		"env.TOKEN":        "13:13",
		`env["PLAIN"]`:     "14:13",
		"backend[0]":       "16:3",
		"backend[1].image": "17:3",
		"limits":           "21:3",
		"limits.memory":    "22:15",
		"limits.pids":      "21:3",
		`files["main.py"]`: "18:8",
		"expect.exit_code": "none",
		"workspace":        "none",
		"[[":               "9:1",
	} {
		got := "none"
		if r, ok := d.RangeOf(path); ok {
			got = strings.TrimPrefix(r.String(), r.File+":")
		}
		if got != want {
			t.Errorf("RangeOf(%q) = %s, want %s", path, got, want)
		}
	}
	got := d.Diagnose("limits.memory", "the limit memory cannot be held", "No cgroup is writable.", "run hutch doctor").Text(testStyle)
	want := `error: the limit memory cannot be held
  at ` + d.File + `:22:15, in run "a":
    22 |     memory  = "1g"
       |               ^^^^
  No cgroup is writable.
  fix: run hutch doctor
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := d.Diagnose("args[1]", "bad", "", ""); got.Snippet != nil || got.Range == nil {
		t.Errorf("a secret's line is shown: %+v", got)
	}
	if got := d.Diagnose("limits.pids", "bad", "", ""); got.Path != "limits.pids" || got.Range.Start.Line != 21 {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([]string{"Bearer hunter2-long", "hunter2-long", "pin=42", "42"}, d.Secrets()); diff != "" {
		t.Error(diff)
	}
	if got := d.Redact("token hunter2-long, pin 42, pin=42"); got != "token (sensitive), pin 42, (sensitive)" {
		t.Errorf("redacted to %q", got)
	}
	b, err := json.Marshal(d)
	if err != nil || strings.Contains(string(b), "hunter2") || !strings.Contains(string(b), `"PLAIN":"plain"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestDefinitionFromFlags has nothing behind it.
func TestDefinitionFromFlags(t *testing.T) {
	d := &Definition{Name: "run", Instance: "run", Command: []string{"true"}, Env: map[string]string{"A": "b"}, Network: network.Network{Mode: sdk.NetworkNone}, Limits: Limits{Memory: 1 << 20}}
	if _, ok := d.RangeOf("limits.memory"); ok || d.Secrets() != nil || d.Redact("x") != "x" {
		t.Error("there is nothing to know")
	}
	got := d.Diagnose("limits.memory", "bad", "", "")
	if diff := cmp.Diff(diag.Diagnostic{Severity: diag.Error, Summary: "bad", Path: "limits.memory"}, got); diff != "" {
		t.Error(diff)
	}
	b, err := json.Marshal(d)
	if want := `{"run":"run","instance":"run","command":["true"],"env":{"A":"b"},"limits":{"memory":"1MiB"},"network":{"mode":"none"}}`; err != nil || string(b) != want {
		t.Errorf("got %s, %v; want %s", b, err, want)
	}
}

func TestFileOpen(t *testing.T) {
	config := loadText(t, "run \"a\" {\n  command = [\"true\"]\n  file \"f\" {\n    content = \"héllo\"\n  }\n}\n", Options{})
	r, err := config.Runs()[0].Files[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, 100)
	if n, _ := r.Read(b); string(b[:n]) != "héllo" {
		t.Errorf("read %q", b[:n])
	}
	if _, err := (&File{Path: "x", Source: "y"}).Open(); err == nil {
		t.Error("a source without a run file was opened")
	}
}

// BenchmarkLoad is the cost of a run file of about 180 lines.
func BenchmarkLoad(b *testing.B) {
	src, err := os.ReadFile("testdata/good/full.hcl")
	if err != nil {
		b.Fatal(err)
	}
	o := fileOptions(src)
	for b.Loop() {
		if _, diags := Load([]string{"testdata/good/full.hcl"}, o); diags.HasErrors() {
			b.Fatal(diags)
		}
	}
}
