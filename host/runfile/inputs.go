package runfile

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag"
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
	fileSchema  = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "content"}, {Name: "content_base64"}, {Name: "mode"}}}
	filesSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source", Required: true}, {Name: "include"}, {Name: "exclude"}}}
)

// input collects the files of a run.
type input struct {
	set   safepath.Set
	where map[string]hcl.Range // of each path
	files []File
	size  int64
	ok    bool
}

// files reads the file and files blocks. It reports whether all of them are good, so that nobody looks for an
// entrypoint among files that could not be read.
func (s *scope) files(d *Definition, c *hcl.BodyContent) bool {
	in := &input{where: map[string]hcl.Range{}, ok: true}
	for i, b := range c.Blocks.OfType("file") {
		at := fmt.Sprintf("file[%d]", i)
		s.origin.ranges.set(at, b.DefRange)
		s.origin.ranges.set(member("files", b.Labels[0]), b.LabelRanges[0])
		before := len(s.diags)
		s.in(fmt.Sprintf("file %q", b.Labels[0])).oneFile(in, b, member("files", b.Labels[0]))
		in.ok = in.ok && len(s.diags) == before
	}
	for i, b := range c.Blocks.OfType("files") {
		path := fmt.Sprintf("files_block[%d]", i)
		before := len(s.diags)
		s.in("files").fileTree(in, b, path)
		in.ok = in.ok && len(s.diags) == before
	}
	sort.Slice(in.files, func(i, j int) bool { return in.files[i].Path < in.files[j].Path })
	d.Files = in.files
	return in.ok
}

// add takes a file in, if its path can stand beside the others.
func (s *scope) add(in *input, f File, r hcl.Range) bool {
	if err := in.set.AddFile(f.Path); err != nil {
		s.badPath(in, err, r)
		return false
	}
	in.where[f.Path] = r
	in.size += f.Size
	switch {
	case len(in.files) >= MaxFiles:
		s.error(r, fmt.Sprintf("the run declares more than %d files", MaxFiles), "", "mount the directory with a workspace block, or leave more out with exclude")
		return false
	case in.size > MaxFilesSize:
		s.error(r, fmt.Sprintf("the files of the run are larger than %s together", units.FormatSize(MaxFilesSize)), "", "mount the directory with a workspace block, or leave more out with exclude")
		return false
	}
	in.files = append(in.files, f)
	return true
}

func (s *scope) badPath(in *input, err error, r hcl.Range) {
	var e *safepath.Error
	if !errors.As(err, &e) {
		s.error(r, err.Error(), "", "")
		return
	}
	detail, fix := "Paths of files are relative to the input directory of the sandbox.", ""
	if e.Clean != "" {
		fix = "write " + quote(e.Clean)
	}
	switch e.Kind {
	case safepath.Duplicate:
		s.error(r, fmt.Sprintf("the file %s is declared twice", quote(e.Path)), "", "rename one, or leave it out of the tree with exclude")
	case safepath.Collision:
		// In ASCII, because the two may look the same.
		s.error(r, fmt.Sprintf("the files %+q and %+q are the same where case or Unicode form does not count", e.Path, e.Other),
			"On many file systems only one of them could exist.", "rename one")
	case safepath.Conflict:
		s.error(r, fmt.Sprintf("the files %s and %s cannot both exist", quote(e.Path), quote(e.Other)), sentence(e.Reason), "rename one")
	default:
		summary := fmt.Sprintf("the path %s %s", quote(e.Path), strings.SplitN(e.Reason, ";", 2)[0])
		s.error(r, summary, detail, fix)
	}
	if other, ok := in.where[e.Other]; ok && e.Other != "" {
		s.diags[len(s.diags)-1].Related = relatedTo("the other one is here", other)
	}
}

