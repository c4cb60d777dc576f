package intercept

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hutch-run/hutch/sdk"
)

// meter counts the requests of one command to hosts of secrets, and refuses those beyond its budget. One without the
// secret counts as well: it may carry a login that the command has itself.
type meter struct {
	budget sdk.Budget
	held   atomic.Int64 // bytes of answers that are held until they can be read

	mu    sync.Mutex
	begun int64
	used  sdk.Used
}

// begin counts r, or says why it is refused.
func (m *meter) begin(r *http.Request) *denial {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, over := m.budget, ""
	switch {
	case r.Header.Get("Upgrade") == "" && !counts(r.Method):
		return nil
	case b.Requests > 0 && m.begun >= b.Requests:
		over = fmt.Sprintf("of %d requests", b.Requests)
		if b.Requests == 1 {
			over = "of 1 request"
		}
	case b.Tokens > 0 && m.used.Tokens.Total() >= b.Tokens:
		over = fmt.Sprintf("of %d tokens", b.Tokens)
	case b.Cost > 0 && m.used.Cost >= b.Cost:
		over = "of " + strconv.FormatFloat(b.Cost, 'f', -1, 64)
	case (b.Requests+b.Tokens > 0 || b.Cost > 0) && r.Header.Get("Upgrade") != "":
		return &denial{http.StatusUpgradeRequired, "",
			"with a budget, requests go over HTTP: what passes on a WebSocket is not counted", ""}
	}
	if over != "" {
		return &denial{http.StatusPaymentRequired, "", "the budget " + over + " is used up", ""}
	}
	m.begun++
	return nil
}

// counts reports whether requests by method ask for something that a budget counts.
func counts(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// end takes in what came of a request that begin let pass.
func (m *meter) end(r *sdk.HTTPRequest) {
	b := &m.budget
	if r.Tokens == nil && (b.Tokens > 0 || b.Cost > 0) && r.Method == http.MethodPost && r.Status/100 == 2 {
		r.Tokens = &sdk.Tokens{Input: (r.Sent + 3) / 4, Output: (r.Received + 3) / 4, Estimated: true}
	}
	if r.Tokens != nil {
		r.Cost = cost(b.Prices, r.Model, *r.Tokens)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used.Add(*r)
}

// flat has * match the slashes that names of models have.
var flat = strings.NewReplacer("/", "|")

// cost is what an answer costs. A model without a price costs as much as the dearest.
func cost(prices []sdk.Price, model string, t sdk.Tokens) (most float64) {
	for _, p := range prices {
		c := (p.Input*float64(t.Input) + p.Output*float64(t.Output) + p.CacheRead*float64(t.CacheRead) +
			p.CacheWrite*float64(t.CacheWrite)) / 1e6
		if ok, err := path.Match(flat.Replace(p.Model), flat.Replace(model)); ok && err == nil && model != "" {
			return c
		}
		most = max(most, c)
	}
	return most
}

// usedUp is the answer to a request beyond the budget. It has the form of errors of Anthropic, OpenAI and Google at
// once, so that the programs made for them show its message.
func usedUp(w http.ResponseWriter, reason string) {
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/json")
	h.Set("X-Hutch-Denied", reason)
	h.Set("X-Should-Retry", "false") // read by the libraries of Anthropic and OpenAI
	w.WriteHeader(http.StatusPaymentRequired)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]any{
		"type": "billing_error", "code": http.StatusPaymentRequired, "status": "FAILED_PRECONDITION",
		"message": "hutch: " + reason,
	}})
}

// Bounds of what is held of answers until it can be read: of one, and of all of a command.
const (
	maxHeld    = 4 << 20
	maxHeldAll = 64 << 20
)

// tap reads in an answer that passes what model gave it and what tokens it used.
type tap struct {
	meter  *meter
	lines  bool // server-sent events, or JSON in lines; else one JSON value
	off    bool // the answer cannot be read
	held   []byte
	model  string
	tokens *sdk.Tokens
}

// newTap returns nil for an answer of another kind than those that have such numbers.
func newTap(m *meter, h http.Header) *tap {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	t := &tap{meter: m, lines: kind == "text/event-stream" || strings.HasSuffix(kind, "ndjson")}
	if !t.lines && kind != "application/json" || h.Get("Content-Encoding") != "" {
		return nil
	}
	return t
}

