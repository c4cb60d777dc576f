// Package judge decides what may land on this machine of the files that come out of a sandbox, whichever way they come:
// apply, pull, ingest, cp, collected outputs.
//
// It judges a tree as it will be after the landing, and not single paths: git takes a directory for a repository
// because of several names in it, and they can come one at a time, or be there already. Every rule holds for any part
// of a landing: what is admitted with all changes is admitted with some of them.
package judge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// Rule names what a change is refused for. Rules are stable: they are part of the JSON, and of the flags that allow
// what they forbid.
type Rule string

// The rules that can be allowed, each by the flag --allow-RULE.
const (
	Git           Rule = "git"            // a git repository's own files, in any directory
	Tools         Rule = "tools"          // files that the host's tools run or obey without being asked, see [ToolList]
	Exec          Rule = "exec"           // a file becomes executable
	SetID         Rule = "setid"          // a set-user-id or set-group-id bit
	Links         Rule = "links"          // a symbolic link that is absolute or leads out of where it lands
	WorldWritable Rule = "world-writable" // everybody on the machine could write it
	Collisions    Rule = "collisions"     // the same file as another one where case or Unicode form does not count
)

// The rules that nothing allows.
const (
	Special    Rule = "special"    // a FIFO, a socket or a device
	Unreadable Rule = "unreadable" // it cannot be read safely, or at all; found by who reads
	Escapes    Rule = "escapes"    // a directory above it is a symbolic link where it lands
)

// Allowable are the rules that a user can allow.
var Allowable = []Rule{Git, Tools, Exec, SetID, Links, WorldWritable, Collisions}

// Flag is the flag that allows what the rule forbids; "" when nothing does.
func (r Rule) Flag() string {
	if slices.Contains(Allowable, r) {
		return "--allow-" + string(r)
	}
	return ""
}

// Node is what stands at a path; the zero Node is nothing.
type Node struct {
	There bool
	Mode  fs.FileMode // type, permissions, set-id bits
	Link  string      // where a symbolic link points
}

func (n Node) isDir() bool  { return n.There && n.Mode.IsDir() }
func (n Node) isFile() bool { return n.There && n.Mode.IsRegular() }

// Change is one path that lands: what stands there before, and what will.
type Change struct {
	Path     string // relative to the place, clean, with slashes
	Old, New Node
	From     *Node // the file that was renamed to Path, whose mode it may keep; nil otherwise
}

// Place is the directory that changes land in. A path never leads through a symbolic link: below one there is nothing.
type Place interface {
	Look(path string) Node     // "" is the directory itself
	Names(dir string) []string // nil where there is no directory
}

// Finding is one reason for which a change does not land by default.
type Finding struct {
	Rule   Rule   `json:"rule"`
	Detail string `json:"detail"` // one clause for a person, without the path
}

// Verdict is what is found about one change.
type Verdict struct {
	Refused []Finding
	// Marks are what a reviewer should know of a change that lands without a flag, one clause each.
	Marks []string
}

func (v *Verdict) refuse(rule Rule, format string, args ...any) {
	v.Refused = append(v.Refused, Finding{rule, fmt.Sprintf(format, args...)})
}

// Judge finds what is refused by default, for each of the changes. Only what a change adds to the risk counts: a file
// that was executable may stay so. A path may be among the changes several times. to is nil for an empty directory.
func Judge(changes []Change, to Place) []Verdict {
	if to == nil {
		to = empty{}
	}
	c := &court{to: to, changes: changes, at: make(map[string]*Change, len(changes)), linked: map[string]bool{},
		verdicts: make([]Verdict, len(changes))}
	for i := range changes {
		c.at[changes[i].Path] = &changes[i]
	}
	repos := c.repositories()
	for i := range changes {
		x, v := &changes[i], &c.verdicts[i]
		switch tool, refused := Obeyed(x.Path); {
		case GitPath(x.Path):
			v.refuse(Git, "it belongs to a git repository, whose hooks and settings run programs")
		case repos.part(x):
			v.refuse(Git, "it belongs to a bare git repository, whose hooks and settings run programs")
		case tool != "" && refused:
			v.refuse(Tools, "%s runs or obeys it without being asked", tool)
		case tool != "":
			v.Marks = append(v.Marks, tool+" takes orders from it")
		}
		c.node(x, v)
		if c.throughLink(parent(x.Path)) {
			v.refuse(Escapes, "its directory is a symbolic link in the project")
		}
	}
	c.collisions()
	return c.verdicts
}

