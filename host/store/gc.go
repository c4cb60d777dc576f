package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
)

// GCOptions say what may go. Running runs always stay, and so do entries in use.
type GCOptions struct {
	// RunsOlderThan and KeepRuns choose the runs that go: those which began longer ago than the one and are not
	// among the newest so many. A zero does not restrict; two zeros keep every run. What was ingested goes by the same
	// rule.
	RunsOlderThan time.Duration
	KeepRuns      int
	DepsUnused    time.Duration // dependency entries unused for so long go; 0 keeps all
	DryRun        bool          // say what would go, remove nothing

	// Destroy removes what an orphaned intent made, through its backend. The store removes the record
	// afterwards. Nil leaves intents that have a handle alone.
	Destroy func(ctx context.Context, i Intent) error
	// Find asks backends what they have that was made for this store. What neither a record nor an intent speaks of
	// is then destroyed. Nil asks nobody.
	Find func(ctx context.Context) ([]Intent, error)
}

// The kinds of things that gc removes.
const (
	// what an orphaned intent made, or a persistent sandbox that was half made or half removed
	GCSandbox      = "sandbox"
	GCRun          = "run"          // an old run, or an old loop with its runs
	GCIngested     = "ingested"     // an old run that was made of an answer; the records of its executions are runs
	GCDependencies = "dependencies" // an unused entry of the dependency cache
	GCProcess      = "process"      // a process that held on to a sandbox which is gone
	GCRuntimeDir   = "runtime_dir"  // the runtime directory of a dead process
	GCContent      = "content"      // what files of removed runs had in common
	GCTemp         = "temp"         // a half-made file or directory of a dead process
)

// GCItem is one thing that gc removed, or failed to.
type GCItem struct {
	Kind  string `json:"kind"` // one of the GC constants
	Name  string `json:"name"`
	Path  string `json:"path,omitempty"`
	Bytes int64  `json:"bytes,omitempty"` // disk space it took, for runs and dependencies
	Error string `json:"error,omitempty"`
}

// GC finishes what dead processes left and removes what is old. It goes on after a failure, which is in the item.
// The error is for what kept it from looking at all.
func (s *Store) GC(ctx context.Context, o GCOptions) ([]GCItem, error) {
	c := &collector{store: s, o: o, now: s.now()}
	var errs []error
	steps := []func(context.Context) error{c.persistent, c.sandboxes, c.processes, c.runtimeDirs, c.temps, c.runs,
		c.content, c.ingested, c.deps}
	for _, step := range steps {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		errs = append(errs, step(ctx))
	}
	return c.items, errors.Join(errs...)
}

type collector struct {
	store *Store
	o     GCOptions
	now   time.Time
	items []GCItem

	mounted []string       // host directories that persistent sandboxes see
	links   map[uint64]int // of shared contents, those of the runs that went or would go, by inode
}

// do removes one thing, unless this is a dry run, and notes it.
func (c *collector) do(item GCItem, remove func() error) {
	if !c.o.DryRun {
		if err := remove(); err != nil {
			item.Error = err.Error()
		}
	}
	c.items = append(c.items, item)
}

// destroy is [GCOptions.Destroy] with errors that name the backend.
func (c *collector) destroy(ctx context.Context, i Intent) error {
	if c.o.Destroy == nil {
		return fmt.Errorf("backend %s is needed to destroy it", i.Backend)
	}
	if err := c.o.Destroy(ctx, i); err != nil {
		return fmt.Errorf("backend %s: %w", i.Backend, err)
	}
	return nil
}

// sandboxes destroys what was made for hosts that are dead: what an intent or a backend speaks of, and state
// directories of which neither knows, as an interrupted removal or a power cut leaves them. The record of a persistent
// sandbox speaks for all of it.
func (c *collector) sandboxes(ctx context.Context) error {
	// Backends and directories are asked before intents and records are read, so that a sandbox which begins meanwhile
	// is not taken for lost.
	var found []Intent
	var ferr error
	if c.o.Find != nil && c.o.Destroy != nil {
		found, ferr = c.o.Find(ctx)
	}
	entries, err := os.ReadDir(c.store.paths.Sandboxes())
	if err != nil {
		return errors.Join(ferr, diskError("read", c.store.paths.Sandboxes(), err))
	}
	intents, err := c.store.Intents()
	known := map[string]bool{}
	for _, r := range intents {
		known[r.ID] = true
		if ctx.Err() != nil || r.Host.Alive() {
			continue
		}
		if c.hasRecord(r.ID) {
			info, rerr := c.store.readSandbox(r.ID)
			if rerr == nil && info.State == SandboxReady && !c.o.DryRun {
				err = errors.Join(err, r.Commit()) // all that its host died before it did
			}
			continue
		}
		c.do(GCItem{Kind: GCSandbox, Name: r.ID, Path: c.store.paths.SandboxState(r.ID)}, func() error {
			if len(r.Handle) > 0 {
				if err := c.destroy(ctx, r.Intent); err != nil {
					return err
				}
			}
			return r.Done()
		})
	}
	if err != nil {
		return errors.Join(ferr, err) // without all intents nothing can be called lost
	}
	lost := func(id string) bool {
		if ctx.Err() != nil || !isSandboxID(id) || known[id] || c.hasRecord(id) {
			return false
		}
		known[id] = true
		return true
	}
	for _, i := range found {
		if !lost(i.ID) {
			continue
		}
		c.do(GCItem{Kind: GCSandbox, Name: i.ID}, func() error {
			if err := c.destroy(ctx, i); err != nil {
				return err
			}
			return removeAll(c.store.paths.SandboxState(i.ID))
		})
	}
	for _, e := range entries {
		if path := filepath.Join(c.store.paths.Sandboxes(), e.Name()); lost(strings.TrimSuffix(e.Name(), stateSuffix)) {
			c.do(GCItem{Kind: GCTemp, Name: e.Name(), Path: path}, func() error { return removeAll(path) })
		}
	}
	return ferr
}

