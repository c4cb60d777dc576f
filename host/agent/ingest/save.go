package ingest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// What Save writes.
const (
	CodeDir    = "code"    // the files, below it
	RunFile    = "run.hcl" // beside it
	AnswerFile = "answer"  // what was taken in, as it came
)

// Run is the run that an answer becomes.
type Run struct {
	Name    string // of the run; see [RunName]
	Program Program
	Backend string // "" takes bwrap
	Network network.Network
	Limits  runfile.Limits
}

// RunName makes the name of a run from that of a file.
func RunName(file string) string {
	base := filepath.Base(file)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, base)
	if name = strings.Trim(name, "-._"); len(name) > 64 {
		name = name[:64]
	}
	if name == "" {
		return "ingested"
	}
	return name
}

// Save writes the files of an answer below dir/code, the run file beside it, and the answer itself. dir must be missing
// or empty; it is there with all of it, or as it was before. It returns the path of the run file. What [judge.Copied]
// refuses and allow does not allow is a *[judge.RefusedError].
func Save(dir string, a *Answer, r Run, answer []byte, allow map[judge.Rule]bool) (string, error) {
	text, err := r.hcl(a)
	if err != nil {
		return "", err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", fmt.Errorf("%s is not empty, and the code goes to a directory that is missing or empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var changes []judge.Change
	for _, f := range a.Files {
		changes = append(changes, judge.Change{Path: f.Path, New: judge.Node{There: true, Mode: f.Mode}})
	}
	if err := judge.Refuse(changes, nil, "", allow, judge.Copied...); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".hutch-ingest-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) // nothing is there any more once it has its name
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return "", err
	}
	defer root.Close()
	write := func(name string, mode fs.FileMode, content []byte) error {
		return errors.Join(root.MkdirAll(path.Dir(name), 0o755), root.WriteFile(name, content, mode))
	}
	for _, f := range a.Files {
		if err := write(path.Join(CodeDir, f.Path), f.Mode, f.Content); err != nil {
			return "", err
		}
	}
	if err := errors.Join(write(RunFile, 0o644, text), write(AnswerFile, 0o644, answer),
		root.Chmod(".", 0o755)); err != nil {
		return "", err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // only an empty directory can be removed
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, RunFile), nil
}

// hcl is the run file.
func (r Run) hcl(a *Answer) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "run %s {\n", runfile.Quote(r.Name))
	runfile.WriteAttribute(&b, "entrypoint", r.Program.Entrypoint)
	runfile.WriteAttribute(&b, "language", r.Program.Language)
	if len(r.Program.Dependencies) > 0 {
		fmt.Fprintf(&b, "dependencies = %s\n", runfile.QuoteList(r.Program.Dependencies))
	}
	fmt.Fprintf(&b, "\nbackend %s {\n}\n\nfiles {\nsource = %s\n}\n", runfile.Quote(cmp.Or(r.Backend, "bwrap")),
		runfile.Quote(CodeDir))
	if r.Network.Mode != "" {
		b.WriteString("\n")
		runfile.WriteNetwork(&b, r.Network)
	}
	b.WriteString("\n")
	runfile.WriteLimits(&b, r.Limits, nil)
	b.WriteString("}\n")
	out, diags := runfile.Format(RunFile, b.Bytes())
	if diags.HasErrors() {
		return nil, diags.Err()
	}
	return append(fmt.Appendf(nil, "# Made by hutch ingest; the answer was in the format %s.\n", a.Format), out...), nil
}

// Proposal is what an answer makes of a directory. It stands for a sandbox whose workspace is the directory with the
// answer applied, so that package review shows, judges, applies and undoes it like any other.
type Proposal struct {
	Outcomes []Outcome
	Notes    []string // what was done with good will

	subject review.Subject
	changes []sdk.Change
}

// workspace is where the sandbox that a Proposal stands for has its workspace.
const workspace = "/workspace"

