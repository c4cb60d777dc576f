package store

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A log starts as a plain file, STREAM.log. A writer with a limit turns it into a ring when the limit is passed: the
// byte at position p of the stream then stands at p modulo the limit, overwriting the oldest, so that a gigabyte costs
// neither disk nor memory beyond the limit and what was kept is there whenever the writer dies. On the way it
//
//  1. makes STREAM.pos, which says how far the ring was written,
//  2. renames STREAM.log to STREAM.ring, and only then overwrites anything.
//
// Closing writes the ring out in order as STREAM.log again and removes STREAM.ring; STREAM.pos stays and tells how
// many bytes there were. A reader that holds the file therefore knows that what it read was not overwritten under it
// when STREAM.log is still that file afterwards, and otherwise asks STREAM.pos.
//
// The writer holds a lock on the file as long as it writes, which a follower takes for the sign of life that it is. As
// the file is there a moment before its lock, a follower who finds neither lock nor byte looks again.

// Stream names a log of a run.
type Stream string

// The logs of a run.
const (
	Stdout     Stream = "stdout"
	Stderr     Stream = "stderr"
	BackendLog Stream = "backend" // what the backend said, if it said anything
)

type logPaths struct{ plain, ring, pos string }

func (s Stream) paths(dir string) logPaths {
	base := filepath.Join(dir, string(s))
	return logPaths{plain: base + ".log", ring: base + ".ring", pos: base + ".pos"}
}

// LogFile is the name of the stream's log below the run's directory.
func (s Stream) LogFile() string { return string(s) + ".log" }

// LogWriter is the sink of one stream. It keeps the last bytes up to its limit on disk, in bounded memory, and counts
// the rest. What was kept is readable at any moment, also after the writer was killed. One goroutine writes and closes.
type LogWriter struct {
	paths logPaths
	keep  int64 // 0 keeps everything
	f     *os.File
	pos   *os.File // nil while the log is plain
	err   error    // of the disk; nothing is kept from then on

	ring       []byte // the ring in memory, see Space
	unmappable bool

	total atomic.Int64 // bytes written to us
	held  atomic.Int64 // bytes of those that are on disk
	once  sync.Once
	cerr  error
}

func newLogWriter(dir string, s Stream, keep int64) (*LogWriter, error) {
	if keep < 0 {
		return nil, fmt.Errorf("log %s: keep is %d bytes", s, keep)
	}
	w := &LogWriter{paths: s.paths(dir), keep: keep}
	f, err := os.OpenFile(w.paths.plain, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, diskError("open log", w.paths.plain, err)
	}
	// Nobody else writes this file; a reader that asks whether its writer is gone holds the lock for a moment.
	if err := lockFile(f, unix.LOCK_EX); err != nil {
		f.Close()
		_ = os.Remove(w.paths.plain)
		return nil, diskError("open log", w.paths.plain, err)
	}
	w.f = f
	return w, nil
}

// Write takes all of p; bytes that fall out of the limit are counted and dropped. It fails only when the disk does,
// with [ErrFull] when that is the reason; later writes then fail the same way and count as dropped.
func (w *LogWriter) Write(p []byte) (int, error) {
	old := w.total.Add(int64(len(p))) - int64(len(p))
	if w.err != nil {
		return 0, w.err
	}
	if w.err = w.put(p, old); w.err != nil {
		w.err = diskError("write log", w.paths.plain, w.err)
		return 0, w.err
	}
	return len(p), nil
}

// put writes p, whose first byte is at position old of the stream.
func (w *LogWriter) put(p []byte, old int64) error {
	end := old + int64(len(p))
	if w.pos == nil && (w.keep == 0 || end <= w.keep) {
		if _, err := w.f.WriteAt(p, old); err != nil {
			if fi, serr := w.f.Stat(); serr == nil { // what there was room for
				w.held.Store(min(fi.Size(), end))
			}
			return err
		}
		w.held.Store(end)
		return nil
	}
	if w.pos == nil {
		if err := w.startRing(old); err != nil {
			return err
		}
	}
	// Say which bytes are about to go before they go, and what is there once it is.
	if err := writePos(w.pos, posMark{keep: w.keep, reserved: end, total: old}); err != nil {
		return err
	}
	if over := int64(len(p)) - w.keep; over > 0 { // its head would be overwritten by its own tail
		p = p[over:]
		old += over
	}
	for len(p) > 0 {
		at := old % w.keep
		n := min(int64(len(p)), w.keep-at)
		if _, err := w.f.WriteAt(p[:n], at); err != nil {
			return err
		}
		p, old = p[n:], old+n
	}
	w.held.Store(w.keep)
	return writePos(w.pos, posMark{keep: w.keep, reserved: end, total: end})
}