type court struct {
	to       Place
	changes  []Change
	at       map[string]*Change
	linked   map[string]bool
	verdicts []Verdict
}

// node judges what stands at the path alone: its type, its mode, where it links to.
func (c *court) node(x *Change, v *Verdict) {
	const known = fs.ModeDir | fs.ModeSymlink
	if x.New.Mode.Type()&^known != 0 || x.Old.Mode.Type()&^known != 0 {
		v.refuse(Special, "it is a FIFO, a socket or a device")
	}
	old := x.Old
	if x.From != nil {
		old = *x.From
	}
	if !old.There || old.Mode.Type() != x.New.Mode.Type() {
		old = Node{}
	}
	fresh := x.New.Mode &^ old.Mode
	if x.New.isFile() && fresh&0o111 != 0 {
		v.refuse(Exec, "it becomes executable (mode %04o)", safefile.Bits(x.New.Mode))
	}
	if x.New.isFile() || x.New.isDir() {
		if fresh&(fs.ModeSetuid|fs.ModeSetgid) != 0 && !c.inherits(x) {
			v.refuse(SetID, "it gets a set-id bit (mode %04o)", safefile.Bits(x.New.Mode))
		}
		if fresh&0o002 != 0 {
			v.refuse(WorldWritable, "everybody may write it (mode %04o)", safefile.Bits(x.New.Mode))
		}
	}
	if x.New.There && x.New.Mode.Type() == fs.ModeSymlink && LeadsOut(x.Path, x.New.Link) {
		v.refuse(Links, "it links to %q, outside the project", x.New.Link)
	}
}

// inherits reports whether a directory has its set-group-id bit from the one it lies in.
func (c *court) inherits(x *Change) bool {
	up := c.to.Look(parent(x.Path))
	return x.New.isDir() && x.New.Mode&fs.ModeSetuid == 0 && up.isDir() && up.Mode&fs.ModeSetgid != 0
}

// throughLink reports whether dir, or a directory above it, is a symbolic link in the place, and stays one.
func (c *court) throughLink(dir string) bool {
	if dir == "" {
		return false
	}
	is, known := c.linked[dir]
	if !known {
		x := c.at[dir]
		replaced := x != nil && (x.New.isDir() || !x.New.There)
		is = !replaced && c.to.Look(dir).Mode.Type() == fs.ModeSymlink || c.throughLink(parent(dir))
		c.linked[dir] = is
	}
	return is
}

// collisions refuses new names that some file system takes for the name of a neighbour.
func (c *court) collisions() {
	fresh := map[string][]int{} // by directory
	for i, x := range c.changes {
		if !x.Old.There && x.New.There {
			fresh[parent(x.Path)] = append(fresh[parent(x.Path)], i)
		}
	}
	for in, list := range fresh {
		there := map[string]string{}
		for _, name := range c.to.Names(in) {
			if x := c.at[path.Join(in, name)]; x == nil || x.New.There {
				there[fold(name)] = name
			}
		}
		for _, i := range list {
			name := path.Base(c.changes[i].Path)
			key := fold(name)
			if other, ok := there[key]; ok && other != name {
				c.verdicts[i].refuse(Collisions, "where case or Unicode form does not count it is the same as %q", other)
			}
			there[key] = name
		}
	}
}

// LeadsOut reports whether a symbolic link at name can lead out of the place: it is absolute, goes up further than name
// is deep, or goes up after it went down, where the way up depends on what other links make of the way down.
func LeadsOut(name, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") {
		return true
	}
	depth, down := strings.Count(name, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return true
			}
		default:
			down = true
		}
	}
	return false
}

// empty is a place with nothing in it.
type empty struct{}

func (empty) Look(string) Node      { return Node{} }
func (empty) Names(string) []string { return nil }

