package main

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/workspace/files"
)

// completeCmd is what completion scripts ask. Its commands get words of the line after --, and print nothing where
// these name nothing.
type completeCmd struct {
	Runs   completeRunsCmd   `cmd:"" help:"Print the names of the runs in the run files among the words."`
	Help   completeHelpCmd   `cmd:"" help:"Print the names of commands and topics."`
	Paths  completePathsCmd  `cmd:"" help:"Print the paths in the sandbox among the words that begin with the last word."`
	Places completePlacesCmd `cmd:"" help:"Print each SANDBOX:/PATH that begins with the word."`
}

type completeRunsCmd struct {
	Words []string `arg:"" optional:""`
}

// Run prints names with their instances, as run and plan take them.
func (c *completeRunsCmd) Run(u *ui) error {
	var found []string
	for _, w := range c.Words {
		if strings.HasSuffix(w, ".hcl") {
			found = append(found, w)
		}
	}
	if len(found) == 0 {
		return nil
	}
	// what is wrong is not said here
	conf, _ := runfile.Load(found, runfile.Options{Languages: language.Names(), AllowMissing: true})
	var names []string
	for _, d := range conf.Runs() {
		names = append(names, d.Name)
	}
	for _, n := range slices.Compact(names) {
		if err := u.line("%s", n); err != nil {
			return err
		}
	}
	return nil
}

type completeHelpCmd struct {
	Words []string `arg:"" optional:""`
}

// Run prints what hutch help takes.
func (c *completeHelpCmd) Run(u *ui, k *kong.Kong) error {
	return u.line("%s", strings.Join(helpWords(k.Model.Node), "\n"))
}

type completePathsCmd struct {
	Words []string `arg:"" optional:""`
}

func (c *completePathsCmd) Run(ctx context.Context, u *ui) error {
	if len(c.Words) == 0 {
		return nil
	}
	names, err := sandboxNames()
	if err != nil {
		return err
	}
	last := len(c.Words) - 1
	for _, name := range names {
		if slices.Contains(c.Words[:last], name) {
			return completePath(ctx, u, name, "", c.Words[last])
		}
	}
	return nil
}

type completePlacesCmd struct {
	Word string `arg:"" optional:""`
}

func (c *completePlacesCmd) Run(ctx context.Context, u *ui) error {
	if p := placeOf(c.Word); p.sandbox != "" {
		return completePath(ctx, u, p.sandbox, p.sandbox+":", p.path)
	}
	names, err := sandboxNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, c.Word) {
			if err := u.line("%s:/workspace/", name); err != nil {
				return err
			}
		}
	}
	return nil
}

func sandboxNames() ([]string, error) {
	s, done, err := openStore()
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := s.Sandboxes()
	var names []string
	for _, box := range list {
		names = append(names, box.Name)
	}
	return names, err
}

// completePath prints before and each path in a sandbox that begins with word.
func completePath(ctx context.Context, u *ui, sandbox, before, word string) error {
	return sandboxArg{sandbox}.withFiles(ctx, u, 0, func(f *files.Files) error {
		dir, start := path.Split(word)
		l, err := f.List(ctx, files.ListRequest{Path: dir, Depth: 1})
		if err != nil {
			return err
		}
		for _, e := range l.Entries {
			name := path.Base(e.Path)
			if e.Path == "." || !strings.HasPrefix(name, start) {
				continue
			}
			if e.Type == "directory" {
				name += "/"
			}
			if err := u.line("%s%s%s", before, dir, name); err != nil {
				return err
			}
		}
		return nil
	})
}
