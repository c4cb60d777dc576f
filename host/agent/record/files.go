package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/termsafe"
)

// The schemas of the files below calls/.
const (
	RequestSchema = "hutch.request/v1"
	AnswerSchema  = "hutch.answer/v1"
	ToolSchema    = "hutch.tool/v1"
)

// requestFile is what was sent to a model. A loop sends its whole conversation with every request; what is written is
// what it was prolonged by: the messages so far are those of the request before and the answer to it, of which Keep are
// kept.
type requestFile struct {
	Schema   string          `json:"schema"`
	Keep     int             `json:"keep"`             // of the messages so far
	Messages []model.Message `json:"messages"`         // after those
	System   *string         `json:"system,omitempty"` // absent: as in the request before
	Tools    *[]model.Tool   `json:"tools,omitempty"`  // absent: as in the request before
}

// answerFile is what a model said, or why it said nothing.
type answerFile struct {
	Schema string        `json:"schema"`
	Answer *model.Answer `json:"answer,omitempty"`
	Error  *Failure      `json:"error,omitempty"`
}

// toolFile is one tool call with its result.
type toolFile struct {
	Schema    string `json:"schema"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as the model wrote them
	Result    string `json:"result"`
	IsError   bool   `json:"is_error"`
}

// Failure is why a model did not answer.
type Failure struct {
	Kind    string `json:"kind"`             // of a [model.Error]; "budget" for a [model.BudgetError], else "other"
	Status  int    `json:"status,omitempty"` // of HTTP; 0 when there was none
	Message string `json:"message"`
}

// The data of the events.
type (
	// ModelCallData is the data of [store.EventModelCall], whose files are the request and the answer.
	ModelCallData struct {
		N            int         `json:"n"`
		Started      time.Time   `json:"started"`
		Milliseconds int64       `json:"ms"`
		Stop         model.Stop  `json:"stop,omitempty"`
		Usage        model.Usage `json:"usage"`
		Tools        int         `json:"tools,omitempty"` // calls that the answer asks for
		Model        string      `json:"model,omitempty"`
		RequestID    string      `json:"request_id,omitempty"`
		Retries      int         `json:"retries,omitempty"`
		Shortened    int         `json:"shortened,omitempty"` // bytes that were taken out of the conversation for this request
		Error        *Failure    `json:"error,omitempty"`
	}
	// ToolCallData is the data of [store.EventToolCall], whose file has arguments and result.
	ToolCallData struct {
		Call         int       `json:"call"` // the model call that asked for it
		N            int       `json:"n"`    // among the tools of that, from 1
		ID           string    `json:"id"`
		Name         string    `json:"name"`
		IsError      bool      `json:"is_error,omitempty"`
		Started      time.Time `json:"started"`
		Milliseconds int64     `json:"ms"`
		Run          string    `json:"run,omitempty"`
		Head         string    `json:"head,omitempty"` // of that run's chain
	}
	// AttemptData is the data of [store.EventAttempt].
	AttemptData struct {
		N      int    `json:"n"`
		Run    string `json:"run,omitempty"`
		Head   string `json:"head,omitempty"` // of that run's chain
		OK     bool   `json:"ok"`
		Class  string `json:"class"`
		Detail string `json:"detail,omitempty"`
		Call   int    `json:"call,omitempty"` // the model call whose answer it tried
	}
	// StateData is the data of [store.EventState].
	StateData struct {
		State string          `json:"state"`
		Data  json.RawMessage `json:"data,omitempty"`
	}
)

// maxLine bounds, in bytes, a text of somebody else's in an event. Files have it whole.
const maxLine = 1 << 10

func shorten(s string) string { return termsafe.Clip(s, maxLine) }

func (l *Loop) failure(err error) *Failure {
	f := &Failure{Kind: "other", Message: shorten(l.secret.Text(err.Error()))}
	var e *model.Error
	var b *model.BudgetError
	switch {
	case errors.As(err, &e):
		f.Kind, f.Status = string(e.Kind), e.Status
	case errors.As(err, &b):
		f.Kind = "budget"
	}
	return f
}

// encode is JSON for people: indented, with <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}
