package runfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/runfile/internal/tree"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safepath"
)

var workspaceSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "project"}, {Name: "mode"}}}

var mountSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "mode"}}}

func joinPath(a, b string) string { return path.Join(a, b) }

func baseName(p string) string { return path.Base(filepath.ToSlash(p)) }

// workspace reads the workspace block. Unlike files, it may lie anywhere: the user says with it what the sandbox is
// to see. The root of the file system is refused, because nobody means it.
func (s *scope) workspace(d *Definition, blocks hcl.Blocks) {
	b := s.single(blocks)
	if b == nil {
		return
	}
	in := s.in("workspace")
	c, ok := in.body(in.expand(b.Body), workspaceSchema, "a workspace block", b.DefRange)
	if !ok {
		return
	}
	w := &Workspace{Mode: string(sdk.WorkspacePrivate)}
	if mode, ok := in.oneOf(c, "mode", "workspace.mode", string(sdk.WorkspacePrivate), string(sdk.WorkspaceShared), string(sdk.WorkspaceReadOnly)); ok {
		w.Mode = mode
	}
	if c.Attributes["source"] != nil && c.Attributes["project"] != nil {
		in.error(c.Attributes["project"].NameRange, "a workspace has either a source or a project", "", "remove one of them")
		return
	}
	if c.Attributes["project"] != nil {
		s.project(in, c, d, w)
		return
	}
	if c.Attributes["source"] == nil {
		in.error(b.DefRange, `a workspace block needs the argument "source" or "project"`, "", `add source = "."`)
		return
	}
	if w.Source = in.hostDir(c, "workspace"); w.Source != "" {
		d.Workspace = w
	}
}

// hostDir reads the argument source of the block at path: a directory of this machine, which may lie anywhere. It returns
// "" after an error.
func (s *scope) hostDir(c *hcl.BodyContent, path string) string {
	source, ok := s.text(c, "source", path+".source")
	if !ok {
		return ""
	}
	r := c.Attributes["source"].Expr.Range()
	if source == "" || strings.ContainsRune(source, 0) {
		s.error(r, fmt.Sprintf("source cannot be %s", quote(source)), "", `for the directory of this file, write source = "."`)
		return ""
	}
	if strings.HasPrefix(source, "~") {
		s.error(r, fmt.Sprintf("there is no %s", quote(source)), "A run file knows no home directory, so that it means the same for everybody.", "give the path relative to this file, or take it from a variable")
		return ""
	}
	dir := source
	if !filepath.IsAbs(source) {
		dir = filepath.Join(s.file.Dir, source)
	}
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fix := ""
		if name := similarName(dir); name != "" {
			fix = "did you mean " + quote(joinPath(filepath.Dir(source), name)) + "?"
		}
		s.error(r, fmt.Sprintf("there is no directory %s", quote(source)), fmt.Sprintf("It would be %s.", dir), fix)
	case err != nil:
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		s.error(r, fmt.Sprintf("the directory %s cannot be used: %v", quote(source), err), "", "")
	case !info.IsDir():
		s.error(r, fmt.Sprintf("%s is %s, not a directory", quote(source), tree.Kind(info.Mode())), "", "")
	case dir == string(filepath.Separator):
		s.error(r, "the whole file system cannot be shown in a sandbox", "", "name the directory that the run needs")
	default:
		return dir
	}
	return ""
}

// mounts reads the mount blocks: directories of this machine beside the workspace.
func (s *scope) mounts(d *Definition, blocks hcl.Blocks) {
	seen := map[string]hcl.Range{}
	for _, b := range blocks {
		target, r := b.Labels[0], b.LabelRanges[0]
		at := member("mount", target)
		s.origin.ranges.set(at, r)
		in := s.in(fmt.Sprintf("mount %q", target))
		if !path.IsAbs(target) || path.Clean(target) != target || target == "/" || strings.ContainsRune(target, 0) {
			in.error(r, fmt.Sprintf("nothing can be mounted at %s", quote(target)), "The label is where the sandbox sees the directory: an absolute path without . and .. in it.", `write mount "/data" { … }`)
			continue
		}
		if first, ok := seen[target]; ok {
			in.error(r, fmt.Sprintf("two directories are mounted at %s", quote(target)), "", "keep one of them")
			in.diags[len(in.diags)-1].Related = relatedTo("the first one is here", first)
			continue
		}
		seen[target] = r
		c, ok := in.body(in.expand(b.Body), mountSchema, "a mount block", b.DefRange)
		if !ok {
			continue
		}
		if c.Attributes["source"] == nil {
			in.error(b.DefRange, `a mount block needs the argument "source"`, "", `add source = "data"`)
			continue
		}
		mode, ok := in.oneOf(c, "mode", at+".mode", MountReadOnly, MountWritable)
		if !ok && c.Attributes["mode"] != nil {
			continue
		}
		if source := in.hostDir(c, at); source != "" {
			d.Mounts = append(d.Mounts, Mount{Target: target, Source: source, Mode: cmp.Or(mode, MountReadOnly)})
		}
	}
}

// project takes a shared project directory as the workspace. Where those lie, only the caller knows.
func (s *scope) project(in *scope, c *hcl.BodyContent, d *Definition, w *Workspace) {
	name, ok := in.text(c, "project", "workspace.project")
	if !ok {
		return
	}
	r := c.Attributes["project"].Expr.Range()
	find := s.options.Project
	if find == nil {
		in.error(r, "there are no shared projects here", "", "name a directory with source")
		return
	}
	dir, err := find(name)
	if err != nil {
		if !s.options.AllowMissing { // to check a file must not need what only a run needs
			in.error(r, err.Error(), "", "hutch project create "+name+" makes it, hutch project ls lists those that are there")
		}
		return
	}
	w.Source, w.Project = dir, name
	d.Workspace = w
}

