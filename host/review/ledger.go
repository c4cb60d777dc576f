package review

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
	noSync bool         // for tests, which do not survive a power cut
	at     func(string) // tells tests where an apply is
}

// NewLedger returns the ledger in dir, which is made when it is needed.
func NewLedger(dir string) *Ledger { return &Ledger{dir: dir} }

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
	Common    []string  // those of which the project's version is what both sides have in common now, see [Base.Refresh]
	Until     time.Time // when undo ends; the zero time when there is no undo
	NoUndo    string    // why there is none
}

// Placed is what an apply or an undo left at a path of the project.
type Placed struct {
	Path   string `json:"path"`           // in Go's quotes where it is not UTF-8
	Type   Type   `json:"type,omitempty"` // empty for what was removed
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of a file's content, in hex; empty where only its mode changed
}

// Apply does what the plan says, all of it or nothing. When it fails, the project is as it was. The reviewed sandbox
// should be locked meanwhile; that is not needed for safety.
func (l *Ledger) Apply(ctx context.Context, r *Review, p *Plan) (*Applied, error) {
	if len(p.steps) == 0 {
		return nil, errNothing
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := l.recover(ctx); err != nil {
		return nil, err
	}
	if err := l.prune(time.Now()); err != nil {
		return nil, err
	}
	return l.commit(ctx, &journal{Sandbox: r.Subject.Name, SandboxID: r.Subject.ID, Project: r.Subject.Project, Steps: p.steps})
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
		a.Paths = append(a.Paths, string(s.Path))
		if !s.Settled || j.Undoes == "" && !s.part {
			a.Common = append(a.Common, string(s.Path))
		}
		a.Placed = append(a.Placed, Placed{Path: s.Path.shown(), Type: s.New.Type, Size: s.New.Size, SHA256: s.New.SHA256})
	}
	final := appliedFile
	if j.Undoes != "" {
		final, a.Until, a.NoUndo = undoneFile, time.Time{}, "it is an undo itself"
	} else if j.OldBytes > KeepBytes {
		a.Until, a.NoUndo = time.Time{}, fmt.Sprintf("the versions that it replaced have %d bytes, and %d are kept", j.OldBytes, int64(KeepBytes))
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

// forget drops an apply that was undone, and then its undo.
func (l *Ledger) forget(dir string, undo *journal) error {
	if filepath.Base(undo.Undoes) != undo.Undoes {
		return fmt.Errorf("%s undoes %q, which is no name", dir, undo.Undoes)
	}
	return errors.Join(os.RemoveAll(filepath.Join(l.dir, undo.Undoes)), os.RemoveAll(dir))
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

// prefix begins the names of temporary files beside their targets. Those of a run and of its recovery differ, so that it
// is clear whose they are.
func (j *journal) prefix(back bool) string {
	if back {
		return ".hutch-back-" + j.ID + "-"
	}
	return ".hutch-apply-" + j.ID + "-"
}

// backup copies what will be replaced or removed, and makes sure that it is what the plan was made for.
func (l *Ledger) backup(ctx context.Context, dir string, project *dir, j *journal) error {
	blobs := 0
	for _, s := range j.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, id, err := project.look(string(s.Path))
		if err == nil && !is(s.Old, now, id) {
			err = errChanged
		}
		if err == nil && s.Old.Type == File && !(s.New.Type == File && s.content == nil) {
			blobs++
			s.Old.Blob = blobs
			err = keep(filepath.Join(dir, oldDir, strconv.Itoa(blobs)), project, s)
			j.OldBytes += s.Old.Size
		}
		if err == nil && s.Old.Type == Directory && s.New.Type != Directory {
			err = keepXattrs(project, s)
		}
		if err != nil {
			return fmt.Errorf("nothing was applied: %s: %w", Quote(string(s.Path)), err)
		}
	}
	return nil
}

// keep copies the project's version of one file.
func keep(to string, project *dir, s *step) error {
	src, id, err := project.open(string(s.Path))
	if err != nil {
		return err
	}
	defer src.Close()
	if !s.Old.Ident.same(id) {
		return errChanged
	}
	if s.Old.Xattrs, err = readXattrs(int(src.Fd())); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), src)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	if _, after := nodeOf(&st); !after.same(id) || n != s.Old.Size {
		return errChanged
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if s.Old.SHA256 != "" && s.Old.SHA256 != sum {
		return errChanged
	}
	s.Old.SHA256 = sum
	return nil
}

// keepXattrs notes the attributes of a directory that goes.
func keepXattrs(project *dir, s *step) error {
	fd, name, err := project.parent(string(s.Path))
	if err != nil {
		return err
	}
	d, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		return nil // what we may not look into has nothing of ours
	}
	if err != nil {
		return err
	}
	defer unix.Close(d)
	s.Old.Xattrs, err = readXattrs(d)
	return err
}

// moves are the steps in one direction.
func (j *journal) moves(dir string, back bool) []*move {
	list := make([]*move, len(j.Steps))
	for i, s := range j.Steps {
		m := &move{number: i + 1, path: string(s.Path), from: s.Old, to: s.New}
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
	if len(e.left) > 0 {
		err := os.Rename(filepath.Join(dir, journalFile), filepath.Join(dir, stuckFile))
		return errors.Join(&StuckError{j.Project, e.left, filepath.Join(dir, oldDir)}, err)
	}
	// The journal goes first: without it the rest is litter, with it and without the rest nothing could be put back.
	if err := os.Remove(filepath.Join(dir, journalFile)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
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
		j, err := readJournal(dir, journalFile)
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
		if err != nil {
			rec.Err = fmt.Errorf("an apply was interrupted and cannot be taken back: %w", err)
		} else {
			rec.Err = l.back(dir, j, project)
			project.close()
		}
		list = append(list, rec)
	}
	return list, nil
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
	f, err := os.OpenFile(filepath.Join(l.dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another apply is going on: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

func (l *Ledger) point(what string) {
	if l.at != nil {
		l.at(what)
	}
}

// stageOwner is the process whose stage has this name.
func stageOwner(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, stagePrefix)
	id, _, ok2 := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(id)
	return pid, ok && ok2 && err == nil && pid > 0
}

func alive(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
