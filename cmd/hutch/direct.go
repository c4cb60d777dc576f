package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/session"
)

// direct is the one run of a call without a file.
func (c *runCmd) direct(s *session.Session, call *call, names []string) ([]*runfile.Definition, error) {
	switch {
	case len(names) > 0 && isDir(names[0]):
		return nil, directory("run", names[0])
	case len(names) > 0 && !call.dash:
		return nil, hint(fmt.Errorf("no run file %q", names[0]), "a command goes after --, as in: hutch run --backend bwrap -- %s", strings.Join(names, " "))
	case len(names) > 0:
		return nil, fmt.Errorf("%q stands before -- and is no run file", names[0])
	case len(call.tail) == 0:
		return nil, hint(errors.New("nothing to run: name a run file, or a command after --"), "%s", whatToRun())
	case len(c.Var) > 0 || len(c.VarFile) > 0:
		return nil, errors.New("--var and --var-file are for run files")
	}
	env, passed, err := c.environment()
	if err != nil {
		return nil, err
	}
	net, err := c.network()
	if err == nil {
		net, err = net.WithSecrets(c.Secret)
	}
	if err != nil {
		return nil, err
	}
	d := run.Direct{Backend: c.Backend, Command: call.tail, Env: env, Passed: passed, Workdir: c.Workdir, Network: net, Limits: c.Limits}
	if d.Backend == "" && c.AllBackends {
		d.Backend = "each"
	}
	if d.Backend == "" {
		conf, err := s.Config()
		if err != nil {
			return nil, err
		}
		if d.Backend = conf.Backend; d.Backend == "" {
			return nil, hint(errors.New("a sandbox without a run file needs --backend"),
				"hutch backend list shows what is installed; backend = \"NAME\" in %s makes one the default", s.Store().Paths().ConfigFile())
		}
	}
	switch {
	case c.Workspace != nil && c.Project != nil:
		return nil, errors.New("--workspace and --project exclude each other")
	case c.Project != nil:
		if d.Workspace, err = s.Store().ProjectDir(c.Project.name); err != nil {
			return nil, hint(fmt.Errorf("--project: %w", err), "hutch project create %s makes it, hutch project ls lists those that are there", c.Project.name)
		}
		d.Mode = c.Project.mode
	case c.Workspace != nil:
		if d.Workspace, err = filepath.Abs(c.Workspace.dir); err != nil {
			return nil, err
		}
		switch st, err := os.Stat(d.Workspace); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("--workspace: there is no directory %s", d.Workspace)
		case err != nil:
			return nil, fmt.Errorf("--workspace: %w", err)
		case !st.IsDir():
			return nil, fmt.Errorf("--workspace: %s is not a directory", c.Workspace.dir)
		}
		d.Mode = c.Workspace.mode
	}
	def, err := d.Definition()
	if err != nil {
		return nil, err
	}
	if c.Project != nil {
		def.Workspace.Project = c.Project.name
	}
	switch {
	case c.AllBackends && c.Backend == "":
		def.Backends = nil // those that are installed
	case c.Backend == "":
		def.Given = maps.Clone(def.Given)
		def.Given["backend[0]"] = "backend in " + s.Store().Paths().ConfigFile()
	}
	return []*runfile.Definition{def}, nil
}
