package runfile

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/runfile/internal/tree"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safepath"
)

var (
	workspaceSchema = schemaOf("source project mode")
	mountSchema     = schemaOf("source mode")
)

func baseName(p string) string { return path.Base(filepath.ToSlash(p)) }

// workspace reads the workspace block.
func (b *block) workspace(d *Definition) {
	in := b.openOnly("workspace", workspaceSchema)
	if in == nil || !in.good {
		return
	}
	mode, _ := in.oneOf("mode", string(sdk.WorkspacePrivate), string(sdk.WorkspaceShared), string(sdk.WorkspaceReadOnly))
	w := &Workspace{Mode: cmp.Or(mode, string(sdk.WorkspacePrivate))}
	given, ok := in.only("a workspace", "source", "project")
	switch given {
	case "source":
		w.Source, ok = in.hostPath("directory")
	case "project":
		w.Project, w.Source, ok = in.project()
	default:
		if ok {
			in.errorf(in.header, `a workspace block needs the argument "source" or "project"`).fix(`add source = "."`)
		}
		ok = false
	}
	if ok {
		d.Workspace = w
	}
}

// mounts reads the mount blocks: directories of this machine beside the workspace.
func (b *block) mounts(d *Definition) {
	seen := map[string]hcl.Range{}
	for _, nested := range b.nested.OfType("mount") {
		target, r := nested.Labels[0], nested.LabelRanges[0]
		at := member("mount", target)
		b.origin.ranges.set(at, r)
		in := b.openNested(nested, mountSchema, at)
		first, twice := seen[target]
		seen[target] = r
		switch {
		case CheckMountTarget(target) != nil:
			in.errorf(r, "%s", CheckMountTarget(target)).
				detail("The label is where the sandbox sees the directory: an absolute path without . and .. in it.").
				fix(`write mount "/data" { … }`)
		case twice:
			in.errorf(r, "two directories are mounted at %s", quote(target)).fix("keep one of them").
				related("the first one is here", first)
		case in.good && !in.has("source"):
			in.errorf(in.header, `a mount block needs the argument "source"`).fix(`add source = "data"`)
		case in.good:
			mode, ok := in.oneOf("mode", MountReadOnly, MountWritable)
			if source, found := in.hostPath("directory"); found && (ok || !in.has("mode")) {
				d.Mounts = append(d.Mounts, Mount{Target: target, Source: source, Mode: cmp.Or(mode, MountReadOnly)})
			}
		}
	}
}

// project reads the name of a shared project, and finds its directory. Where those lie, only the caller knows.
func (b *block) project() (name, dir string, ok bool) {
	if name, ok = b.text("project"); !ok {
		return "", "", false
	}
	if b.options.Project == nil {
		b.errorf(b.at("project"), "there are no shared projects here").fix("name a directory with source")
		return "", "", false
	}
	dir, err := b.options.Project(name)
	if err != nil && !b.options.AllowMissing { // to check a file must not need what only a run needs
		b.errorf(b.at("project"), "%s", err).
			fix("hutch project create %s makes it, hutch project ls lists those that are there", name)
	}
	return name, dir, err == nil
}

// whatToRun checks that there is something to run, and that the entrypoint exists.
func (b *block) whatToRun(d *Definition, filesOK bool) {
	entry, command := b.has("entrypoint"), b.has("command")
	switch {
	case entry && command:
		b.errorf(b.nameAt("command"), "a run has an entrypoint or a command, not both").
			detail("An entrypoint is a file that hutch finds the interpreter for; a command is run as it is.").
			fix("keep one of them; arguments for either go into args").
			related("the entrypoint is here", b.nameAt("entrypoint"))
	case !entry && !command:
		f := b.errorf(b.header,
			"the run has nothing to run").fix(`add entrypoint = "FILE" or command = ["PROGRAM", "ARGUMENT"]`)
		if len(d.Files) == 1 {
			f.fix("add entrypoint = %s", quote(d.Files[0].Path))
		}
	case command && d.Command != nil && len(d.Command) == 0:
		b.errorf(b.at("command"), "command is empty").fix(`write a list, such as ["pytest", "-q"]`)
	case len(d.Command) > 0 && d.Command[0] == "":
		b.errorf(b.elementAt("command", 0), "command names no program").detail("Its first element is empty.")
	case d.Entrypoint != "":
		b.entrypoint(d, filesOK)
	}
}

func (b *block) entrypoint(d *Definition, filesOK bool) {
	r, q := b.at("entrypoint"), quote(d.Entrypoint)
	if err := safepath.Check(d.Entrypoint); err != nil {
		var e *safepath.Error
		if !errors.As(err, &e) {
			b.errorf(r, "%s", err)
			return
		}
		reason, _, _ := strings.Cut(e.Reason, ";")
		f := b.errorf(r, "the entrypoint %s %s", q, reason).
			detail("An entrypoint is a declared file, or a file of the workspace, named relative to it.")
		switch {
		case e.Kind == safepath.Absolute:
			f.fix("for a program of the sandbox, write command = [%s]", q)
		case e.Clean != "":
			f.fix("write %s", quote(e.Clean))
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
			b.errorf(r, "the entrypoint %s is a directory", q).
				detail("It holds declared files, such as %s.", quote(f.Path)).fix("name one of its files")
			return
		}
		names = append(names, f.Path)
	}
	switch {
	case !filesOK: // it may be among those that could not be read
	case d.Workspace != nil:
		b.entrypointInWorkspace(d, names)
	case len(d.Files) == 0:
		b.errorf(r, "there is no entrypoint %s: the run declares no files", q).
			fix("add file %s { source = %s }, or a workspace block", q, q)
	default:
		fix := suggestion(d.Entrypoint, names)
		if fix == "" && len(names) <= 5 {
			fix = "the files are " + quotedList(names)
		}
		b.errorf(r, "there is no entrypoint %s among the declared files", q).fix("%s", fix)
	}
}

func (b *block) entrypointInWorkspace(d *Definition, files []string) {
	r, q := b.at("entrypoint"), quote(d.Entrypoint)
	info, err := tree.New(d.Workspace.Source).Stat(d.Entrypoint)
	switch {
	case err == nil && info.IsDir():
		b.errorf(r, "the entrypoint %s is a directory", q).fix("name a file in it")
	case err == nil && !info.Mode().IsRegular():
		b.errorf(r, "the entrypoint %s is %s, not a regular file", q, tree.Kind(info.Mode()))
	case err == nil:
		d.EntrypointIn = InWorkspace
	case errors.Is(err, fs.ErrNotExist):
		_, fix := treeFix(err)
		where := "in the workspace"
		if len(files) > 0 {
			where = "among the declared files or in the workspace"
		}
		b.errorf(r, "there is no entrypoint %s %s", q, where).detail("The workspace is %s.", d.Workspace.Source).
			fix("%s", cmp.Or(fix, suggestion(d.Entrypoint, files)))
	default:
		reason, _ := treeFix(err)
		b.errorf(r, "the entrypoint %s of the workspace cannot be used", q).
			detail("%s", sentence(strings.ReplaceAll(reason, "directory of the run file", "workspace")))
	}
}
