package control

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Error is a call that the control plane did not do, or did not answer.
type Error struct {
	Call       string        // method and path
	Status     int           // of HTTP; 0 when there was no answer
	Code       string        // the service's own word for some failures, such as sandbox_capacity_unavailable
	Message    string        // one line, without the key; the service's words
	RetryAfter time.Duration // how long it wants to be left alone; 0 when it does not say
	Unanswered bool          // the connection broke: it may have been done
	Unsent     bool          // there was no connection: it was not done
	Err        error         // the error underneath, of a broken connection
}

// Error implements the error interface.
func (e *Error) Error() string {
	switch {
	case e.Unsent:
		return e.Message
	case e.Unanswered:
		return fmt.Sprintf("%s was not answered: %s", e.Call, e.Message)
	}
	return fmt.Sprintf("%s: %d %s", e.Call, e.Status, e.Message)
}

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// Kind says what a failure is about.
type Kind string

// The kinds.
const (
	Key      Kind = "key"      // the API key is missing or refused
	Access   Kind = "access"   // the key is good, and not for this
	Quota    Kind = "quota"    // too many sandboxes
	Rate     Kind = "rate"     // too many calls
	Capacity Kind = "capacity" // the service has no room just now
	Template Kind = "template" // there is no such template
	Gone     Kind = "gone"     // there is no such sandbox, or not any more
	Request  Kind = "request"  // the service does not take these values
	State    Kind = "state"    // not in the state that the sandbox is in
	Service  Kind = "service"  // it failed, or cannot be reached
)

// capacityCodes are the service's words for having no room.
var capacityCodes = []string{"sandbox_capacity_unavailable", "sandbox_placement_timeout", "sandbox_no_compatible_node"}

// Kind returns what the failure is about.
func (e *Error) Kind() Kind {
	switch {
	case e.Status == http.StatusUnauthorized:
		return Key
	case e.Status == http.StatusForbidden:
		return Access
	case e.Status == http.StatusTooManyRequests && (e.RetryAfter > 0 ||
		strings.Contains(strings.ToLower(e.Message), "rate limit")):
		return Rate
	case e.Status == http.StatusTooManyRequests:
		return Quota
	case slices.Contains(capacityCodes, e.Code):
		return Capacity
	case e.Status == http.StatusNotFound && strings.Contains(e.Message, "template"):
		return Template
	case e.Status == http.StatusNotFound:
		return Gone
	case e.Status == http.StatusConflict:
		return State
	case e.Status >= 400 && e.Status < 500:
		return Request
	}
	return Service
}
