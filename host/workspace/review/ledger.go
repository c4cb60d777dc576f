package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// The bounds of what is kept for undo.
const (
	// KeepFor is how long an apply can be undone.
	KeepFor = 30 * 24 * time.Hour
	// KeepBytes bounds the old versions of one apply; above it they are dropped once the apply is done.
	KeepBytes = 1 << 30
	// KeepApplies is how many applies of a store can be undone, the newest.
	KeepApplies = 100
)

// Ledger is the directory of a store in which applies are journaled and what they replaced is kept. Its methods may be
// called concurrently and by several processes: applies come one after the other.
type Ledger struct {
	dir    string
	bases  Bases
	noSync bool         // for tests, which do not survive a power cut
	at     func(string) // shows tests where an apply is
}

// Bases are the bases of sandboxes on disk, see [Base]: a store.
type Bases interface {
	// SandboxBase is the file of a sandbox's base. It need not exist.
	SandboxBase(id string) string
	// SandboxesOf are the ids of the sandboxes that were made from a project.
	SandboxesOf(project string) ([]string, error)
	// PlaceSandboxBase puts the file SandboxBase(id) + ".new" in the place of the base.
	PlaceSandboxBase(id string) error
}

// NewLedger returns the ledger in dir, which is made when it is needed. What an apply, an undo or a recovery does to a
// project is written into the base of the sandbox as well; with nil bases it is not.
func NewLedger(dir string, bases Bases) *Ledger { return &Ledger{dir: dir, bases: bases} }

// Dir is where the ledger lies; it is also the place for [Options].Keep.
func (l *Ledger) Dir() string { return l.dir }

// Applied is what an apply or an undo did.
type Applied struct {
	ID        string
	Sandbox   string // name
	SandboxID string
	Project   string
	Paths     []string  // in order
	Placed    []Placed  // what stands at each of them now
	Until     time.Time // when undo ends; the zero time when there is no undo
	NoUndo    string    // why there is no undo
	// NoBase says why the sandbox's base could not be written: the project was changed all the same, and the paths count
	// as changed there.
	NoBase error
}

// Placed is what an apply or an undo left at a path of the project.
type Placed struct {
	Path   string `json:"path"`           // in Go's quotes where it is not UTF-8
	Type   Type   `json:"type,omitempty"` // empty for what was removed
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of a file's content, in hex; empty where only its mode changed
}

// goQuoted is a path in Go's quotes where it is not UTF-8, or begins with a quote.
func goQuoted(path string) string {
	if utf8.ValidString(path) && !strings.HasPrefix(path, `"`) {
		return path
	}
	return strconv.QuoteToASCII(path)
}

// Apply does what the plan says, all of it or nothing. When it fails, the project is as it was. The reviewed sandbox
// should be locked meanwhile; that is not needed for safety.
func (l *Ledger) Apply(ctx context.Context, r *Review, p *Plan) (*Applied, error) {
	if len(p.steps) == 0 {
		return nil, errNothing
	}
	unlock, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, s := range p.steps {
		s.Base = baseEntry(r.Subject.Base, s.Path)
	}
	return l.commit(ctx, &journal{Sandbox: r.Subject.Name, SandboxID: r.Subject.ID, Project: r.Subject.Project,
		Steps: p.steps})
}

// commit does the steps of a journal in one transaction. The lock is held.
func (l *Ledger) commit(ctx context.Context, j *journal) (*Applied, error) {
	project, err := openDir(j.Project)
	if err != nil {
		return nil, fmt.Errorf("open the project: %w", err)
	}
	defer project.close()
	var st unix.Stat_t
	if err := unix.Fstat(project.top, &st); err != nil {
		return nil, err
	}
	j.Schema, j.Time, j.Dev, j.Ino = journalSchema, time.Now().UTC(), uint64(st.Dev), st.Ino
	dir, err := l.begin(j)
	if err != nil {
		return nil, err
	}
	if err := l.backup(ctx, dir, project, j); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := j.write(dir, !l.noSync); err != nil {
		return nil, errors.Join(fmt.Errorf("write the journal: %w", err), os.RemoveAll(dir))
	}
	l.point("journal")
	e := &engine{project: project, prefix: j.prefix(false), at: l.at}
	if err := e.run(ctx, j.moves(dir, false)); err != nil {
		err = fmt.Errorf("nothing was applied: %w", err)
		if back := l.back(dir, j, project); back != nil {
			return nil, errors.Join(err, back)
		}
		return nil, err
	}
	if !l.noSync {
		if err := syncDisk(j.Project); err != nil {
			return nil, errors.Join(err, l.back(dir, j, project))
		}
	}
	l.point("done")
	a := &Applied{ID: j.ID, Sandbox: j.Sandbox, SandboxID: j.SandboxID, Project: j.Project, Until: j.Time.Add(KeepFor)}
	for _, s := range j.Steps {
		a.Paths = append(a.Paths, s.Path)
		a.Placed = append(a.Placed, Placed{Path: goQuoted(s.Path), Type: s.New.Type, Size: s.New.Size, SHA256: s.New.SHA256})
	}
	a.NoBase = l.rebase(j, project, false)
	l.point("base")
	final := appliedFile
	if j.Undoes != "" {
		final, a.Until, a.NoUndo = undoneFile, time.Time{}, "it is an undo itself"
	} else if j.OldBytes > KeepBytes {
		a.Until, a.NoUndo = time.Time{}, fmt.Sprintf("the versions that it replaced have %d bytes, and %d are kept",
			j.OldBytes, int64(KeepBytes))
	}
	if err := renameSynced(filepath.Join(dir, journalFile), filepath.Join(dir, final), !l.noSync); err != nil {
		return nil, errors.Join(err, l.back(dir, j, project))
	}
	l.point("applied")
	if j.Undoes != "" {
		return a, l.forget(dir, j)
	}
	if a.Until.IsZero() {
		return a, os.RemoveAll(dir)
	}
	return a, nil
}

