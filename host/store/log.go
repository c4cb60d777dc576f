package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk/tree"
)

// A log is written in parts, STREAM.log.BASE, where BASE is the position in the stream of the part's first byte. A
// writer with a limit begins a new part when one is full and removes the oldest ones while the rest still holds as
// many bytes as the limit allows: a byte stays where it was written until its part goes, so a reader needs no lock,
// and what was kept is there whenever the writer dies. Closing joins the parts to STREAM.log, which has exactly the
// bytes of the limit and is there only once the log is complete; STREAM.dropped says how many bytes came before them.

// Stream names a log of a run.
type Stream string

// The logs of a run.
const (
	Stdout     Stream = "stdout"
	Stderr     Stream = "stderr"
	BackendLog Stream = "backend" // what the backend said, if it said anything
)

// LogFile is the name of the complete log below the directory of the run.
func (s Stream) LogFile() string { return string(s) + ".log" }

func (s Stream) dropped() string { return string(s) + ".dropped" }

// partPath is where the part lies that begins at base.
func partPath(dir string, s Stream, base int64) string {
	return filepath.Join(dir, s.LogFile()+"."+strconv.FormatInt(base, 10))
}

// partBase is the position that the name of a part of s ends with.
func (s Stream) partBase(name string) (base int64, ok bool) {
	digits, ok := strings.CutPrefix(name, s.LogFile()+".")
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, ok && err == nil && base >= 0 && strconv.FormatInt(base, 10) == digits
}

// isLogFile reports whether name belongs to a log of a run.
func isLogFile(name string) bool {
	return slices.ContainsFunc([]Stream{Stdout, Stderr, BackendLog}, func(s Stream) bool {
		_, part := s.partBase(name)
		return part || name == s.LogFile() || name == s.dropped()
	})
}

// logPart is a part of a log that is open.
type logPart struct {
	*os.File
	base int64
}

// end is the position after the last byte of the part.
func (p logPart) end() (int64, error) {
	fi, err := p.Stat()
	if err != nil {
		return 0, err
	}
	if !fi.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", p.Name())
	}
	return p.base + fi.Size(), nil
}

// minPart is the size of the smallest part, in bytes; others are half the limit. While it is written a log takes at
// most a part more than its limit.
const minPart = 4 << 10

// LogWriter is the sink of one stream. It keeps the last bytes up to its limit on disk, in bounded memory, and counts
// the rest. What was kept is readable at any moment, also after the writer was killed. Not safe for concurrent use.
type LogWriter struct {
	dir    string
	stream Stream
	keep   int64   // 0 keeps everything
	bases  []int64 // of the parts on disk, oldest first
	part   *os.File
	total  int64 // bytes written to us
	end    int64 // position after the last byte on disk: less than total once the disk failed
	err    error // of the disk; nothing is kept from then on
	closed bool
}

func newLogWriter(dir string, s Stream, keep int64) (*LogWriter, error) {
	if keep < 0 {
		return nil, fmt.Errorf("log %s: invalid limit %d: want 0 or more bytes", s, keep)
	}
	w := &LogWriter{dir: dir, stream: s, keep: keep}
	if _, err := os.Lstat(w.path()); err == nil {
		return nil, diskError("open log", w.path(), fs.ErrExist)
	}
	if err := w.begin(); err != nil {
		return nil, diskError("open log", w.path(), err)
	}
	return w, nil
}

func (w *LogWriter) path() string { return filepath.Join(w.dir, w.stream.LogFile()) }

func (w *LogWriter) partPath(base int64) string { return partPath(w.dir, w.stream, base) }

// begin begins a part.
func (w *LogWriter) begin() error {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL | os.O_APPEND | syscall.O_NOFOLLOW
	f, err := os.OpenFile(w.partPath(w.end), flags, 0o600)
	if err != nil {
		return err
	}
	if w.part != nil {
		w.part.Close()
	}
	w.part, w.bases = f, append(w.bases, w.end)
	return nil
}

