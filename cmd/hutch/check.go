package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/hutch-run/hutch/host/agent/preset"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
)

// vars are the flags of every command that evaluates run files.
type vars struct {
	Var     []string `sep:"none" placeholder:"NAME=VALUE" help:"Set a variable of the run file. Repeatable."`
	VarFile []string `sep:"none" placeholder:"FILE" help:"Read variables from a file of NAME = VALUE lines, or JSON. Repeatable." complete:"file"`
}

// named refuses a file that is named and is not there. That is no answer about a run file, and has another exit code.
func (v *vars) named(files []string) error {
	for _, f := range files {
		if _, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no run file %q", f)
		}
	}
	for _, f := range v.VarFile {
		if _, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--var-file: there is no file of variables %q", f)
		}
	}
	return nil
}

type validateCmd struct {
	vars
	Files  []string `arg:"" name:"file" help:"Run files, or directories to look for *.hcl in." complete:"hcl"`
	Output string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text or json."`
}

// Help is the text below the synopsis.
func (*validateCmd) Help() string {
	return `Reads and evaluates run files and reports every mistake with its line. Variables without a value are taken as
unknown, so that a file can be checked without them. Exit code 1 means that a file is not valid.

Backend blocks are checked against the backend's own schema where the backend is installed; where it is not, that is a
warning. What only the backend itself knows to be wrong is reported by hutch plan.

    hutch validate examples/*.hcl`
}

// validation is the JSON answer of validate.
type validation struct {
	Valid       bool             `json:"valid"`
	Files       int              `json:"files"`
	Runs        int              `json:"runs"`
	Generates   int              `json:"generates"`
	Cycles      int              `json:"cycles"`
	Agents      int              `json:"agents,omitempty"`
	Diagnostics diag.Diagnostics `json:"diagnostics"`
}

type fmtCmd struct {
	Files     []string `arg:"" optional:"" name:"file" help:"Run files, directories, or - for stdin (default: the *.hcl files here)." complete:"hcl"`
	Check     bool     `help:"Write nothing; list the files that are not in the canonical layout, and exit with 1 if there are any."`
	Diff      bool     `help:"Write nothing; show what would change, and exit as --check does."`
	Recursive bool     `short:"r" help:"Enter directories, all the way down."`
}

// Help is the text below the synopsis.
func (*fmtCmd) Help() string {
	return `Rewrites run files in place and lists those it changed. Meaning never changes. A file with a syntax error is
left as it is.

    hutch fmt
    hutch fmt --check --recursive .
    hutch fmt - < draft.hcl`
}

func (c *fmtCmd) Run(u *ui) error {
	if len(c.Files) == 0 {
		c.Files = []string{"."}
	}
	files, err := c.expand()
	if err != nil {
		return err
	}
	u.reading.Store(true) // to the end: each file is replaced in one step
	write := !c.Check && !c.Diff
	var changed int
	var bad diag.Diagnostics
	for _, name := range files {
		src, err := read(u, name)
		if err != nil {
			return err
		}
		got, ds := runfile.Format(name, src)
		if bad = append(bad, ds...); ds.HasErrors() {
			continue
		}
		if name == "-" && write {
			if _, err := u.out.Write(got); err != nil {
				return err
			}
			continue
		}
		if bytes.Equal(src, got) {
			continue
		}
		changed++
		if c.Diff {
			if err := difflib.WriteUnifiedDiff(u.out, difflib.UnifiedDiff{
				A: lines(src), B: lines(got),
				FromFile: "a/" + name, ToFile: "b/" + name, Context: 3,
			}); err != nil {
				return err
			}
		} else if _, err := fmt.Fprintln(u.out, name); err != nil {
			return err
		}
		if write {
			if err := replace(name, got); err != nil {
				return err
			}
		}
	}
	switch {
	case bad.HasErrors():
		u.diagnostics(bad)
		return exit(exitNo)
	case changed > 0 && !write:
		return exit(exitNo)
	}
	return nil
}

// lines splits a text after its newlines.
func lines(text []byte) []string {
	var out []string
	for l := range strings.Lines(string(text)) {
		out = append(out, l)
	}
	return out
}

