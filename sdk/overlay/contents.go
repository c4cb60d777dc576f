package overlay

import (
	"context"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// comparison is a pair of open files of the same size.
type comparison struct {
	a, b int
	c    Difference
}

// compare opens both files now, while their directories are open, and leaves the reading to a comparer.
func (w *walker) compare(up, lo dir, name string, c Difference) error {
	a, _, err := safefile.OpenFileAt(up.fd(), name)
	if err != nil {
		c.Kind = Modified
		w.add(c)
		return nil
	}
	b, _, err := safefile.OpenFileAt(lo.fd(), name)
	if err != nil {
		unix.Close(a)
		c.Kind = Modified
		w.add(c)
		return nil
	}
	select {
	case w.work <- comparison{a, b, c}:
		return nil
	case <-w.walking.Done():
		unix.Close(a)
		unix.Close(b)
		return w.walking.Err()
	}
}

func (w *walker) startComparers() {
	n := min(runtime.GOMAXPROCS(0), 4)
	w.work = make(chan comparison, 2*n)
	for range n {
		w.group.Go(func() {
			bufA, bufB := make([]byte, compareSize), make([]byte, compareSize)
			for p := range w.work {
				same, err := sameContent(w.ctx, p.a, p.b, bufA, bufB)
				unix.Close(p.a)
				unix.Close(p.b)
				if same && err == nil {
					w.same(p.c)
					continue
				}
				p.c.Kind = Modified
				w.add(p.c)
			}
		})
	}
}

func (w *walker) stopComparers() {
	close(w.work)
	w.group.Wait()
}

// compareSize is how much is read of each file at a time.
const compareSize = 128 << 10

// sameContent compares two files from their beginnings, a part at a time. Files that grow meanwhile differ.
func sameContent(ctx context.Context, a, b int, bufA, bufB []byte) (bool, error) {
	for ctx.Err() == nil {
		n, err := readFull(a, bufA)
		if err != nil {
			return false, err
		}
		m, err := readFull(b, bufB)
		if err != nil {
			return false, err
		}
		if n != m || string(bufA[:n]) != string(bufB[:m]) {
			return false, nil
		}
		if n < len(bufA) {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// readFull reads until buf is full or the file ends.
func readFull(fd int, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}
