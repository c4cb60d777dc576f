package runfile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/agent/model"
)

// TestModelKeys checks which key goes to which address: one from the environment never to an address that a file names.
func TestModelKeys(t *testing.T) {
	for _, c := range []struct{ block, environ, url, key string }{
		{`provider = "openai"`, "OPENAI_API_KEY=k1 ANTHROPIC_API_KEY=k2", "", "k1"},
		{`provider = "anthropic"`, "OPENAI_API_KEY=k1 ANTHROPIC_API_KEY=k2", "", "k2"},
		{`provider = "anthropic"`, "ANTHROPIC_API_KEY=k2 ANTHROPIC_BASE_URL=http://h", "http://h", "k2"},
		{`provider = "openai"`, "", "", ""},
		{"provider = \"openai\"\n base_url = \"http://there/v1\"", "OPENAI_API_KEY=k1 OPENAI_BASE_URL=http://h", "http://there/v1", ""},
		{"provider = \"openai\"\n base_url = \"http://there/v1\"\n api_key = env(\"OPENAI_API_KEY\")", "OPENAI_API_KEY=k1", "http://there/v1", "k1"},
		{"provider = \"openai\"\n api_key = \"k3\"", "OPENAI_API_KEY=k1 OPENAI_BASE_URL=http://h", "", "k3"},
	} {
		p := write(t, "model \"m\" {\n model = \"x\"\n "+c.block+"\n}\nrun \"a\" {\n command = [\"true\"]\n}\n")
		config, diags := Load([]string{p}, Options{Environ: strings.Fields(c.environ)})
		if diags.HasErrors() {
			t.Errorf("%s: %s", c.block, render(diags))
			continue
		}
		if g := config.Files[0].Models[0].Config; g.BaseURL != c.url || g.APIKey != c.key {
			t.Errorf("%s with %q: address %q, key %q", c.block, c.environ, g.BaseURL, g.APIKey)
		}
	}
}

// TestModelOfABlock names model blocks as generate and cycle do.
func TestModelOfABlock(t *testing.T) {
	const one, two = "model \"fast\" {\n provider = \"openai\"\n model = \"x\"\n api_key = \"hunter2\"\n}\n", "model \"slow\" {\n provider = \"openai\"\n model = \"y\"\n}\n"
	const broken = "model \"fast\" {\n provider = \"nobody\"\n model = \"x\"\n}\n"
	for _, c := range []struct{ models, argument, want, message string }{
		{one, "", "fast", ""},
		{one + two, `model = "slow"`, "slow", ""},
		{one + two, "model = join(\"\", [\"fa\", \"st\"])", "fast", ""},
		{one + two, "", "", "does not say which model"},
		{"", "", "", "the file has no model block"},
		{"", `model = "fast"`, "", "there is no model block"},
		{one + two, `model = "fats"`, "", "fast"},
		{one + two, `model = ["fast"]`, "", "must be a string"},
		{broken, "", "fast", "there is no provider"},
	} {
		src := c.models + "run \"a\" {\n command = [\"true\"]\n}\n"
		given, _ := (&Options{Environ: []string{}}).read()
		l := newLoader(write(t, src), &Options{Environ: []string{}}, given)
		l.open()
		l.load()
		body, diags := parse("block.hcl", []byte(c.argument+"\n"))
		if body == nil {
			t.Fatal(diags)
		}
		l.sources["block.hcl"] = []byte(c.argument + "\n")
		s := &scope{loader: l, ctx: l.ctx, context: "generate", owner: "a generate block", origin: &origin{ranges: ranges{}, sources: l.sources}}
		start := hcl.Range{Filename: "block.hcl", Start: hcl.InitialPos, End: hcl.InitialPos}
		m := s.open(body, schemaOf("model"), "", s.owner, start).model()
		got := ""
		if m != nil {
			got = m.Config.Name
		}
		if text := render(l.diags); got != c.want || (c.message == "") != (len(l.diags) == 0) || !strings.Contains(text, c.message) {
			t.Errorf("%q with %q: %q, %s", c.models, c.argument, got, text)
		}
	}
}

// TestModelHoldsNoKey prints a model in every way.
func TestModelHoldsNoKey(t *testing.T) {
	m := &Model{Config: model.Config{Name: "m", Provider: model.OpenAI, Model: "x", APIKey: "hunter2"}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, m); strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", verb, text)
		}
	}
}

// TestModelsPage loads every block that the page shows.
func TestModelsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```hcl\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(found) < 4 {
		t.Fatalf("only %d blocks", len(found))
	}
	for _, m := range found {
		p := write(t, string(m[1])+"\nrun \"a\" {\n command = [\"true\"]\n}\n")
		if err := os.WriteFile(filepath.Join(filepath.Dir(p), "answers.txtar"), []byte("-- answer --\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		config, diags := Load([]string{p}, Options{Environ: []string{"HUTCH_VAR_key=x"}})
		if diags.HasErrors() || len(config.Files[0].Models) != 1 {
			t.Errorf("%s: %s", m[1], render(diags))
		}
		if g := config.Files[0].Models[0].Config; g.Name == "claude" && g != (model.Config{Name: "claude", Provider: model.Anthropic, Model: g.Model, Retries: model.DefaultRetries}).WithDefaults() {
			t.Errorf("the defaults are others: %s", g)
		}
	}
}