// begin makes the directory of an apply. Its name sorts by time.
func (l *Ledger) begin(j *journal) (string, error) {
	for n := 0; ; n++ {
		j.ID = fmt.Sprintf("%s-%d-%d", j.Time.Format("20060102T150405.000000"), os.Getpid(), n)
		dir := filepath.Join(l.dir, j.ID)
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) && n < 100 {
			continue
		}
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, oldDir), 0o700)
		}
		if err != nil {
			return "", fmt.Errorf("begin an apply: %w", err)
		}
		return dir, nil
	}
}

// prefix begins the names of temporary files beside their targets. Those of a run and of its recovery differ, so that
// it is clear whose they are.
func (j *journal) prefix(back bool) string {
	if back {
		return ".hutch-back-" + j.ID + "-"
	}
	return ".hutch-apply-" + j.ID + "-"
}

// moves are the steps in one direction.
func (j *journal) moves(dir string, back bool) []*move {
	list := make([]*move, len(j.Steps))
	for i, s := range j.Steps {
		m := &move{number: i + 1, path: s.Path, from: s.Old, to: s.New}
		if back {
			m.from, m.to = s.New, s.Old
			if m.to.Type == File && (m.to.Blob != 0 || m.from.Type != File) {
				m.content = func() (*blob, error) { return oldBlob(dir, m.to) }
			}
		} else if s.content != nil {
			m.content = func() (*blob, error) { return s.content, nil }
		}
		list[i] = m
	}
	return list
}

