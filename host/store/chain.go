package store

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chain appends to one event chain. Every append is one write under an exclusive lock of the file, and begins by
// looking whether another process appended meanwhile, so any number of writers make one chain.
type chain struct {
	path string
	now  func() time.Time

	mu   sync.Mutex // for goroutines; flock is for other descriptors
	f    *os.File
	size int64  // of the file as we know it
	seq  uint64 // of the last event
	head string // its hash

	notes []Event // what catching up found and no append has recorded yet
}

// newChain returns the chain at path, which the first append opens, or makes when it is missing.
func newChain(path string, now func() time.Time) *chain { return &chain{path: path, now: now} }

func (c *chain) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f == nil {
		return nil
	}
	f := c.f
	c.f = nil
	return f.Close()
}

// sync forces what was appended to the disk.
func (c *chain) sync() error {
	if err := c.f.Sync(); err != nil {
		return diskError("sync", c.path, err)
	}
	return nil
}

// append adds events and returns the state of the chain after them. It fills in number, time (where it is zero) and
// hashes. Either all of them are in the chain or, with an error, none; what was there before stays in any case.
func (c *chain) append(events ...Event) (seq uint64, head string, err error) {
	return c.appendThen(nil, events...)
}

// appendThen appends, and then calls then, unless it is nil, while nobody else can append. Its error does not take the
// events back.
func (c *chain) appendThen(then func() error, events ...Event) (seq uint64, head string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f == nil {
		const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE | syscall.O_NOFOLLOW
		if c.f, err = os.OpenFile(c.path, flags, 0o600); err != nil {
			c.f = nil
			return 0, "", diskError("open", c.path, err)
		}
		c.size = -1
	}
	if err := lockFile(c.f, unix.LOCK_EX); err != nil {
		return 0, "", diskError("lock", c.path, err)
	}
	defer unlockFile(c.f)

	if err := c.catchUp(events[0].Run); err != nil {
		return 0, "", err
	}
	var buf bytes.Buffer
	seq, head = c.seq, c.head
	for _, e := range slices.Concat(c.notes, events) {
		seq++
		e.Seq, e.Prev = seq, head
		if e.Time.IsZero() {
			e.Time = c.now()
		}
		line, err := encodeEvent(&e)
		if err != nil {
			return 0, "", err
		}
		buf.Write(line)
		head = e.Hash
	}
	if _, err := c.f.Write(buf.Bytes()); err != nil {
		// Take back what was written of it; were that to fail, the next writer would find a torn tail.
		_ = c.f.Truncate(c.size)
		return 0, "", diskError("append to", c.path, err)
	}
	c.size += int64(buf.Len())
	c.seq, c.head, c.notes = seq, head, nil
	if then != nil {
		err = then()
	}
	return seq, head, err
}

// catchUp brings c up to the file, which is locked. It sets a torn tail aside. What must be said about that is in
// c.notes.
func (c *chain) catchUp(run string) error {
	fi, err := c.f.Stat()
	if err != nil {
		return diskError("look at", c.path, err)
	}
	size := fi.Size()
	switch {
	case size == c.size:
		return nil
	case size < c.size:
		// Somebody cut events off which we know. Go on from what we know: the gap then shows for ever.
		c.note(run, EventDamaged,
			map[string]any{"reason": "events were cut off the end", "events": c.seq, "size": size, "was": c.size})
		c.size = size
		return nil
	}
	d, found, torn, err := lastLine(c.f, size)
	if err != nil {
		return diskError("read", c.path, err)
	}
	if torn > 0 {
		if err := c.setAside(run, size-torn, torn); err != nil {
			return err
		}
		size -= torn
	}
	c.size, c.seq, c.head = size, 0, noPrev
	if !found {
		return nil
	}
	c.seq, c.head = d.event.Seq, d.stored
	if d.bad == nil {
		return nil
	}
	// The end of the chain is damaged, but a record that stops would be worse than one with a scar. The next event
	// follows the damaged line as it is now, which pins it.
	c.head = d.raw
	if c.seq, err = countLines(c.f, size); err != nil {
		return diskError("read", c.path, err)
	}
	c.note(run, EventDamaged, map[string]any{"reason": d.bad.Error(), "event": c.seq, "line_sha256": d.raw})
	return nil
}

func (c *chain) note(run string, typ EventType, data map[string]any, files ...FileRef) {
	b, _ := marshalData(typ, data) // short strings and numbers always marshal
	c.notes = append(c.notes, Event{Run: run, Type: typ, Data: b, Files: files})
}

// tornMark begins what follows the name of a chain in that of a file with its torn tail.
const tornMark = ".torn-"

// setAside moves the torn bytes from offset on to their own file and cuts them off the chain.
func (c *chain) setAside(run string, offset, n int64) error {
	torn := make([]byte, min(n, maxLine))
	if _, err := c.f.ReadAt(torn, offset); err != nil && !errors.Is(err, io.EOF) {
		return diskError("read", c.path, err)
	}
	aside := fmt.Sprintf("%s%s%d", c.path, tornMark, offset)
	if err := writeAtomic(aside, torn, true); err != nil {
		return err
	}
	if err := c.f.Truncate(offset); err != nil {
		return diskError("cut the torn tail of", c.path, err)
	}
	name := filepath.Base(aside)
	c.note(run, EventRepaired, map[string]any{"offset": offset, "bytes": n, "kept": len(torn), "aside": name},
		refBytes(name, torn))
	return nil
}