// parent is the directory of a path, "" for the place itself.
func parent(p string) string {
	return p[:max(strings.LastIndexByte(p, '/'), 0)]
}

// fold is safepath.Fold, which for a plain name is the name itself.
func fold(name string) string {
	for i := range len(name) {
		if c := name[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
			return safepath.Fold(name)
		}
	}
	return name
}

// Dir is a directory of this machine as a [Place]. The caller closes it.
type Dir struct{ *os.Root }

// Look implements [Place].
func (d Dir) Look(p string) Node {
	if p == "" {
		p = "."
	}
	fi, err := d.Lstat(p)
	if err != nil {
		return Node{}
	}
	return Node{There: true, Mode: fi.Mode()}
}

// Names implements [Place].
func (d Dir) Names(in string) []string {
	if in == "" {
		in = "."
	}
	f, err := d.OpenFile(in, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0) // a FIFO would block
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

// Copied are the rules for what a user copies to a place of their choice, where files keep their permissions.
var Copied = []Rule{Git, Tools}

// RefusedError says why nothing of a landing is admitted.
type RefusedError struct {
	Lines []string // a path and what is wrong with it each; at most 20, and one with how many more there are
	Flags []string // allow all of it; empty where something cannot be allowed
}

// Error implements error.
func (e *RefusedError) Error() string {
	return "it contains changes that must be allowed:\n" + strings.Join(e.Lines, "\n")
}

// Landed is what is wrong with one path of a landing.
type Landed struct {
	Path string
	Finding
}

// Refuse judges a landing of all changes or none by some of the rules. The error is a *[RefusedError], which names the
// paths without prefix.
func Refuse(changes []Change, to Place, prefix string, allow map[Rule]bool, rules ...Rule) error {
	var found []Landed
	for i, v := range Judge(changes, to) {
		for _, f := range v.Refused {
			if slices.Contains(rules, f.Rule) {
				found = append(found, Landed{strings.TrimPrefix(strings.TrimPrefix(changes[i].Path, prefix), "/"), f})
			}
		}
	}
	return RefuseFound(found, allow)
}

// RefuseFound returns a *[RefusedError] for what is found and not allowed, nil for none.
func RefuseFound(found []Landed, allow map[Rule]bool) error {
	const most = 20
	e, against, n := &RefusedError{}, map[Rule]bool{}, 0
	for _, f := range found {
		if allow[f.Rule] {
			continue
		}
		against[f.Rule] = true
		if n++; n <= most {
			e.Lines = append(e.Lines, fmt.Sprintf("  %.200q: %s", f.Path, f.Detail))
		}
	}
	if n == 0 {
		return nil
	}
	if n > most {
		e.Lines = append(e.Lines, fmt.Sprintf("  and %d more", n-most))
	}
	for _, r := range Allowable {
		if against[r] {
			e.Flags = append(e.Flags, r.Flag())
		}
	}
	return e
}

// RefuseCopy judges by [Copied] what is copied to the path at of this machine: the tree from, or one file when from is
// nil. It knows the names of all directories above at, so that a file that lands in .git/hooks is known for a hook.
func RefuseCopy(from *os.Root, at string, allow map[Rule]bool) error {
	at, err := filepath.Abs(at)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(at))
	if err != nil {
		return err
	}
	if from != nil { // at is a directory, and may be reached through a link
		if dir, err = filepath.EvalSymlinks(at); err != nil {
			return err
		}
	}
	top, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	defer top.Close()
	to, prefix := Dir{top}, strings.TrimPrefix(dir, "/")
	var changes []Change
	add := func(name string, mode fs.FileMode) {
		p := path.Join(prefix, name)
		changes = append(changes, Change{Path: p, Old: to.Look(p), New: Node{There: true, Mode: mode}})
	}
	if from == nil {
		add(filepath.Base(at), 0o644)
		return Refuse(changes, to, prefix, allow, Copied...)
	}
	err = fs.WalkDir(from.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && p != "." {
			add(p, d.Type())
		}
		return err
	})
	return errors.Join(err, Refuse(changes, to, prefix, allow, Copied...))
}