// whatToRun checks that there is something to run, and that the entrypoint exists.
func (s *scope) whatToRun(d *Definition, c *hcl.BodyContent, filesOK bool) {
	entry, command := c.Attributes["entrypoint"], c.Attributes["command"]
	header := s.origin.ranges[""]
	switch {
	case entry != nil && command != nil:
		s.error(command.NameRange, "a run has an entrypoint or a command, not both", "An entrypoint is a file that hutch finds the interpreter for; a command is run as it is.", "keep one of them; arguments for either go into args")
		s.diags[len(s.diags)-1].Related = relatedTo("the entrypoint is here", entry.NameRange)
		return
	case entry == nil && command == nil:
		fix := `add entrypoint = "FILE" or command = ["PROGRAM", "ARGUMENT"]`
		if len(d.Files) == 1 {
			fix = fmt.Sprintf("add entrypoint = %s", quote(d.Files[0].Path))
		}
		s.error(header, "the run has nothing to run", "", fix)
		return
	case command != nil:
		if _, ok := s.known(command); ok && len(d.Command) == 0 && s.valueIsList(command) {
			s.error(command.Expr.Range(), "command is empty", "", `write a list, such as ["pytest", "-q"]`)
		} else if len(d.Command) > 0 && d.Command[0] == "" {
			s.error(s.origin.rangeOf("command[0]", command.Expr), "command names no program", "Its first element is empty.", "")
		}
		return
	}
	if d.Entrypoint == "" {
		if v, ok := s.known(entry); ok && v == "" {
			s.error(entry.Expr.Range(), "entrypoint is empty", "", "name a declared file, or one of the workspace")
		}
		return
	}
	s.entrypoint(d, entry, filesOK)
}

// known evaluates an argument once more, to tell an empty string from one that is wrong or not known.
func (s *scope) known(a *hcl.Attribute) (string, bool) {
	v, diags := a.Expr.Value(s.ctx)
	if diags.HasErrors() || v.IsNull() || !v.IsWhollyKnown() {
		return "", false
	}
	v, _ = v.UnmarkDeep()
	if v.Type().FriendlyName() == "string" {
		return v.AsString(), true
	}
	return "", true
}

func (s *scope) valueIsList(a *hcl.Attribute) bool {
	v, _ := a.Expr.Value(s.ctx)
	v, _ = v.Unmark()
	return (v.Type().IsTupleType() || v.Type().IsListType()) && v.LengthInt() == 0
}

func (s *scope) entrypoint(d *Definition, a *hcl.Attribute, filesOK bool) {
	r := a.Expr.Range()
	q := quote(d.Entrypoint)
	if err := safepath.Check(d.Entrypoint); err != nil {
		var e *safepath.Error
		detail := "An entrypoint is a declared file, or a file of the workspace, named relative to it."
		if errors.As(err, &e) {
			fix := ""
			if e.Clean != "" {
				fix = "write " + quote(e.Clean)
			}
			if e.Kind == safepath.Absolute {
				fix = "for a program of the sandbox, write command = [" + q + "]"
			}
			s.error(r, fmt.Sprintf("the entrypoint %s %s", q, strings.SplitN(e.Reason, ";", 2)[0]), detail, fix)
		}
		return
	}
	var names []string
	for _, f := range d.Files {
		if f.Path == d.Entrypoint {
			d.EntrypointIn = InInput
			return
		}
		if strings.HasPrefix(f.Path, d.Entrypoint+"/") {
			s.error(r, fmt.Sprintf("the entrypoint %s is a directory", q), "It holds declared files, such as "+quote(f.Path)+".", "name one of its files")
			return
		}
		names = append(names, f.Path)
	}
	if !filesOK {
		return // it may be among those that could not be read
	}
	if d.Workspace == nil {
		switch {
		case len(d.Files) == 0:
			s.error(r, fmt.Sprintf("there is no entrypoint %s: the run declares no files", q), "",
				fmt.Sprintf("add file %s { source = %s }, or a workspace block", q, q))
		default:
			fix := suggestion(d.Entrypoint, names)
			if fix == "" && len(names) <= 5 {
				fix = "the files are " + quotedList(names)
			}
			s.error(r, fmt.Sprintf("there is no entrypoint %s among the declared files", q), "", fix)
		}
		return
	}
	ws := tree.New(d.Workspace.Source)
	info, err := ws.Stat(d.Entrypoint)
	switch {
	case err == nil && info.IsDir():
		s.error(r, fmt.Sprintf("the entrypoint %s is a directory", q), "", "name a file in it")
	case err == nil && !info.Mode().IsRegular():
		s.error(r, fmt.Sprintf("the entrypoint %s is %s, not a regular file", q, tree.Kind(info.Mode())), "", "")
	case err == nil:
		d.EntrypointIn = InWorkspace
	default:
		reason, fix := treeFix(err)
		if fix == "" || strings.Contains(fix, "run file") {
			fix = suggestion(d.Entrypoint, names)
		}
		where := "in the workspace"
		if len(d.Files) > 0 {
			where = "among the declared files or in the workspace"
		}
		if errors.Is(err, fs.ErrNotExist) {
			s.error(r, fmt.Sprintf("there is no entrypoint %s %s", q, where), fmt.Sprintf("The workspace is %s.", d.Workspace.Source), fix)
			return
		}
		s.error(r, fmt.Sprintf("the entrypoint %s of the workspace cannot be used", q), sentence(strings.ReplaceAll(reason, "directory of the run file", "workspace")), "")
	}
}
