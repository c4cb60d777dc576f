package runfile

import (
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Model is one model block, checked and with its defaults.
type Model struct {
	Config model.Config `json:"config"`
	Range  diag.Range   `json:"-"` // header of the block
}

// maxScript is the size in bytes of a script of answers, which is read whole.
const maxScript = model.MaxScript

var (
	modelSchema = &hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{
			{Name: "provider"}, {Name: "model"}, {Name: "base_url"}, {Name: "api_key"}, {Name: "script"}, {Name: "protocol"},
			{Name: "max_tokens"}, {Name: "context_window"}, {Name: "temperature"}, {Name: "timeout"}, {Name: "retries"},
		},
		Blocks: []hcl.BlockHeaderSchema{{Type: "budget"}},
	}
	budgetSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "tokens"}, {Name: "turns"}, {Name: "time"}}}
)

// modelHabits are names that users of other tools type in a model block, with where the thing is here.
var modelHabits = map[string]string{
	"api_base": `did you mean "base_url"?`, "endpoint": `did you mean "base_url"?`, "url": `did you mean "base_url"?`, "host": `did you mean "base_url"?`,
	"key": `did you mean "api_key"?`, "token": `did you mean "api_key"?`, "name": `did you mean "model"?`, "type": `did you mean "provider"?`,
	"max_output_tokens": `did you mean "max_tokens"?`, "max_completion_tokens": `did you mean "max_tokens"?`, "max_retries": `did you mean "retries"?`,
	"num_ctx": `did you mean "context_window"?`, "context": `did you mean "context_window"?`, "context_length": `did you mean "context_window"?`, "max_model_len": `did you mean "context_window"?`,
	"tokens": "put it into budget: budget { tokens = 100000 }", "turns": "put it into budget: budget { turns = 20 }", "time": "put it into budget: budget { time = \"10m\" }",
}

// models decodes all model blocks.
func (l *loader) models() {
	l.named("model", "model block", "what the provider calls the model goes into model = \"…\"", func(b *hclsyntax.Block, name string, header hcl.Range) {
		l.file.Models = append(l.file.Models, l.model(b, name, header))
	})
}

// model decodes one block. What is wrong with it is reported.
func (l *loader) model(b *hclsyntax.Block, name string, header hcl.Range) *Model {
	m := &Model{Config: model.Config{Name: name}, Range: hcldiag.Range(header)}
	context := fmt.Sprintf("model %q", name)
	s := &scope{loader: l, ctx: l.ctx, context: context, origin: &origin{ranges: ranges{}, sources: l.sources, context: context}}
	c, _ := s.body(s.expand(b.Body), modelSchema, "a model", header)
	if c == nil {
		return m
	}
	g := &m.Config
	s.provider(g, c, header)
	s.baseURL(g, c)
	s.apiKey(g, c)
	if n, ok := s.integer(c, "max_tokens", "max_tokens", 1, model.MaxMaxTokens); ok {
		g.MaxTokens = int(n)
	}
	if n, ok := s.integer(c, "context_window", "context_window", model.MinWindow, model.MaxWindow); ok {
		g.ContextWindow = int(n)
	}
	if t, ok := s.decimal(c, "temperature", "temperature", 0, 2, ""); ok {
		g.Temperature = &t
	}
	timeout, _ := s.duration(c, "timeout", "timeout")
	g.Timeout = timeout
	g.Retries = model.DefaultRetries
	if n, ok := s.integer(c, "retries", "retries", 0, model.MaxRetries); ok {
		g.Retries = int(n)
	}
	s.modelBudget(g, c.Blocks)
	*g = g.WithDefaults()
	return m
}