func (c *collector) runtimeDirs(context.Context) error {
	return staleRuntimeDirs(func(path string) error {
		c.do(GCItem{Kind: GCRuntimeDir, Name: filepath.Base(path), Path: path}, func() error { return removeAll(path) })
		return nil
	})
}

// temps removes what dead processes were making or removing.
func (c *collector) temps(context.Context) error {
	p := c.store.paths
	dirs := []string{p.Data, p.Content(), p.Runs(), p.Sandboxes(), p.Intents(), p.Deps(), os.TempDir()}
	for _, parent := range []string{p.Runs(), p.Deps()} {
		entries, err := entriesOf(parent)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() && !isTemp(e.Name()) {
				dirs = append(dirs, filepath.Join(parent, e.Name()))
			}
		}
	}
	var errs []error
	for _, dir := range dirs {
		entries, err := entriesOf(dir)
		errs = append(errs, err)
		for _, e := range entries {
			if !isTemp(e.Name()) {
				continue
			}
			fi, err := e.Info()
			if err != nil || !ownFile(fi) || !tempOwnerDead(e.Name(), c.now.Sub(fi.ModTime())) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			c.do(GCItem{Kind: GCTemp, Name: e.Name(), Path: path}, func() error { return removeAll(path) })
		}
	}
	return errors.Join(errs...)
}

