package envd

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzRefusal sees to it that what a machine refuses with is one line without the token.
func FuzzRefusal(f *testing.F) {
	for _, s := range []string{`{"code":"not_found","message":"no\nuser"}`, `{"code":7,"message":"token token"}`, "<html>\x1b[2J", `{"message":"\u009b\u202e"}`, `"`} {
		f.Add([]byte(s))
	}
	r, err := http.NewRequest(http.MethodGet, "http://machine.example/", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		answer := roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusInternalServerError, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
		})
		_, err := (&refusals{Address{Token: "token"}, answer}).RoundTrip(r) //nolint:bodyclose // it returns no response
		var e *Error
		if !errors.As(err, &e) || e.Message == "" || len(e.Message) > 500 || !utf8.ValidString(e.Message) || strings.ContainsFunc(e.Message, unicode.IsControl) {
			t.Fatalf("%#v", err)
		}
		if strings.Contains(strings.ReplaceAll(e.Message, "access token", ""), "token") {
			t.Errorf("the token is in %q", e.Message)
		}
	})
}