// provider reads who answers, and what only some of them need.
func (s *scope) provider(g *model.Config, c *hcl.BodyContent, header hcl.Range) {
	a := c.Attributes["provider"]
	if a == nil {
		s.error(header, `a model needs the argument "provider"`, "It is one of "+quotedList(model.Providers)+".", `add provider = "openai" for every server that speaks OpenAI's protocol, which most local ones do`)
		return
	}
	var ok bool
	if g.Provider, ok = s.text(c, "provider", "provider"); !ok {
		return
	}
	if !contains(model.Providers, g.Provider) {
		fix := suggestion(g.Provider, model.Providers)
		if at := model.Compatible(g.Provider); at != "" {
			fix = fmt.Sprintf("it speaks OpenAI's protocol: write provider = \"openai\" and base_url = %s", quote(at))
		}
		s.error(a.Expr.Range(), fmt.Sprintf("there is no provider %s", quote(g.Provider)), "It is one of "+quotedList(model.Providers)+".", fix)
		return
	}
	g.Model, ok = s.text(c, "model", "model")
	if c.Attributes["model"] == nil && g.Provider != model.Scripted {
		s.error(header, `a model needs the argument "model"`, "It is the name that the provider gives the model.", "add model = \"…\"")
	} else if ok && (g.Model == "" || !plaintext.IsLine(g.Model)) {
		s.error(c.Attributes["model"].Expr.Range(), fmt.Sprintf("model cannot be %s", quote(g.Model)), "It is the name that the provider gives the model.", "")
	}
	s.scripted(g, c, header)
}

// scripted reads the script of a scripted model, and refuses what the other kind of model has.
func (s *scope) scripted(g *model.Config, c *hcl.BodyContent, header hcl.Range) {
	wrong, why := []string{"script", "protocol"}, "Only a model with provider = \"scripted\" has it."
	if g.Provider == model.Scripted {
		wrong, why = []string{"base_url", "api_key"}, "A scripted model is started by hutch itself, and answers from a file."
	}
	for _, name := range wrong {
		if a := c.Attributes[name]; a != nil {
			s.error(a.NameRange, fmt.Sprintf("a model of provider %q has no %s", g.Provider, name), why, "")
			s.diags[len(s.diags)-1].Snippet = nil // what stands there may be a key
			return
		}
	}
	if g.Provider != model.Scripted {
		return
	}
	g.Protocol, _ = s.oneOf(c, "protocol", "protocol", model.OpenAI, model.Anthropic)
	if c.Attributes["script"] == nil {
		s.error(header, `a scripted model needs the argument "script"`, "It is the file with the answers.", `add script = "answers.txtar"`)
		return
	}
	script, ok := s.text(c, "script", "script")
	if !ok {
		return
	}
	r := c.Attributes["script"].Expr.Range()
	f, _, err := s.tree.Open(script, maxScript)
	if err != nil {
		reason, fix := treeFix(err)
		s.error(r, "the script cannot be used: "+reason, "", fix)
		return
	}
	_ = f.Close() // nothing was written
	rel, err := s.tree.Resolve(script)
	if err != nil {
		s.error(r, err.Error(), "", "")
		return
	}
	g.Script = filepath.Join(s.file.Dir, filepath.FromSlash(rel))
}

func (s *scope) baseURL(g *model.Config, c *hcl.BodyContent) {
	text, ok := s.text(c, "base_url", "base_url")
	if !ok {
		return
	}
	fix := ""
	if !strings.Contains(text, "://") {
		fix = "write " + quote("http://"+text)
	}
	r := c.Attributes["base_url"].Expr.Range()
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		s.error(r, fmt.Sprintf("%s is not the address of a server", quote(text)), "It begins with https:// or http://, and has the part of the path that is the same for all requests.", fix)
	case u.User != nil:
		s.error(r, "base_url holds a name or a password", "An address is printed and stored.", "use api_key")
		s.diags[len(s.diags)-1].Snippet = nil
	case u.RawQuery != "" || u.Fragment != "":
		s.error(r, "base_url has a query", "hutch adds the path of each request at its end.", "end it with the path")
	default:
		for _, end := range []string{"/chat/completions", "/messages"} {
			if cut, found := strings.CutSuffix(strings.TrimSuffix(text, "/"), end); found {
				s.error(r, fmt.Sprintf("base_url ends in %s", end), "hutch adds the path of each request at its end.", "write "+quote(strings.TrimSuffix(cut, "/v1/messages")))
				return
			}
		}
		g.BaseURL = text
	}
}