// ownFile says whether a file is this user's: others' lie beside it in the directory for temporary files.
func ownFile(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

func (c *collector) runs(ctx context.Context) error {
	if c.o.RunsOlderThan <= 0 && c.o.KeepRuns <= 0 {
		return nil
	}
	list, err := c.store.List(Filter{})
	if err != nil {
		return err
	}
	// The parts of a loop go with it and not before it, and count as one with it.
	loops, parts := map[string]bool{}, map[string][]Info{}
	for _, info := range list {
		loops[info.ID] = info.Kind != KindRun
	}
	list = slices.DeleteFunc(list, func(info Info) bool {
		if !loops[info.Parent] {
			return false
		}
		parts[info.Parent] = append(parts[info.Parent], info)
		return true
	})
	for i, info := range list {
		if ctx.Err() != nil {
			break
		}
		running := func(i Info) bool { return i.State == StateRunning }
		if i < c.o.KeepRuns || c.now.Sub(info.Started) < c.o.RunsOlderThan ||
			running(info) || slices.ContainsFunc(parts[info.ID], running) {
			continue
		}
		path := c.store.paths.Run(info.ID)
		size := c.runSize(path)
		for _, p := range parts[info.ID] {
			size += c.runSize(c.store.paths.Run(p.ID))
		}
		c.do(GCItem{Kind: GCRun, Name: info.ID, Path: path, Bytes: size}, func() error { return c.store.Remove(info.ID) })
	}
	return nil
}

// runSize is what a run alone occupies. Shared contents are counted when they go.
func (c *collector) runSize(dir string) int64 {
	if c.links == nil {
		c.links = map[uint64]int{}
	}
	return sizeOf(dir, func(st *syscall.Stat_t) bool {
		if uint32(st.Mode)&syscall.S_IFMT != syscall.S_IFREG || st.Nlink < 2 {
			return true
		}
		c.links[st.Ino]++
		return false
	})
}

// content removes the contents to which no run has a link any more. One that a run links meanwhile stays in that run.
func (c *collector) content(ctx context.Context) error {
	dir := c.store.paths.Content()
	entries, err := entriesOf(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		fi, err := e.Info()
		if err != nil || isTemp(e.Name()) {
			continue
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || int(st.Nlink) > 1 && (!c.o.DryRun || int(st.Nlink)-1 > c.links[st.Ino]) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		item := GCItem{Kind: GCContent, Name: e.Name(), Path: path, Bytes: st.Blocks * 512}
		c.do(item, func() error { return os.Remove(path) })
	}
	return nil
}

// ingested removes what was made of answers long ago. Ids sort by time, and begin with it.
func (c *collector) ingested(ctx context.Context) error {
	dir := c.store.paths.Ingested()
	entries, err := entriesOf(dir)
	if err != nil {
		return err
	}
	kept := 0
	for _, e := range slices.Backward(entries) {
		if ctx.Err() != nil {
			break
		}
		path := filepath.Join(dir, e.Name())
		if !isRunID(e.Name()) {
			if fi, err := e.Info(); err == nil && c.now.Sub(fi.ModTime()) > time.Hour {
				c.do(GCItem{Kind: GCTemp, Name: e.Name(), Path: path}, func() error { return removeAll(path) })
			}
			continue
		}
		kept++
		made, err := time.Parse(idLayout, e.Name()[:len(idLayout)])
		if err != nil || c.o.RunsOlderThan <= 0 && c.o.KeepRuns <= 0 ||
			kept <= c.o.KeepRuns || c.now.Sub(made) < c.o.RunsOlderThan {
			continue
		}
		item := GCItem{Kind: GCIngested, Name: e.Name(), Path: path, Bytes: treeSize(path)}
		c.do(item, func() error { return removeAll(path) })
	}
	return nil
}

func (c *collector) deps(ctx context.Context) error {
	if c.o.DepsUnused <= 0 {
		return nil
	}
	// Persistent sandboxes need theirs, however long nobody works in them.
	boxes, err := c.store.Sandboxes()
	if err != nil {
		return err
	}
	for _, b := range boxes {
		c.mounted = append(c.mounted, b.Mounts...)
	}
	langs, err := entriesOf(c.store.paths.Deps())
	if err != nil {
		return err
	}
	for _, lang := range langs {
		if isTemp(lang.Name()) || !lang.IsDir() {
			continue
		}
		dir := filepath.Join(c.store.paths.Deps(), lang.Name())
		entries, err := entriesOf(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if key, ok := strings.CutSuffix(e.Name(), lockSuffix); ok && ctx.Err() == nil {
				if err := c.depsEntry(lang.Name(), filepath.Join(dir, key)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// depsEntry removes one entry when it was not used for long enough and is not in use.
func (c *collector) depsEntry(lang, dir string) error {
	lock := dir + lockSuffix
	f, err := os.OpenFile(lock, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return diskError("open", lock, err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return diskError("look at", lock, err)
	}
	if slices.ContainsFunc(c.mounted, func(m string) bool { return m == dir || below(m, dir) }) {
		return nil
	}
	if c.now.Sub(fi.ModTime()) < c.o.DepsUnused || flock.Try(f, unix.LOCK_EX) != nil || !sameFile(f, lock) {
		return nil
	}
	item := GCItem{Kind: GCDependencies, Name: lang + "/" + filepath.Base(dir), Path: dir, Bytes: treeSize(dir)}
	c.do(item, func() error {
		trash := tempPath(dir)
		if err := os.Rename(dir, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError("remove", dir, err)
		}
		if err := os.Remove(lock); err != nil {
			return diskError("remove", lock, err)
		}
		return removeAll(trash)
	})
	return nil
}

// FinishSandboxes removes persistent sandboxes that were half made or half removed, and those whose process is gone
// ([SandboxInfo.EndsWith]), unless another process is at it. It is the part of [Store.GC] that any command can do.
func (s *Store) FinishSandboxes(
	ctx context.Context, destroy func(ctx context.Context, i Intent) error) ([]GCItem, error) {
	c := &collector{store: s, o: GCOptions{Destroy: destroy}, now: s.now()}
	err := c.persistent(ctx)
	return c.items, err
}

// persistent ends what was begun with persistent sandboxes and what nobody goes on with: a process that makes or
// removes one holds its lock alone. A sandbox that is there is never touched, nor one whose record cannot be read.
func (c *collector) persistent(ctx context.Context) error {
	list, err := c.store.Sandboxes()
	if err != nil {
		return err
	}
	var errs []error
	for _, info := range list {
		if ctx.Err() != nil {
			break
		}
		if info.State == SandboxCreating || info.State == SandboxRemoving {
			errs = append(errs, c.finishSandbox(ctx, info.ID))
		}
	}
	return errors.Join(errs...)
}

// finishSandbox removes one sandbox that was half made or half removed.
func (c *collector) finishSandbox(ctx context.Context, id string) error {
	r, err := c.store.OpenSandbox(ctx, id, true, 0)
	if errors.Is(err, ErrInUse) || errors.Is(err, ErrNoSandbox) {
		return nil // somebody is at it, or done
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if state := r.Info().State; state == SandboxCreating || state == SandboxRemoving {
		item := GCItem{Kind: GCSandbox, Name: id, Path: r.Dir()}
		c.do(item, func() error { return r.Remove(ctx, c.destroy) })
	}
	return nil
}

// hasRecord says whether there is the record of a persistent sandbox, readable or not.
func (c *collector) hasRecord(id string) bool {
	if !isRunID(id) {
		return false
	}
	fi, err := os.Lstat(c.store.paths.Sandbox(id))
	return err == nil && fi.IsDir()
}
