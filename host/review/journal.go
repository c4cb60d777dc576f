package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// An apply has a directory in the ledger:
//
//	journal.json   what is about to be done; while it has this name the project must be put back
//	applied.json   the same, once all of it is done; it is what undo needs
//	undone.json    the same of an undo: it and the apply that it took back only wait for being removed
//	restored.json  the same, when the project was put back and the sandbox's base could not be written yet
//	stuck.json     the same, when the project could not be put back because somebody else changed it meanwhile
//	old/N          the contents that were replaced
const (
	journalFile  = "journal.json"
	appliedFile  = "applied.json"
	undoneFile   = "undone.json"
	restoredFile = "restored.json"
	stuckFile    = "stuck.json"
	oldDir       = "old"

	journalSchema = "hutch.apply/v1"
)

// journal is all that is needed to take an apply back.
type journal struct {
	Schema    string    `json:"schema"`
	ID        string    `json:"id"`
	Sandbox   string    `json:"sandbox"`
	SandboxID string    `json:"sandbox_id,omitempty"`
	Project   string    `json:"project"`
	Dev       uint64    `json:"dev"` // of the project, so that another directory of that name is not taken for it
	Ino       uint64    `json:"ino"`
	Time      time.Time `json:"time"`
	Undoes    string    `json:"undoes,omitempty"` // the apply that this one takes back
	OldBytes  int64     `json:"old_bytes"`
	Steps     []*step   `json:"steps"`
}

// step takes one path from one state to another.
type step struct {
	Path text  `json:"path"`
	Old  state `json:"old"`
	New  state `json:"new"`
	// Settled says that both sides had changed the path, and somebody decided for the new version. To go back from it is
	// to be in conflict again.
	Settled bool `json:"settled,omitempty"`
	// Base is what the sandbox's base says of the path before this step; nil where there is no base.
	Base *baseState `json:"base,omitempty"`
	// Was is the Base of the step that an undo takes back.
	Was *baseState `json:"was,omitempty"`

	content *blob // of New, where it is a file with new content
	part    bool  // New has only some of the sandbox's changes
}

// state is a Node on disk, with what it takes to make it again.
type state struct {
	Type   Type   `json:"type,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Link   text   `json:"link,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Ident  ident  `json:"ident,omitzero"`
	Blob   int    `json:"blob,omitempty"` // number of the content in old/; 0 when it is not kept
	// Xattrs are those of what stood there, which what takes its place gets, too.
	Xattrs []xattr `json:"xattrs,omitempty"`
}

// baseState is an Entry on disk.
type baseState struct {
	None  bool        `json:"none,omitempty"` // the base has nothing there
	Mode  fs.FileMode `json:"mode,omitempty"` // as Go has it, with the type
	Size  int64       `json:"size,omitempty"`
	Mtime int64       `json:"mtime,omitempty"`
	Ctime int64       `json:"ctime,omitempty"`
	Ino   uint64      `json:"ino,omitempty"`
	Link  text        `json:"link,omitempty"`
	Blob  []byte      `json:"blob,omitempty"`
}

func baseStateOf(b *Base, path string) *baseState {
	if b == nil {
		return nil
	}
	e, known := b.Lookup(path)
	return &baseState{!known, e.Mode, e.Size, e.Mtime, e.Ctime, e.Ino, text(e.Link), []byte(e.Blob)}
}

// entry is the zero Entry for nothing.
func (s *baseState) entry(path string) Entry {
	if s.None {
		return Entry{}
	}
	e := overlay.Entry{Path: path, Mode: s.Mode, Size: s.Size, Mtime: s.Mtime, Ctime: s.Ctime, Ino: s.Ino, Link: string(s.Link)}
	return Entry{e, string(s.Blob)}
}

func jnode(n Node, id ident) state {
	return state{Type: n.Type, Mode: n.Mode, Size: n.Size, Link: text(n.Link), SHA256: n.SHA256, Ident: id}
}

