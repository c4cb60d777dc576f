package store

import (
	"bytes"
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

	notes []Event // what catching up found and no append has said yet
}

// openChain opens the chain at path, making it when it is missing. It reads nothing: the first append does.
func openChain(path string, now func() time.Time) (*chain, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, diskError("open", path, err)
	}
	return &chain{path: path, now: now, f: f, size: -1}, nil
}

func (c *chain) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.f.Close()
}

func (c *chain) sync() error {
	if err := c.f.Sync(); err != nil {
		return diskError("sync", c.path, err)
	}
	return nil
}

// append adds events and returns the state of the chain after them. It fills in number, time (where it is zero) and
// hashes. Either all of them are in the chain or, with an error, none; what was there before stays in any case.
func (c *chain) append(events ...Event) (seq uint64, head string, err error) {
	return c.appendThen(func() error { return nil }, events...)
}

// appendThen appends, and does what the events speak of while nobody else can append. Its error does not take them back.
func (c *chain) appendThen(then func() error, events ...Event) (seq uint64, head string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	return seq, head, then()
}

// catchUp brings c up to the file, which is locked. It sets a torn tail aside. What must be said about that is in c.notes.
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
		c.note(run, EventDamaged, map[string]any{"reason": "events were cut off the end", "events": c.seq, "size": size, "was": c.size})
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

// setAside moves the torn bytes from offset on to a file of their own and cuts them off the chain.
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
	c.note(run, EventRepaired, map[string]any{"offset": offset, "bytes": n, "kept": len(torn), "aside": filepath.Base(aside)},
		FileRef{Path: filepath.Base(aside), Size: int64(len(torn)), SHA256: sumHex(torn)})
	return nil
}

// lastLine decodes the last complete line of the first size bytes of f, false when there is none, and tells how many
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
