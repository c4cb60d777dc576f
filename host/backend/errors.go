package backend

import (
	"errors"
	"fmt"
	"strings"
)

// Error says which backend failed during which call.
type Error struct {
	Backend string
	// describe, check, plan, create, attach, inspect, exec, put, get, changes, reset, destroy, list or drain
	Call string
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("backend %q: %s: %v", e.Backend, e.Call, e.Err) }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// Place is one place where a backend was looked for, and why it was not taken.
type Place struct {
	Path string
	Why  string
}

// NotFoundError says that no backend of that name was found, and where it was looked for.
type NotFoundError struct {
	Name   string
	Places []Place
	Fix    string
	Only   bool // the configuration names the place: nothing that is installed elsewhere would be taken
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "there is no backend %q", e.Name)
	for i, p := range e.Places {
		if i == 0 {
			b.WriteString("; looked at ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", p.Path, p.Why)
	}
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// LockError says that what a lock file names and what is on disk differ.
type LockError struct {
	Name  string
	Lock  string // path of the lock file
	Found string // what was found, one line that goes on after the path
	Fix   string
}

func (e *LockError) Error() string {
	s := fmt.Sprintf("backend %q: %s: %s", e.Name, e.Lock, e.Found)
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// StartError says why a backend that was found could not be started.
type StartError struct {
	Name string
	Path string
	// Found is what was found instead of a working backend, one line.
	Found string
	Fix   string
	Lines []string // the last lines of its log
}

func (e *StartError) Error() string {
	s := fmt.Sprintf("backend %q at %s: %s", e.Name, e.Path, e.Found)
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// ErrStopped says that the backend was stopped on purpose before or during a call.
var ErrStopped = errors.New("the backend was stopped")

// DiedError says that the process of a backend ended during a call.
type DiedError struct {
	How   string   // "signal: killed", "exit status 2"
	Why   error    // why hutch killed it; nil when it died by itself
	Lines []string // the last 20 lines of its log
	Log   string   // file with all of them, "" when none is kept
}

// mostWords is how many of the last lines a message has.
const mostWords = 3

// lastWords is the end of a log for a message, or "".
func lastWords(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "its last words: " + strings.Join(lines[max(0, len(lines)-mostWords):], " / ")
}

func (e *DiedError) Error() string {
	s := "its process died (" + e.How + ")"
	if e.Why != nil {
		s += ": " + e.Why.Error()
	}
	if words := lastWords(e.Lines); words != "" {
		s += "; " + words
	}
	if e.Log != "" {
		s += "; log: " + e.Log
	}
	return s
}

// Unwrap returns why hutch killed it.
func (e *DiedError) Unwrap() error { return e.Why }
