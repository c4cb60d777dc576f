package runfile

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/runfile/internal/tree"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// What a run may declare. Larger data belongs into a workspace, which is not copied.
const (
	MaxFiles     = 10_000
	MaxFileSize  = 64 << 20  // bytes of one file
	MaxFilesSize = 512 << 20 // bytes of all files together
)

var (
	fileSchema  = schemaOf("source content content_base64 mode")
	filesSchema = schemaOf("source! include exclude")
)

// input collects the files of a run.
type input struct {
	set   safepath.Set
	where map[string]hcl.Range // of each path
	files []File
	size  int64
}

// files reads the file and files blocks. It reports whether all of them are good, so that nobody looks for an
// entrypoint among files that could not be read.
func (b *block) files(d *Definition) bool {
	in := &input{where: map[string]hcl.Range{}}
	before := len(b.diags)
	for i, nested := range b.nested.OfType("file") {
		path := member("files", nested.Labels[0])
		b.origin.ranges.set(fmt.Sprintf("file[%d]", i), nested.DefRange)
		b.origin.ranges.set(path, nested.LabelRanges[0])
		b.openNested(nested, fileSchema, path).oneFile(in, nested.Labels[0], nested.LabelRanges[0])
	}
	for i, nested := range b.nested.OfType("files") {
		b.openNested(nested, filesSchema, fmt.Sprintf("files_block[%d]", i)).fileTree(in)
	}
	sort.Slice(in.files, func(i, j int) bool { return in.files[i].Path < in.files[j].Path })
	d.Files = in.files
	return len(b.diags) == before
}

// add takes a file in, if its path can stand beside the others.
func (s *scope) add(in *input, f File, r hcl.Range) bool {
	if err := in.set.AddFile(f.Path); err != nil {
		s.badPath(in, err, r)
		return false
	}
	in.where[f.Path] = r
	in.size += f.Size
	const fix = "mount the directory with a workspace block, or leave more out with exclude"
	switch {
	case len(in.files) >= MaxFiles:
		s.errorf(r, "the run declares more than %d files", MaxFiles).fix(fix)
		return false
	case in.size > MaxFilesSize:
		s.errorf(r, "the files of the run are larger than %s together", units.Size(MaxFilesSize)).fix(fix)
		return false
	}
	in.files = append(in.files, f)
	return true
}

func (s *scope) badPath(in *input, err error, r hcl.Range) *finding {
	var e *safepath.Error
	if !errors.As(err, &e) {
		return s.errorf(r, "%s", err)
	}
	var f *finding
	switch e.Kind {
	case safepath.Duplicate:
		f = s.errorf(r, "the file %s is declared twice",
			quote(e.Path)).fix("rename one, or leave it out of the tree with exclude")
	case safepath.Collision:
		// In ASCII, because the two may look the same.
		f = s.errorf(r, "the files %+q and %+q are the same where case or Unicode form does not count", e.Path, e.Other).
			detail("On many file systems only one of them could exist.").fix("rename one")
	case safepath.Conflict:
		f = s.errorf(r, "the files %s and %s cannot both exist", quote(e.Path), quote(e.Other)).
			detail("%s", sentence(e.Reason)).fix("rename one")
	default:
		reason, _, _ := strings.Cut(e.Reason, ";")
		f = s.errorf(r, "the path %s %s", quote(e.Path), reason).
			detail("Paths of files are relative to the input directory of the sandbox.")
		if e.Clean != "" {
			f.fix("write %s", quote(e.Clean))
		}
	}
	if other, ok := in.where[e.Other]; ok && e.Other != "" {
		f.related("the other one is here", other)
	}
	return f
}

// oneFile reads one file block.
func (b *block) oneFile(in *input, name string, label hcl.Range) {
	f := File{Path: name, Mode: 0o644}
	given, ok := b.only("the file "+quote(name), "source", "content", "content_base64")
	if !b.good || !ok {
		return
	}
	if given == "" {
		b.errorf(b.header, "the file %s has no content", quote(name)).
			fix(`add source = "PATH" to read it from disk, or content = "TEXT"; an empty file has content = ""`)
		return
	}
	if err := safepath.Check(name); err != nil {
		b.badPath(in, err, label)
		return
	}
	if given == "source" {
		ok = b.source(&f)
	} else {
		f.Content, f.Sensitive, ok = b.fileContent(given, name, "mount large data with a workspace block")
		f.Size = int64(len(f.Content))
	}
	if !ok {
		return
	}
	if mode, ok := b.mode(); ok {
		f.Mode = mode
	}
	b.add(in, f, label)
}

// fileContent reads the bytes of a file from content or content_base64, and whether they are sensitive. larger says
// what to do with more than a file may have.
func (b *block) fileContent(given, file, larger string) (content []byte, sensitive, ok bool) {
	text, ok := b.secretText(given)
	if !ok {
		b.missing(given, file)
		return nil, false, false
	}
	content = []byte(text)
	if given == "content_base64" {
		var err error
		if content, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")); err != nil {
			b.errorf(b.at(given), "content_base64 of %s is not base64", quote(file)).
				fix("make it with filebase64(), or base64 on a command line")
			return nil, false, false
		}
	}
	if len(content) > MaxFileSize {
		b.errorf(b.header, "the file %s is larger than %s", quote(file), units.Size(MaxFileSize)).fix("%s", larger)
		return nil, false, false
	}
	return content, b.origin.isSecret(b.pathOf(given)), true
}

// missing reports a content that is null; one that is not known yet is no error.
func (b *block) missing(name, file string) {
	if b.isNull(name) {
		b.errorf(b.at(name), "%s of %s is null", name, quote(file)).fix(`an empty file has content = ""`)
	}
}