// oneFile reads one file block.
func (s *scope) oneFile(in *input, b *hcl.Block, path string) {
	c, ok := s.body(s.expand(b.Body), fileSchema, "a file block", b.DefRange)
	if !ok {
		return
	}
	f := File{Path: b.Labels[0], Mode: 0o644}
	var given []string
	for _, name := range []string{"source", "content", "content_base64"} {
		if c.Attributes[name] != nil {
			given = append(given, name)
		}
	}
	switch len(given) {
	case 0:
		s.error(b.DefRange, fmt.Sprintf("the file %s has no content", quote(f.Path)), "", `add source = "PATH" to read it from disk, or content = "TEXT"; an empty file has content = ""`)
		return
	case 1:
	default:
		s.error(c.Attributes[given[1]].NameRange, fmt.Sprintf("the file %s has both %s and %s", quote(f.Path), given[0], given[1]), "", "keep one of them")
		return
	}
	if err := safepath.Check(f.Path); err != nil {
		s.badPath(in, err, b.LabelRanges[0])
		return
	}
	switch given[0] {
	case "source":
		if !s.source(&f, c, path) {
			return
		}
	case "content":
		text, ok := s.secretText(c, "content", path+".content")
		if !ok {
			s.missing(c, "content", f.Path)
			return
		}
		f.Content = []byte(text)
	case "content_base64":
		text, ok := s.secretText(c, "content_base64", path+".content_base64")
		if !ok {
			s.missing(c, "content_base64", f.Path)
			return
		}
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			s.error(c.Attributes["content_base64"].Expr.Range(), fmt.Sprintf("content_base64 of %s is not base64", quote(f.Path)), "", "make it with filebase64(), or base64 on a command line")
			return
		}
		f.Content = raw
	}
	if f.Source == "" {
		f.Size = int64(len(f.Content))
		f.Sensitive = s.origin.isSecret(path+".content") || s.origin.isSecret(path+".content_base64")
		if f.Content == nil {
			f.Content = []byte{}
		}
		if f.Size > MaxFileSize {
			s.error(b.DefRange, fmt.Sprintf("the file %s is larger than %s", quote(f.Path), units.FormatSize(MaxFileSize)), "", "mount large data with a workspace block")
			return
		}
	}
	if mode, ok := s.mode(c, path); ok {
		f.Mode = mode
	}
	s.add(in, f, b.LabelRanges[0])
}

// missing reports a content that is null; one that is not known is none to complain about.
func (s *scope) missing(c *hcl.BodyContent, name, file string) {
	a := c.Attributes[name]
	if v, diags := a.Expr.Value(s.ctx); !diags.HasErrors() && v.IsNull() {
		s.error(a.Expr.Range(), fmt.Sprintf("%s of %s is null", name, quote(file)), "", `an empty file has content = ""`)
	}
}

// source finds the file on disk, and takes its size and whether it is executable.
func (s *scope) source(f *File, c *hcl.BodyContent, path string) bool {
	src, ok := s.text(c, "source", path+".source")
	if !ok {
		s.missing(c, "source", f.Path)
		return false
	}
	r := c.Attributes["source"].Expr.Range()
	opened, info, err := s.tree.Open(src, MaxFileSize)
	if err != nil {
		reason, fix := treeFix(err)
		if st, serr := s.tree.Stat(src); serr == nil && st.IsDir() {
			fix = fmt.Sprintf("for a whole directory, write files { source = %s }", quote(src))
		}
		s.error(r, fmt.Sprintf("the source of %s cannot be used: %s", quote(f.Path), reason), "", fix)
		return false
	}
	_ = opened.Close() // nothing was written
	rel, err := s.tree.Resolve(src)
	if err != nil {
		s.error(r, err.Error(), "", "")
		return false
	}
	f.Source, f.Size, f.Mode, f.tree = rel, info.Size(), sourceMode(info), s.tree
	return true
}

