package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ContinueRun takes over the record of a loop whose host process died, for this process to go on with it: one record,
// one chain. Its state must be [StateInterrupted]. Of two processes that try, one gets it and the other one [ErrRunning].
// What the dead writer left of files that no event points at is removed.
func (s *Store) ContinueRun(id string) (*Run, error) {
	rec, err := s.Load(id)
	if err != nil {
		return nil, err
	}
	r := &Run{store: s, dir: rec.Dir, refs: map[string]bool{}, info: rec.Info}
	if err := r.takeOver(); err != nil {
		_ = r.closeFiles()
		return nil, fmt.Errorf("go on with %s: %w", id, err)
	}
	return r, nil
}

func (r *Run) takeOver() error {
	name := filepath.Join(r.dir, infoFile)
	var err error
	if r.file, err = os.OpenFile(name, os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0); err != nil {
		return diskError("open", name, err)
	}
	if err := lockFile(r.file, unix.LOCK_EX); err != nil {
		return diskError("lock", name, err)
	}
	defer unlockFile(r.file)
	switch r.info = r.store.readInfo(r.info.ID); { // once more: now nobody else takes it over
	case r.info.Kind == KindRun:
		return errors.New("it is a run, which cannot be gone on with")
	case r.info.State == StateRunning:
		return fmt.Errorf("%w (pid %d)", ErrRunning, r.info.Host.PID)
	case r.info.State == StateFinished:
		return errors.New("it has ended")
	case r.info.State != StateInterrupted:
		return errors.New(r.info.Damage)
	}
	if r.chain, err = openChain(filepath.Join(r.dir, eventsFile), r.store.now); err != nil {
		return err
	}
	r.code.dir = filepath.Join(r.dir, codeDir)
	if err := r.recall(); err != nil {
		return err
	}
	r.info.Host, r.info.State = Self(), StateRunning
	if err := r.saveInfo(); err != nil {
		return err
	}
	_, _, err = r.appendEvent(EventResume, map[string]any{"host": r.info.Host}, nil)
	return err
}

// recall brings r up to what is on disk, and that into order.
func (r *Run) recall() error {
	name := filepath.Join(r.dir, infoFile)
	b, err := os.ReadFile(name)
	if err != nil {
		return diskError("read", name, err)
	}
	lines, err := readInfoLines(b)
	if err != nil {
		return fmt.Errorf("%s: %w", infoFile, err)
	}
	if lines.torn > 0 { // half a line says nothing that a whole one would not say again
		if err := r.file.Truncate(int64(bytes.LastIndexByte(b, '\n') + 1)); err != nil {
			return diskError("cut the torn tail of", name, err)
		}
	}
	r.head = lines.last()
	var last EventType
	said := map[string]bool{}
	if _, err := readChain(r.chain.path, func(l chainLine) error {
		if l.d.bad != nil {
			return fmt.Errorf("line %d of %s: %w (`hutch audit verify %s` tells more)", l.number, eventsFile, l.d.bad, r.info.ID)
		}
		last = l.d.event.Type
		for _, f := range l.d.event.Files {
			said[f.Path] = true
			if path.Dir(f.Path) == "." {
				r.refs[f.Path] = true
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if last == EventEnd {
		return errors.New("it has ended, and only its last notes about that are missing")
	}
	return r.clearCalls(said)
}

// clearCalls removes the files below calls/ that no event points at.
func (r *Run) clearCalls(said map[string]bool) error {
	dir := filepath.Join(r.dir, callsDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("read", dir, err)
	}
	for _, e := range entries {
		if said[path.Join(callsDir, e.Name())] || e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return diskError("remove", filepath.Join(dir, e.Name()), err)
		}
	}
	return nil
}
