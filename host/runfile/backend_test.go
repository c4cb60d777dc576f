package runfile

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/sdk"
)

// schema is what a backend with one of everything declares.
var schema = &sdk.Schema{
	Attributes: []sdk.Attribute{
		{Name: "image", Type: "string", Required: true, Doc: "the image to start from"},
		{Name: "pull", Type: "string", Default: json.RawMessage(`"missing"`)},
		{Name: "caps", Type: "list(string)"},
		{Name: "env", Type: "map(string)"},
		{Name: "ports", Type: "set(number)"},
		{Name: "init", Type: "bool", Default: json.RawMessage(`true`)},
		{Name: "mount", Type: "object({ from = string, to = optional(string, \"/mnt\") })"},
		{Name: "extra", Type: "any"},
		{Name: "api_key", Type: "string", Sensitive: true},
		{Name: "old", Type: "number", Deprecated: "use pull"},
	},
	Blocks: []sdk.Block{
		{Name: "bind", Nesting: sdk.NestingList, Max: 3, Schema: sdk.Schema{Attributes: []sdk.Attribute{
			{Name: "from", Type: "string", Required: true}, {Name: "options", Type: "list(string)"},
		}}},
		{Name: "network", Nesting: sdk.NestingSingle, Schema: sdk.Schema{
			Attributes: []sdk.Attribute{{Name: "name", Type: "string", Default: json.RawMessage(`"none"`)}},
			Blocks: []sdk.Block{{Name: "dns", Nesting: sdk.NestingList, Schema: sdk.Schema{
				Attributes: []sdk.Attribute{{Name: "server", Type: "string"}},
			}}},
		}},
		{Name: "volume", Nesting: sdk.NestingMap, Schema: sdk.Schema{Attributes: []sdk.Attribute{{Name: "size", Type: "string"}}}},
	},
}

// backend loads a run file with one backend block.
func backend(t *testing.T, body, before string) *Backend {
	t.Helper()
	p := write(t, before+"run \"a\" {\n  command = [\"true\"]\n  backend \"acme\" {\n"+body+"  }\n}\n")
	config, diags := Load([]string{p}, Options{Environ: []string{}})
	if diags.HasErrors() {
		t.Fatal(render(diags))
	}
	return config.Runs()[0].Backends[0]
}

func render(ds diag.Diagnostics) string {
	var b strings.Builder
	_ = ds.Write(&b, testStyle) // a Builder takes everything
	return b.String()
}

