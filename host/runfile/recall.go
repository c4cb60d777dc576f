package runfile

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
)

// Recorded is what the record of a run has.
type Recorded struct {
	Definition json.RawMessage // as [Definition.MarshalJSON] made it
	Backend    string          // that the run was on
	Config     json.RawMessage // what that was given, redacted; nil when the record does not have it
	// Open opens a declared file as it was.
	Open func(path string) (io.ReadCloser, error)
}

// Recalled is a run as recorded, and what its record lacks because it was sensitive, or too large for it.
type Recalled struct {
	*Definition
	// Missing are the values without which it cannot be run again.
	Missing []Missing
}

// Missing is one value that a record lacks.
type Missing struct {
	Path string // as for [Definition.RangeOf], or file "…", home "…"
	fill func(from *Definition) bool
}

// Recall recreates the definition of a recorded run.
func Recall(r Recorded) (*Recalled, error) {
	var j definitionJSON
	if err := json.Unmarshal(r.Definition, &j); err != nil {
		return nil, fmt.Errorf("the recorded definition cannot be read: %w", err)
	}
	if j.Instance == "" || len(j.Command) == 0 && j.Entrypoint == "" {
		return nil, errors.New("the recorded definition is not that of a run")
	}
	d := &Definition{
		Name: j.Run, Key: j.Key, Instance: j.Instance, File: j.File, Dir: j.Dir, Description: j.Description, MinIsolation: j.MinIsolation,
		Language: j.Language, Interpreter: j.Interpreter, Entrypoint: j.Entrypoint, EntrypointIn: j.EntrypointIn,
		Command: j.Command, Args: j.Args, Env: j.Env, Dependencies: j.Dependencies, Workdir: j.Workdir, Stdin: j.Stdin, Mounts: j.Mounts,
		Limits: j.Limits, Network: j.Network, Outputs: j.Outputs, origin: &origin{ranges: ranges{}, sources: sources{}, context: "run " + strconv.Quote(j.Instance), given: j.EnvGiven},
	}
	if d.Env == nil {
		d.Env = map[string]string{}
	}
	if w := j.Workspace; w != nil {
		d.Workspace = &Workspace{Source: w.Source, Project: w.Project, Mode: w.Mode}
	}
	rec := &recaller{Recalled: &Recalled{Definition: d}, from: r}
	for _, step := range []func(*definitionJSON) error{rec.backends, rec.expect, rec.files, rec.home} {
		if err := step(&j); err != nil {
			return nil, fmt.Errorf("the recorded definition cannot be read: %w", err)
		}
	}
	rec.secrets()
	return rec.Recalled, nil
}

// Fill takes what is missing from another definition of the same run, such as its run file gives now, as far as it is
// sensitive there too.
func (r *Recalled) Fill(from *Definition) {
	r.Missing = slices.DeleteFunc(r.Missing, func(m Missing) bool { return m.fill(from) })
}

// SetEnv gives a variable of the environment that is missing, and reports whether it was.
func (r *Recalled) SetEnv(name, value string) bool {
	i := slices.IndexFunc(r.Missing, func(m Missing) bool { return m.Path == member("env", name) })
	if i < 0 {
		return false
	}
	r.setEnv(name, value)
	r.Missing = slices.Delete(r.Missing, i, i+1)
	return true
}

func (r *Recalled) setEnv(name, value string) {
	r.Env[name] = value
	if sought, given := r.origin.given[name]; given && !sought {
		value = ""
	}
	r.origin.secret(member("env", name), value)
}

type recaller struct {
	*Recalled
	from Recorded
}

func (r *recaller) lacks(path string, fill func(from *Definition) bool) {
	r.Missing = append(r.Missing, Missing{path, fill})
}

func (r *recaller) backends(j *definitionJSON) error {
	for _, b := range j.RequiredBackends {
		req := RequiredBackend{Name: b.Name, Source: b.Source, Version: b.Version}
		if b.Version != "" {
			c, err := version.NewConstraint(b.Version)
			if err != nil {
				return fmt.Errorf("required_backends: %s: %w", b.Name, err)
			}
			req.Constraints = c
		}
		r.RequiredBackends = append(r.RequiredBackends, req)
	}
	if r.from.Backend == "" {
		return nil
	}
	r.Backends = []*Backend{RecordedBackend(r.from.Backend, r.from.Config)}
	if r.from.Config == nil || strings.Contains(string(r.from.Config), strconv.Quote(Redacted)) {
		r.lacks("backend "+strconv.Quote(r.from.Backend), func(from *Definition) bool {
			b := from.BackendNamed(r.from.Backend)
			if b != nil {
				r.Backends = []*Backend{b}
			}
			return b != nil
		})
	}
	return nil
}

// BackendNamed is the block of a backend; nil when there is none.
func (d *Definition) BackendNamed(name string) *Backend {
	for _, b := range d.Backends {
		if b.Name == name {
			return b
		}
	}
	return nil
}

func (r *recaller) expect(j *definitionJSON) error {
	e := j.Expect
	if e == nil {
		return nil
	}
	r.Expect = &Expect{ExitCodes: e.ExitCodes, Causes: e.Causes, Outputs: e.Outputs, Within: e.Within}
	var err error
	if r.Expect.Stdout, err = r.expectStream("expect.stdout", e.Stdout, func(d *Definition) *ExpectStream { return d.Expect.Stdout }); err != nil {
		return err
	}
	r.Expect.Stderr, err = r.expectStream("expect.stderr", e.Stderr, func(d *Definition) *ExpectStream { return d.Expect.Stderr })
	return err
}

