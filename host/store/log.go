package store

import (
	"context"
	"io"
)

// LogWriter is the sink of one stream. It keeps the last bytes up to its limit on disk, in bounded memory, and counts
// the rest. What was kept is readable at any moment, also after the writer was killed. One goroutine writes at a time.
type LogWriter struct{}

// Write takes all of p; bytes that fall out of the limit are counted and dropped. It fails only when the disk does,
// with [ErrFull] when that is the reason; later writes then fail the same way and count as dropped.
func (w *LogWriter) Write(p []byte) (int, error) { return 0, errNotImplemented }

// Counts returns how many bytes were written and how many of them are not kept. It may be called at any time.
func (w *LogWriter) Counts() (total, dropped int64) { return 0, 0 }

// Close puts the kept bytes in order, so that the file is plain, and ends every follower. A second call does nothing.
func (w *LogWriter) Close() error { return errNotImplemented }

// LogReader reads one stream's log, also while another process writes it. Not safe for concurrent use.
type LogReader struct{}

// Counts returns how many bytes were written so far and how many of them are not kept.
func (r *LogReader) Counts() (total, dropped int64, err error) { return 0, 0, errNotImplemented }

// Tail moves to where the last lines begin, as tail -n does; a last line without a newline counts. Negative means
// everything that is kept. Without a call reading begins with the oldest byte kept.
func (r *LogReader) Tail(lines int) error { return errNotImplemented }

// TailBytes moves to the last n bytes.
func (r *LogReader) TailBytes(n int64) error { return errNotImplemented }

// WriteTo copies what there is from here on to w.
func (r *LogReader) WriteTo(w io.Writer) (int64, error) { return 0, errNotImplemented }

// Follow copies what there is from here on to w, and what comes, until the writer is closed or dead, or ctx ends (which
// is no error). Bytes that the writer overwrote before they were read are skipped and counted.
func (r *LogReader) Follow(ctx context.Context, w io.Writer) (skipped int64, err error) {
	return 0, errNotImplemented
}

// Close closes the reader.
func (r *LogReader) Close() error { return errNotImplemented }
