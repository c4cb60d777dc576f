package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/run/language"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
)

// What stands behind a command's name: run files, names of runs, and what is said where it is neither.

// splitOperands distinguishes run files from names of runs: a file is there, or looks like one.
func splitOperands(args []string) (files, names []string) {
	for _, a := range args {
		st, err := os.Stat(a)
		if strings.HasSuffix(a, ".hcl") || strings.HasSuffix(a, ".hcl.json") || err == nil && !st.IsDir() && !isScript(a) {
			files = append(files, a)
		} else {
			names = append(names, a)
		}
	}
	return files, names
}

// isScript reports whether a file is a program and no run file.
func isScript(name string) bool {
	st, err := os.Stat(name)
	if err != nil || !st.Mode().IsRegular() || strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".hcl.json") {
		return false
	}
	_, known := language.ByPath(name)
	return known || st.Mode()&0o111 != 0 || hasInterpreter(name)
}

// hasInterpreter reports whether a file begins with #!.
func hasInterpreter(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [2]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:]) == "#!"
}

// startsProgram reports whether the first operand of run is a program, whose arguments follow: a script, - for one on
// stdin, or an image.
func startsProgram(name string) bool {
	if _, err := os.Stat(name); err == nil {
		return isScript(name)
	}
	return name == "-" || isImage().MatchString(name)
}

// runFileOf puts the only run file of a directory in the place of the directory.
func runFileOf(args []string) []string {
	if len(args) == 0 || !isDir(args[0]) {
		return args
	}
	found, _ := runFilesIn(args[0], false)
	if len(found) != 1 {
		return args
	}
	return append([]string{found[0]}, args[1:]...)
}

// directory says what to do about a directory where a run file is wanted.
func directory(command, name string) error {
	err := fmt.Errorf("%s is a directory, and this needs a run file", name)
	found, _ := runFilesIn(name, false)
	switch len(found) {
	case 0:
		return hint(err, "it has no run file: they end in .hcl; hutch run --workspace %s -- COMMAND runs a command there",
			termsafe.ShellWord(name))
	case 1:
		return hint(err, "hutch %s %s", command, found[0])
	}
	return hint(err, "name the run files in it: %s", strings.Join(found[:min(len(found), 5)], " "))
}

// escapeGlob makes a name stand for itself in a pattern.
func escapeGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// choose picks the runs that are named, by label or by instance, in the order of the files.
func choose(all []*runfile.Definition, names []string) ([]*runfile.Definition, error) {
	if len(names) == 0 {
		if len(all) == 0 {
			return nil, errors.New("there is no run in what was given")
		}
		return all, nil
	}
	var known []string
	for _, d := range all {
		known = append(known, d.Instance)
		if d.Name != d.Instance && !slices.Contains(known, d.Name) {
			known = append(known, d.Name)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, noSuch("run", n, known)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(d *runfile.Definition) bool {
		return !slices.Contains(names, d.Name) && !slices.Contains(names, d.Instance)
	}), nil
}

// noSuch is the error about a name that nothing of a kind has, with the name that was probably meant, or all of them.
func noSuch(kind, name string, known []string) error {
	err := fmt.Errorf("no %s %q", kind, name)
	if guess := diag.Suggest(name, known); guess != "" {
		return hint(err, "did you mean %q?", guess)
	}
	return hint(err, "there are %s", strings.Join(known, ", "))
}

// loadOne reads a run file, and picks of the blocks of a kind the one with this name or, without a name, the only one.
// hintNone is what to do with a file that has none of them.
func loadOne[B any](u *ui, file, kind, name, hintNone string, o runfile.Options, blocks func(*runfile.Config) []B,
	nameOf func(B) string) (one B, err error) {
	u.reading.Store(true)
	conf, ds := runfile.Load([]string{file}, o)
	u.reading.Store(false)
	if ds.HasErrors() {
		return one, ds.Err()
	}
	all := blocks(conf)
	var names []string
	for _, b := range all {
		if nameOf(b) == name || name == "" && len(all) == 1 {
			return b, nil
		}
		names = append(names, nameOf(b))
	}
	switch {
	case len(all) == 0:
		return one, hint(fmt.Errorf("%s has no %s block", file, kind), "%s", hintNone)
	case name == "":
		return one, hint(fmt.Errorf("%s has %s; name the one that is meant", file, count(len(all), kind+" block")),
			"there are %s", strings.Join(names, ", "))
	}
	return one, noSuch(kind+" block", name, names)
}

// whatToRun makes a suggestion from what lies here.
func whatToRun() string {
	found, _ := filepath.Glob("*.hcl")
	if len(found) == 0 {
		found, _ = filepath.Glob("examples/*.hcl")
	}
	if len(found) == 0 {
		return "hutch run --help shows how"
	}
	return "hutch run " + found[0]
}