// expectStream reads what is expected of a stream; one that has something sensitive is missing as a whole.
func (r *recaller) expectStream(path string, j *streamJSON, of func(*Definition) *ExpectStream) (*ExpectStream, error) {
	if j == nil {
		return nil, nil
	}
	s := &ExpectStream{Equals: j.Equals, Empty: j.Empty, Contains: j.Contains, Excludes: j.Excludes}
	hidden := j.Equals != nil && *j.Equals == Redacted
	for _, list := range [][]string{j.Contains, j.Excludes, j.Matches} {
		hidden = hidden || slices.Contains(list, Redacted)
	}
	if hidden {
		r.lacks(path, func(from *Definition) bool {
			if from.Expect == nil || of(from) == nil {
				return false
			}
			*s = *of(from)
			r.takeSecrets(from)
			return true
		})
		return s, nil
	}
	for _, text := range j.Matches {
		re, err := regexp.Compile("(?m)" + text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		s.Matches = append(s.Matches, re)
	}
	return s, nil
}

func (r *recaller) files(j *definitionJSON) error {
	for _, f := range j.Files {
		mode, err := parseMode(f.Mode)
		if err != nil {
			return fmt.Errorf("file %s: %w", quote(f.Path), err)
		}
		i := len(r.Files)
		file := File{Path: f.Path, Mode: mode, Source: f.Source, Sensitive: f.Sensitive}
		if f.Size != nil {
			file.Size = *f.Size
		}
		path := f.Path
		file.open = func() (io.ReadCloser, error) { return r.from.Open(path) }
		r.Files = append(r.Files, file)
		if !f.Sensitive {
			continue
		}
		r.lacks("file "+quote(path), func(from *Definition) bool {
			n := slices.IndexFunc(from.Files, func(f File) bool { return f.Path == path })
			if n < 0 {
				return false
			}
			r.Files[i] = from.Files[n]
			r.Files[i].Sensitive = true
			r.takeSecrets(from)
			return true
		})
	}
	return nil
}

// home reads the home blocks. The record has no contents of them: those from disk are read again where they are, the
// others must come from the run file and be what they were.
func (r *recaller) home(j *definitionJSON) error {
	for _, h := range j.Home {
		i := len(r.Home)
		file := HomeFile{Path: h.Path, Source: h.Source, Mode: 0o644, Sensitive: h.Sensitive}
		if h.Mode != "" {
			mode, err := parseMode(h.Mode)
			if err != nil {
				return fmt.Errorf("home %s: %w", quote(h.Path), err)
			}
			file.Mode = mode
		}
		r.Home = append(r.Home, file)
		if h.Source != "" {
			continue
		}
		path, sum := h.Path, h.SHA256
		r.lacks("home "+quote(path), func(from *Definition) bool {
			n := slices.IndexFunc(from.Home, func(h HomeFile) bool { return h.Path == path && h.Source == "" })
			if n < 0 || sum != "" && fmt.Sprintf("%x", sha256.Sum256(from.Home[n].Content)) != sum {
				return false
			}
			r.Home[i].Content = from.Home[n].Content
			if r.Home[i].Sensitive {
				r.takeSecrets(from)
			}
			return true
		})
	}
	return nil
}

// secrets finds what was redacted among the plain values.
func (r *recaller) secrets() {
	for _, k := range sortedKeys(r.Env) {
		if r.Env[k] == Redacted {
			r.lacks(member("env", k), func(from *Definition) bool {
				v, ok := from.Env[k]
				if _, given := r.origin.given[k]; given || !ok {
					return false // the run had another value than its file
				}
				r.setEnv(k, v)
				return true
			})
		}
	}
	for _, l := range []struct {
		path string
		mine []string
		of   func(*Definition) []string
	}{
		{"command", r.Command, func(d *Definition) []string { return d.Command }},
		{"args", r.Args, func(d *Definition) []string { return d.Args }},
		{"dependencies", r.Dependencies, func(d *Definition) []string { return d.Dependencies }},
	} {
		for i, s := range l.mine {
			if s != Redacted {
				continue
			}
			r.lacks(element(l.path, i), func(from *Definition) bool {
				list := l.of(from)
				if i >= len(list) || !from.origin.isSecret(element(l.path, i)) {
					return false
				}
				l.mine[i] = list[i]
				r.origin.secret(element(l.path, i), list[i])
				return true
			})
		}
	}
	if r.Stdin != nil && *r.Stdin == Redacted {
		r.lacks("stdin", func(from *Definition) bool {
			if from.Stdin == nil {
				return false
			}
			*r.Stdin = *from.Stdin
			r.origin.secret("stdin", *from.Stdin)
			return true
		})
	}
}

// takeSecrets makes what is sensitive elsewhere sensitive here too.
func (r *recaller) takeSecrets(from *Definition) {
	for _, s := range from.Secrets() {
		r.origin.secretString(s)
	}
	if from.origin == nil {
		return
	}
	for p := range from.origin.paths {
		if r.origin.paths == nil {
			r.origin.paths = map[string]bool{}
		}
		r.origin.paths[p] = true
	}
}

func parseMode(s string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || fs.FileMode(n).Perm() != fs.FileMode(n) {
		return 0, fmt.Errorf("%s is no mode", quote(s))
	}
	return fs.FileMode(n), nil
}
