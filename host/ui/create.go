package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/termsafe"
)

// create makes a sandbox on a project, or as a run file says.
func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	form := r.PostForm
	name := strings.TrimSpace(form.Get("name"))
	title := strings.TrimSpace("create " + name)
	s.perform(w, r, title, nil, func(ctx context.Context, m *sandbox.Manager) (*notice, []string) {
		def, command, err := s.definition(form)
		if err != nil {
			return failed(err, &notice{}), nil
		}
		if name != "" {
			command = append(command, "--name", termsafe.ShellWord(name))
		}
		n := &notice{Command: strings.Join(command, " ")}
		info, err := m.Create(ctx, def, name)
		if err != nil {
			var f *result.Failure
			if errors.As(err, &f) {
				for _, d := range f.Diagnostics {
					n.Lines = append(n.Lines, d.Error())
				}
			}
			return failed(err, n), nil
		}
		n.Text = nameOf(*info) + " was created"
		return n, []string{"sandbox", info.ID}
	})
}

// definition is what the form asks for, and the command that makes the same.
func (s *Server) definition(form url.Values) (def *runfile.Definition, command []string, err error) {
	source, name, backend := strings.TrimSpace(form.Get("source")), strings.TrimSpace(form.Get("run")), form.Get("backend")
	if !filepath.IsAbs(source) {
		return nil, nil, fmt.Errorf("%q is not an absolute path", source)
	}
	st, err := os.Stat(source)
	if err != nil {
		return nil, nil, err
	}
	command = []string{"hutch", "create"}
	if backend != "" {
		command = append(command, "--backend", termsafe.ShellWord(backend))
	}
	if !st.IsDir() {
		def, err = s.fromFile(source, name, backend)
		return def, append(command, termsafe.ShellWord(source), termsafe.ShellWord(name)), err
	}
	command = append(command, "--workspace", termsafe.ShellWord(source))
	if def, err = (run.Direct{Backend: backend, Command: []string{"sh"}, Workspace: source}).Definition(); err != nil {
		return nil, nil, err
	}
	def.Command, def.Name, def.Instance = nil, "", ""
	return def, command, nil
}

// fromFile is a run of a run file, or its only one.
func (s *Server) fromFile(path, name, backend string) (*runfile.Definition, error) {
	s.session.UseLocks(path)
	conf, err := s.load(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range conf.Runs() {
		if name == d.Instance || name == "" && len(conf.Runs()) == 1 {
			if backend != "" {
				d.Backends = []*runfile.Backend{runfile.NewBackend(backend)}
			}
			return d, nil
		}
		names = append(names, d.Instance)
	}
	return nil, fmt.Errorf("choose one of the runs of %s: %s", path, strings.Join(names, ", "))
}

func (s *Server) load(path string) (*runfile.Config, error) {
	conf, ds := runfile.Load([]string{path}, runfile.Options{Languages: language.Names(), Project: s.store.ProjectDir})
	return conf, ds.Err()
}