// apiKey takes the key from the block, or else from the variable that the provider's own libraries look at. The address
// there and the key there belong together: a key from the environment is not sent to an address that a file names.
func (s *scope) apiKey(g *model.Config, c *hcl.BodyContent) {
	if a := c.Attributes["api_key"]; a != nil {
		before := len(s.diags)
		key, ok := s.secretText(c, "api_key", "api_key")
		if ok && strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			s.error(a.Expr.Range(), "the api_key holds white space, or characters that no key has", "", "look for a line break at its end")
		}
		for i := before; i < len(s.diags); i++ {
			s.diags[i].Snippet, s.diags[i].Values = nil, nil
		}
		g.APIKey = key
		return
	}
	if g.BaseURL != "" || g.Provider != model.OpenAI && g.Provider != model.Anthropic {
		return
	}
	prefix := strings.ToUpper(g.Provider)
	if key, ok := s.given.lookupEnv(prefix + "_API_KEY"); ok {
		g.APIKey = strings.TrimSpace(key)
	}
	if at, ok := s.given.lookupEnv(prefix + "_BASE_URL"); ok {
		g.BaseURL = at
	}
}

func (s *scope) modelBudget(g *model.Config, blocks hcl.Blocks) {
	if len(blocks) == 0 {
		return
	}
	if len(blocks) > 1 {
		s.fail(blocks[1].DefRange, s.context, "a model has only one budget block", "", "put both into one")
		s.diags[len(s.diags)-1].Related = relatedTo("the first one is here", blocks[0].DefRange)
	}
	in := s.in("budget")
	c, _ := in.body(in.expand(blocks[0].Body), budgetSchema, "a budget block", blocks[0].DefRange)
	if c == nil {
		return
	}
	g.Budget.Tokens, _ = in.integer(c, "tokens", "budget.tokens", 1, math.MaxInt64)
	if n, ok := in.integer(c, "turns", "budget.turns", 1, model.MaxTurns); ok {
		g.Budget.Turns = int(n)
	}
	limit, _ := in.duration(c, "time", "budget.time")
	g.Budget.Time = limit
}

// modelRef finds the model block that the argument model of another block names; without the argument it is the only
// one of the file. what is that block, with its article. It is false when there is nothing to go on with, which is then
// reported, or not known yet.
func (s *scope) modelRef(c *hcl.BodyContent, what string, header hcl.Range) (*Model, bool) {
	names := make([]string, len(s.file.Models))
	for i, m := range s.file.Models {
		names[i] = m.Config.Name
	}
	a := c.Attributes["model"]
	if a == nil {
		switch len(names) {
		case 1:
			return s.file.Models[0], true
		case 0:
			if len(s.blocks["model"]) == 0 { // else the block itself is at fault
				s.error(header, fmt.Sprintf("%s needs a model, and the file has no model block", what), "", "add model \"NAME\" { … } with provider and model in it")
			}
		default:
			s.error(header, fmt.Sprintf("%s does not say which model it takes", what), "The file has "+list(names)+".", "add model = "+quote(names[0]))
		}
		return nil, false
	}
	name, ok := s.text(c, "model", "model")
	if !ok {
		return nil, false
	}
	for _, m := range s.file.Models {
		if m.Config.Name == name {
			return m, true
		}
	}
	detail, fix := "", suggestion(name, names)
	switch {
	case len(names) == 0 && len(s.blocks["model"]) > 0:
		return nil, false
	case len(names) == 0:
		fix = fmt.Sprintf("add model %s { … } with provider and model in it", quote(name))
	case fix == "":
		detail = "The file has " + list(names) + "."
	}
	s.error(a.Expr.Range(), fmt.Sprintf("there is no model block %s", quote(name)), detail, fix)
	return nil, false
}
