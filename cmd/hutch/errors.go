package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/diag"
)

var (
	missingOperand = lazy(`^expected "(<[^"]+)"$`)
	missingCommand = lazy(`^expected (?:one of )?(".*)$`)
	unexpected     = lazy(`^unexpected argument (.*?)(, did you mean (.*))?$`)
	unknownFlag    = lazy(`^unknown flag (-\S+?)(, did you mean (.*))?$`)
	notOneOf       = lazy(`^(--\S+) must be one of (".*") but got (".*")$`)
	noNumber       = lazy(`^(--\S+): expected (?:a valid \d+ bit )?int(?: value)? but got ("[^"]*")`)
)

// lazy compiles an expression at its first use: most calls never need it.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// usageError puts what the parser says into hutch's own words and says where to read on. A message that is not
// recognised is passed on as it is, so nothing depends on the parser's wording but the wording.
func usageError(k *kong.Kong, err error) error {
	var done exit
	if errors.As(err, &done) {
		return err
	}
	where := "hutch"
	var p *kong.ParseError
	if errors.As(err, &p) && p.Context != nil {
		if n := p.Context.Selected(); n != nil {
			where = n.FullPath()
		}
	}
	// "" is the default
	text, hints := strings.Replace(err.Error(), `must be one of "",`, "must be one of ", 1), []string{}
	name := strings.TrimPrefix(where, "hutch ")
	switch {
	case missingOperand().MatchString(text):
		text = fmt.Sprintf("%s needs %s", name,
			strings.ToUpper(strings.Trim(strings.TrimSuffix(missingOperand().FindStringSubmatch(text)[1], " ..."), "<>")))
	case missingCommand().MatchString(text):
		text = fmt.Sprintf("%s needs a command: %s", name, strings.ReplaceAll(missingCommand().FindStringSubmatch(text)[1],
			`"`, ""))
	case unexpected().MatchString(text):
		m := unexpected().FindStringSubmatch(text)
		if where == "hutch" || k != nil && p != nil && p.Context != nil && p.Context.Selected() != nil &&
			!p.Context.Selected().Leaf() {
			word := strings.Trim(m[1], `"`)
			text = fmt.Sprintf("no command %q", strings.TrimPrefix(where+" "+word, "hutch "))
			hints = unknownWord(strings.TrimPrefix(strings.TrimPrefix(where, "hutch"), " "), word, "",
				commandNames(selected(k, p)))
		} else {
			text = fmt.Sprintf("%s does not take %s", name, quoteOperand(m[1]))
		}
	case unknownFlag().MatchString(text):
		m := unknownFlag().FindStringSubmatch(text)
		text = fmt.Sprintf("%s has no flag %s", name, m[1])
		hints = unknownWord(name, m[1], "--", flagsOf(k, p))
	case notOneOf().MatchString(text):
		m := notOneOf().FindStringSubmatch(text)
		known := strings.ReplaceAll(m[2], `"`, "")
		text = fmt.Sprintf("%s is one of %s, and not %s", m[1], strings.ReplaceAll(known, ",", ", "), m[3])
		given := strings.Trim(m[3], `"`)
		if at := model.Compatible(given); at != "" && m[1] == "--provider" {
			hints = append(hints, fmt.Sprintf("%s speaks OpenAI's protocol: --provider openai --base-url %s", given, at))
		} else if guess := diag.Suggest(given, strings.Split(known, ",")); guess != "" {
			hints = append(hints, fmt.Sprintf("did you mean %s?", guess))
		}
	case noNumber().MatchString(text):
		m := noNumber().FindStringSubmatch(text)
		text = fmt.Sprintf("%s is a whole number, and not %s", m[1], m[2])
		if strings.HasPrefix(m[2], `"-`) {
			text = fmt.Sprintf("%s is a whole number that is not negative, and not %s", m[1], m[2])
		}
	}
	hints = append(hints, where+" --help shows what it takes")
	return &hinted{errors.New(text), hints}
}

// selected is the command that a line got to.
func selected(k *kong.Kong, p *kong.ParseError) *kong.Node {
	if p != nil && p.Context != nil && p.Context.Selected() != nil {
		return p.Context.Selected()
	}
	return k.Model.Node
}

// commandNames are the commands below a node that could have been meant.
func commandNames(n *kong.Node) (names []string) {
	for _, c := range n.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// flagsOf are the flags that could have been meant.
func flagsOf(k *kong.Kong, p *kong.ParseError) (names []string) {
	for _, group := range selected(k, p).AllFlags(true) {
		for _, f := range group {
			names = append(names, f.Name)
		}
	}
	return names
}

func quoteOperand(s string) string {
	if strings.HasPrefix(s, `"`) {
		return s
	}
	return fmt.Sprintf("%q", s)
}
