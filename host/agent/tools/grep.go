package tools

import (
	"context"
	"errors"

	"github.com/hutch-run/hutch/host/files"
)

const (
	defaultMatches = 100
	maxMatches     = 1000
	maxContext     = 20
	maxPassedOver  = 100_000 // matching lines before a page
)

// GrepIn are the arguments of [Box.Grep].
type GrepIn struct {
	Pattern    string   `json:"pattern" jsonschema:"regular expression in RE2's syntax, matched against each line"`
	Fixed      bool     `json:"fixed,omitempty" jsonschema:"the pattern is plain text"`
	IgnoreCase bool     `json:"ignore_case,omitempty"`
	Paths      []string `json:"paths,omitempty" jsonschema:"files and directories to search; default the workspace"`
	Include    []string `json:"include,omitempty" jsonschema:"only files that match one of these globs, such as *.go"`
	Exclude    []string `json:"exclude,omitempty" jsonschema:"no files or directories that match one of these globs"`
	Context    int      `json:"context,omitempty" jsonschema:"lines to show before and after each match; at most 20"`
	Offset     int      `json:"offset,omitempty" jsonschema:"matching lines to pass over, for the next page"`
	Limit      int      `json:"limit,omitempty" jsonschema:"matching lines in the answer; default 100, at most 1000"`
}

// GrepOut is a page of what a search found.
type GrepOut struct {
	Files     []GrepFile `json:"files"`
	Count     int        `json:"count" jsonschema:"matching lines in the answer"`
	Next      int        `json:"next,omitempty" jsonschema:"offset of the next page; missing at the end"`
	Truncated bool       `json:"truncated,omitempty" jsonschema:"there are more: ask for the next page, search for less, or in fewer files"`
	Searched  int        `json:"searched" jsonschema:"files that were looked into"`
}

// GrepFile is a file with lines that match.
type GrepFile struct {
	Path  string     `json:"path"`
	Lines []GrepLine `json:"lines"`
}

// GrepLine is a line that matches, or one beside it.
type GrepLine struct {
	Line  int    `json:"line"`
	Text  string `json:"text"`
	Match bool   `json:"match,omitempty" jsonschema:"else it is context"`
}

// Grep searches files for lines that match.
func (b *Box) Grep(ctx context.Context, in GrepIn) (out GrepOut, err error) {
	limit, err := Bounded("limit", in.Limit, defaultMatches, maxMatches)
	around, err2 := Bounded("context", in.Context, 0, maxContext)
	err = errors.Join(err, err2, Negative("offset", in.Offset))
	if err == nil && in.Offset > maxPassedOver {
		err = errors.New("offset: so far into what matches nobody reads; search for less, or in fewer files")
	}
	if err != nil {
		return out, err
	}
	out.Files = []GrepFile{}
	err = b.with(ctx, func(f *files.Files) error {
		m, err := f.Grep(ctx, files.GrepRequest{Pattern: in.Pattern, Fixed: in.Fixed, IgnoreCase: in.IgnoreCase, Paths: in.Paths,
			Include: in.Include, Exclude: in.Exclude, Before: around, After: around, Max: limit, Skip: in.Offset, Ordered: true})
		if err != nil {
			return err
		}
		out.Truncated, out.Searched = m.Truncated, m.Searched
		out.fill(m.Files)
		if out.Truncated {
			out.Next = in.Offset + out.Count
		}
		return nil
	})
	return out, err
}

// fill takes over as much as an answer holds, at least one matching line.
func (o *GrepOut) fill(found []files.Match) {
	bytes := 0
	for _, file := range found {
		g := GrepFile{Path: file.Path, Lines: []GrepLine{}}
		for _, l := range file.Lines {
			if bytes += len(l.Text); bytes > maxListed && o.Count > 0 {
				o.Truncated = true
				if len(g.Lines) > 0 {
					o.Files = append(o.Files, g)
				}
				return
			}
			if l.Match {
				o.Count++
			}
			g.Lines = append(g.Lines, GrepLine{l.Number, l.Text, l.Match})
		}
		o.Files = append(o.Files, g)
	}
}
