package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/session"
)

type cpCmd struct {
	From    string `arg:"" name:"from" help:"What is copied: a path of this host, SANDBOX:/PATH, or - for a tar stream from stdin." complete:"place"`
	To      string `arg:"" name:"to" help:"Where to: a path of this host, SANDBOX:/PATH, or - for a tar stream to stdout." complete:"place"`
	MaxSize size   `placeholder:"1g" help:"Refuse to take more bytes out of a sandbox (default 4 GiB)."`

	AllowGit   bool `group:"allow" help:"Git repositories and their own files, in any directory."`
	AllowTools bool `group:"allow" help:"Files that tools of this machine run or obey without being asked: settings of editors, coding agents and package managers, .envrc, .gitattributes."`
}

// Help is the text below the synopsis.
func (*cpCmd) Help() string {
	return `Copies between this host and a sandbox, as docker cp does. An existing directory takes the file or directory
under its own name, and the contents of one whose path ends with /. alone. Paths inside a sandbox are absolute.

What comes out of a sandbox is bounded in number and size, and refused as a whole when a name or a link in it leads
out of the destination, or when it would make a git repository there or files that tools run without being asked,
until a flag allows that. A tar stream to stdout is not judged. Files keep their permissions on the way in; a single
file gets 0644 on the way out.

    hutch cp report.py try:/workspace/
    hutch cp try:/workspace/out ./results
    hutch cp try:/workspace -`
}

// place is one end of a copy; sandbox is "" for this host.
type place struct{ sandbox, path string }

// placeOf distinguishes SANDBOX:/PATH from a path of this host, which may hold a colon when it begins with a dot or a
// slash.
func placeOf(s string) place {
	name, at, ok := strings.Cut(s, ":")
	if !ok || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") || strings.Contains(name, "/") || name == "" {
		return place{path: s}
	}
	return place{name, at}
}

func (c *cpCmd) Run(ctx context.Context, u *ui) error {
	from, to := placeOf(c.From), placeOf(c.To)
	switch {
	case from.sandbox != "" && to.sandbox != "":
		return hint(errors.New("cp does not copy from one sandbox to another"),
			"hutch cp %s COPY, and then hutch cp COPY %s", c.From, c.To)
	case from.sandbox == "" && to.sandbox == "":
		return hint(errors.New("neither end is in a sandbox"), "hutch cp %s SANDBOX:/workspace/", c.From)
	}
	for _, p := range []place{from, to} {
		if p.sandbox != "" && !path.IsAbs(p.path) {
			err := fmt.Errorf("%s:%s: a path inside a sandbox is absolute", p.sandbox, p.path)
			return hint(err, "%s:%s is in the workspace", p.sandbox, path.Join("/workspace", p.path))
		}
	}
	return withSandboxes(u, func(m *sandbox.Manager, _ *session.Session) error {
		sb, err := m.Open(ctx, from.sandbox+to.sandbox, sandbox.Shared)
		if err != nil {
			return err
		}
		defer func() { _ = sb.Close() }()
		switch {
		case to.path == "-" && to.sandbox == "":
			if u.outTTY {
				return errors.New("a tar stream is not for a terminal; send it to a file or a program")
			}
			return sb.StreamOut(ctx, from.path, u.out)
		case from.path == "-" && from.sandbox == "":
			return sb.StreamIn(ctx, u.in, to.path)
		case from.sandbox != "":
			if err := sb.CopyOut(ctx, from.path, to.path, sandbox.Caps{Bytes: int64(c.MaxSize)},
				map[judge.Rule]bool{judge.Git: c.AllowGit, judge.Tools: c.AllowTools}); err != nil {
				return hintAllow(fmt.Errorf("copy %s: %w", c.From, sandbox.AboutPath(err, from.path)))
			}
			return nil
		}
		return sb.CopyIn(ctx, from.path, to.path)
	})
}

// hintAllow names the flags that allow what was refused.
func hintAllow(err error) error {
	if bad := new(judge.RefusedError); errors.As(err, &bad) {
		return hint(err, "look at it first; %s lets it land", strings.Join(bad.Flags, " "))
	}
	return err
}
