package termsafe

import (
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Dialect is how the runner of a CI service takes orders from what a job prints.
type Dialect struct {
	Name   string
	Env    string   // the variable that the service sets
	Starts string   // what an order begins with, where it must be the first thing in a line but blanks; empty for none
	Marks  []string // what makes an order anywhere in a line
}

// Dialects are the services that are known. Each Starts and Marks is ASCII.
var Dialects = []Dialect{
	// https://docs.github.com/actions/reference/workflow-commands-for-github-actions, and the older ##[ of its runner;
	// Gitea and Forgejo do the same.
	{Name: "GitHub", Env: "GITHUB_ACTIONS", Starts: "::", Marks: []string{"##["}},
	// https://docs.gitlab.com/ci/jobs/job_logs/#custom-collapsible-sections
	{Name: "GitLab", Env: "GITLAB_CI", Marks: []string{"section_start:", "section_end:"}},
	// https://www.jetbrains.com/help/teamcity/service-messages.html
	{Name: "TeamCity", Env: "TEAMCITY_VERSION", Marks: []string{"##teamcity["}},
	// https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands
	{Name: "Azure", Env: "TF_BUILD", Marks: []string{"##vso[", "##["}},
}

// Runner returns the dialects of the services that this environment is of.
func Runner(getenv func(string) string) []Dialect {
	var list []Dialect
	for _, d := range Dialects {
		if getenv(d.Env) != "" {
			list = append(list, d)
		}
	}
	return list
}

// Fence passes a stream on to the runner of a CI service with its orders made text: a blank is put before the last
// character of what makes an order. Nothing is held back but a character that is not whole. Characters that cannot be
// seen and escape sequences do not hide an order, because runners compare as .NET does or remove them. It is safe for
// concurrent use.
type Fence struct {
	w       io.Writer
	starts  []string
	marks   []string
	json    bool
	mu      sync.Mutex
	pending []byte
	views   [3]view // by what is taken for an escape sequence: nothing, CSI, CSI and strings
}

// view is what was seen of a line.
type view struct {
	begun bool   // there is something other than blanks
	tail  []byte // the last characters of the line, since it began or something was put in
	in    byte   // an escape sequence: 0 no, ESC begun, [ in a CSI, ] in a string
}

// maxTail is longer than any Starts and Marks.
const maxTail = 32

// NewFence returns a Fence of these dialects onto w. With json the stream is JSON, and what would complete an order is
// written as an escape.
func NewFence(w io.Writer, dialects []Dialect, json bool) *Fence {
	f := &Fence{w: w, json: json}
	for _, d := range dialects {
		if d.Starts != "" {
			f.starts = append(f.starts, d.Starts)
		}
		f.marks = append(f.marks, d.Marks...)
	}
	return f
}

// Write implements [io.Writer].
func (f *Fence) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := append(f.pending, p...)
	f.pending = nil
	out := make([]byte, 0, len(in)+16)
	for len(in) > 0 {
		if !utf8.FullRune(in) {
			f.pending = append(f.pending, in...)
			break
		}
		r, n := utf8.DecodeRune(in)
		if f.completes(r) {
			if f.json {
				const hex = "0123456789abcdef"
				out = append(out, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
				in = in[n:]
				continue
			}
			out = append(out, ' ')
		}
		out = append(out, in[:n]...)
		in = in[n:]
	}
	if _, err := f.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes a character that the stream left unfinished. It does not close the writer below.
func (f *Fence) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := f.pending
	f.pending = nil
	if len(rest) == 0 {
		return nil
	}
	_, err := f.w.Write(rest)
	return err
}

// completes takes in the next character, and reports whether it would complete an order.
func (f *Fence) completes(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x85, 0x2028, 0x2029: // what some runner takes for the end of a line
		f.views = [3]view{}
		return false
	}
	var skip [3]bool
	for i := range f.views {
		skip[i] = i > 0 && f.views[i].escape(r, i > 1)
	}
	if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		r != '\t' {
		return false
	}
	found := false
	for i := range f.views {
		found = !skip[i] && f.views[i].add(f, r) || found
	}
	for i := range f.views {
		if v := &f.views[i]; found && !skip[i] {
			v.begun, v.tail = true, v.tail[:0]
		}
	}
	return found
}

// escape follows escape sequences, and reports whether r is part of one.
func (v *view) escape(r rune, strings bool) bool {
	switch {
	case r == 0x1b:
		v.in = 0x1b
	case v.in == 0x1b && (r == '[' || r == ']' && strings):
		v.in = byte(r)
	case v.in == 0x1b && strings && r >= 0x30 && r <= 0x7e: // a sequence of two
		v.in = 0
	case v.in == '[' && r >= 0x20 && r < 0x40: // its parameters
	case v.in == '[' && r >= 0x40 && r <= 0x7e, v.in == ']' && r == 0x07:
		v.in = 0
	case v.in == ']':
	default:
		v.in = 0
		return false
	}
	return true
}

// add takes in a character that can be seen, or a blank.
func (v *view) add(f *Fence, r rune) bool {
	if unicode.IsSpace(r) {
		v.tail = v.tail[:0]
		if v.begun {
			v.tail = append(v.tail, ' ') // no order begins a line any more
		}
		return false
	}
	first := len(v.tail) == 0 && !v.begun
	v.begun = true
	if r >= utf8.RuneSelf {
		r = 0 // no order has it
	}
	if first {
		v.tail = append(v.tail, '\n')
	}
	v.tail = append(v.tail, byte(r))
	line := string(v.tail)
	for _, s := range f.starts {
		if line == "\n"+s {
			return true
		}
	}
	for _, m := range f.marks {
		if strings.HasSuffix(line, m) {
			return true
		}
	}
	if len(v.tail) > maxTail {
		v.tail = append(v.tail[:0], v.tail[len(v.tail)-maxTail+1:]...)
	}
	return false
}