// lastLine decodes the last complete line of the first size bytes of f, false when there is none, and how many
// bytes follow that are not a complete line. Zero bytes after the last newline, which a crash of the machine can leave,
// are such bytes too.
func lastLine(f io.ReaderAt, size int64) (last decoded, found bool, torn int64, err error) {
	end, err := lastNewline(f, size)
	if err != nil || end < 0 {
		return decoded{}, false, size, err
	}
	start, err := lastNewline(f, end)
	if err != nil {
		return decoded{}, false, 0, err
	}
	_, err = readLines(io.NewSectionReader(f, start+1, end-start), func(l chainLine) error {
		last = l.d
		return nil
	})
	return last, true, size - end - 1, err
}

// lastNewline returns the offset of the last newline before end, or -1.
func lastNewline(f io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, 16<<10)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i), nil
		}
		end -= n
	}
	return -1, nil
}

func countLines(f io.ReaderAt, size int64) (n uint64, err error) {
	buf := make([]byte, 256<<10)
	r := io.NewSectionReader(f, 0, size)
	for {
		k, err := r.Read(buf)
		n += uint64(bytes.Count(buf[:k], []byte{'\n'}))
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// chainLine is one complete line of a chain.
type chainLine struct {
	number uint64 // from 1
	d      decoded
}

// chainEnd is what is known after the last line.
type chainEnd struct {
	lines uint64
	torn  int64 // bytes after the last complete line
}

// readChain reads the chain at path as it is at this moment, line by line, in bounded memory.
func readChain(path string, each func(chainLine) error) (chainEnd, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return chainEnd{}, diskError("read", path, err)
	}
	defer f.Close()
	// Under the lock no line is half written. A store that may only be read cannot be locked everywhere; then a live
	// writer may show as a torn tail, which is harmless.
	locked := lockFile(f, unix.LOCK_SH) == nil
	fi, err := f.Stat()
	if locked {
		unlockFile(f)
	}
	if err != nil {
		return chainEnd{}, diskError("read", path, err)
	}
	if !fi.Mode().IsRegular() {
		return chainEnd{}, fmt.Errorf("read %s: it is not a regular file", path)
	}
	end, err := readLines(io.LimitReader(f, fi.Size()), each)
	if err != nil {
		err = diskError("read", path, err)
	}
	return end, err
}

// readLines decodes each line of r. A line that is too long is reported as a bad one without being held in memory.
func readLines(r io.Reader, each func(chainLine) error) (end chainEnd, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		line = line[:0]
		raw := sha256.New() // of the whole line, were it too long to keep
		var length int64
		for {
			piece, rerr := br.ReadSlice('\n')
			length += int64(len(piece))
			raw.Write(bytes.TrimSuffix(piece, []byte{'\n'}))
			if length <= maxLine {
				line = append(line, piece...)
			}
			if rerr == nil {
				break
			}
			if errors.Is(rerr, bufio.ErrBufferFull) {
				continue
			}
			end.torn = length
			if errors.Is(rerr, io.EOF) {
				rerr = nil
			}
			return end, rerr
		}
		end.lines++
		l := chainLine{number: end.lines}
		if length > maxLine {
			l.d = decoded{raw: hex.EncodeToString(raw.Sum(nil)),
				bad: fmt.Errorf("a line of %d bytes, at most %d are an event", length, maxLine)}
		} else {
			l.d = decodeEvent(line[:len(line)-1])
		}
		if err := each(l); err != nil {
			return end, err
		}
	}
}

// chainChecker follows a chain and finds what does not fit.
type chainChecker struct {
	run  string        // every event must be of this run; empty for the audit chain
	find func(Finding) // gets what is wrong
	ok   func(Event)   // gets every valid event

	last chainLine // the line before; number 0 before the first
	seq  uint64    // the number of the last event, as far as it is known
	head string    // the hash of the last event
}

// line checks one line against the one before it.
func (c *chainChecker) line(l chainLine) {
	defer func() { c.last = l }()
	c.head = l.d.stored
	if l.d.bad != nil {
		c.seq++
		c.find(Finding{Problem: ProblemBrokenEvent, Event: c.seq, Detail: fmt.Sprintf("line %d: %v", l.number, l.d.bad)})
		return
	}
	e := l.d.event
	broken := func(format string, args ...any) {
		c.find(Finding{Problem: ProblemBrokenLink, Event: e.Seq, Detail: fmt.Sprintf(format, args...)})
	}
	switch {
	case c.last.number == 0:
		if e.Seq != 1 || e.Prev != noPrev {
			broken("the chain begins with event %d: what was before it is missing", e.Seq)
		}
	case c.last.d.bad != nil:
		// Any of the hashes of the damaged line will do; that it is damaged has been reported. A line that swallowed its
		// neighbour leaves a gap in the numbers.
		p := c.last.d
		if e.Prev != p.stored && e.Prev != p.computed && (e.Prev != p.raw || e.Type != EventDamaged) {
			broken("event %d does not follow from the damaged one before it: events may be missing", e.Seq)
		}
	case e.Seq != c.seq+1:
		broken("event %d stands after event %d", e.Seq, c.seq)
	case e.Prev != c.last.d.event.Hash:
		broken("event %d names another event as the one before it than event %d", e.Seq, c.seq)
	}
	if c.run != "" && e.Run != c.run {
		broken("event %d belongs to run %.40q", e.Seq, e.Run)
	}
	c.seq = e.Seq
	c.ok(e)
}
