package runfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
)

// sources are the texts that ranges point into, by file name.
type sources map[string][]byte

// at puts a range and its excerpt into a diagnostic.
func (s sources) at(d diag.Diagnostic, r hcl.Range) diag.Diagnostic {
	if r.Filename == "" || r.Start.Line == 0 {
		return d
	}
	rng := hcldiag.Range(r)
	d.Range = &rng
	if src, ok := s[r.Filename]; ok {
		d.Snippet = diag.Excerpt(src, rng)
	}
	return d
}

// ReadSource reads a run file as it is, up to the size that [Load] takes. The error is a [diag.Diagnostic].
func ReadSource(path string) ([]byte, error) {
	src, d := readSource(path, "run file")
	if d != nil {
		return nil, *d
	}
	return src, nil
}

// readSource reads a run file or a file of variables, up to a size. Unlike the files it names, it is the caller's own
// choice and may lie anywhere and be a pipe.
func readSource(path, what string) ([]byte, *diag.Diagnostic) {
	fail := func(reason, fix string) ([]byte, *diag.Diagnostic) {
		d := diag.Errorf("%s", reason)
		d.Fix = fix
		return nil, &d
	}
	q := diag.Quote(path)
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(fmt.Sprintf("there is no %s %s", what, q), similarFile(path))
	case errors.Is(err, fs.ErrPermission):
		return fail(fmt.Sprintf("the %s %s may not be read by this user", what, q), "")
	case errors.Is(err, syscall.ENOTDIR):
		return fail(fmt.Sprintf("the path of the %s %s goes through a file as if it were a directory", what, q), "")
	case err != nil:
		return fail(fmt.Sprintf("the %s %s cannot be opened: %v", what, q, withoutPath(err)), "")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fail(fmt.Sprintf("the %s %s cannot be read: %v", what, q, err), "")
	}
	if info.IsDir() {
		return fail(fmt.Sprintf("%s is a directory, and a %s is wanted", q, what), filesIn(path))
	}
	if info.Size() > bound.MaxFileSize {
		return fail(fmt.Sprintf("the %s %s is %d bytes large; at most 512 KiB are read", what, q, info.Size()),
			"keep data in files of its own, and name them with file or files blocks")
	}
	src, err := io.ReadAll(io.LimitReader(f, bound.MaxFileSize+1))
	if err != nil {
		return fail(fmt.Sprintf("the %s %s cannot be read: %v", what, q, err), "")
	}
	if len(src) > bound.MaxFileSize {
		return fail(fmt.Sprintf("the %s %s is larger than 512 KiB", what, q), "keep data in files of its own, and name them with file or files blocks")
	}
	return src, nil
}

// withoutPath is what is wrong, for a message that names the file itself.
func withoutPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// similarFile suggests a file beside a missing one whose name is near.
func similarFile(path string) string {
	if name := similarName(path); name != "" {
		return "did you mean " + diag.Quote(filepath.Join(filepath.Dir(path), name)) + "?"
	}
	return ""
}

// similarName is a name beside a missing file that is near its name, or "".
func similarName(path string) string {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return ""
	}
	defer d.Close()
	names, _ := d.Readdirnames(1000) // what could be read is enough for a hint
	return diag.Suggest(filepath.Base(path), names)
}

// filesIn names a few run files of a directory.
func filesIn(dir string) string {
	found, err := FindRunFiles(dir)
	if err != nil || len(found) == 0 {
		return "name a .hcl file"
	}
	if len(found) > 3 {
		return fmt.Sprintf("name a file, such as %s, or one of the %d others below it", diag.Quote(found[0]), len(found)-1)
	}
	for i, f := range found {
		found[i] = diag.Quote(f)
	}
	return "name a file: " + strings.Join(found, " or ")
}

// checkText refuses what is not plain UTF-8 text, with the place: the parser would accept some of it, and say strange
// things about the rest.
func checkText(name string, src []byte) *hcl.Diagnostic {
	fail := func(offset, n int, summary, detail string) *hcl.Diagnostic {
		r := hcl.Range{Filename: name, Start: posAt(src, offset), End: posAt(src, offset+n)}
		return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &r}
	}
	switch {
	case bytes.HasPrefix(src, []byte("\xef\xbb\xbf")):
		return fail(0, 3, "the file begins with a byte order mark", "Save it as UTF-8 without one (in many editors: \"UTF-8\", not \"UTF-8 with BOM\").")
	case bytes.HasPrefix(src, []byte("\xff\xfe")), bytes.HasPrefix(src, []byte("\xfe\xff")):
		return fail(0, 2, "the file is UTF-16, not UTF-8", "Save it as UTF-8.")
	}
	if i := bytes.IndexByte(src, 0); i >= 0 {
		return fail(i, 1, "the file holds a NUL byte", "A run file is plain text. To give a program binary data, keep it in a file of its own and name that with source.")
	}
	if !utf8.Valid(src) {
		for i := 0; i < len(src); {
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				return fail(i, 1, fmt.Sprintf("the byte 0x%02x here is not UTF-8", src[i]), "Save the file as UTF-8.")
			}
			i += n
		}
	}
	return nil
}

// posAt is the position of a byte. Columns count characters, near enough for a caret.
func posAt(src []byte, offset int) hcl.Pos {
	offset = min(offset, len(src))
	line := bytes.Count(src[:offset], []byte("\n")) + 1
	start := bytes.LastIndexByte(src[:offset], '\n') + 1
	return hcl.Pos{Line: line, Column: utf8.RuneCount(src[start:offset]) + 1, Byte: offset}
}

// parse turns text into syntax, unless reading it would already cost too much.
func parse(name string, src []byte) (*hclsyntax.Body, hcl.Diagnostics) {
	if d := checkText(name, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // the parser reports what is wrong with them
	if where, reason := bound.CheckTokens(tokens); reason != "" {
		return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "the file is too complex", Detail: sentence(reason), Subject: &where}}
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, worthReading(diags)
	}
	return file.Body.(*hclsyntax.Body), diags // ParseConfig documents this type
}

// treeFix is the fix that an error about a file brings along.
func treeFix(err error) (reason, fix string) {
	var e *tree.Error
	if errors.As(err, &e) {
		return e.Reason, e.Fix
	}
	return err.Error(), ""
}

// sentence makes a clause one: a capital letter and a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	if r, n := utf8.DecodeRuneInString(s); r >= 'a' && r <= 'z' {
		s = strings.ToUpper(s[:n]) + s[n:]
	}
	if !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "?") {
		s += "."
	}
	return s
}
