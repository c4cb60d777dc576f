package runfile

import (
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Model is one model block, checked and with its defaults.
type Model struct {
	model.Config
	Range diag.Range `json:"-"` // header of the block
}

var (
	modelSchema = schemaOf("provider model base_url api_key script protocol max_tokens context_window temperature "+
		"timeout retries",
		"budget")
	budgetSchema = schemaOf("tokens turns time")
)

// modelHabits are names that users of other tools type in a model block, with where the thing is here.
var modelHabits = map[string]string{
	"api_base": `did you mean "base_url"?`, "endpoint": `did you mean "base_url"?`, "url": `did you mean "base_url"?`,
	"host": `did you mean "base_url"?`,
	"key":  `did you mean "api_key"?`, "token": `did you mean "api_key"?`, "name": `did you mean "model"?`,
	"type":              `did you mean "provider"?`,
	"max_output_tokens": `did you mean "max_tokens"?`, "max_completion_tokens": `did you mean "max_tokens"?`,
	"max_retries": `did you mean "retries"?`,
	"num_ctx":     `did you mean "context_window"?`, "context": `did you mean "context_window"?`,
	"context_length": `did you mean "context_window"?`, "max_model_len": `did you mean "context_window"?`,
	"tokens": "put it into budget: budget { tokens = 100000 }", "turns": "put it into budget: budget { turns = 20 }",
	"time": "put it into budget: budget { time = \"10m\" }",
}

// models decodes all model blocks.
func (l *loader) models() {
	l.named("model", "model block", "what the provider calls the model goes into model = \"…\"", func(b *hcl.Block) {
		l.file.Models = append(l.file.Models, l.modelBlock(b))
	})
}

// modelBlock decodes one block. What is wrong with it is reported.
func (l *loader) modelBlock(hb *hcl.Block) *Model {
	context := fmt.Sprintf("model %q", hb.Labels[0])
	s := &scope{loader: l, ctx: l.ctx, context: context, owner: "a model",
		origin: &origin{ranges: ranges{}, sources: l.sources, context: context}}
	b := s.open(hb.Body, modelSchema, "", s.owner, hb.DefRange)
	g := model.Config{Name: hb.Labels[0], Retries: model.DefaultRetries}
	b.provider(&g)
	b.baseURL(&g)
	b.apiKey(&g)
	b.integerInto(&g.MaxTokens, "max_tokens", 1, model.MaxMaxTokens)
	b.integerInto(&g.ContextWindow, "context_window", model.MinWindow, model.MaxWindow)
	if t, ok := b.number("temperature", 0, 2, ""); ok {
		g.Temperature = &t
	}
	g.Timeout = b.duration("timeout")
	b.integerInto(&g.Retries, "retries", 0, model.MaxRetries)
	if in := b.openOnly("budget", budgetSchema); in != nil {
		g.Budget.Tokens, _ = in.integer("tokens", 1, math.MaxInt64)
		in.integerInto(&g.Budget.Turns, "turns", 1, model.MaxTurns)
		g.Budget.Time = in.duration("time")
	}
	return &Model{Config: g.WithDefaults(), Range: hcldiag.Range(hb.DefRange)}
}

// provider reads who answers, and what only some of them need.
func (b *block) provider(g *model.Config) {
	if !b.has("provider") {
		b.errorf(b.header, `a model needs the argument "provider"`).detail("It is one of %s.", quotedList(model.Providers)).
			fix(`add provider = "openai" for every server that speaks OpenAI's protocol, which most local ones do`)
		return
	}
	var ok bool
	if g.Provider, ok = b.text("provider"); !ok {
		return
	}
	if !slices.Contains(model.Providers, g.Provider) {
		f := b.errorf(b.at("provider"), "there is no provider %s", quote(g.Provider)).
			detail("It is one of %s.", quotedList(model.Providers)).fix("%s", suggestion(g.Provider, model.Providers))
		if at := model.Compatible(g.Provider); at != "" {
			f.fix(`it speaks OpenAI's protocol: write provider = "openai" and base_url = %s`, quote(at))
		}
		return
	}
	const detail = "It is the name that the provider gives the model."
	g.Model, ok = b.text("model")
	if !b.has("model") && g.Provider != model.Scripted {
		b.errorf(b.header, `a model needs the argument "model"`).detail(detail).fix(`add model = "…"`)
	} else if ok && (g.Model == "" || !plaintext.IsLine(g.Model)) {
		b.errorf(b.at("model"), "model cannot be %s", quote(g.Model)).detail(detail)
	}
	b.scripted(g)
}

// scripted reads the script of a scripted model, and refuses what the other kind of model has.
func (b *block) scripted(g *model.Config) {
	wrong, why := []string{"script", "protocol"}, `Only a model with provider = "scripted" has it.`
	if g.Provider == model.Scripted {
		wrong, why = []string{"base_url", "api_key"}, "A scripted model is started by hutch itself, and answers from a file."
	}
	for _, name := range wrong {
		if b.has(name) {
			b.errorf(b.nameAt(name), "a model of provider %q has no %s", g.Provider, name).detail("%s", why).
				withhold() // what stands there may be a key
			return
		}
	}
	if g.Provider != model.Scripted {
		return
	}
	g.Protocol, _ = b.oneOf("protocol", model.OpenAI, model.Anthropic)
	if !b.has("script") {
		b.errorf(b.header, `a scripted model needs the argument "script"`).detail("It is the file with the answers.").
			fix(`add script = "answers.txtar"`)
		return
	}
	script, ok := b.text("script")
	if !ok {
		return
	}
	rel, _, err := b.tree.Find(script, model.MaxScript)
	if err != nil {
		b.unusable("script", "the script", err)
		return
	}
	g.Script = filepath.Join(b.file.Dir, filepath.FromSlash(rel))
}

func (b *block) baseURL(g *model.Config) {
	text, ok := b.text("base_url")
	if !ok {
		return
	}
	r := b.at("base_url")
	const why = "hutch adds the path of each request at its end."
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		f := b.errorf(r, "%s is not the address of a server", quote(text)).
			detail("It begins with https:// or http://, and has the part of the path that is the same for all requests.")
		if !strings.Contains(text, "://") {
			f.fix("write %s", quote("http://"+text))
		}
		return
	case u.User != nil:
		b.errorf(r,
			"base_url holds a name or a password").detail("An address is printed and stored.").fix("use api_key").withhold()
		return
	case u.RawQuery != "" || u.Fragment != "":
		b.errorf(r, "base_url has a query").detail(why).fix("end it with the path")
		return
	}
	for _, end := range []string{"/chat/completions", "/messages"} {
		if cut, found := strings.CutSuffix(strings.TrimSuffix(text, "/"), end); found {
			b.errorf(r, "base_url ends in %s", end).detail(why).fix("write %s", quote(strings.TrimSuffix(cut, "/v1/messages")))
			return
		}
	}
	g.BaseURL = text
}

