package ingest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk/safepath"
)

// mostProblems is how many problems of an answer are told.
const mostProblems = 20

// Problem is one thing that is wrong with an answer, in words that its author can act on.
type Problem struct {
	Path    string   `json:"path,omitempty"` // the file that it is about
	Hunk    int      `json:"hunk,omitempty"` // which hunk or block of that file, from 1
	Line    int      `json:"line,omitempty"` // of the answer, from 1
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`    // what to do about it
	Nearest *Nearest `json:"nearest,omitempty"` // what the file has that comes closest to what was looked for
}

// Nearest are lines of a file.
type Nearest struct {
	First int      `json:"first"` // number of the first one, from 1
	Lines []string `json:"lines"`
}

// Error shows all but the hint, on one line, and the nearest lines below it. Paths are quoted where they need it.
func (p *Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d of the answer: ", p.Line)
	}
	if p.Path != "" {
		b.WriteString(safepathQuote(p.Path) + ": ")
	}
	if p.Hunk > 0 {
		fmt.Fprintf(&b, "hunk %d: ", p.Hunk)
	}
	b.WriteString(p.Message)
	if p.Nearest != nil {
		b.WriteString("; the nearest lines of the file are")
		for i, l := range p.Nearest.Lines {
			fmt.Fprintf(&b, "\n%6d  %s", p.Nearest.First+i, l)
		}
	}
	return b.String()
}

// Error says why an answer cannot be used. It has at least one problem.
type Error struct {
	Format   Format // "" when it was not recognised
	Problems []Problem
	More     int // problems beyond these
}

// Error shows the problems, one a line.
func (e *Error) Error() string {
	var lines []string
	for _, p := range e.Problems {
		lines = append(lines, p.Error())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// ExitCode is that of a no: the answer cannot be used.
func (*Error) ExitCode() int { return 1 }

func (p *parser) problem(q Problem) {
	if len(p.problems) == mostProblems {
		p.more++
		return
	}
	p.problems = append(p.problems, q)
}

// fail adds a problem of a line of the answer; 0 for none. The hint may be empty.
func (p *parser) fail(line int, message, hint string) { p.failIn("", line, message, hint) }

// failIn is fail for a file.
func (p *parser) failIn(path string, line int, message, hint string) {
	p.problem(Problem{Path: path, Line: line, Message: message, Hint: hint})
}

func (p *parser) err() error { return &Error{p.out.Format, p.problems, p.more} }

// badPath says what is wrong with a path.
func (p *parser) badPath(err error, path string, line int) {
	var e *safepath.Error
	if !errors.As(err, &e) {
		p.failIn(path, line, err.Error(), "")
		return
	}
	q := Problem{Line: line, Message: fmt.Sprintf("the path %s %s", strconv.Quote(e.Path), strings.SplitN(e.Reason, ";", 2)[0]), Hint: "paths are relative to the directory of the files, as in src/main.py"}
	switch {
	case e.Kind == safepath.Empty:
		q.Message = "a file has no path"
	case e.Kind == safepath.Duplicate:
		q.Message, q.Hint = fmt.Sprintf("the file %s is there twice", strconv.Quote(e.Path)), "give each file once, as it shall be in the end"
		if first := p.where[e.Path]; first > 0 {
			q.Message += fmt.Sprintf("; the first one begins in line %d", first)
		}
	case e.Kind == safepath.Collision:
		q.Message, q.Hint = fmt.Sprintf("the paths %+q and %+q are the same where case or Unicode form does not count", e.Path, e.Other), "rename one"
	case e.Kind == safepath.Conflict:
		q.Message, q.Hint = fmt.Sprintf("the files %s and %s cannot both exist: %s", strconv.Quote(e.Path), strconv.Quote(e.Other), e.Reason), "rename one"
	case e.Clean != "":
		q.Hint = "write " + strconv.Quote(e.Clean)
	}
	p.problem(q)
}

// safepathQuote shows a path as it is when nothing in it could be taken for something else.
func safepathQuote(p string) string {
	if safepath.Check(p) != nil || strings.ContainsAny(p, " :\"'") {
		return strconv.Quote(p)
	}
	return p
}
