package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	logChunk       = 256 << 10
	followFastest  = 5 * time.Millisecond // between two looks at a log that just moved
	followSlowest  = 100 * time.Millisecond
	openLogRetries = 10
)

// LogReader reads one stream's log, also while another process writes it. Positions count from the first byte the
// stream ever had. Not safe for concurrent use.
type LogReader struct {
	paths logPaths
	f     *os.File
	pos   *os.File // STREAM.pos, opened when it is needed
	base  int64    // position of the first byte of a plain file
	at    int64    // where reading goes on

	running func() bool // whether the run goes on
}

func newLogReader(dir string, s Stream, running func() bool) (*LogReader, error) {
	r := &LogReader{paths: s.paths(dir), running: running}
	var err error
	for range openLogRetries {
		if err = r.open(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		// A writer that just closes may have put the plain file in place after we looked for it: look again.
	}
	if err != nil {
		return nil, diskError("open log", r.paths.plain, err)
	}
	oldest, _, err := r.extent()
	if err != nil {
		r.Close()
		return nil, err
	}
	r.at = oldest
	return r, nil
}

// AwaitLog is [Record.OpenLog], but while the run goes on it waits for a log that is not there yet, until ctx ends.
func (r *Record) AwaitLog(ctx context.Context, s Stream) (*LogReader, error) {
	for {
		// The state comes first: a run that ends after this look has made its logs by the next one.
		running := r.running()
		l, err := r.OpenLog(s)
		if !errors.Is(err, fs.ErrNotExist) || !running {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(followSlowest):
		}
	}
}

func (r *Record) running() bool { return r.store.readInfo(r.ID).State == StateRunning }

func (r *LogReader) open() (err error) {
	const flags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	if r.f, err = os.OpenFile(r.paths.plain, flags, 0); errors.Is(err, fs.ErrNotExist) {
		r.f, err = os.OpenFile(r.paths.ring, flags, 0)
	}
	if err != nil {
		return err
	}
	fi, err := r.f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", r.f.Name())
	}
	// A plain file with a mark beside it is what a ring was straightened to, and shorter than the stream; or it is about
	// to become a ring and has all its bytes still. The order of looking matters: if the file is plain at last, it was
	// so when the mark was read.
	m, err := r.mark()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi, err = r.f.Stat(); err != nil {
		return err
	}
	plain, err := r.isPlain()
	if plain && m.total > fi.Size() {
		r.base = m.total - fi.Size()
	}
	return err
}

// isPlain reports whether the file we hold is still the plain log, which then nobody overwrote up to now.
func (r *LogReader) isPlain() (bool, error) {
	if r.base > 0 {
		return true, nil // it was straightened, and nobody writes to it any more
	}
	ours, err := r.f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(r.paths.plain)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(ours, named), err
}

func (r *LogReader) mark() (posMark, error) {
	if r.pos == nil {
		f, err := os.OpenFile(r.paths.pos, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return posMark{}, err
		}
		r.pos = f
	}
	return readPos(r.pos)
}

// extent returns the positions between which bytes are there to be read.
func (r *LogReader) extent() (oldest, total int64, err error) {
	fi, err := r.f.Stat()
	if err != nil {
		return 0, 0, err
	}
	plain, err := r.isPlain()
	if err != nil {
		return 0, 0, err
	}
	if plain {
		return r.base, r.base + fi.Size(), nil
	}
	m, err := r.mark()
	if errors.Is(err, fs.ErrNotExist) { // the run was removed under us: what we hold is all there is
		return r.base, r.base + fi.Size(), nil
	}
	return max(0, m.reserved-m.keep), m.total, err
}

// errOverwritten says that the bytes are not there any more.
var errOverwritten = errors.New("overwritten")

// readAt fills p from position off on, as far as the log goes.
func (r *LogReader) readAt(p []byte, off int64) (n int, err error) {
	oldest, total, err := r.extent()
	if err != nil {
		return 0, err
	}
	if off < oldest {
		return 0, errOverwritten
	}
	if off >= total {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), total-off)]
	at := off - r.base
	if plain, err := r.isPlain(); err != nil {
		return 0, err
	} else if !plain {
		if m, err := r.mark(); err == nil {
			at = off % m.keep
			p = p[:min(int64(len(p)), m.keep-at)]
		}
	}
	n, err = r.f.ReadAt(p, at)
	if err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
		return 0, err
	}
	// What was read counts only if nobody wrote over it meanwhile.
	if oldest, _, err = r.extent(); err != nil {
		return 0, err
	}
	if off < oldest {
		return 0, errOverwritten
	}
	return n, nil
}

