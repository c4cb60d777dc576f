package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// TestFollowGetsEverything follows a log from its first byte while it is written, with and without a limit that the
// writer passes meanwhile.
func TestFollowGetsEverything(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	w, err := r.OpenLog(Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, s, r.ID())
	got := make(chan []byte, 1)
	go func() {
		var b bytes.Buffer
		if skipped, err := l.Follow(t.Context(), &b); err != nil || skipped != 0 {
			t.Errorf("skipped %d, %v", skipped, err)
		}
		got <- b.Bytes()
	}()
	const n = 3 << 20
	if _, err := io.Copy(w, iotest.OneByteReader(bytes.NewReader(logBytes(0, 2000)))); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(logBytes(2000, n-2000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b := <-got; !bytes.Equal(b, logBytes(0, n)) {
		t.Errorf("%d bytes of %d", len(b), n)
	}
}

// piecesOfStream checks that what it gets are pieces of logBytes in order, with gaps only between them.
type piecesOfStream struct {
	r   *LogReader
	bad error
	got int64
}

func (p *piecesOfStream) Write(b []byte) (int, error) {
	if at := int(p.r.at) - len(b); !bytes.Equal(b, logBytes(at, len(b))) && p.bad == nil {
		p.bad = fmt.Errorf("at %d: not what was written there: %.40q", at, b)
	}
	p.got += int64(len(b))
	return len(b), nil
}

// TestFollowBesideAFastWriter: another process overwrites its ring as fast as it can. What a reader gets is never
// mixed up, and all bytes are either got or counted as skipped.
func TestFollowBesideAFastWriter(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	cmd, lines := startHelper(t, s, "log", r.ID())
	lines.Scan() // it has the log
	l, err := newLogReader(r.Dir(), Stdout, ProcessOf(cmd.Process.Pid).Alive)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pieces := &piecesOfStream{r: l}
	type end struct {
		skipped int64
		err     error
	}
	done := make(chan end, 1)
	start := l.at
	go func() {
		skipped, err := l.Follow(t.Context(), pieces)
		done <- end{skipped, err}
	}()
	var total int64
	for n := 0; n < 3000 && lines.Scan(); n++ {
		total, _ = strconv.ParseInt(lines.Text(), 10, 64)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		total, _ = strconv.ParseInt(lines.Text(), 10, 64)
	}
	kill(t, cmd)
	e := <-done
	if e.err != nil || pieces.bad != nil {
		t.Fatal(e.err, pieces.bad)
	}
	if seen := start + pieces.got + e.skipped; seen < total {
		t.Errorf("%d bytes were got and %d skipped of at least %d", pieces.got, e.skipped, total)
	}
	if pieces.got == 0 {
		t.Error("nothing was got")
	}
	t.Logf("%d of %d bytes were got beside the writer", pieces.got, total)

	// What the dead writer kept is there.
	tail := openLog(t, s, r.ID())
	at := tail.at
	if b := readAll(t, tail); len(b) < 100_000 || !bytes.Equal(b, logBytes(int(at), len(b))) || at+int64(len(b)) < total {
		t.Errorf("%d bytes from %d of %d are left", len(b), at, total)
	}
	if size := treeSize(r.Dir()); size > 200_000 { // the parts in whole blocks
		t.Errorf("on disk: %d bytes", size)
	}
}

// TestReadersWhileTheWriterCloses opens, reads and follows at the moment at which a ring becomes a plain file.
func TestReadersWhileTheWriterCloses(t *testing.T) {
	for range 50 {
		s := newStore(t)
		r := newRun(t, s)
		w, err := r.OpenLog(Stdout, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				l, err := newLogReader(r.Dir(), Stdout, func() bool { return true })
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Close()
				p := &piecesOfStream{r: l}
				if _, err := l.Follow(t.Context(), p); err != nil || p.bad != nil {
					t.Error(err, p.bad)
				}
				if l.at != 5000 {
					t.Errorf("it ended at %d", l.at)
				}
			})
		}
		for at := 0; at < 5000; at += 500 {
			w.Write(logBytes(at, 500))
		}
		w.Close()
		wg.Wait()
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	w, err := r.OpenLog(Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	l := openLog(t, s, r.ID())
	done := make(chan error, 1)
	got, put := io.Pipe()
	go func() { _, err := l.Follow(ctx, put); done <- err }()
	io.WriteString(w, "hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(got, b); err != nil || string(b) != "hello" {
		t.Fatalf("%q %v", b, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("%v", err)
	}
}

func TestAwaitLog(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	rec, err := s.Load(r.ID())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		l, err := rec.AwaitLog(t.Context(), Stdout)
		if err != nil {
			got <- err.Error()
			return
		}
		defer l.Close()
		var b strings.Builder
		_, err = l.Follow(t.Context(), &b)
		got <- fmt.Sprint(b.String(), err)
	}()
	w, err := r.OpenLog(Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "hello ")
	w.Close()
	if text := <-got; text != "hello <nil>" {
		t.Errorf("%q", text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rec.AwaitLog(ctx, Stderr); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	finish(t, r)
	if _, err := rec.AwaitLog(t.Context(), Stderr); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that never came: %v", err)
	}
}
