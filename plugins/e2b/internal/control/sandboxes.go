package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// New sandboxes are made by the first version of the call: self-hosted services may not know the second one.

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
	ID        string            `json:"sandboxID"`
	Template  string            `json:"templateID"`
	State     string            `json:"state"` // running or paused
	StartedAt time.Time         `json:"startedAt"`
	EndAt     time.Time         `json:"endAt"`
	CPUs      int64             `json:"cpuCount"`
	MemoryMB  int64             `json:"memoryMB"`
	DiskMB    int64             `json:"diskSizeMB"`
	Metadata  map[string]string `json:"metadata"`
}

// Paused is the state of a sandbox that is.
const Paused = "paused"

// names are what may become part of an address.
var names = sync.OnceValue(func() [2]*regexp.Regexp {
	return [2]*regexp.Regexp{
		regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`),
		regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$`),
	}
})

// IsID reports whether s can be the id of a sandbox.
func IsID(s string) bool { return names()[0].MatchString(s) }

// IsDomain reports whether s is a domain name, with a port or without.
func IsDomain(s string) bool { return names()[1].MatchString(s) && !strings.Contains(s, "..") }

// check refuses an answer whose names must not become part of an address.
func (s *Sandbox) check(call string) error {
	switch {
	case !IsID(s.ID):
		return &Error{Call: call, Status: http.StatusOK, Message: fmt.Sprintf("the service names a sandbox %.80q", s.ID)}
	case s.Domain != "" && !IsDomain(s.Domain):
		return &Error{Call: call, Status: http.StatusOK, Message: fmt.Sprintf("the service names the domain %.80q", s.Domain)}
	}
	return nil
}

type createBody struct {
	Template  string            `json:"templateID"`
	Timeout   int64             `json:"timeout"`
	Secure    bool              `json:"secure"`
	Metadata  map[string]string `json:"metadata"`
	Internet  bool              `json:"allow_internet_access"`
	AutoPause bool              `json:"autoPause"`
}

// Create makes a sandbox. It is sent once, unless the service refuses it for coming too often: who gets an error that
// is Unanswered, or of the kind Service, looks for the sandbox with Find.
func (c *Client) Create(ctx context.Context, n NewSandbox) (*Sandbox, error) {
	s := &Sandbox{}
	k := call{method: http.MethodPost, path: "/sandboxes", answer: s, body: createBody{
		Template: n.Template, Timeout: seconds(n.Timeout), Secure: true, Metadata: n.Metadata, Internet: n.Internet, AutoPause: n.AutoPause,
	}}
	if _, err := c.do(ctx, k); err != nil {
		return nil, err
	}
	return s, s.check(k.name())
}

func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// Get says how a sandbox is, whether it runs or not.
func (c *Client) Get(ctx context.Context, id string) (*Detail, error) {
	d := &Detail{}
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/sandboxes/" + url.PathEscape(id), answer: d, again: true})
	return d, err
}

// Connect makes sure that a sandbox runs for at least so long, resumes it when it is paused, and tells its access
// token.
func (c *Client) Connect(ctx context.Context, id string, timeout time.Duration) (*Sandbox, error) {
	s := &Sandbox{}
	k := call{method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(id) + "/connect", answer: s, again: true,
		body: map[string]int64{"timeout": seconds(timeout)}}
	for n := 0; ; n++ {
		_, err := c.do(ctx, k)
		var e *Error
		if errors.As(err, &e) && e.Kind() == State && n < attempts { // it is just being paused, or resumed
			if err := c.sleep(ctx, firstWait<<n); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return s, s.check(k.name())
	}
}

// Extend sets the end of a sandbox to so long from now.
func (c *Client) Extend(ctx context.Context, id string, timeout time.Duration) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(id) + "/timeout", again: true,
		body: map[string]int64{"timeout": seconds(timeout)}})
	return err
}

// Pause stops a sandbox and keeps what it holds. One that is paused already is fine.
func (c *Client) Pause(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(id) + "/pause", again: true})
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusConflict {
		return nil
	}
	return err
}

// Delete ends a sandbox, paused or not. One that is gone already is fine.
func (c *Client) Delete(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: "/sandboxes/" + url.PathEscape(id), again: true})
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// Find lists the sandboxes, running and paused, that carry all of the metadata.
func (c *Client) Find(ctx context.Context, metadata map[string]string) ([]Detail, error) {
	var pairs []string
	for k, v := range metadata {
		// The service unescapes the value as a whole, takes it apart, and unescapes each part again.
		pairs = append(pairs, url.QueryEscape(url.QueryEscape(k))+"="+url.QueryEscape(url.QueryEscape(v)))
	}
	slices.Sort(pairs)
	q := url.Values{"state": {"running,paused"}, "limit": {strconv.Itoa(100)}}
	if len(pairs) > 0 {
		q.Set("metadata", strings.Join(pairs, "&"))
	}
	var out []Detail
	for range 1000 { // pages
		var page []Detail
		h := http.Header{}
		if _, err := c.do(ctx, call{method: http.MethodGet, path: "/v2/sandboxes", query: q, answer: &page, again: true, header: h}); err != nil {
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
	return nil, &Error{Call: "GET /v2/sandboxes", Status: http.StatusOK, Message: "the list of sandboxes does not end"}
}

// carries reports whether all of want is in got: a service that ignores the filter must not make us take others' for
// ours.
func carries(got, want map[string]string) bool {
	for k, v := range want {
		if got[k] != v {
			return false
		}
	}
	return true
}
