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
	"syscall"

	"golang.org/x/sys/unix"
)

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

// readLines decodes each line of r. A line that is too long is told as a bad one without being held in memory.
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
			l.d = decoded{raw: hex.EncodeToString(raw.Sum(nil)), bad: fmt.Errorf("a line of %d bytes, at most %d are an event", length, maxLine)}
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
	switch {
	case c.last.number == 0:
		if e.Seq != 1 || e.Prev != noPrev {
			c.find(Finding{Problem: ProblemBrokenLink, Event: e.Seq, Detail: fmt.Sprintf("the chain begins with event %d: what was before it is missing", e.Seq)})
		}
	case c.last.d.bad != nil:
		// Any of the hashes of the damaged line will do; that it is damaged has been said. A line that swallowed its
		// neighbour leaves a gap in the numbers.
		p := c.last.d
		if e.Prev != p.stored && e.Prev != p.computed && (e.Prev != p.raw || e.Type != EventDamaged) {
			c.find(Finding{Problem: ProblemBrokenLink, Event: e.Seq, Detail: fmt.Sprintf("event %d does not follow from the damaged one before it: events may be missing", e.Seq)})
		}
	case e.Seq != c.seq+1:
		c.find(Finding{Problem: ProblemBrokenLink, Event: e.Seq, Detail: fmt.Sprintf("event %d stands after event %d", e.Seq, c.seq)})
	case e.Prev != c.last.d.event.Hash:
		c.find(Finding{Problem: ProblemBrokenLink, Event: e.Seq, Detail: fmt.Sprintf("event %d names another event as the one before it than event %d", e.Seq, c.seq)})
	}
	if c.run != "" && e.Run != c.run {
		c.find(Finding{Problem: ProblemBrokenLink, Event: e.Seq, Detail: fmt.Sprintf("event %d belongs to run %.40q", e.Seq, e.Run)})
	}
	c.seq = e.Seq
	c.ok(e)
}