// Write takes all of p; bytes that fall out of the limit are counted and dropped. It fails only when the disk does,
// with [ErrFull] when that is the reason; later writes then fail the same way and count as dropped.
func (w *LogWriter) Write(p []byte) (int, error) {
	w.total += int64(len(p))
	size := max(w.keep/2, minPart)
	for rest := p; len(rest) > 0 && w.err == nil; {
		room := int64(len(rest))
		if w.keep > 0 {
			room = min(room, w.bases[len(w.bases)-1]+size-w.end)
		}
		if room == 0 {
			w.err = w.begin()
			continue
		}
		var n int
		n, w.err = w.part.Write(rest[:room])
		w.end += int64(n)
		rest = rest[n:]
		if w.err == nil {
			w.err = w.trim()
		}
	}
	if w.err != nil {
		return 0, diskError("write log", w.path(), w.err)
	}
	return len(p), nil
}

// trim removes the oldest parts that the limit does not need.
func (w *LogWriter) trim() error {
	for len(w.bases) > 1 && w.end-w.bases[1] >= w.keep {
		if err := os.Remove(w.partPath(w.bases[0])); err != nil {
			return err
		}
		w.bases = w.bases[1:]
	}
	return nil
}

// start is the position of the first byte that the limit keeps.
func (w *LogWriter) start() int64 {
	if w.keep == 0 {
		return w.bases[0]
	}
	return max(w.bases[0], w.end-w.keep)
}

// Counts returns how many bytes were written and how many of them are not kept.
func (w *LogWriter) Counts() (total, dropped int64) { return w.total, w.total - (w.end - w.start()) }

// Close joins the parts and ends every follower. A second call does nothing. Should the disk have no room for that, the
// parts stay as they are, and readers still find them in order.
func (w *LogWriter) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	err := w.part.Close()
	if err == nil {
		err = w.join()
	}
	if err != nil {
		return diskError("finish log", w.path(), err)
	}
	return nil
}

func (w *LogWriter) join() error {
	start := w.start()
	if start == 0 && len(w.bases) == 1 {
		return os.Rename(w.partPath(0), w.path())
	}
	if start > 0 {
		if err := writeAtomic(filepath.Join(w.dir, w.stream.dropped()), fmt.Appendln(nil, start), false); err != nil {
			return err
		}
	}
	parts, err := openParts(w.dir, w.stream)
	if err != nil {
		return err
	}
	defer closeParts(parts)
	whole := newAtomicFile(w.path())
	defer whole.abandon()
	out, err := whole.create()
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err == nil {
			_, err = p.Seek(max(0, start-p.base), io.SeekStart)
		}
		if err == nil {
			_, err = io.Copy(out, p)
		}
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err := whole.place(); err != nil {
		return err
	}
	for _, base := range w.bases {
		_ = os.Remove(w.partPath(base)) // were one to stay, readers would find the same bytes in it
	}
	return nil
}

