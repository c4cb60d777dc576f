package lockfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// fix says what to do about a file that is not as hutch init left it.
const fix = "restore it from version control, or remove it and run hutch init"

// content is the file as its blocks and attributes.
type content struct {
	Backends []struct {
		Name       string    `hcl:"name,label"`
		Source     string    `hcl:"source"`
		Constraint *string   `hcl:"constraint"`
		Version    string    `hcl:"version"`
		Protocols  []int     `hcl:"protocols"`
		Manifest   *string   `hcl:"manifest"`
		SignedBy   *string   `hcl:"signed_by"`
		At         hcl.Range `hcl:",def_range"`
		Platforms  []struct {
			Name    string    `hcl:"name,label"`
			Archive string    `hcl:"archive_sha256"`
			Binary  string    `hcl:"binary_sha256"`
			Beside  *string   `hcl:"beside_sha256"`
			At      hcl.Range `hcl:",def_range"`
		} `hcl:"platform,block"`
	} `hcl:"backend,block"`
}

// Read reads the lock file in a directory. That there is none is an error for which errors.Is finds fs.ErrNotExist.
func Read(dir string) (*File, error) { return ReadFile(filepath.Join(dir, Name)) }

// ReadFile reads the lock file at path, as Read does.
func ReadFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	src, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return Parse(path, src)
}

// Parse reads a lock file. path is for messages. What is wrong with it comes back as diag.Diagnostics.
func Parse(path string, src []byte) (*File, error) {
	if len(src) > maxSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxSize)
	}
	var c content
	parsed, ds := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	if !ds.HasErrors() {
		ds = gohcl.DecodeBody(parsed.Body, nil, &c)
	}
	if ds.HasErrors() { // the first alone: nobody writes this file by hand, so there is nothing to mend line by line
		d := hcldiag.Diagnostics(ds)[0]
		d.Summary, d.Fix = "this is no lock file: "+d.Summary, fix
		return nil, diag.Diagnostics{d}
	}
	f := &File{}
	for _, b := range c.Backends {
		fail := func(at hcl.Range, format string, args ...any) (*File, error) {
			d := diag.Errorf(format, args...)
			in := hcldiag.Range(at)
			d.Range, d.Fix = &in, fix
			return nil, diag.Diagnostics{d}
		}
		l := Backend{Name: b.Name, Source: b.Source, Version: b.Version, Protocols: b.Protocols,
			Constraint: text(b.Constraint), Manifest: text(b.Manifest), SignedBy: text(b.SignedBy)}
		for _, err := range []error{
			backend.CheckName(b.Name), release.CheckVersion(b.Version), optional(release.CheckSHA256, l.Manifest),
			plain("source", l.Source), plain("constraint", l.Constraint), plain("signed_by", l.SignedBy),
		} {
			if err != nil {
				return fail(b.At, "%s", err)
			}
		}
		switch {
		case f.Find(b.Name) != nil:
			return fail(b.At, "the backend %q is locked twice", b.Name)
		case len(b.Protocols) == 0 || len(b.Protocols) > 16 || !slices.IsSorted(b.Protocols) || b.Protocols[0] < 1:
			return fail(b.At, "the protocols of backend %q are not positive numbers in ascending order", b.Name)
		case len(b.Platforms) == 0:
			return fail(b.At, "the lock of backend %q names no platform", b.Name)
		}
		for _, p := range b.Platforms {
			for _, err := range []error{release.CheckPlatform(p.Name), release.CheckSHA256(p.Archive), release.CheckSHA256(p.Binary), optional(release.CheckSHA256, text(p.Beside))} {
				if err != nil {
					return fail(p.At, "%s", err)
				}
			}
			if _, twice := l.For(p.Name); twice {
				return fail(p.At, "the platform %q is locked twice", p.Name)
			}
			l.Platforms = append(l.Platforms, Platform{Name: p.Name, Archive: p.Archive, Binary: p.Binary, Beside: text(p.Beside)})
		}
		slices.SortFunc(l.Platforms, func(a, b Platform) int { return strings.Compare(a.Name, b.Name) })
		f.Set(l)
	}
	return f, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func optional(check func(string) error, s string) error {
	if s == "" {
		return nil
	}
	return check(s)
}

// plain refuses what a line of a message must not hold.
func plain(what, s string) error {
	if len(s) > 1024 || !plaintext.IsLine(s) {
		return fmt.Errorf("%s is not one line of plain text", what)
	}
	return nil
}
