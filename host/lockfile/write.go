package lockfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

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
	tmp, err := os.CreateTemp(filepath.Dir(path), ".hutch-lock-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(src)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