// openParts opens the parts of a log in order, or the log itself when it is complete.
func openParts(dir string, s Stream) (parts []logPart, err error) {
	const flags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	const tries = 10 // the writer may remove all the parts that were listed before one of them is open
	for range tries {
		names, err := readNames(dir)
		if err != nil {
			return nil, err
		}
		var bases []int64
		for _, name := range names {
			if base, ok := s.partBase(name); ok {
				bases = append(bases, base)
			}
		}
		slices.Sort(bases)
		for _, base := range slices.Backward(bases) { // what is removed meanwhile is the oldest
			f, err := os.OpenFile(partPath(dir, s, base), flags, 0)
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != nil {
				closeParts(parts)
				return nil, err
			}
			parts = append(parts, logPart{f, base})
		}
		if len(parts) > 0 {
			slices.Reverse(parts)
			return parts, nil
		}
		f, err := os.OpenFile(filepath.Join(dir, s.LogFile()), flags, 0)
		if err == nil {
			base, err := readDropped(dir, s)
			return []logPart{{f, base}}, err
		}
		if !errors.Is(err, fs.ErrNotExist) || len(bases) == 0 {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s changes too fast to be read", s.LogFile())
}

// readDropped is how many bytes came before those of a complete log.
func readDropped(dir string, s Stream) (n int64, err error) {
	b, err := os.ReadFile(filepath.Join(dir, s.dropped()))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil {
		n, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s holds %.40q: want a number of bytes", s.dropped(), b)
	}
	return n, nil
}

func closeParts(parts []logPart) {
	for _, p := range parts {
		p.Close()
	}
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

const (
	logChunk      = 256 << 10
	followFastest = 5 * time.Millisecond // between two looks at a log that just moved
	followSlowest = 100 * time.Millisecond
)

// LogReader reads one stream's log, also while another process writes it. Positions count from the first byte the
// stream ever had. Not safe for concurrent use.
type LogReader struct {
	dir     string
	stream  Stream
	parts   []logPart // never empty
	at      int64     // where reading goes on
	skipped int64     // bytes that were dropped before they were read
	buf     []byte
	running func() bool
}

func newLogReader(dir string, s Stream, running func() bool) (*LogReader, error) {
	r := &LogReader{dir: dir, stream: s, running: running}
	if err := r.refresh(); err != nil {
		r.Close()
		return nil, diskError("open log", r.path(), err)
	}
	r.at = r.parts[0].base
	return r, nil
}

func (r *LogReader) path() string { return filepath.Join(r.dir, r.stream.LogFile()) }

// refresh opens the parts that are there now. When the run is removed, what is open is all there is.
func (r *LogReader) refresh() error {
	parts, err := openParts(r.dir, r.stream)
	if errors.Is(err, fs.ErrNotExist) && len(r.parts) > 0 {
		return nil
	}
	if err == nil {
		closeParts(r.parts)
		r.parts = parts
		_, err = parts[0].end()
	}
	return err
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

// extent returns the positions between which bytes are there to be read.
func (r *LogReader) extent() (oldest, total int64, err error) {
	if err = r.refresh(); err == nil {
		total, err = r.parts[len(r.parts)-1].end()
	}
	return r.parts[0].base, total, err
}

// readAt fills p from position off on, as far as its part goes.
func (r *LogReader) readAt(p []byte, off int64) (int, error) {
	if off < r.parts[0].base {
		return 0, io.EOF
	}
	i := len(r.parts) - 1
	for i > 0 && r.parts[i].base > off {
		i--
	}
	n, err := r.parts[i].ReadAt(p, off-r.parts[i].base)
	if n > 0 {
		return n, nil
	}
	return 0, err
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
	for end, seen := total, 0; end > oldest; { // newlines are looked for before end
		start := max(oldest, end-int64(len(buf)))
		block := buf[:end-start]
		for n := 0; n < len(block); {
			k, err := r.readAt(block[n:], start+int64(n))
			if err != nil {
				return err
			}
			n += k
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

// TailBytes moves to the last n bytes.
func (r *LogReader) TailBytes(n int64) error {
	oldest, total, err := r.extent()
	if err == nil {
		r.at = max(oldest, total-max(0, n))
	}
	return err
}

// Read reads on from where reading has got to; io.EOF says that the log has no more by now. Bytes that a live writer
// dropped before they were read are skipped and counted.
func (r *LogReader) Read(p []byte) (int, error) {
	n, err := r.readAt(p, r.at)
	if errors.Is(err, io.EOF) { // at the end of the parts that are open
		var oldest int64
		if oldest, _, err = r.extent(); err != nil {
			return 0, err
		}
		r.skipped += max(0, oldest-r.at)
		r.at = max(r.at, oldest)
		n, err = r.readAt(p, r.at)
	}
	r.at += int64(n)
	return n, err
}

// WriteTo copies what there is from here on to w.
func (r *LogReader) WriteTo(w io.Writer) (int64, error) { return r.copy(context.Background(), w) }

func (r *LogReader) copy(ctx context.Context, w io.Writer) (int64, error) {
	if r.buf == nil {
		r.buf = make([]byte, logChunk)
	}
	return io.CopyBuffer(struct{ io.Writer }{w}, tree.Reader(ctx, r), r.buf)
}

// Follow copies what there is from here on to w, and what comes, until the writer is closed or dead, or ctx ends (which
// is no error). It returns how many bytes were skipped because they were dropped before they were read.
func (r *LogReader) Follow(ctx context.Context, w io.Writer) (skipped int64, err error) {
	before := r.skipped
	for wait := followFastest; ; {
		// Whether the log is complete must be known before the last look, or its last bytes would be missed.
		_, err := os.Lstat(r.path())
		complete := err == nil || !r.running()
		n, err := r.copy(ctx, w)
		if ctx.Err() != nil {
			return r.skipped - before, nil
		}
		if err != nil || complete {
			return r.skipped - before, err
		}
		if wait = min(2*wait, followSlowest); n > 0 {
			wait = followFastest
		}
		select {
		case <-ctx.Done():
			return r.skipped - before, nil
		case <-time.After(wait):
		}
	}
}

// Close closes the reader.
func (r *LogReader) Close() error {
	closeParts(r.parts)
	return nil
}
