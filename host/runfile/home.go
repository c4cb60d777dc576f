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
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
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

var homeSchema = schemaOf("source content builtin mode")

// builtins are the files that hutch itself brings.
var builtins = map[string][]byte{instructions.Name: instructions.ExecutingPlans}

// home reads the home blocks.
func (b *block) home(d *Definition) {
	in := &input{where: map[string]hcl.Range{}}
	for _, nested := range b.nested.OfType("home") {
		name, r := nested.Labels[0], nested.LabelRanges[0]
		path := member("home", name)
		b.origin.ranges.set(path, r)
		if h, ok := b.openNested(nested, homeSchema, path).homeFile(in, name, r); ok {
			d.Home = append(d.Home, h)
		}
	}
}

func (b *block) homeFile(in *input, name string, label hcl.Range) (h HomeFile, ok bool) {
	h = HomeFile{Path: name}
	given, ok := b.only(quote(name), "source", "content", "builtin")
	if !b.good || !ok {
		return h, false
	}
	if given == "" {
		b.errorf(b.header, "nothing is said to be put at %s", quote(name)).
			fix(`add source = "PATH" for a file or directory, content = "TEXT", or builtin = %q`, instructions.Name)
		return h, false
	}
	if err := in.set.AddFile(name); err != nil {
		b.badPath(in, err, label).fix("").
			detail("Paths of home blocks are relative to the home directory of the sandbox's user, " +
				"and each stands for one file or directory.")
		return h, false
	}
	in.where[name] = label
	switch given {
	case "source":
		if b.has("mode") {
			b.errorf(b.nameAt("mode"), "mode is for content; a source keeps its own").fix("remove it")
			return h, false
		}
		h.Source, ok = b.hostPath("file or directory")
		return h, ok
	case "content":
		if h.Content, h.Sensitive, ok = b.fileContent("content", name, "name it with source"); !ok {
			return h, false
		}
	case "builtin":
		builtin, ok := b.oneOf("builtin", sortedKeys(builtins)...)
		if !ok {
			return h, false
		}
		h.Content = builtins[builtin]
	}
	if h.Mode, ok = b.mode(); !ok {
		h.Mode = 0o644
	}
	if !h.Sensitive {
		h.SHA256 = fmt.Sprintf("%x", sha256.Sum256(h.Content))
	}
	return h, true
}

// hostPath reads the argument source: a path of this machine. Unlike files, it may lie anywhere, because the user says
// with it what the sandbox is to have; the root of the file system is refused, because nobody means it. want is
// directory, or file or directory.
func (b *block) hostPath(want string) (string, bool) {
	source, ok := b.text("source")
	if !ok {
		return "", false
	}
	r, path := b.at("source"), source
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.file.Dir, path)
	}
	path = filepath.Clean(path)
	switch {
	case source == "" || strings.ContainsRune(source, 0):
		b.errorf(r, "source cannot be %s", quote(source)).fix(`for the directory of this file, write source = "."`)
		return "", false
	case strings.HasPrefix(source, "~"):
		b.errorf(r, "there is no %s", quote(source)).
			detail("A run file knows no home directory, so that it means the same for everybody.").
			fix(`give the path relative to this file, or write "${env("HOME")}/…"`)
		return "", false
	case path == string(filepath.Separator):
		b.errorf(r, "the whole file system cannot be shown in a sandbox").fix("name the directory that is needed")
		return "", false
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f := b.errorf(r, "there is no %s %s", want, quote(source)).detail("It would be %s.", path)
		if name := similarName(path); name != "" {
			f.fix("did you mean %s?", quote(filepath.Join(filepath.Dir(source), name)))
		}
	case err != nil:
		b.errorf(r, "the %s %s cannot be used: %v", want, quote(source), withoutPath(err))
	case !info.IsDir() && (want == "directory" || !info.Mode().IsRegular()):
		b.errorf(r, "%s is %s, not a %s", quote(source), tree.Kind(info.Mode()), want)
	default:
		return path, true
	}
	return "", false
}
