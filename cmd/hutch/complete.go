package main

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/files"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
)

// completeCmd is what completion scripts ask. Both commands get the words of the line after --, and say nothing where
// these name nothing.
type completeCmd struct {
	Runs  completeRunsCmd  `cmd:"" help:"Print the names of the runs in the run files among the words."`
	Paths completePathsCmd `cmd:"" help:"Print the paths in the sandbox among the words that begin with the last word."`
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
	conf, _ := runfile.Load(found, runfile.Options{Languages: language.Names(), AllowMissing: true}) // what is wrong is not said here
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

type completePathsCmd struct {
	Words []string `arg:"" optional:""`
}

func (c *completePathsCmd) Run(ctx context.Context, u *ui) error {
	if len(c.Words) == 0 {
		return nil
	}
	s, done, err := openStore()
	if err != nil {
		return err
	}
	list, err := s.Sandboxes()
	done()
	if err != nil {
		return err
	}
	last := len(c.Words) - 1
	for _, box := range list {
		if !slices.Contains(c.Words[:last], box.Name) {
			continue
		}
		dir, _ := path.Split(c.Words[last])
		return sandboxArg{box.Name}.withFiles(ctx, u, 0, func(f *files.Files) error {
			l, err := f.List(ctx, files.ListRequest{Path: dir, Depth: 1})
			if err != nil {
				return err
			}
			for _, e := range l.Entries {
				name := e.Path
				if e.Type == "directory" {
					name += "/"
				}
				if strings.HasPrefix(name, c.Words[last]) && name != "./" {
					if err := u.line("%s", name); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return nil
}
