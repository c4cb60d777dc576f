package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/scripted"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// cause is embedded by another name, because Error is that of its method.
type cause = model.Error

// failure is one try that brought no answer. It is an error as its pointer.
type failure struct {
	cause
	retry bool          // the same request may be answered another time
	after time.Duration // the pause that the provider asks for; negative if it asks for none
}

// fail makes a failure that is not worth another try.
func fail(kind model.Kind, format string, args ...any) *failure {
	return &failure{cause: model.Error{Kind: kind, Message: fmt.Sprintf(format, args...)}, after: -1}
}

// maxErrorBody is how much is read of what a provider says about an error.
const maxErrorBody = 64 << 10

// describe finds the message and the codes in what providers and servers send: {"error":{"message":…}},
// {"error":"…"}, {"message":…}, {"detail":…} and more. What is not JSON is mostly the page of a proxy: all of it
// is the message.
func describe(body []byte) (message string, codes []string) {
	if gjson.ValidBytes(body) {
		for _, path := range []string{"error.type", "error.code", "type", "code"} {
			if code := gjson.GetBytes(body, path).String(); code != "" && code != "error" {
				codes = append(codes, code)
			}
		}
		for _, path := range []string{"error.message", "error.detail", "message", "detail", "error"} {
			if message = gjson.GetBytes(body, path).String(); message != "" {
				return message, codes
			}
		}
	}
	return strings.TrimSpace(string(body)), codes
}

// show makes a message that may hold anything fit for a terminal: one line without the key, cut where it is long. The
// key goes first, because a part of it would not be found.
func (f *failure) show(redact func(string) string) {
	const most = 600
	s := strings.Join(strings.Fields(redact(f.Message)), " ")
	if f.Message = plaintext.Line(s, most); len(s) > most {
		f.Message += " …"
	}
}

// fromResponse sorts an answer whose status is not 2xx. It reads the body and leaves it open.
func fromResponse(res *http.Response) *failure {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what came is all there is to say
	message, codes := describe(body)
	f := sortStatus(res.StatusCode, message, codes)
	f.after = retryAfter(res.Header, time.Now())
	if res.Header.Get("x-should-retry") == "false" {
		f.retry = false
	}
	if to := res.Header.Get("location"); res.StatusCode/100 == 3 && to != "" {
		f.Kind, f.Hint = model.KindNotFound, "if you trust that address, set base_url to it"
		f.Message = "the address moved to " + to
	}
	return f
}

// streamStatus is the status of a code in a stream. A provider does not send the beginning of an answer to a bad
// request, so any other code is a failure of the provider.
var streamStatus = map[string]int{"overloaded_error": 529, "authentication_error": 401,
	"rate_limit_error": 429, "rate_limit_exceeded": 429, "invalid_request_error": 400, "BadRequestError": 400}

// fromStream sorts an error that a provider sent inside of a stream.
func fromStream(body []byte) *failure {
	message, codes := describe(body)
	status := http.StatusInternalServerError
	for _, c := range codes {
		if n, err := strconv.Atoi(c); err == nil && n >= 400 && n < 600 {
			status = n
		} else if n := streamStatus[c]; n != 0 {
			status = n
		}
	}
	f := sortStatus(status, message, codes)
	f.Status = 0 // HTTP said 200
	return f
}

// sortStatus makes one of our kinds of a status and what was said with it.
func sortStatus(status int, message string, codes []string) *failure {
	f := &failure{cause: model.Error{Status: status, Message: message}, after: -1}
	if message == "" {
		f.Message = fmt.Sprintf("the provider answered with status %d %s", status, http.StatusText(status))
	}
	said := strings.ToLower(message + "\n" + strings.Join(codes, "\n"))
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(said, w) {
				return true
			}
		}
		return false
	}
	switch {
	case says(scripted.ErrorType):
		f.Kind = model.KindScript
	case status == http.StatusPaymentRequired,
		says("insufficient_quota", "billing_error", "credit balance is too low", "exceeded your current quota"):
		f.Kind, f.Hint = model.KindQuota, "look at the account's balance and limits with the provider"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		f.Kind, f.Hint = model.KindAuth, "look at api_key, and whether it belongs to base_url"
	case status == http.StatusTooManyRequests:
		f.Kind, f.retry = model.KindRate, true
	case status == http.StatusRequestEntityTooLarge,
		status < 500 && says("context_length", "context length", "maximum context", "context window", "context size",
			"prompt is too long", "too many tokens", "exceed_context", "input is too long"):
		f.Kind = model.KindTooLong
	case status < 500 && says("content_policy", "content_filter", "content management policy", "safety"):
		f.Kind = model.KindRefused
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		f.Kind, f.Hint = model.KindNotFound, "look at model and base_url; for most servers base_url ends in /v1"
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		f.Kind, f.retry = model.KindServer, status != http.StatusNotImplemented
	default:
		f.Kind = model.KindProtocol
	}
	return f
}

// retryAfter is the pause that a provider asks for; negative if it asks for none.
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

// sortError makes a failure of what the transport, or a stream that broke, said. If ctx has ended, it is the reason.
func sortError(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text := err.Error()
	if u, ok := errors.AsType[*url.Error](err); ok {
		text = u.Err.Error()
	}
	f := fail(model.KindNetwork, "%s", text)
	f.retry = true
	dns, isDNS := errors.AsType[*net.DNSError](err)
	op, isOp := errors.AsType[*net.OpError](err)
	_, isCert := errors.AsType[*tls.CertificateVerificationError](err)
	_, isTooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isTooLarge:
		return tooLarge(maxBody)
	case isCert:
		f.retry, f.Hint = false, "hutch trusts the certificates of this machine; SSL_CERT_FILE names others"
	case isDNS:
		f.retry, f.Hint = dns.IsTemporary || dns.IsTimeout, "look at base_url, and whether this machine has a network"
	case isOp && op.Op == "dial":
		f.Hint = "look at base_url, and whether the server is running"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.Message = "the connection broke before the answer was whole"
	}
	return f
}
