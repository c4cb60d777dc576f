package store

const (
	// minMapped is the size of the smallest ring that is mapped: below it the gain is not worth the page faults.
	minMapped = 1 << 20
	// maxSpace is the most that Space lends at once.
	maxSpace = 256 << 10
)

// Space lends memory of the log itself in which the next bytes of the stream may be put, at most n of them, and says
// in the log that as many of the oldest bytes are about to go. [LogWriter.Commit] must follow before anything else is
// done with the writer. A gigabyte of which all but the end is dropped is then never copied in this process.
//
// It is nil while the log is not a ring, and where the ring cannot be mapped: the bytes go to [LogWriter.Write] then,
// which may also be mixed with Space. A read into the memory fails with EFAULT where the file system has no room after
// all; call [LogWriter.NoSpace] and use Write, which tells the reason.
func (w *LogWriter) Space(n int) []byte {
	if w.pos == nil || w.err != nil || w.unmappable || w.keep < minMapped || n <= 0 {
		return nil
	}
	if w.ring == nil {
		if w.ring = mapRing(w.f, w.keep); w.ring == nil {
			w.unmappable = true
			return nil
		}
	}
	old := w.total.Load()
	at := old % w.keep
	room := min(int64(n), maxSpace, w.keep-at)
	if err := writePos(w.pos, posMark{keep: w.keep, reserved: old + room, total: old}); err != nil {
		return nil // Write meets the same error and says it
	}
	return w.ring[at : at+room : at+room]
}

// Commit takes the first n bytes of the memory that [LogWriter.Space] lent as the next bytes of the stream. It fails
// as Write does.
func (w *LogWriter) Commit(n int) error {
	end := w.total.Add(int64(n))
	if err := writePos(w.pos, posMark{keep: w.keep, reserved: end, total: end}); err != nil {
		w.err = diskError("write log", w.paths.plain, err)
		return w.err
	}
	w.held.Store(w.keep)
	return nil
}

// NoSpace gives up lending memory.
func (w *LogWriter) NoSpace() { w.unmappable = true }