// source finds the file on disk, and takes its size and whether it is executable.
func (b *block) source(f *File) bool {
	src, ok := b.text("source")
	if !ok {
		b.missing("source", f.Path)
		return false
	}
	rel, info, err := b.tree.Find(src, MaxFileSize)
	if err != nil {
		problem := b.unusable("source", "the source of "+quote(f.Path), err)
		if st, serr := b.tree.Stat(src); serr == nil && st.IsDir() {
			problem.fix("for a whole directory, write files { source = %s }", quote(src))
		}
		return false
	}
	f.Source, f.Size, f.Mode, f.tree = rel, info.Size(), sourceMode(info), b.tree
	return true
}

// unusable reports an error of the file that an argument names.
func (b *block) unusable(name, what string, err error) *finding {
	reason, fix := treeFix(err)
	return b.errorf(b.at(name), "%s cannot be used: %s", what, reason).fix("%s", fix)
}

// sourceMode keeps of a file's mode only whether it is executable.
func sourceMode(info fs.FileInfo) Mode {
	if info.Mode()&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// mode reads permission bits: an octal string, because a number in HCL is decimal.
func (b *block) mode() (Mode, bool) {
	v, ok := b.plain("mode", cty.DynamicPseudoType)
	if !ok {
		return 0, false
	}
	r := b.at("mode")
	if v.Type() != cty.String {
		f := b.errorf(r, "mode must be a string of octal digits, not %s", kind(v)).
			detail("Numbers in HCL are decimal, so 0644 would mean something else.").fix(`write mode = "0644"`)
		if v.Type() == cty.Number {
			f.fix("write mode = %s", quote(string(r.SliceBytes(b.sources[r.Filename]))))
		}
		return 0, false
	}
	text := v.AsString()
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || len(text) < 3 || len(text) > 4 {
		b.errorf(r, "mode cannot be %s", quote(text)).detail(`It has three octal digits, such as "0644" or "0755".`)
		return 0, false
	}
	if n&^0o777 != 0 {
		b.errorf(r, "mode cannot be %s", quote(text)).
			detail("Only permission bits are possible; setuid, setgid and sticky are not.").fix(`write "%04o"`, n&0o777)
		return 0, false
	}
	return Mode(n), true
}

// fileTree reads a files block.
func (b *block) fileTree(in *input) {
	before := len(b.diags)
	source, ok := b.text("source")
	include, exclude := b.globs("include"), b.globs("exclude")
	if !b.has("include") {
		include = []string{"**"}
	}
	// What is not known yet is not reported, and not looked for either.
	if !b.good || !ok || len(b.diags) > before || include == nil || b.has("exclude") && exclude == nil {
		return
	}
	found, err := b.tree.Glob(source, include, exclude)
	if err != nil {
		f := b.unusable("source", "the files", err)
		if info, serr := b.tree.Stat(source); serr == nil && info.Mode().IsRegular() {
			f.fix("for a single file, write file %s { source = %s }", quote(baseName(source)), quote(source))
		}
		return
	}
	if len(found.Files) == 0 {
		detail := fmt.Sprintf("No file below %s matches include = [%s]", quote(source), strings.Join(quoteAll(include), ", "))
		if len(exclude) > 0 {
			detail += fmt.Sprintf(" without exclude = [%s]", strings.Join(quoteAll(exclude), ", "))
		}
		b.errorf(b.header, "this files block matches nothing").detail("%s.", detail).
			fix(`** stands for any number of directories: "**/*.py"`)
		return
	}
	for _, skipped := range found.Skipped {
		b.errorf(b.at("source"), "%s is a symbolic link that is not followed", quote(skipped)).
			detail("It leads to a directory, out of the run file's directory, or nowhere.").
			fix("leave it out: exclude = [%s]", quote(skipped)).warning()
	}
	for _, m := range found.Files {
		rel, info, err := b.tree.Find(path.Join(filepath.ToSlash(source), m.Path), MaxFileSize)
		if err != nil {
			if f := b.unusable("source", "the files", err); f.Fix == "" {
				f.fix("leave it out: exclude = [%s]", quote(m.Path))
			}
			return
		}
		f := File{Path: m.Path, Source: rel, Size: info.Size(), Mode: sourceMode(info), tree: b.tree}
		if !b.add(in, f, b.at("source")) {
			return
		}
	}
}

// globs reads a list of patterns, and reports those that are wrong.
func (b *block) globs(name string) []string {
	patterns, _ := b.texts(name)
	for i, p := range patterns {
		if err := tree.CheckPattern(p); err != nil {
			b.errorf(b.elementAt(name, i), "%s", err)
		}
	}
	return patterns
}

func quoteAll(list []string) []string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = quote(s)
	}
	return q
}

// Open opens the content. A source is opened again, without leaving the run file's directory, and only as a regular
// file; reading ends with an error if it has grown past its limit since it was checked.
func (f *File) Open() (io.ReadCloser, error) {
	if f.open != nil {
		return f.open()
	}
	if f.Source == "" {
		return io.NopCloser(strings.NewReader(string(f.Content))), nil
	}
	if f.tree == nil {
		return nil, fmt.Errorf("the file %s was not loaded from a run file", quote(f.Path))
	}
	opened, _, err := f.tree.Open(f.Source, MaxFileSize)
	if err != nil {
		return nil, err
	}
	return &capped{ReadCloser: opened, left: MaxFileSize, path: f.Source}, nil
}

// capped ends with an error instead of more than it may give.
type capped struct {
	io.ReadCloser
	left int64
	path string
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, fmt.Errorf("%s has grown past %s while it was read", quote(c.path), units.FormatSize(MaxFileSize))
	}
	return n, err
}