// Propose works out what the answer makes of a directory of this host, as it is now: what changes there afterwards is a
// conflict when it is applied. name and id are those under which the apply is undone. Files are read below the
// directory and never through a link. The error is an *Error when it is for the answer's author to mend.
func Propose(ctx context.Context, a *Answer, dir, name, id string) (*Proposal, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	base, err := review.TakeBase(ctx, dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	p := &Proposal{}
	if p.Outcomes, p.Notes, err = a.Apply(&hostTree{ctx, root}); err != nil {
		return nil, err
	}
	p.subject = review.Subject{Name: name, ID: id, Project: dir, Base: base, Remote: p,
		Ready: sdk.Ready{Workspace: workspace}}
	return p, p.list(root)
}

// Subject is the proposal as a review looks at it.
func (p *Proposal) Subject() review.Subject { return p.subject }

// list makes the changes: the outcomes, and the directories that they need.
func (p *Proposal) list(root *os.Root) error {
	known := map[string]bool{".": true}
	for _, o := range p.Outcomes {
		if o.Deleted {
			p.changes = append(p.changes, sdk.Change{Path: o.Path, Kind: overlay.Deleted})
			continue
		}
		var missing []string
		for up := path.Dir(o.Path); !known[up]; up = path.Dir(up) {
			known[up] = true
			if _, err := root.Lstat(up); errors.Is(err, fs.ErrNotExist) {
				missing = append(missing, up)
			} else if err != nil {
				return err
			}
		}
		for _, dir := range slices.Backward(missing) {
			p.changes = append(p.changes, sdk.Change{Path: dir, Kind: overlay.Added, NewMode: fs.ModeDir | 0o755})
		}
		kind := overlay.Modified
		if o.Created {
			kind = overlay.Added
		}
		p.changes = append(p.changes, sdk.Change{Path: o.Path, Kind: kind, NewMode: o.Mode, Size: int64(len(o.Content))})
	}
	return nil
}

// Changes implements review.Remote.
func (p *Proposal) Changes(context.Context) ([]sdk.Change, error) {
	return slices.Clone(p.changes), nil
}

// Get implements review.Remote: it sends what changed, and nothing else, since nothing else is looked at.
func (p *Proposal) Get(_ context.Context, at string, format sdk.Format, w io.Writer) error {
	if at != workspace || format != sdk.FormatTar {
		return sdk.Errorf(sdk.ReasonNotFound, "there is no %s as %s", at, format)
	}
	t := tar.NewWriter(w)
	content := map[string][]byte{}
	for _, o := range p.Outcomes {
		content[o.Path] = o.Content
	}
	for _, c := range p.changes {
		if c.Kind == overlay.Deleted {
			continue
		}
		h := &tar.Header{Name: c.Path, Typeflag: tar.TypeReg, Mode: int64(c.NewMode.Perm()), Size: c.Size,
			Format: tar.FormatPAX}
		if c.NewMode.IsDir() {
			h.Typeflag, h.Name, h.Size = tar.TypeDir, c.Path+"/", 0
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(content[c.Path][:h.Size]); err != nil {
			return err
		}
	}
	return t.Close()
}

// hostTree is a directory of this host.
type hostTree struct {
	ctx  context.Context
	root *os.Root
}

// Read implements Tree.
func (t *hostTree) Read(name string) ([]byte, fs.FileMode, error) {
	f, info, err := safefile.Open(t.root, name, runfile.MaxFileSize)
	var refused *safefile.Error
	switch {
	case errors.As(err, &refused) && refused.Reason == safefile.ReasonMissing:
		return nil, 0, fs.ErrNotExist
	case errors.As(err, &refused):
		return nil, 0, fmt.Errorf("it cannot be changed: %s", refused.Detail)
	case err != nil:
		return nil, 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, info.Size))
	return b, info.Mode.Perm(), err
}

// Names implements Tree.
func (t *hostTree) Names() []string {
	var out []string
	_ = safefile.Walk(t.ctx, t.root, ".", safefile.Caps{Entries: maxNames}, func(e safefile.Entry) error {
		if e.Info.IsDir() && (path.Base(e.Path) == ".git" || path.Base(e.Path) == "node_modules") {
			return fs.SkipDir
		}
		if e.Skip == "" && !e.Info.IsDir() && !strings.Contains(e.Path, "\n") {
			out = append(out, e.Path)
		}
		return nil
	}) // what cannot be walked has no names to offer
	return out
}
