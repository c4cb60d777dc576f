package run

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// refsPerEvent keeps the events that name many files short enough for a reader.
const refsPerEvent = 500

// writeCode writes the declared and the generated files to code/, which is then mounted as the input. Files that hold
// secrets must not be stored: with any of those, the input is made a second time in a directory that dies with this
// process, and code/ lacks them. A persistent sandbox has its input for as long as it lasts, in its own record.
func (j *job) writeCode() error {
	sp := j.span.child("code")
	defer sp.end()
	gen := invoke(j.d, j.id, expectedPlaces(j.d, true), false).generated
	if len(j.d.Files) == 0 && len(gen) == 0 {
		return nil
	}
	secret := slices.ContainsFunc(j.d.Files, func(f runfile.File) bool { return f.Sensitive })
	rec := j.chronicle()
	j.input = rec.CodeDir()
	apart := secret || j.box != nil && j.rec != nil // the sandbox outlives what the run's record may live for
	switch {
	case apart && j.box != nil:
		var err error
		if j.input, err = j.box.InputDir(); err != nil {
			return err
		}
	case apart:
		var err error
		if j.input, err = j.private("input"); err != nil {
			return err
		}
	}
	written := j.coded == rec // for a backend that then could not make the sandbox
	if written && !apart {
		return nil
	}
	j.coded = rec
	var refs []store.FileRef
	var withheld []string
	for i := range j.d.Files {
		f := &j.d.Files[i]
		if apart {
			if err := copyFile(f, j.input); err != nil {
				return err
			}
			if f.Sensitive {
				withheld = append(withheld, f.Path)
				continue
			}
		}
		if written {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		ref, err := rec.WriteCode(f.Path, fs.FileMode(f.Mode), r)
		r.Close()
		if err != nil {
			return err
		}
		refs = append(refs, ref)
	}
	for _, g := range gen {
		if !written {
			ref, err := rec.WriteCode(g.Path, 0o644, strings.NewReader(g.Content))
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
		if apart {
			if err := writeFile(filepath.Join(j.input, g.Path), 0o644, strings.NewReader(g.Content)); err != nil {
				return err
			}
		}
	}
	for i := 0; !written && i == 0 || i < len(refs); i += refsPerEvent {
		data := map[string]any{"files": len(refs)}
		if len(withheld) > 0 {
			data["withheld"] = withheld
		}
		j.event(store.EventCode, data, refs[i:min(i+refsPerEvent, len(refs))]...)
	}
	return nil
}

// private makes a directory that dies with this process, or with the run.
func (j *job) private(name string) (string, error) {
	if j.runtime == nil {
		dir, err := store.NewRuntimeDir()
		if err != nil {
			return "", err
		}
		j.runtime = dir
	}
	return j.runtime.Sub(name)
}

func copyFile(f *runfile.File, dir string) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	name := filepath.Join(dir, filepath.FromSlash(f.Path))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return writeFile(name, fs.FileMode(f.Mode), r)
}

// writeFile makes a file in our own directory.
func writeFile(name string, mode os.FileMode, r io.Reader) error {
	w, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm())
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, r); err != nil {
		err = fmt.Errorf("write %s: %w", path.Base(name), err)
	}
	if err == nil {
		err = w.Chmod(mode.Perm() | 0o400)
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	return err
}
