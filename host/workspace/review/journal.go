package review

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// An apply has a directory in the ledger:
//
//	journal   what is about to be done; while it has this name the project must be put back
//	applied   the same, once all of it is done; it is what undo needs
//	undone    the same of an undo: it and the apply that it took back only wait for being removed
//	restored  the same, when the project was put back and the sandbox's base could not be written yet
//	stuck     the same, when the project could not be put back because somebody else changed it meanwhile
//	old/N     the contents that were replaced
//
// It is written by gob, since names and links may hold any bytes.
const (
	journalFile  = "journal"
	appliedFile  = "applied"
	undoneFile   = "undone"
	restoredFile = "restored"
	stuckFile    = "stuck"
	oldDir       = "old"

	journalSchema = "hutch.apply/v2"
)

// journal is all that is needed to take an apply back.
type journal struct {
	Schema    string
	ID        string
	Sandbox   string
	SandboxID string
	Project   string
	Dev, Ino  uint64 // of the project, so that another directory of that name is not taken for it
	Time      time.Time
	Undoes    string // the apply that this one takes back
	OldBytes  int64
	Steps     []*step
}

// step takes one path from one state to another.
type step struct {
	Path     string
	Old, New state
	// Settled says that both sides had changed the path, and somebody decided for the new version. To go back from it is
	// to be in conflict again.
	Settled bool
	// Base is what the sandbox's base says of the path before this step, the zero Entry for nothing; nil where there is no
	// base.
	Base *overlay.Entry
	// Was is the Base of the step that an undo takes back.
	Was *overlay.Entry

	content *blob // of New, where it is a file with new content
	part    bool  // New has only some of the sandbox's changes
}

// state is a Node with what it takes to make it again.
type state struct {
	Node
	Blob int // number of the content in old/; 0 when it is not kept
	// Xattrs are those of what stood there, which what takes its place gets, too.
	Xattrs []xattr
}

// baseEntry is what a base says of a path; nil without one.
func baseEntry(b *Base, path string) *overlay.Entry {
	if b == nil {
		return nil
	}
	e, _ := b.Lookup(path)
	return &e
}

// write puts the journal on disk under its first name, after everything else that lies below dir.
func (j *journal) write(dir string, sync bool) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(j); err != nil {
		return err
	}
	tmp := filepath.Join(dir, journalFile+".new")
	if err := os.WriteFile(tmp, b.Bytes(), 0o600); err != nil {
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
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(j); err != nil {
		return nil, err
	}
	if j.Schema != journalSchema {
		return nil, fmt.Errorf("it has the schema %q, which this hutch does not know", j.Schema)
	}
	if j.Undoes != "" && (!safefile.Local(j.Undoes) || strings.Contains(j.Undoes, "/")) {
		return nil, fmt.Errorf("it undoes %s, which is not a name", Quote(j.Undoes))
	}
	for _, s := range j.Steps {
		if s == nil || !safefile.Local(s.Path) {
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
		err := errors.Join(l.rebase(j, project, true), os.Rename(filepath.Join(dir, journalFile),
			filepath.Join(dir, stuckFile)))
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
		return fmt.Errorf("%s is as before the apply, but the base of sandbox %s cannot be written, so the paths of that "+
			"apply count as changed in the project; the next apply tries again: %w",
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
	return fmt.Sprintf("an apply to %s was interrupted, and what it had changed was put back, but for:\n%s\nthe old "+
		"versions are in %s",
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