func (t *tap) add(p []byte) {
	if t == nil {
		return
	}
	for t.lines {
		line, rest, ok := bytes.Cut(p, []byte("\n"))
		if !ok {
			break
		}
		if len(t.held) > 0 {
			t.hold(line)
			line = t.held
		}
		if !t.off {
			t.line(line)
		}
		t.drop()
		t.off, p = false, rest
	}
	t.hold(p)
}

func (t *tap) hold(p []byte) {
	if t.off || len(p) == 0 {
		return
	}
	if len(t.held)+len(p) > maxHeld || t.meter.held.Add(int64(len(p))) > maxHeldAll {
		t.drop()
		t.off = true
		return
	}
	t.held = append(t.held, p...)
}

func (t *tap) drop() {
	t.meter.held.Add(-int64(len(t.held)))
	t.held = t.held[:0]
}

// end reads what is held.
func (t *tap) end() {
	if t == nil {
		return
	}
	if !t.off && t.lines {
		t.line(t.held)
	} else if !t.off {
		t.values(t.held)
	}
	t.drop()
}

func (t *tap) line(b []byte) {
	b = bytes.TrimPrefix(b, []byte("data:"))
	if bytes.Contains(b, []byte(`"usage`)) || t.model == "" && bytes.Contains(b, []byte(`"model`)) {
		t.values(b)
	}
}

// said is what answers of Anthropic, OpenAI and Google have in common: the numbers are in them, in the message of an
// event, or in its response.
type said struct {
	Model        string `json:"model"`
	ModelVersion string `json:"modelVersion"`
	Message      *said  `json:"message"`
	Response     *said  `json:"response"`
	Usage        *struct {
		Input         int64  `json:"input_tokens"`
		Output        int64  `json:"output_tokens"`
		Prompt        int64  `json:"prompt_tokens"`
		Completion    int64  `json:"completion_tokens"`
		CacheRead     int64  `json:"cache_read_input_tokens"`
		CacheWrite    int64  `json:"cache_creation_input_tokens"`
		InputDetails  cached `json:"input_tokens_details"`
		PromptDetails cached `json:"prompt_tokens_details"`
	} `json:"usage"`
	Metadata *struct {
		Prompt     int64 `json:"promptTokenCount"` // with those of the cache
		Tools      int64 `json:"toolUsePromptTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
	} `json:"usageMetadata"`
}

// cached are the tokens among those of the input that a cache had.
type cached struct {
	Tokens int64 `json:"cached_tokens"`
}

// values reads JSON. What it cannot read says nothing.
func (t *tap) values(b []byte) {
	b = bytes.TrimSpace(b)
	var all []said
	if bytes.HasPrefix(b, []byte("[")) {
		_ = json.Unmarshal(b, &all)
	} else {
		all = make([]said, 1)
		_ = json.Unmarshal(b, &all[0]) // the rest is read where one field has another type
	}
	for i := range all {
		t.take(&all[i])
	}
}

// take keeps the highest numbers: in a stream they are sums of what came so far.
func (t *tap) take(s *said) {
	if s == nil {
		return
	}
	t.take(s.Message)
	t.take(s.Response)
	for _, m := range []string{s.Model, s.ModelVersion} {
		if m != "" {
			t.model = clip(m)
		}
	}
	var n sdk.Tokens
	switch u, g := s.Usage, s.Metadata; {
	case u != nil:
		read := u.InputDetails.Tokens + u.PromptDetails.Tokens
		n = sdk.Tokens{Input: u.Input + u.Prompt - read, Output: u.Output + u.Completion, CacheRead: u.CacheRead + read,
			CacheWrite: u.CacheWrite}
	case g != nil:
		n = sdk.Tokens{Input: g.Prompt + g.Tools - g.Cached, Output: g.Candidates + g.Thoughts, CacheRead: g.Cached}
	default:
		return
	}
	if t.tokens == nil {
		t.tokens = &sdk.Tokens{}
	}
	t.tokens.Input, t.tokens.Output = max(t.tokens.Input, n.Input), max(t.tokens.Output, n.Output)
	t.tokens.CacheRead, t.tokens.CacheWrite = max(t.tokens.CacheRead, n.CacheRead), max(t.tokens.CacheWrite, n.CacheWrite)
}

// maxText bounds the texts of a request in the record, in bytes.
const maxText = 200

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "…"
	}
	return s
}
