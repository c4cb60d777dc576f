package runfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	d := &Definition{Env: map[string]string{}}
	j := definitionJSON{plainDefinition: (*plainDefinition)(d)}
	if err := json.Unmarshal(r.Definition, &j); err != nil {
		return nil, fmt.Errorf("the recorded definition cannot be read: %w", err)
	}
	if d.Instance == "" || len(d.Command) == 0 && d.Entrypoint == "" {
		return nil, errors.New("the recorded definition is not that of a run")
	}
	if d.Env == nil {
		d.Env = map[string]string{}
	}
	d.origin = &origin{ranges: ranges{}, sources: sources{}, context: "run " + strconv.Quote(d.Instance),
		given: j.EnvGiven}
	rec := &recaller{Recalled: &Recalled{Definition: d}, from: r}
	if err := errors.Join(rec.requirements(), rec.patterns()); err != nil {
		return nil, fmt.Errorf("the recorded definition cannot be read: %w", err)
	}
	rec.backend()
	rec.files()
	rec.home()
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
	r.Env[name] = value
	if sought, given := r.origin.given[name]; given && !sought {
		value = ""
	}
	r.origin.secret(member("env", name), value)
	r.Missing = slices.Delete(r.Missing, i, i+1)
	return true
}

type recaller struct {
	*Recalled
	from Recorded
}

func (r *recaller) lacks(path string, fill func(from *Definition) bool) {
	r.Missing = append(r.Missing, Missing{path, fill})
}

func (r *recaller) requirements() (err error) {
	for i, b := range r.RequiredBackends {
		if b.Version == "" {
			continue
		}
		if r.RequiredBackends[i].Constraints, err = version.NewConstraint(b.Version); err != nil {
			return fmt.Errorf("required_backends: %s: %w", b.Name, err)
		}
	}
	return nil
}

// patterns checks the patterns of what is expected.
func (r *recaller) patterns() error {
	if r.Expect == nil {
		return nil
	}
	for name, e := range r.Expect.streams() {
		for _, text := range e.Matches {
			if _, err := CompilePattern(text); err != nil {
				return fmt.Errorf("expect.%s: %w", name, err)
			}
		}
	}
	return nil
}

func (r *recaller) backend() {
	if r.from.Backend == "" {
		return
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
}

// BackendNamed is the block of a backend, or nil.
func (d *Definition) BackendNamed(name string) *Backend {
	for _, b := range d.Backends {
		if b.Name == name {
			return b
		}
	}
	return nil
}

func (r *recaller) files() {
	for i := range r.Files {
		path := r.Files[i].Path
		r.Files[i].open = func() (io.ReadCloser, error) { return r.from.Open(path) }
		if !r.Files[i].Sensitive {
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
}

// home reads the home blocks. The record has no contents of them: those from disk are read again where they are, the
// others must come from the run file and be what they were.
func (r *recaller) home() {
	for i := range r.Home {
		h := &r.Home[i]
		if h.Source != "" {
			continue
		}
		r.lacks("home "+quote(h.Path), func(from *Definition) bool {
			n := slices.IndexFunc(from.Home, func(f HomeFile) bool { return f.Path == h.Path && f.Source == "" })
			if n < 0 || h.SHA256 != "" && from.Home[n].SHA256 != h.SHA256 {
				return false
			}
			h.Content = from.Home[n].Content
			if h.Sensitive {
				r.takeSecrets(from)
			}
			return true
		})
	}
}

// secrets finds what was redacted among the plain values. A variable that was given for the run alone had another value
// than its file says.
func (r *recaller) secrets() {
	given := map[string]bool{}
	for name := range r.origin.given {
		given[member("env", name)] = true
	}
	r.texts(func(path, text string, set func(string)) {
		if text != Redacted {
			return
		}
		r.lacks(path, func(from *Definition) (found bool) {
			from.texts(func(at, text string, _ func(string)) {
				if at == path && !given[path] && from.origin.isSecret(path) {
					found = true
					set(text)
					r.origin.secret(path, text)
				}
			})
			return found
		})
	})
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
		add(&r.origin.paths, p)
	}
}