// short is the place and summary of each diagnostic.
func short(ds diag.Diagnostics) string {
	var b strings.Builder
	for _, d := range ds {
		at := "-"
		if d.Range != nil {
			at = fmt.Sprintf("%d:%d", d.Range.Start.Line, d.Range.Start.Column)
		}
		fmt.Fprintf(&b, "%s %s", at, d.Summary)
		if d.Fix != "" {
			fmt.Fprintf(&b, " (%s)", d.Fix)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestDecode(t *testing.T) {
	b := backend(t, `
    image   = "python"
    caps    = ["a", var.n]
    env     = { "A B" = "c", TOKEN = var.token }
    ports   = [2, 1, 2]
    mount   = { from = "x" }
    extra   = { list = [1, "two", null], flag = true }
    api_key = "k3y-value"
    bind {
      from = "one"
    }
    dynamic "bind" {
      for_each = ["two", "three"]
      content {
        from    = bind.value
        options = ["ro", bind.key]
      }
    }
    network {
      dns {
        server = "1.1.1.1"
      }
    }
    volume "data" {
      size = "1g"
    }
`, "variable \"n\" {\n  default = 7\n}\nvariable \"token\" {\n  default = \"hunter2\"\n  sensitive = true\n}\n")
	config, diags := b.Decode(schema)
	if len(diags) > 0 {
		t.Fatal(render(diags))
	}
	var got map[string]any
	if err := json.Unmarshal(config.Value, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"image": "python", "pull": "missing", "caps": []any{"a", "7"}, "env": map[string]any{"A B": "c", "TOKEN": "hunter2"},
		"ports": []any{1.0, 2.0}, "init": true, "mount": map[string]any{"from": "x", "to": "/mnt"},
		"extra": map[string]any{"list": []any{1.0, "two", nil}, "flag": true}, "api_key": "k3y-value", "old": nil,
		"bind": []any{
			map[string]any{"from": "one", "options": nil},
			map[string]any{"from": "two", "options": []any{"ro", "0"}},
			map[string]any{"from": "three", "options": []any{"ro", "1"}},
		},
		"network": map[string]any{"name": "none", "dns": []any{map[string]any{"server": "1.1.1.1"}}},
		"volume":  map[string]any{"data": map[string]any{"size": "1g"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := string(config.Redacted); strings.Contains(s, "hunter2") || strings.Contains(s, "k3y-value") || !strings.Contains(s, `"api_key":"(sensitive)"`) {
		t.Errorf("redacted: %s", s)
	}
	if diff := cmp.Diff([]string{"k3y-value", "hunter2"}, config.Secrets); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeOfFlags(t *testing.T) {
	config, diags := NewBackend("acme").Decode(&sdk.Schema{Attributes: []sdk.Attribute{{Name: "pull", Type: "string", Default: json.RawMessage(`"x"`)}}})
	if len(diags) > 0 || string(config.Value) != `{"pull":"x"}` {
		t.Errorf("got %s, %v", config.Value, diags)
	}
	_, diags = NewBackend("acme").Decode(schema)
	if diff := cmp.Diff("- backend \"acme\" needs the argument \"image\" (add image = \"…\")\n", short(diags)); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeErrors(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"missing":        {"    pull = \"x\"\n", "3:3 backend \"acme\" needs the argument \"image\" (add image = \"…\")\n"},
		"null":           {"    image = null\n", "4:13 image is null, and backend \"acme\" needs it\n"},
		"typo":           {"    imagee = \"x\"\n    image = \"x\"\n", "4:5 backend \"acme\" has no argument \"imagee\" (did you mean \"image\"?)\n"},
		"block typo":     {"    image = \"x\"\n    binds {}\n", "5:5 backend \"acme\" has no block \"binds\" (did you mean \"bind\"?)\n"},
		"wrong type":     {"    image = [\"x\"]\n", "4:13 image must be a string, not a list\n"},
		"element":        {"    image = \"x\"\n    caps = [\"a\", [\"b\"]]\n", "5:18 caps[1] must be a string, not a list\n"},
		"map element":    {"    image = \"x\"\n    env = { A = \"b\", \"C D\" = { e = 1 } }\n", "5:30 env[\"C D\"] must be a string, not a map\n"},
		"object":         {"    image = \"x\"\n    mount = { too = \"x\" }\n", "5:13 mount needs the attribute \"from\"\n"},
		"object element": {"    image = \"x\"\n    mount = { from = [1] }\n", "5:22 mount.from must be a string, not a list\n"},
		"too many":       {"    image = \"x\"\n    network {}\n    network {}\n", "6:5 backend \"acme\" takes only one block \"network\"\n"},
		"too many binds": {"    image = \"x\"\n" + strings.Repeat("    bind {\n      from = \"x\"\n    }\n", 4), "14:5 backend \"acme\" takes at most 3 blocks \"bind\"\n"},
		"twice":          {"    image = \"x\"\n    volume \"a\" {}\n    volume \"a\" {}\n", "6:12 there are two volume blocks \"a\" (rename one)\n"},
		"nested missing": {"    image = \"x\"\n    bind {}\n", "5:5 the bind block needs the argument \"from\" (add from = \"…\")\n"},
		"deprecated":     {"    image = \"x\"\n    old = 1\n", "5:5 old is deprecated\n"},
		"unknown name":   {"    image = local.x\n", "4:13 there is no local \"x\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, diags := backend(t, c.body, "").Decode(schema)
			if diff := cmp.Diff(c.want, short(diags)); diff != "" {
				t.Errorf("%s\n%s", diff, render(diags))
			}
		})
	}
}

func TestDecodeFaultySchemas(t *testing.T) {
	for name, s := range map[string]*sdk.Schema{
		"type":    {Attributes: []sdk.Attribute{{Name: "a", Type: "strin"}}},
		"syntax":  {Attributes: []sdk.Attribute{{Name: "a", Type: "list("}}},
		"deep":    {Attributes: []sdk.Attribute{{Name: "a", Type: strings.Repeat("list(", 500)}}},
		"default": {Attributes: []sdk.Attribute{{Name: "a", Type: "number", Default: json.RawMessage(`"x"`)}}},
		"json":    {Attributes: []sdk.Attribute{{Name: "a", Type: "any", Default: json.RawMessage(`{`)}}},
		"depth":   {Attributes: []sdk.Attribute{{Name: "a", Type: "any", Default: json.RawMessage(strings.Repeat("[", 1_000_000))}}},
		"nesting": {Blocks: []sdk.Block{{Name: "b", Nesting: "tree"}}},
	} {
		if _, diags := backend(t, "", "").Decode(s); len(diags) != 1 || !strings.Contains(diags[0].Summary, `the backend "acme" has a fault in its schema`) {
			t.Errorf("%s: %v", name, diags)
		}
	}
}

// TestDiagnose puts the findings of a backend at their expressions.
func TestDiagnose(t *testing.T) {
	b := backend(t, `    image = "python"
    caps  = [
      "NET_ADMIN",
      "SYS_ADMIN",
    ]
    env = {
      A     = "b"
      "A B" = "c"
    }
    extra = { list = [1, { deep = [2, 3] }] }
    bind {
      from = "one"
    }
    bind {
      from    = "two"
      options = ["ro", "bad"]
    }
    network {
      dns {
        server = "x"
      }
    }
    volume "data" {
      size = "1g"
    }
    api_key = "k3y-value"
`, "")
	if _, diags := b.Decode(schema); diags.HasErrors() {
		t.Fatal(render(diags))
	}
	for path, want := range map[string]string{
		"image":                    "4:13 bad",
		"caps":                     "5:13 bad",
		"caps[1]":                  "7:7 bad",
		"caps[7]":                  "5:13 caps[7]: bad",
		"env.A":                    "10:15 bad",
		`env["A B"]`:               "11:15 bad",
		`env["nope"]`:              `9:11 env["nope"]: bad`,
		"extra.list[1].deep[1]":    "13:39 bad",
		"bind":                     "14:5 bad",
		"bind[0].from":             "15:14 bad",
		"bind[1]":                  "17:5 bad",
		"bind[1].options[1]":       "19:24 bad",
		"bind[0].options":          "14:5 bind[0].options: bad",
		"network.dns[0].server":    "23:18 bad",
		"network.name":             "21:5 network.name: bad",
		`volume["data"].size`:      "27:14 bad",
		"volume.data.size":         "27:14 bad",
		"pull":                     "3:3 pull: bad",
		"api_key":                  "29:15 bad",
		"":                         "3:3 bad",
		"[[":                       "3:3 [[: bad",
		strings.Repeat("a.", 5000): "3:3 " + strings.Repeat("a.", 5000) + ": bad",
	} {
		ds := b.Diagnose([]sdk.Diagnostic{{Severity: sdk.SeverityError, Summary: "Bad", Path: path}})
		if diff := cmp.Diff(want+"\n", short(ds)); diff != "" {
			t.Errorf("%.40q: %s", path, diff)
		}
		if ds[0].Context != `backend "acme" of run "a"` {
			t.Errorf("%.40q: context %q", path, ds[0].Context)
		}
		if path == "api_key" && ds[0].Snippet != nil {
			t.Error("the line of a secret is shown")
		}
	}
	ds := b.Diagnose([]sdk.Diagnostic{{Severity: sdk.SeverityWarning, Summary: "odd \x1b[2J", Path: "image"}})
	if text := render(ds); !strings.HasPrefix(text, "warning: odd \\x1b[2J\n") {
		t.Errorf("got %q", text)
	}
}

// TestDiagnoseWithoutFile says the path where there is no line.
func TestDiagnoseWithoutFile(t *testing.T) {
	ds := NewBackend("acme").Diagnose([]sdk.Diagnostic{{Severity: sdk.SeverityError, Summary: "bad", Path: "caps[1]"}})
	if diff := cmp.Diff("error: caps[1]: bad\n  in backend \"acme\", value caps[1]\n", render(ds)); diff != "" {
		t.Error(diff)
	}
}

// TestDecodeConcurrently decodes the instances of one block at once, as the scheduler does.
func TestDecodeConcurrently(t *testing.T) {
	p := write(t, `run "a" {
  for_each = toset([for i in range(50) : tostring(i)])
  command  = ["true"]
  backend "acme" {
    image = "x-${each.key}"
    caps  = [for c in ["a", "b"] : upper("${c}${each.key}")][*]
  }
}
`)
	config, diags := Load([]string{p}, Options{})
	if diags.HasErrors() {
		t.Fatal(render(diags))
	}
	var wg sync.WaitGroup
	for _, d := range config.Runs() {
		wg.Go(func() {
			c, diags := d.Backends[0].Decode(schema)
			if diags.HasErrors() || !strings.Contains(string(c.Value), fmt.Sprintf(`"A%s"`, d.Key)) {
				t.Errorf("%s: %v", d.Instance, diags)
			}
			if !strings.Contains(string(c.Value), fmt.Sprintf(`"x-%s"`, d.Key)) {
				t.Errorf("%s got %s", d.Instance, c.Value)
			}
		})
	}
	wg.Wait()
}
