package runfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSensitiveFollowsEverything checks that nothing derived from a secret is printed.
func TestSensitiveFollowsEverything(t *testing.T) {
	p := write(t, `variable "s" {
  type      = object({ user = string, pass = string })
  sensitive = true
}
locals {
  both = [for k in ["user", "pass"] : upper(var.s[k])]
  url  = format("https://%s@host", var.s.pass)
}
run "a" {
  command = ["echo", var.s.user, local.url, join(",", local.both), base64encode(var.s.pass), nonsensitive("shown")]
  args    = var.s.user == "x" ? ["a"] : ["b"]
  env     = { for k, v in var.s : upper(k) => v }
  stdin   = jsonencode(var.s)
  file "f" {
    content = templatefile("t.tmpl", { x = var.s.pass })
  }
  expect {
    stdout {
      equals   = var.s.user
      matches  = var.s.pass
      contains = ["a", var.s.pass]
    }
  }
}
`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(p), "t.tmpl"), []byte("<${x}>"), 0o644); err != nil {
		t.Fatal(err)
	}
	config, diags := Load([]string{p}, Options{Environ: []string{`HUTCH_VAR_s={ user = "hunter2-user", pass = "hunter2-pass" }`}})
	if diags.HasErrors() {
		t.Fatal(render(diags))
	}
	d := config.Runs()[0]
	if got := string(d.Files[0].Content); got != "<hunter2-pass>" || !d.Files[0].Sensitive {
		t.Errorf("content %q, sensitive %v", got, d.Files[0].Sensitive)
	}
	if d.Env["PASS"] != "hunter2-pass" || d.Stdin == nil || !strings.Contains(*d.Stdin, "hunter2-user") {
		t.Errorf("the run does not get its values: %+v", d)
	}
	b, err := json.Marshal(map[string]any{"run": d, "variables": config.Files[0].Variables})
	if err != nil {
		t.Fatal(err)
	}
	for _, leak := range []string{"hunter2", "HUNTER2", "aHVudGVyMi"} {
		if strings.Contains(string(b), leak) {
			t.Errorf("%s is in %s", leak, b)
		}
	}
	if !strings.Contains(string(b), `"shown"`) || !strings.Contains(string(b), `"args":["(sensitive)"]`) {
		t.Errorf("got %s", b)
	}
	for _, s := range []string{"hunter2-pass", "HUNTER2-USER,HUNTER2-PASS", "https://hunter2-pass@host"} {
		if got := d.Redact("[" + s + "]"); got != "[(sensitive)]" {
			t.Errorf("%s is redacted to %s", s, got)
		}
	}
}

// TestMessagesHoldNoSecrets makes mistakes with a secret in every place that has its own message.
func TestMessagesHoldNoSecrets(t *testing.T) {
	for _, mistake := range []string{
		`command = [parseint(var.s, 10)]`, `command = [timeadd(var.s, "1h")]`, `command = [tonumber(var.s)]`, `command = [jsondecode(var.s)]`,
		`command = [upper(parseint(lower(var.s), 10))]`, `command = [for x in [var.s] : parseint(x, 10)]`, `command = [try(parseint(var.s, 10))]`,
		`command = [file(var.s)]`, `command = [{ for x in [1, 2] : var.s => x }]`, `command = [{ a = 1 }[var.s]]`, `command = [[1][var.s]]`,
		`command = [regex(var.s, "x"), regex("^y", var.s)]`, `command = [templatefile("t.tmpl", { x = var.s })]`, `command = [var.s + 1]`,
		`command = [var.s ? 1 : 2]`, `command = [formatdate(var.s, var.s)]`, `command = [element([var.s], "x${var.s}")]`,
		"command = [\"true\"]\n  env = { (var.s) = \"x\" }", "command = [\"true\"]\n  language = var.s", "command = [\"true\"]\n  workdir = var.s",
		"command = [\"true\"]\n  outputs = [var.s]", "command = [\"true\"]\n  interpreter = var.s", "command = [\"true\"]\n  interpreter = [var.s]",
		"command = [\"true\"]\n  limits {\n    memory = var.s\n  }", "command = [\"true\"]\n  limits {\n    pids = var.s\n  }",
		"command = [\"true\"]\n  dependencies = [\"-${var.s}\"]\n  language = \"python\"", "entrypoint = var.s",
		"command = [\"true\"]\n  file \"f\" {\n    source = var.s\n  }", "command = [\"true\"]\n  file \"f\" {\n    content_base64 = var.s\n  }",
		"command = [\"true\"]\n  file \"f\" {\n    content = \"\"\n    mode = var.s\n  }", "command = [\"true\"]\n  workspace {\n    source = var.s\n  }",
		"command = [\"true\"]\n  files {\n    source = \".\"\n    include = [var.s]\n  }", "command = [\"true\"]\n  network {\n    mode = var.s\n  }",
		"command = [\"true\"]\n  expect {\n    stdout {\n      matches = \"(${var.s}\"\n    }\n  }", "command = [\"true\"]\n  for_each = toset([var.s])",
		"command = [\"true\"]\n  dynamic \"file\" {\n    for_each = [var.s]\n    labels = [file.value]\n    content {\n      content = \"\"\n    }\n  }",
		"command = [\"true\"]\n  dynamic \"file\" {\n    for_each = [1]\n    labels = [var.s]\n    content {\n      content = \"\"\n    }\n  }",
		"command = [\"true\"]\n  min_isolation = var.s", "command = [var.s.x]", "command = [\"true\"]\n  description = var.s", "command = [local.bad]",
	} {
		p := write(t, "variable \"s\" {\n  sensitive = true\n}\nlocals {\n  bad = \""+"x\"\n}\nrun \"a\" {\n  "+mistake+"\n}\n")
		if err := os.WriteFile(filepath.Join(filepath.Dir(p), "t.tmpl"), []byte("${parseint(x, 10)}"), 0o644); err != nil {
			t.Fatal(err)
		}
		if mistake == "command = [local.bad]" {
			if err := os.WriteFile(p, []byte("variable \"s\" {\n  sensitive = true\n}\nlocals {\n  bad = parseint(var.s, 10)\n}\nrun \"a\" {\n  "+mistake+"\n}\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		_, diags := Load([]string{p}, Options{Environ: []string{"HUTCH_VAR_s=hunter2-A-b"}})
		b, err := json.Marshal(diags)
		if err != nil {
			t.Fatal(err)
		}
		text := render(diags) + string(b)
		if !diags.HasErrors() {
			t.Errorf("%s is no mistake", mistake)
		}
		if strings.Contains(strings.ToLower(text), "hunter2") {
			t.Errorf("%s: %s", mistake, text)
		}
	}
}

// TestOwnSecrets: what a persistent sandbox keeps has no secret that its commands have nothing of.
func TestOwnSecrets(t *testing.T) {
	p := write(t, `variable "token" { sensitive = true }
variable "key"   { sensitive = true }
run "a" {
  backend "cloud" { api_key = var.key }
  command = ["true"]
  env     = { AUTH = "Bearer ${var.token}" }
}
`)
	config, diags := Load([]string{p}, Options{Environ: []string{"HUTCH_VAR_token=hunter2-token", "HUTCH_VAR_key=hunter2-key"}})
	if diags.HasErrors() {
		t.Fatal(render(diags))
	}
	d := config.Runs()[0]
	if diff := cmp.Diff([]string{"Bearer hunter2-token", "hunter2-token"}, d.OwnSecrets()); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(d.Secrets(), "hunter2-key") {
		t.Error("a sensitive variable is no secret any more")
	}
}