// text is a string of any bytes; in JSON what is not UTF-8 is written in Go's quotes.
type text string

// MarshalText implements encoding.TextMarshaler.
func (t text) MarshalText() ([]byte, error) { return []byte(t.shown()), nil }

func (t text) shown() string {
	if utf8.ValidString(string(t)) && (t == "" || t[0] != '"') {
		return string(t)
	}
	return strconv.QuoteToASCII(string(t))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *text) UnmarshalText(b []byte) error {
	if len(b) == 0 || b[0] != '"' {
		*t = text(b)
		return nil
	}
	s, err := strconv.Unquote(string(b))
	*t = text(s)
	return err
}

// write puts the journal on disk under its first name, after everything else that lies below dir.
func (j *journal) write(dir string, sync bool) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, journalFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	if sync {
		if err := syncDisk(dir); err != nil {
			return err
		}
	}
	return renameSynced(tmp, filepath.Join(dir, journalFile), sync)
}

// readJournal reads the journal of that name. It is our own file, and still checked: a path in it is written to.
func readJournal(dir, name string) (*journal, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	j, err := parseJournal(b)
	if err == nil && j.ID != filepath.Base(dir) {
		err = fmt.Errorf("it is the journal of %q", j.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return j, nil
}

func parseJournal(b []byte) (*journal, error) {
	j := &journal{}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, err
	}
	if j.Schema != journalSchema {
		return nil, fmt.Errorf("it has the schema %q, which this hutch does not know", j.Schema)
	}
	if j.Undoes != "" && (!localPath(j.Undoes) || strings.Contains(j.Undoes, "/")) {
		return nil, fmt.Errorf("it undoes %s, which is not a name", Quote(j.Undoes))
	}
	for _, s := range j.Steps {
		if s == nil || !localPath(string(s.Path)) {
			return nil, errors.New("a step has no path, or one that is not in the project")
		}
	}
	return j, nil
}

// open opens the project that the journal is about.
func (j *journal) open() (*dir, error) {
	d, err := openDir(j.Project)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(d.top, &st); err != nil {
		d.close()
		return nil, err
	}
	if uint64(st.Dev) != j.Dev || st.Ino != j.Ino {
		d.close()
		return nil, fmt.Errorf("%s is another directory than the one that was changed", j.Project)
	}
	return d, nil
}

// renameSynced renames a file, and forces the directory to the disk.
func renameSynced(from, to string, sync bool) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if !sync {
		return nil
	}
	d, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// newBlob is content that lies in memory.
func newBlob(b []byte) *blob {
	sum := sha256.Sum256(b)
	return &blob{size: int64(len(b)), sha256: hex.EncodeToString(sum[:]), data: b}
}

// oldBlob is the kept content of a state.
func oldBlob(dir string, s state) (*blob, error) {
	if s.Blob == 0 {
		return nil, errors.New("its old content was not kept")
	}
	return &blob{size: s.Size, sha256: s.SHA256, path: filepath.Join(dir, oldDir, strconv.Itoa(s.Blob))}, nil
}

// Recovered is an apply that was interrupted and taken back.
type Recovered struct {
	ID, Project string
	Paths       int
	Err         error // a *StuckError, or what kept it from being taken back
}

// Recover takes back what a dead process began and did not finish. It is quick when there is nothing.
func (l *Ledger) Recover(ctx context.Context) ([]Recovered, error) {
	if _, err := os.Stat(l.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return l.recover(ctx)
}

func (l *Ledger) recover(ctx context.Context) ([]Recovered, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var list []Recovered
	for _, e := range entries {
		dir := filepath.Join(l.dir, e.Name())
		if pid, ok := stageOwner(e.Name()); ok && !alive(pid) {
			os.RemoveAll(dir)
		}
		if !e.IsDir() || strings.HasPrefix(e.Name(), stagePrefix) {
			continue
		}
		if ctx.Err() != nil {
			return list, context.Cause(ctx)
		}
		if exists(filepath.Join(dir, undoneFile)) {
			if j, err := readJournal(dir, undoneFile); err == nil {
				err = l.forget(dir, j)
				if err != nil {
					list = append(list, Recovered{ID: e.Name(), Err: err})
				}
			}
			continue
		}
		j, err := readJournal(dir, restoredFile)
		restored := err == nil
		if errors.Is(err, fs.ErrNotExist) {
			j, err = readJournal(dir, journalFile)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if !exists(filepath.Join(dir, appliedFile)) && !exists(filepath.Join(dir, stuckFile)) {
				os.RemoveAll(dir) // it died before it did anything, or after it was taken back
			}
			continue
		}
		if err != nil {
			list = append(list, Recovered{ID: e.Name(), Err: err})
			continue
		}
		rec := Recovered{ID: j.ID, Project: j.Project, Paths: len(j.Steps)}
		project, err := j.open()
		switch {
		case err != nil:
			rec.Err = fmt.Errorf("an apply was interrupted and cannot be taken back: %w", err)
		case restored:
			rec.Err = l.restored(dir, j, project)
		default:
			rec.Err = l.back(dir, j, project)
		}
		if err == nil {
			project.close()
		}
		list = append(list, rec)
	}
	return list, nil
}

// back puts the project back as it was before the journal's steps.
func (l *Ledger) back(dir string, j *journal, project *dir) error {
	project.forget()
	e := &engine{project: project, prefix: j.prefix(true), careful: true, at: l.at}
	moves := j.moves(dir, true)
	e.sweep(moves, j.prefix(true))
	e.sweep(moves, j.prefix(false))
	if err := e.run(context.Background(), moves); err != nil {
		return err
	}
	if !l.noSync {
		if err := syncDisk(j.Project); err != nil {
			return err
		}
	}
	l.point("back")
	if len(e.left) > 0 {
		err := errors.Join(l.rebase(j, project, true), os.Rename(filepath.Join(dir, journalFile), filepath.Join(dir, stuckFile)))
		return errors.Join(&StuckError{j.Project, e.left, filepath.Join(dir, oldDir)}, err)
	}
	// From here on nothing of the project is put back again: its owner may change it before the base can be written.
	if err := os.Rename(filepath.Join(dir, journalFile), filepath.Join(dir, restoredFile)); err != nil {
		return err
	}
	return l.restored(dir, j, project)
}

// restored ends an apply that was taken back: the base vouches for the restored files, and the journal goes.
func (l *Ledger) restored(dir string, j *journal, project *dir) error {
	l.point("restored")
	if err := os.RemoveAll(filepath.Join(dir, oldDir)); err != nil { // first: the base may need the space
		return err
	}
	if err := l.rebase(j, project, true); err != nil {
		return fmt.Errorf("%s is as before the apply, but the base of sandbox %s cannot be written, so the paths of that apply count as changed in the project; the next apply tries again: %w",
			j.Project, j.Sandbox, err)
	}
	l.point("rebased")
	return os.RemoveAll(dir)
}

// StuckError says that a project could not be put back as it was, because it was changed by somebody else meanwhile.
type StuckError struct {
	Project string
	Left    []string // path and reason
	Old     string   // the directory of the old versions
}

// Error implements error.
func (e *StuckError) Error() string {
	return fmt.Sprintf("an apply to %s was interrupted, and what it had changed was put back, but for:\n%s\nthe old versions are in %s",
		e.Project, strings.Join(e.Left, "\n"), e.Old)
}

// forget drops an apply that was undone, and then its undo.
func (l *Ledger) forget(dir string, undo *journal) error {
	if undo.Undoes == "" {
		return fmt.Errorf("%s undoes nothing", dir)
	}
	return errors.Join(os.RemoveAll(filepath.Join(l.dir, undo.Undoes)), os.RemoveAll(dir))
}

// stageOwner is the process whose stage has this name.
func stageOwner(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, stagePrefix)
	id, _, ok2 := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(id)
	return pid, ok && ok2 && err == nil && pid > 0
}

func alive(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
