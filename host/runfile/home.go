package runfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/instructions"
	"github.com/hutch-run/hutch/host/units"
)

// HomeFile is a file, or a directory with all that is in it, that is put into the home directory of the sandbox's user
// before anything is run: skills, settings and instructions of a coding agent.
type HomeFile struct {
	Path      string `json:"path"`                // clean, slash-separated, relative to the home directory
	Source    string `json:"source,omitempty"`    // host path, absolute, of a file or a directory; "" when Content is set
	Mode      Mode   `json:"mode,omitzero"`       // of a file with Content
	SHA256    string `json:"sha256,omitempty"`    // of Content, in hexadecimal; "" for a secret
	Sensitive bool   `json:"sensitive,omitempty"` // Content holds a secret: do not store it
	Content   []byte `json:"-"`                   // of a file
}

var homeSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "content"}, {Name: "builtin"}, {Name: "mode"}}}

// builtins are the files that hutch itself brings.
var builtins = map[string][]byte{instructions.Name: instructions.ExecutingPlans}

// home reads the home blocks.
func (s *scope) home(d *Definition, blocks hcl.Blocks) {
	in := &input{where: map[string]hcl.Range{}}
	for _, b := range blocks {
		path := member("home", b.Labels[0])
		s.origin.ranges.set(path, b.LabelRanges[0])
		if h, ok := s.in(fmt.Sprintf("home %q", b.Labels[0])).homeFile(in, b, path); ok {
			d.Home = append(d.Home, h)
		}
	}
}

func (s *scope) homeFile(in *input, b *hcl.Block, path string) (h HomeFile, ok bool) {
	c, ok := s.body(s.expand(b.Body), homeSchema, "a home block", b.DefRange)
	if !ok {
		return h, false
	}
	h = HomeFile{Path: b.Labels[0]}
	var given []string
	for _, name := range []string{"source", "content", "builtin"} {
		if c.Attributes[name] != nil {
			given = append(given, name)
		}
	}
	switch len(given) {
	case 0:
		s.error(b.DefRange, fmt.Sprintf("nothing is said to be put at %s", quote(h.Path)), "", `add source = "PATH" for a file or directory, content = "TEXT", or builtin = "`+instructions.Name+`"`)
		return h, false
	case 1:
	default:
		s.error(c.Attributes[given[1]].NameRange, fmt.Sprintf("%s has both %s and %s", quote(h.Path), given[0], given[1]), "", "keep one of them")
		return h, false
	}
	if err := in.set.AddFile(h.Path); err != nil {
		s.badPath(in, err, b.LabelRanges[0])
		last := &s.diags[len(s.diags)-1]
		last.Detail, last.Fix = "Paths of home blocks are relative to the home directory of the sandbox's user, and each stands for one file or directory.", ""
		return h, false
	}
	in.where[h.Path] = b.LabelRanges[0]
	switch given[0] {
	case "source":
		if h.Source, ok = s.homeSource(c, path); !ok {
			return h, false
		}
		if c.Attributes["mode"] != nil {
			s.error(c.Attributes["mode"].NameRange, "mode is for content; a source keeps its own", "", "remove it")
			return h, false
		}
		return h, true
	case "content":
		text, ok := s.secretText(c, "content", path+".content")
		if !ok {
			s.missing(c, "content", h.Path)
			return h, false
		}
		h.Content, h.Sensitive = []byte(text), s.origin.isSecret(path+".content")
		if len(h.Content) > MaxFileSize {
			s.error(b.DefRange, fmt.Sprintf("the file %s is larger than %s", quote(h.Path), units.FormatSize(MaxFileSize)), "", "name it with source")
			return h, false
		}
	case "builtin":
		name, ok := s.text(c, "builtin", path+".builtin")
		if !ok {
			return h, false
		}
		if h.Content, ok = builtins[name]; !ok {
			s.error(c.Attributes["builtin"].Expr.Range(), fmt.Sprintf("hutch brings no file %s", quote(name)), "It brings "+quotedList(sortedKeys(builtins))+".", suggestion(name, sortedKeys(builtins)))
			return h, false
		}
	}
	if h.Mode, ok = s.mode(c, path); !ok {
		h.Mode = 0o644
	}
	if !h.Sensitive {
		h.SHA256 = fmt.Sprintf("%x", sha256.Sum256(h.Content))
	}
	return h, true
}

// homeSource finds what is to be copied. Like a workspace, and unlike files, it may lie anywhere: the user says with it
// what the sandbox is to have.
func (s *scope) homeSource(c *hcl.BodyContent, path string) (string, bool) {
	source, ok := s.text(c, "source", path+".source")
	if !ok {
		return "", false
	}
	r := c.Attributes["source"].Expr.Range()
	switch {
	case source == "" || strings.ContainsRune(source, 0):
		s.error(r, fmt.Sprintf("source cannot be %s", quote(source)), "", "name a file or a directory")
		return "", false
	case strings.HasPrefix(source, "~"):
		s.error(r, fmt.Sprintf("there is no %s", quote(source)), "A run file knows no home directory, so that it means the same for everybody.", `give the path relative to this file, or write "${env("HOME")}/…"`)
		return "", false
	}
	at := source
	if !filepath.IsAbs(at) {
		at = filepath.Join(s.file.Dir, at)
	}
	at = filepath.Clean(at)
	info, err := os.Stat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.error(r, fmt.Sprintf("there is no %s", quote(source)), fmt.Sprintf("It would be %s.", at), "")
	case err != nil:
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		s.error(r, fmt.Sprintf("%s cannot be used: %v", quote(source), err), "", "")
	case !info.IsDir() && !info.Mode().IsRegular():
		s.error(r, fmt.Sprintf("%s is neither a file nor a directory", quote(source)), "", "")
	case at == string(filepath.Separator):
		s.error(r, "the whole file system cannot be put into a home directory", "", "name what is needed of it")
	default:
		return at, true
	}
	return "", false
}
