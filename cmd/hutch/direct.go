package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/session"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/units"
)

// direct is the one run of a call without a file.
func (c *runFlags) direct(s *session.Session, call *call, names []string) ([]*runfile.Definition, error) {
	d := run.Direct{Backend: c.Backend, Command: call.tail, Workdir: c.Workdir, Limits: c.Limits, Mounts: c.mounts()}
	var inImage json.RawMessage // configuration of the backend
	switch {
	case len(names) > 0 && isDir(names[0]):
		return nil, directory("run", names[0])
	case len(names) > 0 && (names[0] == "-" || isScript(names[0])):
		var err error
		if d.Script, err = c.script(names[0]); err != nil {
			return nil, err
		}
		d.Command, d.Args, d.Language = nil, call.tail, c.Language
	case len(names) > 0 && isImage().MatchString(names[0]):
		if len(call.tail) == 0 {
			return nil, hint(fmt.Errorf("nothing to run in the image %s", names[0]), "hutch run %s COMMAND [ARG...]", names[0])
		}
		inImage, _ = json.Marshal(map[string]string{"image": names[0]})
		d.Backend = cmp.Or(c.Backend, "podman")
	case len(names) > 0 && !call.dash:
		if _, script := language.ByPath(names[0]); script {
			return nil, missingScript(names[0])
		}
		return nil, hint(fmt.Errorf("no run file %q", names[0]), "a command goes after --, as in: hutch run -- %s",
			strings.Join(names, " "))
	case len(names) > 0:
		return nil, fmt.Errorf("%q stands before -- and is no run file", names[0])
	case len(call.tail) == 0:
		return nil, hint(errors.New("nothing to run: name a run file, a script, or a command after --"), "%s", whatToRun())
	case len(c.Var) > 0 || len(c.VarFile) > 0:
		return nil, errors.New("--var and --var-file are for run files")
	}
	if c.MinAge > 0 {
		return nil, errors.New("--min-age is for the dependencies of a run file")
	}
	o, err := c.overrides()
	if err != nil {
		return nil, err
	}
	d.Env, d.Passed, d.Network = o.Env, o.Passed, o.Network
	switch {
	case c.Workspace != nil && c.Project != nil:
		return nil, errors.New("--workspace and --project exclude each other")
	case c.Project != nil:
		if d.Workspace, err = s.Store().ProjectDir(c.Project.name); err != nil {
			return nil,
				hint(fmt.Errorf("--project: %w", err),
					"hutch project create %s makes it, hutch project ls lists those that are there", c.Project.name)
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
	if inImage != nil {
		def.Backends[0] = runfile.RecordedBackend(d.Backend, inImage)
	}
	return []*runfile.Definition{def}, nil
}

// sayDefault says, once for a store, which backends runs take that name none.
func sayDefault(u *ui, s *session.Session, isolation string, defs []*runfile.Definition) {
	names, err := s.DefaultBackends(isolation)
	conf, confErr := s.Config()
	if !slices.ContainsFunc(defs, func(d *runfile.Definition) bool { return len(d.Backends) == 0 }) ||
		err != nil || len(names) == 0 || confErr != nil || conf.Backend != "" || !firstTime(s, "default-backend") {
		return
	}
	u.note("no backend is named, so the first of %s that works here is used; backend = \"NAME\" in %s chooses one",
		strings.Join(names, ", "), s.Store().Paths().ConfigFile())
}

// sayWeaker says, once for a store, that a backend without namespaces was used.
func sayWeaker(u *ui, s *session.Session, results []*result.Result) {
	for _, r := range results {
		if r != nil && r.Backend.Isolation == "process" && firstTime(s, "weaker-backend") {
			u.note("backend %q isolates less than namespaces do: min_isolation = \"namespace\" in %s refuses it",
				r.Backend.Name, s.Store().Paths().ConfigFile())
			return
		}
	}
}

// firstTime reports whether nothing was said yet under a name. Where nothing can be kept, nothing is said.
func firstTime(s *session.Session, name string) bool {
	f, err := os.OpenFile(filepath.Join(s.Store().Paths().Cache, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// script reads a script from a file, or from stdin for "-".
func (c *runFlags) script(name string) (*runfile.File, error) {
	var in io.Reader = os.Stdin
	f := &runfile.File{Path: "stdin", Mode: 0o644}
	if name == "-" {
		f.Path = redirected()
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		st, err := file.Stat()
		if err != nil {
			return nil, err
		}
		in, f.Path, f.Mode = file, filepath.Base(name), runfile.Mode(st.Mode().Perm())
	}
	var err error
	if f.Content, err = io.ReadAll(io.LimitReader(in, runfile.MaxFileSize+1)); err != nil {
		return nil, fmt.Errorf("read the script: %w", err)
	}
	if f.Size = int64(len(f.Content)); f.Size > runfile.MaxFileSize {
		return nil, fmt.Errorf("the script %s is larger than %s", name, units.FormatSize(runfile.MaxFileSize))
	}
	_, known := language.ByPath(f.Path)
	switch {
	case c.Language != "":
		if _, ok := language.ByName(c.Language); !ok {
			return nil, hint(fmt.Errorf("--language %q is not known", c.Language), "the languages are %s",
				strings.Join(language.Names(), ", "))
		}
	case known:
	case bytes.HasPrefix(f.Content, []byte("#!")) || f.Mode&0o111 != 0:
		f.Mode |= 0o111 // it says by itself what runs it
	default:
		return nil, hint(fmt.Errorf("nothing says in which language the script is"),
			"hutch run --language python %s, or begin it with a line such as #!/usr/bin/env python3", name)
	}
	return f, nil
}

// missingScript says that there is no script, and names one beside it that was probably meant.
func missingScript(name string) error {
	err := fmt.Errorf("there is no script %q", name)
	dir, base := filepath.Split(name)
	list, _ := os.ReadDir(cmp.Or(dir, "."))
	var scripts []string
	for _, e := range list {
		if _, script := language.ByPath(e.Name()); script {
			scripts = append(scripts, e.Name())
		}
	}
	if guess := diag.Suggest(base, scripts); guess != "" {
		return hint(err, "did you mean hutch run %s?", termsafe.ShellWord(dir+guess))
	}
	return hint(err, "hutch run -- COMMAND runs a command, hutch run FILE a script or a run file")
}

// redirected is the name of the script that stdin was redirected from, or stdin.
func redirected() string {
	if path, err := os.Readlink("/proc/self/fd/0"); err == nil && regular(os.Stdin) {
		if _, known := language.ByPath(path); known {
			return filepath.Base(path)
		}
	}
	return "stdin"
}

// dryRun prints the plans of runs.
func dryRun(ctx context.Context, u *ui, r *run.Runner, defs []*runfile.Definition, output string) error {
	refused := false
	for i, d := range defs {
		p, err := r.Plan(ctx, d)
		if err != nil {
			return err
		}
		refused = refused || !p.OK
		if output == "json" {
			err = json.NewEncoder(u.out).Encode(p)
		} else {
			err = plannedBlock{def: d}.show(u, p, i > 0)
		}
		if err != nil {
			return err
		}
	}
	if refused {
		return exit(exitNo)
	}
	return nil
}
