// Package scaffold writes the project of a new backend: `hutch backend new`.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"golang.org/x/mod/module"

	"github.com/hutch-run/hutch/host/diag"
)

// Options say what project to write.
type Options struct {
	Name    string // of the backend: [a-z][a-z0-9-]*, at most 32 characters
	Module  string // Go module path; "" makes example.com/hutch-backend-NAME
	Dir     string // where to; "" makes hutch-backend-NAME below the working directory. It must be missing or empty
	Version string // of hutch, for go.mod: v1.2.3; "" for the newest at the time of go mod tidy
	Replace string // directory of hutch's own source, for work on hutch itself; "" for none
}

//go:embed all:template
var templates embed.FS

var nameOK = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`) })

// goVersion and sysVersion are those of hutch's own go.mod, which a test compares.
const (
	goVersion  = "1.26.0"
	sysVersion = "v0.49.0"
)

// renamed are the files which Go or git would take for their own in this tree.
var renamed = map[string]string{"gitignore": ".gitignore", "goreleaser.yaml": ".goreleaser.yaml"}

// New writes the project and returns the paths of its files, relative to the
// directory, which is made when missing. It writes nothing when it returns an error
// about its options; that is a [diag.Diagnostic].
func New(o Options) ([]string, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	err := fs.WalkDir(templates, "template", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(p, "template/"), ".tmpl")
		if other, ok := renamed[name]; ok {
			name = other
		}
		files[name], err = o.render(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for name, content := range files {
		names = append(names, name)
		path := filepath.Join(o.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		// O_EXCL: somebody may have come in between.
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(content)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// check completes the options and refuses what cannot be.
func (o *Options) check() error {
	switch {
	case !nameOK().MatchString(o.Name):
		return diag.Errorf("%s cannot be the name of a backend", diag.Quote(o.Name)).
			WithFix("a name begins with a letter a to z, goes on with those, 0 to 9 and dashes, and has at most 32 characters")
	case o.Module == "":
		o.Module = "example.com/hutch-backend-" + o.Name
	}
	if err := module.CheckPath(o.Module); err != nil {
		return diag.Errorf("%s cannot be a module path: %v", diag.Quote(o.Module),
			err).WithFix("write it as in github.com/you/hutch-backend-%s", o.Name)
	}
	if o.Dir == "" {
		o.Dir = "hutch-backend-" + o.Name
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diag.Errorf("the directory cannot be used: %v", err)
	}
	if len(entries) > 0 {
		return diag.Errorf("the directory %s is not empty",
			diag.Quote(o.Dir)).WithFix("name another one with --dir, or remove what is in it")
	}
	if o.Version == "" {
		o.Version = "v0.0.0"
	}
	if o.Replace == "" {
		return nil
	}
	if o.Replace, err = filepath.Abs(o.Replace); err != nil {
		return err
	}
	if mod, err := os.ReadFile(filepath.Join(o.Replace, "go.mod")); err != nil ||
		!bytes.HasPrefix(mod, []byte("module github.com/hutch-run/hutch\n")) {
		return diag.Errorf("%s is not the source of hutch",
			diag.Quote(o.Replace)).WithFix("--replace wants the directory that holds hutch's go.mod")
	}
	return nil
}

// render fills one template in.
func (o *Options) render(path string) ([]byte, error) {
	src, err := templates.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, "LICENSE.tmpl") {
		return src, nil
	}
	t, err := template.New(path).Option("missingkey=error").Parse(string(src))
	if err != nil {
		return nil, err
	}
	replace := o.Replace
	if strings.ContainsAny(replace, " \t\"'`\\") {
		replace = fmt.Sprintf("%q", replace)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, map[string]string{"Name": o.Name, "Module": o.Module, "Version": o.Version,
		"Replace": replace, "Go": goVersion, "Sys": sysVersion}); err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, ".go.tmpl") {
		return format.Source(b.Bytes())
	}
	return b.Bytes(), nil
}