func (w *LogWriter) startRing(total int64) error {
	tmp := tempPath(w.paths.pos)
	pos, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err = writePos(pos, posMark{keep: w.keep, reserved: total, total: total}); err == nil {
		err = os.Rename(tmp, w.paths.pos)
	}
	if err == nil {
		err = os.Rename(w.paths.plain, w.paths.ring)
	}
	if err != nil {
		pos.Close()
		_ = os.Remove(tmp)
		return err
	}
	w.pos = pos
	return nil
}

// Counts returns how many bytes were written and how many of them are not kept. It may be called at any time.
func (w *LogWriter) Counts() (total, dropped int64) {
	held := w.held.Load() // first, so that dropped is never negative
	total = w.total.Load()
	return total, total - held
}

// Close puts the kept bytes in order, so that the file is plain, and ends every follower. A second call does nothing.
// Should the disk have no room for that, the bytes stay as they are, and readers still find them in order.
func (w *LogWriter) Close() error {
	w.once.Do(func() { w.cerr = w.close() })
	return w.cerr
}

func (w *LogWriter) close() (err error) {
	defer func() {
		unmapRing(w.ring)
		w.ring, w.unmappable = nil, true
		if cerr := w.f.Close(); err == nil && cerr != nil { // which unlocks it
			err = diskError("close log", w.paths.plain, cerr)
		}
	}()
	if w.pos == nil {
		return nil
	}
	defer w.pos.Close()
	if w.err != nil {
		return nil // said by Write; the ring tells what it still holds
	}
	return w.straighten()
}

// straighten writes the ring out in order and puts the result in the place of the log.
func (w *LogWriter) straighten() error {
	tmp := tempPath(w.paths.plain)
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return diskError("finish log", w.paths.plain, err)
	}
	start := w.total.Load() % w.keep
	for _, part := range [][2]int64{{start, w.keep - start}, {0, start}} {
		if err == nil {
			_, err = io.Copy(out, io.NewSectionReader(w.f, part[0], part[1]))
		}
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, w.paths.plain)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return diskError("finish log", w.paths.plain, err)
	}
	_ = os.Remove(w.paths.ring) // were it to stay, the plain log goes first
	return nil
}

// posMark is the content of STREAM.pos.
type posMark struct {
	keep     int64 // size of the ring
	reserved int64 // bytes of the stream up to here may be in the ring, bytes before reserved-keep may be overwritten
	total    int64 // bytes of the stream up to here are in the ring
}

const posFormat = "hutch.log/v1 keep=%020d reserved=%020d total=%020d\n"

var posLength = len(fmt.Sprintf(posFormat, 0, 0, 0))

// writePos replaces the mark with one write of always the same length.
func writePos(f *os.File, m posMark) error {
	_, err := f.WriteAt(fmt.Appendf(make([]byte, 0, 128), posFormat, m.keep, m.reserved, m.total), 0)
	return err
}

// readPos reads a mark that may be replaced at this moment: two readings that agree are one.
func readPos(f *os.File) (m posMark, err error) {
	var a, b [128]byte
	for range 1000 {
		if _, err = f.ReadAt(a[:posLength], 0); err == nil {
			_, err = f.ReadAt(b[:posLength], 0)
		}
		if err != nil {
			return posMark{}, err
		}
		if a == b {
			return parsePos(string(a[:posLength]))
		}
	}
	return posMark{}, fmt.Errorf("%s changes too fast to be read", f.Name())
}

func parsePos(s string) (m posMark, err error) {
	if _, err := fmt.Sscanf(s, posFormat, &m.keep, &m.reserved, &m.total); err != nil {
		return posMark{}, fmt.Errorf("%.128q is not the mark of a log: %w", s, err)
	}
	if m.keep <= 0 || m.total < 0 || m.reserved < m.total {
		return posMark{}, fmt.Errorf("%.128q is not the mark of a log", s)
	}
	return m, nil
}