// expand turns directories into the run files in them.
func (c *fmtCmd) expand() ([]string, error) {
	var files []string
	for _, name := range c.Files {
		if name == "-" {
			files = append(files, name)
			continue
		}
		st, err := os.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("no run file or directory %q", name)
		case err != nil:
			return nil, err
		case !st.IsDir():
			files = append(files, name)
			continue
		}
		found, err := runFilesIn(name, c.Recursive)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

func runFilesIn(dir string, recursive bool) ([]string, error) {
	if recursive {
		return runfile.FindRunFiles(dir)
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.hcl"))
	return slices.DeleteFunc(found, func(f string) bool { return filepath.Base(f) == lockfile.Name }), err
}

func read(u *ui, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(u.in)
	}
	return runfile.ReadSource(name)
}

// replace writes a file beside the old one and renames it into place, so that neither a full disk nor a kill loses
// what was there; its mode stays.
func replace(name string, content []byte) error {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	st, err := os.Stat(name)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".hutch-fmt-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	for _, next := range []func() error{
		func() error { return tmp.Chmod(st.Mode() & fs.ModePerm) },
		tmp.Close,
		func() error { return os.Rename(tmp.Name(), name) },
	} {
		if err == nil {
			err = next()
		}
	}
	return err
}

func (c *validateCmd) Run(ctx context.Context, u *ui) error {
	files, err := runFiles(c.Files)
	if err != nil {
		return err
	}
	if err := c.named(nil); err != nil {
		return err
	}
	s, done, err := openFor(u, files)
	if err != nil {
		return err
	}
	defer done()
	v := validation{Files: len(files), Diagnostics: diag.Diagnostics{}}
	for _, f := range files {
		u.reading.Store(true)
		conf, ds := runfile.Load([]string{f}, runfile.Options{
			Vars: c.Var, VarFiles: c.VarFile, Languages: language.Names(), AllowMissing: true, Project: s.Store().ProjectDir,
		})
		u.reading.Store(false)
		v.Diagnostics = append(v.Diagnostics, ds...)
		v.Runs += len(conf.Runs())
		v.Generates += len(conf.Generates())
		v.Cycles += len(conf.Cycles())
		v.Agents += len(conf.Agents())
		if ds.HasErrors() {
			continue
		}
		defs := conf.Runs()
		for _, g := range conf.Generates() {
			defs = append(defs, g.Run)
		}
		for _, b := range conf.Cycles() {
			defs = append(defs, b.Box)
		}
		blocks, err := s.CheckBlocks(ctx, defs)
		if err != nil {
			return err
		}
		v.Diagnostics = append(v.Diagnostics, blocks...)
		for _, a := range conf.Agents() {
			_, ds := preset.Block(s.Store().Paths().Presets(), a)
			v.Diagnostics = append(v.Diagnostics, ds...)
		}
		for _, d := range conf.Runs() {
			v.Diagnostics = append(v.Diagnostics, run.CheckCommand(d)...)
		}
	}
	v.Valid = !v.Diagnostics.HasErrors()
	if c.Output == "json" {
		err = u.json(v)
	} else {
		u.diagnostics(v.Diagnostics)
		if v.Valid {
			what := []string{count(v.Files, "file"), count(v.Runs, "run")}
			if v.Generates > 0 {
				what = append(what, count(v.Generates, "generate block"))
			}
			if v.Cycles > 0 {
				what = append(what, count(v.Cycles, "cycle block"))
			}
			if v.Agents > 0 {
				what = append(what, count(v.Agents, "agent block"))
			}
			err = u.line("valid: %s", strings.Join(what, ", "))
		}
	}
	if err == nil && !v.Valid {
		err = exit(exitNo)
	}
	return err
}

// runFiles turns directories into the run files in them, and refuses ones without any.
func runFiles(args []string) ([]string, error) {
	var files []string
	for _, a := range args {
		st, err := os.Stat(a)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("no run file or directory %q", a)
		case err != nil:
			return nil, err
		case !st.IsDir():
			files = append(files, a)
			continue
		}
		found, err := runFilesIn(a, false)
		found = slices.DeleteFunc(found, func(f string) bool { return strings.HasSuffix(f, ".auto.hutchvars.hcl") })
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, hint(fmt.Errorf("no *.hcl file in %s", a),
				"hutch observe -- COMMAND runs a command and prints a run file for it")
		}
		files = append(files, found...)
	}
	return files, nil
}
