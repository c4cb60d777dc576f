package provider

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
)

// ScriptType is the type of an error of the scripted server that no script answers.
const ScriptType = "hutch_script_error"

// cause is embedded by another name, because Error is that of its method.
type cause = model.Error

// Failure is one try that brought no answer. It is an error as its pointer.
type Failure struct {
	cause
	// Retry says that the same request may well be answered another time.
	Retry bool
	// After is how long the provider wants to be left alone; negative when it did not say.
	After time.Duration
}

// Unwrap is what the caller of the client sees.
func (f *Failure) Unwrap() error { return &f.cause }

// Fail makes a failure that is not worth another try.
func Fail(kind model.Kind, format string, args ...any) *Failure {
	return &Failure{cause: model.Error{Kind: kind, Message: fmt.Sprintf(format, args...)}, After: -1}
}

// Again makes a failure that is worth another try.
func Again(kind model.Kind, format string, args ...any) *Failure {
	f := Fail(kind, format, args...)
	f.Retry = true
	return f
}

// maxErrorBody is how much is read of what a provider says about an error.
const maxErrorBody = 64 << 10

// errorBody is what providers and servers send: {"error":{"message":…}}, {"error":"…"}, {"message":…}, {"detail":…} and more.
type errorBody struct {
	Type    string          `json:"type"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail"`
	Code    json.RawMessage `json:"code"`
	Error   json.RawMessage `json:"error"`
}

// describe finds the words and the codes in what a provider sent.
func describe(body []byte) (message string, codes []string) {
	var outer errorBody
	if json.Unmarshal(body, &outer) != nil {
		return plainText(body), nil
	}
	add := func(b errorBody) {
		for _, code := range []string{b.Type, text(b.Code)} {
			if code != "" && code != "error" {
				codes = append(codes, code)
			}
		}
		for _, m := range []string{b.Message, text(b.Detail)} {
			if message == "" {
				message = m
			}
		}
	}
	var inner errorBody
	switch {
	case len(outer.Error) > 0 && json.Unmarshal(outer.Error, &inner) == nil:
		add(inner)
	default:
		message = text(outer.Error)
	}
	add(outer)
	if message == "" {
		message = plainText(body)
	}
	return message, codes
}

// text is a JSON string, or the JSON of anything else.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil || string(raw) == "null" {
		return s
	}
	return string(raw)
}

// plainText is the beginning of something that is no JSON: a proxy's page, mostly.
func plainText(b []byte) string {
	const most = 300
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "")), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + " …"
	}
	return s
}

// FromResponse sorts an answer whose status is not 2xx. It reads the body and leaves it open.
func FromResponse(res *http.Response) *Failure {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what came is all there is to say
	message, codes := describe(body)
	f := sort(res.StatusCode, message, codes)
	f.After = retryAfter(res.Header, time.Now())
	if should := res.Header.Get("x-should-retry"); should == "false" {
		f.Retry = false
	}
	if to := res.Header.Get("location"); res.StatusCode/100 == 3 && to != "" {
		f.Kind, f.Hint = model.KindNotFound, "if you trust that address, set base_url to it"
		f.Message = "the address moved to " + plainText([]byte(to))
	}
	return f
}

// FromStream sorts an error that a provider sent inside of a stream.
func FromStream(body []byte) *Failure {
	message, codes := describe(body)
	status := 0
	for _, c := range codes {
		switch c {
		case "overloaded_error":
			status = 529
		case "rate_limit_error", "rate_limit_exceeded":
			status = http.StatusTooManyRequests
		case "api_error", "server_error", "internal_server_error", "InternalServerError":
			status = http.StatusInternalServerError
		case "invalid_request_error", "BadRequestError":
			status = http.StatusBadRequest
		case "authentication_error":
			status = http.StatusUnauthorized
		default:
			if n, err := strconv.Atoi(c); err == nil && n >= 400 && n < 600 {
				status = n
			}
		}
	}
	if status == 0 {
		status = http.StatusInternalServerError // nobody sends the beginning of an answer to a bad request
	}
	f := sort(status, message, codes)
	f.Status = 0 // HTTP said 200
	return f
}

// sort makes of a status, and what was said with it, one of our kinds.
func sort(status int, message string, codes []string) *Failure {
	f := &Failure{cause: model.Error{Status: status, Message: message}, After: -1}
	if f.Message == "" {
		f.Message = fmt.Sprintf("the provider answered with status %d %s", status, http.StatusText(status))
	}
	low := strings.ToLower(message)
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(low, w) {
				return true
			}
			for _, c := range codes {
				if strings.Contains(strings.ToLower(c), w) {
					return true
				}
			}
		}
		return false
	}
	switch {
	case says(ScriptType):
		f.Kind = model.KindScript
	case status == http.StatusPaymentRequired, says("insufficient_quota", "billing_error", "credit balance is too low", "exceeded your current quota"):
		f.Kind, f.Hint = model.KindQuota, "look at the account's balance and limits with the provider"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		f.Kind, f.Hint = model.KindAuth, "look at api_key, and whether it belongs to base_url"
	case status == http.StatusTooManyRequests:
		f.Kind, f.Retry = model.KindRate, true
	case status == http.StatusRequestEntityTooLarge, status < 500 && says("context_length", "context length", "maximum context", "context window", "context size", "prompt is too long", "too many tokens", "exceed_context", "input is too long"):
		f.Kind = model.KindTooLong
	case status < 500 && says("content_policy", "content_filter", "content management policy", "safety"):
		f.Kind = model.KindRefused
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		f.Kind, f.Hint = model.KindNotFound, "look at model and base_url; for most servers base_url ends in /v1"
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		f.Kind, f.Retry = model.KindServer, status != http.StatusNotImplemented
	default:
		f.Kind = model.KindProtocol
	}
	return f
}

// retryAfter is how long a provider wants to be left alone; negative when it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("retry-after-ms"), 64); err == nil && ms >= 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("retry-after")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s >= 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return -1
}

// FromError sorts what the transport, or a stream that broke, said. The error of ctx stays what it is.
func FromError(ctx context.Context, err error) error {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text := err.Error()
	var u *url.Error
	if errors.As(err, &u) {
		text = u.Err.Error()
	}
	f = Again(model.KindNetwork, "%s", text)
	var dns *net.DNSError
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		f.Retry, f.Hint = false, "hutch trusts the certificates of this machine; SSL_CERT_FILE names others"
	case errors.As(err, &dns):
		f.Retry, f.Hint = dns.IsTemporary || dns.IsTimeout, "look at base_url, and whether this machine has a network"
	case errors.As(err, &op) && op.Op == "dial":
		f.Hint = "look at base_url, and whether the server is running"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.Message = "the connection broke before the answer was whole"
	}
	return f
}
