// Package model talks to language models. What a loop needs of a model is one interface, [Client]; the clients of the
// providers are linked into hutch-agent alone, so that no other command pays for them at its start.
package model

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/units"
)

// Config is what a `model` block of a run file says.
type Config struct {
	// Name is the label of the block.
	Name string `json:"name"`
	// Provider is the protocol that is spoken, [OpenAI] or [Anthropic], or [Scripted] for answers from a file.
	Provider string `json:"provider"`
	// Model is the provider's name of the model.
	Model string `json:"model,omitempty"`
	// BaseURL is where the provider is reached; empty is the provider's own address.
	BaseURL string `json:"base_url,omitempty"`
	// APIKey is the key. It is written to no file, argument or environment, and redacted in all that comes back.
	APIKey string `json:"api_key,omitempty"`
	// Script is the file of the answers of the provider "scripted", an absolute path.
	Script string `json:"script,omitempty"`
	// Protocol is what is spoken with a scripted model: "openai" or "anthropic".
	Protocol string `json:"protocol,omitempty"`
	// MaxTokens bounds one answer, in tokens; 0 is the default.
	MaxTokens int `json:"max_tokens,omitempty"`
	// ContextWindow is how long a conversation may be with its answer, in tokens; 0 is not known.
	ContextWindow int `json:"context_window,omitempty"`
	// Temperature is handed to the provider; nil leaves it to the provider.
	Temperature *float64 `json:"temperature,omitempty"`
	// Timeout bounds one answer, with its retries; 0 is the default.
	Timeout units.Duration `json:"timeout,omitempty"`
	// Retries is how often a request is repeated that the provider could not take (rate, capacity, broken
	// connections); 0 disables them.
	Retries int `json:"retries"`
	// Log is the file to which the program that talks to the provider writes what it has to say besides; "" keeps nothing.
	Log string `json:"-"`
	// Budget bounds a whole loop.
	Budget Budget `json:"budget,omitzero"`
}

// Budget bounds what a loop may use of a model, all its requests together. A field of 0 stands for the default.
type Budget struct {
	// Tokens counts input and output.
	Tokens int64 `json:"tokens,omitempty"`
	// Turns counts answers.
	Turns int `json:"turns,omitempty"`
	// Time is wall time from the first request.
	Time units.Duration `json:"time,omitempty"`
}

// Role says who speaks in a message.
type Role string

// The roles. What a system prompt says is a field of the [Request].
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one turn of a conversation.
type Message struct {
	Role Role `json:"role"`
	// Text is what is said; a message of tool results has none.
	Text string `json:"text,omitempty"`
	// Calls are the tools that the assistant asks for.
	Calls []ToolCall `json:"calls,omitempty"`
	// Results are the answers of a RoleTool message, one for each call of the message before.
	Results []ToolResult `json:"results,omitempty"`
}

// Tool is something that a model may ask for.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Schema is the JSON schema of the arguments: an object.
	Schema json.RawMessage `json:"schema"`
}

// ToolCall is a model's wish that a tool be called.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments are as the model wrote them, which need not be valid JSON.
	Arguments string `json:"arguments"`
}

// ToolResult answers the call with the same ID.
type ToolResult struct {
	ID      string `json:"id"`
	Text    string `json:"text"`
	IsError bool   `json:"is_error,omitempty"`
}

// Request is a whole conversation: providers keep no state for us.
type Request struct {
	System   string    `json:"system,omitempty"`
	Messages []Message `json:"messages"`
	Tools    []Tool    `json:"tools,omitempty"`
}

// Stop says why an answer ended.
type Stop string

// The reasons.
const (
	StopEnd     Stop = "end"     // the model had nothing more to say
	StopTools   Stop = "tools"   // it waits for the results of its calls
	StopLength  Stop = "length"  // the bound on an answer's tokens cut it off
	StopRefused Stop = "refused" // the model, or a filter of the provider, would not answer
)

// Answer is what a model said.
type Answer struct {
	Text  string     `json:"text,omitempty"`
	Calls []ToolCall `json:"calls,omitempty"`
	Stop  Stop       `json:"stop"`
	Usage Usage      `json:"usage"`
	// Model is the name of the model that answered, as the provider gives it.
	Model string `json:"model,omitempty"`
	// RequestID is the provider's name of the request, for its support.
	RequestID string `json:"request_id,omitempty"`
	// Retries is how many requests went before the one that was answered.
	Retries int `json:"retries,omitempty"`
}

// Usage counts tokens.
type Usage struct {
	// InputTokens is all of the input, also what the provider had cached.
	InputTokens int64 `json:"input_tokens"`
	// CachedTokens is the part of the input that the provider had cached.
	CachedTokens int64 `json:"cached_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens"`
	// Estimated says that the provider sent no counts, so they were estimated from the length of the texts.
	Estimated bool `json:"estimated,omitempty"`
}

// Add adds the tokens of another use.
func (u *Usage) Add(o Usage) {
	u.InputTokens += o.InputTokens
	u.CachedTokens += o.CachedTokens
	u.OutputTokens += o.OutputTokens
	u.Estimated = u.Estimated || o.Estimated
}

// Size is the length of the conversation in bytes, but for the few that its form takes.
func (r Request) Size() int {
	n := len(r.System)
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	for _, m := range r.Messages {
		n += m.Size()
	}
	return n
}

// Size is the length of the message in bytes.
func (m Message) Size() int {
	n := len(m.Text)
	for _, c := range m.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	for _, t := range m.Results {
		n += len(t.Text)
	}
	return n
}

// Client asks one model. It is safe for concurrent use.
type Client interface {
	// Answer sends the conversation and waits for the whole answer. Pieces of its text are handed to delta as they
	// come, in order and on the calling goroutine; delta may be nil. They are for showing only: when a connection
	// breaks in the middle and the request is repeated, they begin again. Errors of the provider are of type
	// [*Error]. A ctx that ends before the answer is there may end the client.
	Answer(ctx context.Context, r Request, delta func(text string)) (Answer, error)
	// Close ends the client and what it has started.
	Close() error
}

// Kind sorts what can go wrong between us and a model.
type Kind string

// The kinds.
const (
	KindAuth     Kind = "auth"      // no key, or one that the provider does not take
	KindQuota    Kind = "quota"     // the account's budget is used up
	KindRate     Kind = "rate"      // too many requests, after all retries
	KindNotFound Kind = "not_found" // the provider knows no such model or address
	KindTooLong  Kind = "too_long"  // the conversation is longer than the model takes
	KindRefused  Kind = "refused"   // the provider refuses the request's content
	KindServer   Kind = "server"    // the provider failed, after all retries
	KindNetwork  Kind = "network"   // the provider was not reached, or the connection broke
	KindProtocol Kind = "protocol"  // the answer was not what the protocol says
	KindScript   Kind = "script"    // the script of a scripted model has no answer to this
)

// Error is what a provider, or the way to it, answered instead of an answer.
type Error struct {
	Kind Kind `json:"kind"`
	// Status is the HTTP status; 0 when there was none.
	Status int `json:"status,omitempty"`
	// Message says what happened, in the provider's words where it has any.
	Message string `json:"message"`
	// Hint says what to do; it may be empty.
	Hint string `json:"hint,omitempty"`
}

// Error is the message with the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// BudgetError says that a loop has used up what it was given.
type BudgetError struct {
	// What is "tokens", "turns" or "time".
	What        string
	Used, Limit string
}

// Error says what is used up.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("the budget of %s is used up: %s of %s", e.What, e.Used, e.Limit)
}

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
