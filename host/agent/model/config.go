package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/units"
)

// The providers.
const (
	OpenAI    = "openai"    // every server that speaks OpenAI's chat completions, hosted or local
	Anthropic = "anthropic" // Anthropic's messages
	Scripted  = "scripted"  // answers from a file
)

// Providers are all that Config.Provider may be.
var Providers = []string{OpenAI, Anthropic, Scripted}

// compatible are names of servers, services and models that people take for a provider. They speak OpenAI's protocol.
var compatible = map[string]string{
	"ollama": "http://localhost:11434/v1", "vllm": "http://localhost:8000/v1", "lmstudio": "http://localhost:1234/v1",
	"llama.cpp": "http://localhost:8080/v1", "llamacpp": "http://localhost:8080/v1", "local": "http://localhost:8080/v1",
	"openrouter": "https://openrouter.ai/api/v1", "groq": "https://api.groq.com/openai/v1",
	"mistral": "https://api.mistral.ai/v1", "deepseek": "https://api.deepseek.com/v1",
	"together": "https://api.together.xyz/v1",
}

// Compatible is the usual address of the server of that name, if it speaks OpenAI's protocol and is no provider here;
// "" for other names.
func Compatible(name string) string { return compatible[strings.ToLower(name)] }

// What holds where nothing else is said.
const (
	DefaultMaxTokens = 16384
	DefaultTimeout   = units.Duration(10 * time.Minute) // room for a local model that reads a long conversation
	DefaultRetries   = 3                                // of a model block; a Config says 0 for none

	DefaultBudgetTokens = 2_000_000
	DefaultBudgetTurns  = 100
	DefaultBudgetTime   = units.Duration(time.Hour)
)

// What no Config may exceed.
const (
	MaxMaxTokens = 1_000_000
	MaxWindow    = 1_000_000_000
	MinWindow    = 4096 // the system prompt and the tools of a cycle take most of that
	MaxRetries   = 20
	MaxTurns     = 100_000
	MaxScript    = 4 << 20 // bytes of a script of answers
)

// Redacted stands in every text where the key was.
const Redacted = "(sensitive)"

// WithDefaults sets what is not set to its default. Retries stay as they are.
func (c Config) WithDefaults() Config {
	c.MaxTokens = cmp.Or(c.MaxTokens, DefaultMaxTokens)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Provider == Scripted {
		c.Protocol, c.Model = cmp.Or(c.Protocol, OpenAI), cmp.Or(c.Model, Scripted)
	}
	c.Budget = c.Budget.WithDefaults()
	return c
}

// WithDefaults sets what is not set to its default.
func (b Budget) WithDefaults() Budget {
	return Budget{Tokens: cmp.Or(b.Tokens, DefaultBudgetTokens), Turns: cmp.Or(b.Turns, DefaultBudgetTurns),
		Time: cmp.Or(b.Time, DefaultBudgetTime)}
}

// Check returns why no client can be made. An error of kind auth is a missing key: the providers' own addresses need
// one, a server that a file names may do without.
func (c Config) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("model %q: %s", c.Name, fmt.Sprintf(format, args...))
	}
	switch c.Provider {
	case OpenAI, Anthropic:
		if c.Model == "" {
			return bad("the name of the model is missing")
		}
		if c.APIKey == "" && c.BaseURL == "" {
			return &Error{Kind: KindAuth, Message: fmt.Sprintf("there is no key for the model %q", c.Name),
				Hint: "set " + strings.ToUpper(c.Provider) +
					"_API_KEY, or api_key in the model block; for a local server, set base_url"}
		}
	case Scripted:
		if c.Script == "" {
			return bad("the script is missing")
		}
		if c.Protocol != "" && c.Protocol != OpenAI && c.Protocol != Anthropic {
			return bad("there is no protocol %q", c.Protocol)
		}
	default:
		return bad("there is no provider %q", c.Provider)
	}
	switch {
	case c.MaxTokens < 0 || c.MaxTokens > MaxMaxTokens:
		return bad("max_tokens is %d, and at most %d", c.MaxTokens, MaxMaxTokens)
	case c.ContextWindow < 0 || c.ContextWindow > MaxWindow:
		return bad("context_window is %d, and at most %d", c.ContextWindow, MaxWindow)
	case c.Retries < 0 || c.Retries > MaxRetries:
		return bad("retries is %d, and from 0 to %d", c.Retries, MaxRetries)
	case c.Timeout < 0 || c.Budget.Tokens < 0 || c.Budget.Turns < 0 || c.Budget.Time < 0:
		return bad("a bound is negative")
	}
	return nil
}

// Redact replaces the key in a text.
func (c Config) Redact(text string) string {
	if len(c.APIKey) < 4 { // a shorter one is no key, and hardly a text would stay readable
		return text
	}
	return strings.ReplaceAll(text, c.APIKey, Redacted)
}

// MarshalJSON leaves out the key: it is fit to be stored and printed.
func (c Config) MarshalJSON() ([]byte, error) {
	if c.APIKey != "" {
		c.APIKey = Redacted
	}
	return json.Marshal(secretConfig(c))
}

// String has no key in it.
func (c Config) String() string {
	b, err := c.MarshalJSON()
	if err != nil {
		return c.Name
	}
	return string(b)
}

// GoString has no key in it.
func (c Config) GoString() string { return c.String() }