// Counts returns how many bytes were written so far and how many of them are not kept.
func (r *LogReader) Counts() (total, dropped int64, err error) {
	oldest, total, err := r.extent()
	return total, oldest, err
}

// Tail moves to where the last lines begin, as tail -n does; a last line without a newline counts. Negative means
// everything that is kept. Without a call reading begins with the oldest byte kept.
func (r *LogReader) Tail(lines int) error {
	oldest, total, err := r.extent()
	if err != nil {
		return err
	}
	r.at = total
	if lines < 0 {
		r.at = oldest
	}
	if lines <= 0 {
		return nil
	}
	buf := make([]byte, 64<<10)
	end := total // newlines are looked for before it
	for seen := 0; end > oldest; {
		start := max(oldest, end-int64(len(buf)))
		block, err := r.readBlock(buf[:end-start], start)
		if errors.Is(err, errOverwritten) {
			r.at = end // the live writer caught up with us: begin with what we saw
			return nil
		}
		if err != nil {
			return err
		}
		for i := len(block) - 1; i >= 0; i-- {
			i = bytes.LastIndexByte(block[:i+1], '\n')
			if i < 0 {
				break
			}
			if start+int64(i) == total-1 {
				continue // the newline that ends the last line begins none
			}
			if seen++; seen == lines {
				r.at = start + int64(i) + 1
				return nil
			}
		}
		end = start
	}
	r.at = oldest
	return nil
}

// readBlock fills all of p from position off on.
func (r *LogReader) readBlock(p []byte, off int64) ([]byte, error) {
	for n := 0; n < len(p); {
		k, err := r.readAt(p[n:], off+int64(n))
		if err != nil {
			return nil, err
		}
		n += k
	}
	return p, nil
}

// TailBytes moves to the last n bytes.
func (r *LogReader) TailBytes(n int64) error {
	oldest, total, err := r.extent()
	if err != nil {
		return err
	}
	r.at = max(oldest, total-max(0, n))
	return nil
}

// WriteTo copies what there is from here on to w. Bytes that a live writer overwrites meanwhile are skipped.
func (r *LogReader) WriteTo(w io.Writer) (int64, error) {
	n, _, err := r.drain(context.Background(), w, make([]byte, logChunk))
	return n, err
}

// drain copies up to the end that the log has by then.
func (r *LogReader) drain(ctx context.Context, w io.Writer, buf []byte) (written, skipped int64, err error) {
	for ctx.Err() == nil {
		n, err := r.readAt(buf, r.at)
		switch {
		case errors.Is(err, io.EOF):
			return written, skipped, nil
		case errors.Is(err, errOverwritten):
			oldest, _, err := r.extent()
			if err != nil {
				return written, skipped, err
			}
			skipped += oldest - r.at
			r.at = oldest
			continue
		case err != nil:
			return written, skipped, err
		}
		k, err := w.Write(buf[:n])
		r.at += int64(k)
		written += int64(k)
		if err != nil {
			return written, skipped, err
		}
	}
	return written, skipped, nil
}

// Follow copies what there is from here on to w, and what comes, until the writer is closed or dead, or ctx ends (which
// is no error). Bytes that the writer overwrote before they were read are skipped and counted.
func (r *LogReader) Follow(ctx context.Context, w io.Writer) (skipped int64, err error) {
	buf := make([]byte, logChunk)
	wait := followFastest
	for {
		// Whether the writer is gone must be known before the last look, or its last words would be missed.
		gone, err := r.writerGone()
		if err != nil {
			return skipped, err
		}
		n, s, err := r.drain(ctx, w, buf)
		skipped += s
		if gone && r.at == 0 && r.running() {
			gone = false // the writer may be about to lock the file that it has just made
		}
		if err != nil || gone || ctx.Err() != nil {
			return skipped, err
		}
		if wait = min(2*wait, followSlowest); n > 0 {
			wait = followFastest
		}
		select {
		case <-ctx.Done():
			return skipped, nil
		case <-time.After(wait):
		}
	}
}

// writerGone asks for the lock that a writer holds as long as it lives.
func (r *LogReader) writerGone() (bool, error) {
	switch err := tryLock(r.f, unix.LOCK_SH); {
	case errors.Is(err, errLocked):
		return false, nil
	case err != nil:
		return false, diskError("follow log", r.paths.plain, err)
	}
	unlockFile(r.f)
	return true, nil
}

// Close closes the reader.
func (r *LogReader) Close() error {
	if r.pos != nil {
		_ = r.pos.Close()
	}
	return r.f.Close()
}