// sourceMode keeps of a file's mode only whether it is executable.
func sourceMode(info fs.FileInfo) Mode {
	if info.Mode()&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// mode reads permission bits: an octal string, because a number in HCL is decimal.
func (s *scope) mode(c *hcl.BodyContent, path string) (Mode, bool) {
	a := c.Attributes["mode"]
	v, ok := s.value(a, path+".mode", cty.DynamicPseudoType)
	if ok {
		v, ok = s.plain(v, a.Expr, "mode")
	}
	if !ok {
		return 0, false
	}
	r := a.Expr.Range()
	if v.Type() != cty.String {
		fix := `write mode = "0644"`
		if v.Type() == cty.Number {
			fix = fmt.Sprintf("write mode = %s", quote(string(r.SliceBytes(s.sources[r.Filename]))))
		}
		s.error(r, "mode must be a string of octal digits, not "+kind(v), "Numbers in HCL are decimal, so 0644 would mean something else.", fix)
		return 0, false
	}
	text := v.AsString()
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || len(text) < 3 || len(text) > 4 {
		s.error(r, fmt.Sprintf("mode cannot be %s", quote(text)), `It has three octal digits, such as "0644" or "0755".`, "")
		return 0, false
	}
	if n&^0o777 != 0 {
		s.error(r, fmt.Sprintf("mode cannot be %s", quote(text)), "Only permission bits are possible; setuid, setgid and sticky are not.", fmt.Sprintf("write %q", fmt.Sprintf("%04o", n&0o777)))
		return 0, false
	}
	return Mode(n), true
}

// fileTree reads a files block.
func (s *scope) fileTree(in *input, b *hcl.Block, path string) {
	c, ok := s.body(s.expand(b.Body), filesSchema, "a files block", b.DefRange)
	if !ok {
		return
	}
	source, ok := s.text(c, "source", path+".source")
	if !ok {
		return
	}
	include, exclude := []string{"**"}, []string(nil)
	if c.Attributes["include"] != nil {
		if include, ok = s.plainTexts(c, "include", path+".include"); !ok {
			return
		}
	}
	if c.Attributes["exclude"] != nil {
		if exclude, ok = s.plainTexts(c, "exclude", path+".exclude"); !ok {
			return
		}
	}
	before := len(s.diags)
	if c.Attributes["include"] != nil {
		include = s.globs(include, path+".include", c.Attributes["include"].Expr)
	}
	if c.Attributes["exclude"] != nil {
		exclude = s.globs(exclude, path+".exclude", c.Attributes["exclude"].Expr)
	}
	if len(s.diags) > before {
		return
	}
	r := c.Attributes["source"].Expr.Range()
	found, err := s.tree.Glob(source, include, exclude)
	if err != nil {
		reason, fix := treeFix(err)
		if info, serr := s.tree.Stat(source); serr == nil && info.Mode().IsRegular() {
			fix = fmt.Sprintf("for a single file, write file %s { source = %s }", quote(baseName(source)), quote(source))
		}
		s.error(r, "the files cannot be used: "+reason, "", fix)
		return
	}
	if len(found.Files) == 0 {
		detail := fmt.Sprintf("No file below %s matches include = [%s]", quote(source), strings.Join(quoteAll(include), ", "))
		if len(exclude) > 0 {
			detail += fmt.Sprintf(" without exclude = [%s]", strings.Join(quoteAll(exclude), ", "))
		}
		s.error(b.DefRange, "this files block matches nothing", detail+".", "** stands for any number of directories: \"**/*.py\"")
		return
	}
	for _, skipped := range found.Skipped {
		s.error(r, fmt.Sprintf("%s is a symbolic link that is not followed", quote(skipped)), "It leads to a directory, out of the run file's directory, or nowhere.",
			fmt.Sprintf("leave it out: exclude = [%s]", quote(skipped)))
		s.diags[len(s.diags)-1].Severity = diag.Warning
	}
	base, err := s.tree.Resolve(source)
	if err != nil {
		s.error(r, err.Error(), "", "")
		return
	}
	for _, m := range found.Files {
		src := joinPath(base, m.Path)
		f, info, err := s.tree.Open(src, MaxFileSize)
		if err != nil {
			reason, fix := treeFix(err)
			if fix == "" {
				fix = fmt.Sprintf("leave it out: exclude = [%s]", quote(m.Path))
			}
			s.error(r, "the files cannot be used: "+reason, "", fix)
			return
		}
		_ = f.Close() // nothing was written
		if !s.add(in, File{Path: m.Path, Source: src, Size: info.Size(), Mode: sourceMode(info), tree: s.tree}, r) {
			return
		}
	}
}

// globs checks patterns.
func (s *scope) globs(patterns []string, path string, expr hcl.Expression) []string {
	for i, p := range patterns {
		if err := tree.CheckPattern(p); err != nil {
			s.error(s.origin.rangeOf(element(path, i), expr), err.Error(), "", "")
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
