package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// NewSandbox is what a sandbox is to be like.
type NewSandbox struct {
	Template  string
	Timeout   time.Duration     // after which the service ends or pauses it, unless it is extended; whole seconds
	Metadata  map[string]string // by which it is found again; values without = and &
	Internet  bool
	AutoPause bool // pause it at the end of its time, instead of ending it
}

// Sandbox is a sandbox that runs.
type Sandbox struct {
	ID          string `json:"sandboxID"`
	Template    string `json:"templateID"`
	Domain      string `json:"domain"`
	EnvdVersion string `json:"envdVersion"`
	AccessToken string `json:"envdAccessToken"` // a secret
}

// Detail is what the service says of a sandbox.
type Detail struct {
	ID       string            `json:"sandboxID"`
	Template string            `json:"templateID"`
	State    string            `json:"state"` // running or paused
	EndAt    time.Time         `json:"endAt"`
	CPUs     int64             `json:"cpuCount"`
	MemoryMB int64             `json:"memoryMB"`
	DiskMB   int64             `json:"diskSizeMB"`
	Metadata map[string]string `json:"metadata"`
}

// Paused is the state of a sandbox that is.
const Paused = "paused"

// What may become part of an address.
var (
	idForm     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`) })
	domainForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$`)
	})
)

// IsID reports whether s can be the id of a sandbox.
func IsID(s string) bool { return idForm().MatchString(s) }

// IsDomain reports whether s is a domain name, with a port or without.
func IsDomain(s string) bool { return domainForm().MatchString(s) && !strings.Contains(s, "..") }

// check refuses an answer whose names must not become part of an address.
func (s *Sandbox) check(call string) error {
	if IsID(s.ID) && (s.Domain == "" || IsDomain(s.Domain)) {
		return nil
	}
	message := fmt.Sprintf("the service names a sandbox %.80q in the domain %.80q", s.ID, s.Domain)
	return &Error{Call: call, Status: http.StatusOK, Message: message}
}

// Create makes a sandbox, by the first version of the call: self-hosted services may not know the second one. It is
// sent once, unless the service refuses it for coming too often: after an error that is Unanswered, or of the kind
// Service, the caller looks for the sandbox with Find.
func (c *Client) Create(ctx context.Context, n NewSandbox) (*Sandbox, error) {
	return c.sandbox(ctx, call{method: http.MethodPost, path: "/sandboxes", body: map[string]any{
		"templateID": n.Template, "timeout": seconds(n.Timeout), "secure": true, "metadata": n.Metadata,
		"allow_internet_access": n.Internet, "autoPause": n.AutoPause,
	}})
}

// sandbox makes a call that answers with a sandbox.
func (c *Client) sandbox(ctx context.Context, k call) (*Sandbox, error) {
	s := &Sandbox{}
	k.answer = s
	if _, err := c.do(ctx, k); err != nil {
		return nil, err
	}
	if err := s.check(k.name()); err != nil {
		return nil, err
	}
	return s, nil
}

func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// about is a call about one sandbox, which may be repeated.
func about(method, id, action string) call {
	return call{method: method, path: "/sandboxes/" + url.PathEscape(id) + action, idempotent: true}
}

// Get describes a sandbox, whether it runs or not.
func (c *Client) Get(ctx context.Context, id string) (*Detail, error) {
	d := &Detail{}
	k := about(http.MethodGet, id, "")
	k.answer = d
	_, err := c.do(ctx, k)
	return d, err
}

// Connect resumes a sandbox if it is paused, keeps it for at least the timeout from now, and returns its access token.
func (c *Client) Connect(ctx context.Context, id string, timeout time.Duration) (*Sandbox, error) {
	k := about(http.MethodPost, id, "/connect")
	k.body = map[string]int64{"timeout": seconds(timeout)}
	for n := 0; ; n++ {
		s, err := c.sandbox(ctx, k)
		var e *Error
		if !errors.As(err, &e) || e.Kind() != State || n == attempts {
			return s, err
		}
		if err := c.Sleep(ctx, firstWait<<n); err != nil { // while it is being paused, or resumed
			return nil, err
		}
	}
}

// Extend sets the end of a sandbox's life to the timeout from now.
func (c *Client) Extend(ctx context.Context, id string, timeout time.Duration) error {
	k := about(http.MethodPost, id, "/timeout")
	k.body = map[string]int64{"timeout": seconds(timeout)}
	_, err := c.do(ctx, k)
	return err
}

// Pause stops a sandbox and keeps what it holds. One that is paused already is not an error.
func (c *Client) Pause(ctx context.Context, id string) error {
	_, err := c.do(ctx, about(http.MethodPost, id, "/pause"))
	return unless(http.StatusConflict, err)
}

// Delete ends a sandbox, paused or not. One that is gone already is not an error.
func (c *Client) Delete(ctx context.Context, id string) error {
	_, err := c.do(ctx, about(http.MethodDelete, id, ""))
	return unless(http.StatusNotFound, err)
}

// unless drops an error with the status.
func unless(status int, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Status == status {
		return nil
	}
	return err
}

// Find lists the sandboxes, running and paused, that carry all of the metadata.
func (c *Client) Find(ctx context.Context, metadata map[string]string) (out []Detail, err error) {
	var pairs []string
	for k, v := range metadata {
		// The service unescapes the value as a whole, takes it apart, and unescapes each part again.
		pairs = append(pairs, url.QueryEscape(url.QueryEscape(k))+"="+url.QueryEscape(url.QueryEscape(v)))
	}
	slices.Sort(pairs)
	q := url.Values{"state": {"running,paused"}, "limit": {"100"}}
	if len(pairs) > 0 {
		q.Set("metadata", strings.Join(pairs, "&"))
	}
	const path = "/v2/sandboxes"
	for range 1000 { // pages
		var page []Detail
		h, err := c.do(ctx, call{method: http.MethodGet, path: path, query: q, answer: &page, idempotent: true})
		if err != nil {
			return nil, err
		}
		for _, d := range page {
			if carries(d.Metadata, metadata) && IsID(d.ID) {
				out = append(out, d)
			}
		}
		next := h.Get("X-Next-Token")
		if next == "" || len(page) == 0 {
			return out, nil
		}
		q.Set("nextToken", next)
	}
	return nil, &Error{Call: "GET " + path, Status: http.StatusOK, Message: "the list of sandboxes does not end"}
}

// carries reports whether all of want is in got: the service might ignore the filter, and return others' sandboxes.
func carries(got, want map[string]string) bool {
	for k, v := range want {
		if got[k] != v {
			return false
		}
	}
	return true
}
