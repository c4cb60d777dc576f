package generate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/agent/ingest"
	"github.com/hutch-run/hutch/host/run/deps"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// program is what the model has written so far: its files, and how they are run. It is the tree that a patch is for.
type program struct {
	files []ingest.File // sorted by path
	how   ingest.Program
}

// Read implements [ingest.Tree].
func (p *program) Read(name string) ([]byte, fs.FileMode, error) {
	for _, f := range p.files {
		if f.Path == name {
			return f.Content, f.Mode, nil
		}
	}
	return nil, 0, fs.ErrNotExist
}

// Names implements [ingest.Tree].
func (p *program) Names() []string {
	var names []string
	for _, f := range p.files {
		names = append(names, f.Path)
	}
	return names
}

// sum is the same for the same program.
func (p *program) sum() string {
	h := sha256.New()
	for _, f := range p.files {
		fmt.Fprintf(h, "%q %o %d\n%s", f.Path, f.Mode, len(f.Content), f.Content)
	}
	fmt.Fprintf(h, "%q %q %q", p.how.Entrypoint, p.how.Language, slices.Sorted(slices.Values(p.how.Dependencies)))
	return hex.EncodeToString(h.Sum(nil))
}

// take makes the next program of an answer: whole files, which replace those of before or stand beside them, or a patch
// of those. An error is an [*ingest.Error] for the model.
func (p *program) take(text string, g *runfile.Generate) (*program, error) {
	a, err := ingest.Parse([]byte(text), "")
	if err != nil {
		return nil, err
	}
	out, _, err := a.Apply(p)
	if err != nil {
		return nil, err
	}
	next := &program{files: slices.Clone(p.files)}
	for _, o := range out {
		next.files = slices.DeleteFunc(next.files, func(f ingest.File) bool { return f.Path == o.Path })
		if !o.Deleted {
			next.files = append(next.files, ingest.File{Path: o.Path, Mode: o.Mode, Content: o.Content})
		}
	}
	slices.SortFunc(next.files, func(a, b ingest.File) int { return strings.Compare(a.Path, b.Path) })
	if err := check(next, a, g); err != nil {
		return nil, err
	}
	whole := &ingest.Answer{Format: a.Format, Files: next.files, Entrypoint: a.Entrypoint, Language: a.Language,
		Dependencies: a.Dependencies}
	if _, _, err := next.Read(p.how.Entrypoint); err == nil && whole.Entrypoint == "" {
		whole.Entrypoint = p.how.Entrypoint
		if whole.Language == "" {
			whole.Language = p.how.Language
		}
	}
	if len(a.Changes) > 0 && len(a.Dependencies) == 0 { // a patch says nothing about them
		whole.Dependencies = p.how.Dependencies
	}
	if next.how, err = whole.Program(ingest.Program{Language: g.Run.Language}); err != nil {
		return nil, err
	}
	if l, ok := language.ByPath(next.how.Entrypoint); ok && g.Run.Language != "" && l.Name != g.Run.Language {
		return nil, problem(a.Format, ingest.Problem{Path: next.how.Entrypoint,
			Message: fmt.Sprintf("it is %s, and the program is to be in %s", l.Name, g.Run.Language)})
	}
	next.how.Dependencies = slices.DeleteFunc(next.how.Dependencies,
		func(d string) bool { return slices.Contains(g.Run.Dependencies, d) })
	return next, nil
}

func problem(f ingest.Format, p ingest.Problem) error {
	return &ingest.Error{Format: f, Problems: []ingest.Problem{p}}
}

// check finds files that cannot stand beside one another, or beside the inputs.
func check(p *program, a *ingest.Answer, g *runfile.Generate) error {
	var set safepath.Set
	for _, f := range g.Run.Files {
		if err := set.AddFile(f.Path); err != nil {
			return err // the run file was checked for that
		}
	}
	for _, f := range p.files {
		err := set.AddFile(f.Path)
		if err == nil {
			continue
		}
		message := err.Error()
		if slices.ContainsFunc(g.Run.Files, func(in runfile.File) bool { return in.Path == f.Path }) {
			message = "the program may not replace this file, which is one of its inputs"
		}
		return problem(a.Format, ingest.Problem{Path: f.Path, Message: message, Hint: "give it another name"})
	}
	return nil
}

// attempt is the program as a run of g has it.
func (p *program) attempt(n int) runfile.Attempt {
	a := runfile.Attempt{Number: n, Entrypoint: p.how.Entrypoint, Language: p.how.Language,
		Dependencies: p.how.Dependencies}
	for _, f := range p.files {
		a.Files = append(a.Files, runfile.File{Path: f.Path, Mode: runfile.Mode(f.Mode), Size: int64(len(f.Content)),
			Content: f.Content})
	}
	return a
}

// installable are the installers of a language.
func installable(lang string) []deps.Installer { return deps.For(lang) }

// stem is the name of a file without its directory and extension.
func stem(p string) string { return strings.TrimSuffix(path.Base(p), path.Ext(p)) }

// CheckTarget refuses a directory that [Story.Copy] would refuse, before anything is asked of a model.
func CheckTarget(dir string, force bool) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return creatable(dir)
	case err != nil:
		return err
	case len(entries) > 0 && !force:
		return fmt.Errorf("%s is not empty; --force replaces what stands in the way", dir)
	}
	return nil
}

// creatable refuses a missing directory that this user could not make.
func creatable(dir string) error {
	at, err := filepath.Abs(dir)
	for err == nil {
		at = filepath.Dir(at)
		if _, err = os.Stat(at); err == nil {
			if err = unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
				return fmt.Errorf("%s cannot be made: %s: %w", dir, at, err)
			}
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// Copy writes the files of the program that works below dir, which is made when it is missing and must be empty unless
// force is set: then files of the same names are replaced, and nothing else is touched. No path leads out of dir, not
// through a symbolic link either. Inputs are not copied.
func (s *Story) Copy(dir string, force bool) error {
	if !s.OK || s.program == nil {
		return errors.New("there is no program that works")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := CheckTarget(dir, force); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range s.program.files {
		if err := put(root, f.Path, f.Mode, f.Content, force); err != nil {
			return fmt.Errorf("copy the program to %s: %w", dir, err)
		}
	}
	s.Final.Copied = dir
	return nil
}

// put writes one file, beside its place first when it replaces another one: that is either whole or as it was.
func put(root *os.Root, name string, mode fs.FileMode, content []byte, force bool) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	target := name
	if force {
		if st, err := root.Lstat(name); err == nil && st.IsDir() {
			return fmt.Errorf("%s is a directory", name)
		}
		target = path.Join(path.Dir(name), ".hutch-generate-"+path.Base(name))
		if err := root.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := root.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil && target != name {
		err = root.Rename(target, name)
	}
	if err != nil && target != name {
		_ = root.Remove(target)
	}
	return err
}
