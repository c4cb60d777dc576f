package runfile

import (
	"slices"
	"strings"
	"testing"
)

// The key of a cycle's model is no secret of its sandbox, whose secrets lie in a file for as long as it lasts, unless
// the sandbox has it too.
func TestCycleSandboxHasNoKey(t *testing.T) {
	for env, want := range map[string]string{
		"":                            "",
		"env = { A = \"${var.b}!\" }": "b-secret! b-secret",
		"env = { A = var.key }":       "k-secret",
	} {
		config, diags := Load([]string{write(t, `
variable "key" { sensitive = true }
variable "b" { sensitive = true }
model "m" {
  provider = "openai"
  model    = "m"
  base_url = "http://localhost:1/v1"
  api_key  = "x-${var.key}"
}
cycle "c" {
  spec = "run.hcl"
  `+env+`
  backend "bwrap" {}
}
`)}, Options{Environ: []string{"HUTCH_VAR_key=k-secret", "HUTCH_VAR_b=b-secret"}})
		if diags.HasErrors() {
			t.Fatal(render(diags))
		}
		box := config.Cycles()[0].Box
		for _, s := range box.Secrets() {
			if strings.Contains(s, "k-secret") && !strings.Contains(want, "k-secret") {
				t.Errorf("with %q, the sandbox's secrets are %q", env, box.Secrets())
			}
		}
		for _, s := range strings.Fields(want) {
			if !slices.Contains(box.Secrets(), s) {
				t.Errorf("with %q, the sandbox's secrets are %q", env, box.Secrets())
			}
		}
		if all := config.Cycles()[0].Secrets(); config.Cycles()[0].Model.Config.APIKey != "x-k-secret" || !slices.Contains(all, "x-k-secret") || !slices.Contains(all, "k-secret") {
			t.Errorf("the model lost its key, or the cycle its secrets: %q", all)
		}
	}
}