// apiKey takes the key from the block, or else from the variable that the provider's own libraries look at. The address
// there and the key there belong together: a key from the environment is not sent to an address that a file names.
func (b *block) apiKey(g *model.Config) {
	if b.has("api_key") {
		before := len(b.diags)
		key, _ := b.secretText("api_key")
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			b.errorf(b.at("api_key"), "the api_key holds white space, or characters that no key has").
				fix("look for a line break at its end")
		}
		b.withholdSince(before)
		g.APIKey = key
		return
	}
	if g.BaseURL != "" || g.Provider != model.OpenAI && g.Provider != model.Anthropic {
		return
	}
	prefix := strings.ToUpper(g.Provider)
	key, _ := b.given.lookupEnv(prefix + "_API_KEY")
	g.APIKey = strings.TrimSpace(key)
	g.BaseURL, _ = b.given.lookupEnv(prefix + "_BASE_URL")
}

// model finds the model block that the argument model of another block names; without the argument it is the only one
// of the file. It is nil when there is nothing to go on with, which is then reported, or not known yet.
func (b *block) model() *Model {
	names := make([]string, len(b.file.Models))
	for i, m := range b.file.Models {
		names[i] = m.Config.Name
	}
	// Where there are blocks and no models, the blocks themselves are at fault.
	none := len(names) == 0 && len(b.blocks["model"]) == 0
	if !b.has("model") {
		switch {
		case len(names) == 1:
			return b.file.Models[0]
		case len(names) > 1:
			b.errorf(b.header, "%s does not say which model it takes", b.owner).detail("The file has %s.", list(names)).
				fix("add model = %s", quote(names[0]))
		case none:
			b.errorf(b.header, "%s needs a model, and the file has no model block", b.owner).
				fix(`add model "NAME" { … } with provider and model in it`)
		}
		return nil
	}
	name, ok := b.text("model")
	if !ok {
		return nil
	}
	if i := slices.Index(names, name); i >= 0 {
		return b.file.Models[i]
	}
	if len(names) == 0 && !none {
		return nil
	}
	f := b.errorf(b.at("model"), "there is no model block %s", quote(name)).fix("%s", suggestion(name, names))
	switch {
	case none:
		f.fix("add model %s { … } with provider and model in it", quote(name))
	case f.Fix == "":
		f.detail("The file has %s.", list(names))
	}
	return nil
}
