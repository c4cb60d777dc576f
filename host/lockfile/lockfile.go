// Package lockfile reads and writes .hutch.lock.hcl, the file that says exactly which backends a project's runs use.
//
// It lies beside the run files that it is for and belongs into version control. `hutch init` writes it; `hutch run`
// reads it and uses what it names or nothing. It is the same on every platform, because it has the hashes of all of
// them:
//
//	backend "acme" {
//	  source     = "registry.example.com/acme/hutch-backend-acme"
//	  constraint = "~> 1.2"
//	  version    = "1.2.3"
//	  protocols  = [1]
//	  manifest   = "0f3a…"
//
//	  platform "linux/amd64" {
//	    archive_sha256 = "4be1…"
//	    binary_sha256  = "77ab…"
//	    beside_sha256  = "e3b0…"
//	  }
//	}
//
// A lock file comes with a project that may be hostile. It names hashes and no paths: all it can do is to choose among
// what this user has installed.
package lockfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/release"
	"github.com/hutch-run/hutch/sdk/atomicfile"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Name is the name of the file.
const Name = ".hutch.lock.hcl"

// maxSize bounds the file, in bytes.
const maxSize = 1 << 20

// File is what a lock file holds.
type File struct {
	Backends []Backend // by name
}

// Backend is one locked backend.
type Backend struct {
	Name       string
	Source     string // as in the run file
	Constraint string // that the version was chosen by, "" for any
	Version    string
	Protocols  []int  // major versions of the contract, ascending
	Manifest   string // SHA-256 of the release's manifest, "" when it has none
	SignedBy   string // ID of the key that signed the manifest, "" when none did
	Platforms  []Platform
}

// Platform is a backend for one platform.
type Platform struct {
	Name    string // GOOS/GOARCH
	Archive string // SHA-256 in hex
	Binary  string // SHA-256 in hex of hutch-backend-NAME
	Beside  string // backend.BesideSHA256 of what lies beside it, "" when its manifest does not say
}

// Find returns the lock of a backend, or nil. A nil file has none.
func (f *File) Find(name string) *Backend {
	if f == nil {
		return nil
	}
	for i := range f.Backends {
		if f.Backends[i].Name == name {
			return &f.Backends[i]
		}
	}
	return nil
}

// Set puts a lock in the place of an older one of the same name.
func (f *File) Set(b Backend) {
	f.Remove(b.Name)
	f.Backends = append(f.Backends, b)
	slices.SortFunc(f.Backends, func(a, b Backend) int { return strings.Compare(a.Name, b.Name) })
}

// Remove takes a lock away, if there is one.
func (f *File) Remove(name string) {
	f.Backends = slices.DeleteFunc(f.Backends, func(b Backend) bool { return b.Name == name })
}

// For finds what is locked for a platform.
func (b *Backend) For(platform string) (Platform, bool) {
	for _, p := range b.Platforms {
		if p.Name == platform {
			return p, true
		}
	}
	return Platform{}, false
}

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

// Read reads the lock file in a directory. Without one the error is fs.ErrNotExist.
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
			for _, err := range []error{release.CheckPlatform(p.Name), release.CheckSHA256(p.Archive),
				release.CheckSHA256(p.Binary), optional(release.CheckSHA256, text(p.Beside))} {
				if err != nil {
					return fail(p.At, "%s", err)
				}
			}
			if _, twice := l.For(p.Name); twice {
				return fail(p.At, "the platform %q is locked twice", p.Name)
			}
			l.Platforms = append(l.Platforms, Platform{Name: p.Name, Archive: p.Archive, Binary: p.Binary,
				Beside: text(p.Beside)})
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

// nonblock keeps a FIFO in the place of the file from stopping us.
const nonblock = syscall.O_NONBLOCK

const header = `# Written by "hutch init", which also changes it: "hutch init -upgrade" takes newer versions.
# It belongs into version control. "hutch run" uses exactly the backends that it names.
`

// Bytes is the file as it is written: the same for the same content, in an order that does not depend on how it came
// about.
func (f *File) Bytes() []byte {
	out := hclwrite.NewEmptyFile()
	body := out.Body()
	sorted := slices.Clone(f.Backends)
	slices.SortFunc(sorted, func(a, b Backend) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range sorted {
		body.AppendNewline()
		b := body.AppendNewBlock("backend", []string{l.Name}).Body()
		set := func(to *hclwrite.Body, name, value string) {
			if value != "" {
				to.SetAttributeValue(name, cty.StringVal(value))
			}
		}
		set(b, "source", l.Source)
		set(b, "constraint", l.Constraint)
		set(b, "version", l.Version)
		var protocols []cty.Value
		for _, p := range l.Protocols {
			protocols = append(protocols, cty.NumberIntVal(int64(p)))
		}
		b.SetAttributeValue("protocols", cty.TupleVal(protocols))
		set(b, "manifest", l.Manifest)
		set(b, "signed_by", l.SignedBy)
		platforms := slices.Clone(l.Platforms)
		slices.SortFunc(platforms, func(a, b Platform) int { return strings.Compare(a.Name, b.Name) })
		for _, p := range platforms {
			b.AppendNewline()
			pb := b.AppendNewBlock("platform", []string{p.Name}).Body()
			set(pb, "archive_sha256", p.Archive)
			set(pb, "binary_sha256", p.Binary)
			set(pb, "beside_sha256", p.Beside)
		}
	}
	return append([]byte(header), hclwrite.Format(out.Bytes())...)
}

// Write puts the file into a directory, in the place of an older one, at once or not at all. A file with the same
// content is left alone.
func (f *File) Write(dir string) error { return f.WriteFile(filepath.Join(dir, Name)) }

// WriteFile writes the file to path, as Write does.
func (f *File) WriteFile(path string) error {
	src := f.Bytes()
	if old, err := ReadFile(path); err == nil && string(old.Bytes()) == string(src) {
		return nil
	}
	return atomicfile.Write(path, src, 0o644, true)
}