// Prune drops what can no longer be undone. [Ledger.Apply] does it as well.
func (l *Ledger) Prune(ctx context.Context, now time.Time) error {
	if _, err := os.Stat(l.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return l.prune(now)
}

func (l *Ledger) prune(now time.Time) error {
	list, err := l.applied()
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(b, a) })
	for i, id := range list {
		dir := filepath.Join(l.dir, id)
		fi, err := os.Stat(filepath.Join(dir, appliedFile))
		if err == nil && (i >= KeepApplies || now.Sub(fi.ModTime()) > KeepFor) {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// applied lists the applies that can be undone, oldest first.
func (l *Ledger) applied() ([]string, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() && exists(filepath.Join(l.dir, e.Name(), appliedFile)) {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// lock makes this process the only one that changes projects.
func (l *Ledger) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	release, err := flock.Path(ctx, filepath.Join(l.dir, "lock"))
	if ctx.Err() != nil {
		return nil, fmt.Errorf("another apply is going on: %w", err)
	}
	return release, err
}

// enter takes the lock for a change of a project, finishes what others left, and makes room.
func (l *Ledger) enter(ctx context.Context) (unlock func(), err error) {
	if unlock, err = l.lock(ctx); err != nil {
		return nil, err
	}
	if _, err = l.recover(ctx); err == nil {
		err = l.prune(time.Now())
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func (l *Ledger) point(what string) {
	if l.at != nil {
		l.at(what)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ErrNoUndo says that there is no apply to take back.
var ErrNoUndo = errors.New("there is no apply to undo")

// UndoError says that an apply cannot be taken back because the project was changed since.
type UndoError struct {
	Project string
	Changed []string // path and what is the matter
}

// Error implements error.
func (e *UndoError) Error() string {
	return fmt.Sprintf("nothing was undone: %s changed since the apply", english.Plural(len(e.Changed), "path", ""))
}

// Undo takes back the last apply from the sandbox of that name or id, all of it or nothing. It refuses, with an
// *[UndoError], where the project is not as the apply left it.
func (l *Ledger) Undo(ctx context.Context, sandbox string) (*Applied, error) {
	unlock, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, j, err := l.last(sandbox)
	if err != nil {
		return nil, err
	}
	project, err := j.open()
	if err != nil {
		return nil, fmt.Errorf("undo: %w", err)
	}
	defer project.close()
	back, err := undoSteps(dir, j, project)
	if err != nil {
		return nil, err
	}
	base, err := l.base(j.SandboxID)
	if err != nil {
		return nil, fmt.Errorf("undo: %w", err)
	}
	for _, s := range back {
		s.Base = baseEntry(base, s.Path)
	}
	return l.commit(ctx, &journal{Sandbox: j.Sandbox, SandboxID: j.SandboxID, Project: j.Project, Undoes: j.ID,
		Steps: back})
}

// Last says what Undo would take back from the sandbox of that name or id: project, paths and until when. The error is
// [ErrNoUndo] where there is nothing.
func (l *Ledger) Last(sandbox string) (*Applied, error) {
	if !exists(l.dir) {
		return nil, ErrNoUndo
	}
	_, j, err := l.last(sandbox)
	if err != nil {
		return nil, err
	}
	a := &Applied{ID: j.ID, Sandbox: j.Sandbox, SandboxID: j.SandboxID, Project: j.Project, Until: j.Time.Add(KeepFor)}
	for _, s := range j.Steps {
		a.Paths = append(a.Paths, s.Path)
	}
	return a, nil
}

// last finds the newest apply from a sandbox.
func (l *Ledger) last(sandbox string) (string, *journal, error) {
	list, err := l.applied()
	if err != nil {
		return "", nil, err
	}
	for _, id := range slices.Backward(list) {
		dir := filepath.Join(l.dir, id)
		j, err := readJournal(dir, appliedFile)
		if err != nil {
			return "", nil, err
		}
		if j.Undoes == "" && (j.Sandbox == sandbox || j.SandboxID == sandbox) {
			return dir, j, nil
		}
	}
	return "", nil, fmt.Errorf("%w from %s", ErrNoUndo, sandbox)
}

// undoSteps turns the steps round, after a look at each path: it must be as the apply left it.
func undoSteps(dir string, j *journal, project *dir) ([]*step, error) {
	e := &engine{project: project}
	known := map[string]bool{}
	for _, s := range j.Steps {
		known[s.Path] = true
	}
	var back []*step
	var changed []string
	for _, s := range j.Steps {
		at := s.Path
		now, err := project.look(at)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", Quote(at), err)
		}
		onlyMode := s.Old.Type == File && s.New.Type == File && s.Old.Blob == 0
		m := &move{path: at}
		switch {
		case now.Type != s.New.Type:
			changed = append(changed, Quote(at)+": "+describe(now)+" stands there")
			continue
		case now.Type != Nothing && now.Type != Symlink && now.Mode != s.New.Mode:
			changed = append(changed, fmt.Sprintf("%s: its mode is %04o", Quote(at), safefile.Bits(now.Mode)))
			continue
		case onlyMode && !s.Old.Moved(now.Stat), !onlyMode && !e.equal(m, s.New, now):
			changed = append(changed, Quote(at)+": its content is another one")
			continue
		}
		if s.New.Type == Directory && s.Old.Type != Directory {
			names, err := project.list(at)
			if err != nil {
				return nil, fmt.Errorf("look into %s: %w", Quote(at), err)
			}
			if i := slices.IndexFunc(names, func(n string) bool { return !known[path.Join(at, n)] }); i >= 0 {
				changed = append(changed, Quote(at)+": "+Quote(names[i])+" was made in it")
				continue
			}
		}
		b := &step{Path: s.Path, Old: s.New, New: s.Old, Settled: s.Settled, Was: s.Base}
		b.Old.Stat, b.Old.Blob, b.New.Blob = now.Stat, 0, 0
		if s.Old.Type == File && !onlyMode {
			if b.content, err = oldBlob(dir, s.Old); err != nil {
				return nil, fmt.Errorf("undo %s: %w", Quote(at), err)
			}
		}
		back = append(back, b)
	}
	if len(changed) > 0 {
		return nil, &UndoError{j.Project, changed}
	}
	return back, nil
}

// describe names what stands at a path.
func describe(n Node) string {
	switch n.Type {
	case Nothing:
		return "nothing"
	case Symlink:
		return "a symbolic link"
	case Special:
		return "a FIFO, a socket or a device"
	}
	return "a " + strings.ToLower(string(n.Type))
}
