package main

import (
	"context"
	"slices"

	"github.com/hutch-run/hutch/host/install"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/session"
)

type initCmd struct {
	Files   []string `arg:"" optional:"" name:"file" help:"Run files, or directories with all the *.hcl in them (default: this one)." complete:"hcl"`
	Upgrade bool     `help:"Take the newest versions that the run files allow, whatever is locked."`
	Locked  bool     `help:"Change no lock file, and fail where one would have to be changed: for CI."`
	Output  string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text, or json: one object a line."`
}

// Help is the text below the synopsis.
func (*initCmd) Help() string {
	return `Reads what run files require in their hutch blocks, brings the backends that have a source onto this machine,
checks them, and writes .hutch.lock.hcl beside the run files: the version, and the hashes of its files for every
platform. Commit it. What is locked and installed already is not asked for again, so a second call needs no network;
other commands never use the network for that.

A source is the repository of a registry (registry.example.com/acme/hutch-backend-acme, with the credentials of docker
login), the directory of a release on a web server (https://example.com/acme/v{version}), or a directory or an archive
on this machine (./dist). Keys in your configuration say whose signatures are wanted.

    hutch init
    hutch init --upgrade ci.hcl
    hutch init --locked`
}

func (c *initCmd) Run(ctx context.Context, u *ui) error {
	s, done, err := open(u)
	if err != nil {
		return err
	}
	defer done()
	paths, whole, err := c.expand()
	if err != nil {
		return err
	}
	files, ds := runfile.Requirements(paths)
	if ds.HasErrors() {
		return ds.Err()
	}
	in, err := installer(s, u)
	if err != nil {
		return err
	}
	got, err := in.Init(ctx, files, install.InitOptions{Upgrade: c.Upgrade, Locked: c.Locked, Whole: whole})
	if err := printEach(u, c.Output, got, initialized); err != nil {
		return err
	}
	if err == nil && len(got) == 0 {
		u.note("%s no backend", required(len(files)))
	}
	return err
}

func required(files int) string {
	if files == 1 {
		return "the run file requires"
	}
	return count(files, "run file") + " require"
}

// initialized is what became of a backend, in a line.
func initialized(g install.Initialized) string {
	if g.Source == "" {
		return g.Name + ": comes with hutch"
	}
	text := g.Name + " " + g.Version
	if g.Was != "" {
		text += " instead of " + g.Was
	}
	text += " from " + g.Source
	if g.Fetched {
		text += ": installed"
	} else {
		text += ": was installed already"
	}
	if g.Signed != "" {
		text += ", signed by " + g.Signed
	}
	return text
}

// expand finds the run files that are meant; whole says that they are all of their directories.
func (c *initCmd) expand() (paths []string, whole bool, err error) {
	if len(c.Files) == 0 {
		c.Files = []string{"."}
	}
	paths, err = runFiles(c.Files)
	return paths, !slices.ContainsFunc(c.Files, func(f string) bool { return !isDir(f) }), err
}

// installer is what brings backends onto this machine, as the user's configuration wants it.
func installer(s *session.Session, u *ui) (*install.Installer, error) {
	conf, err := s.Config()
	if err != nil {
		return nil, err
	}
	return &install.Installer{
		Dir:   s.Store().Paths().Installed(),
		Trust: session.Trust(conf),
		Note:  func(name, text string) { u.note("backend %q: %s", name, text) },
	}, nil
}
