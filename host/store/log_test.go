package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func init() { helpers["log"] = writeLog }

// writeLog writes a log without end, of which it keeps 100,000 bytes, and says how much it wrote.
func writeLog(s *Store, id string) error {
	w, err := newLogWriter(s.paths.Run(id), Stdout, 100_000)
	if err != nil {
		return err
	}
	for at := 0; ; {
		n := 1 + rand.IntN(30_000)
		if _, err := w.Write(logBytes(at, n)); err != nil {
			return err
		}
		at += n
		fmt.Println(at)
	}
}

func openLog(t *testing.T, s *Store, id string) *LogReader {
	t.Helper()
	rec, err := s.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	l, err := rec.OpenLog(Stdout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func readAll(t *testing.T, l *LogReader) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := l.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestLogKeepsTheTail writes streams in pieces of all sizes and looks at what is kept after each piece, through a
// reader opened then, through one that was open all the time, and after the end as a plain file.
func TestLogKeepsTheTail(t *testing.T) {
	for _, keep := range []int64{0, 1, 7, 64, 1000, 4096} {
		for _, largest := range []int{1, 10, 63, 64, 65, 1000, 5000} {
			t.Run(fmt.Sprintf("keep %d pieces up to %d", keep, largest), func(t *testing.T) {
				s := newStore(t)
				r := newRun(t, s)
				w, err := r.OpenLog(Stdout, keep)
				if err != nil {
					t.Fatal(err)
				}
				early := openLog(t, s, r.ID())
				rnd := rand.New(rand.NewPCG(uint64(keep), uint64(largest)))
				at := 0
				check := func(l *LogReader, more int64) { // a live log may hold so many bytes more than its limit
					t.Helper()
					want := int64(at)
					if keep > 0 {
						want = min(want, keep)
					}
					total, dropped, err := l.Counts()
					if held := total - dropped; err != nil || total != int64(at) || held < want || held > want+more {
						t.Fatalf("after %d: counts %d, %d, %v", at, total, dropped, err)
					}
					want = total - dropped
					if err := l.TailBytes(1 << 30); err != nil {
						t.Fatal(err)
					}
					if got := readAll(t, l); !bytes.Equal(got, logBytes(at-int(want), int(want))) {
						t.Fatalf("after %d: %d bytes: %.60q", at, len(got), got)
					}
				}
				for range 40 {
					n := rnd.IntN(largest + 1)
					if k, err := w.Write(logBytes(at, n)); err != nil || k != n {
						t.Fatal(k, err)
					}
					at += n
					check(openLog(t, s, r.ID()), minPart)
					check(early, minPart)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				total, dropped := w.Counts()
				plain := mustRead(t, filepath.Join(r.Dir(), "stdout.log"))
				if total != int64(at) || !bytes.Equal(plain, logBytes(int(dropped), at-int(dropped))) {
					t.Fatalf("closed: %d, %d dropped, %d bytes in the file", total, dropped, len(plain))
				}
				check(openLog(t, s, r.ID()), 0)
				check(early, 0)
				if names, _ := filepath.Glob(filepath.Join(r.Dir(), "*.log.*")); len(names) > 0 {
					t.Errorf("left: %v", names)
				}
			})
		}
	}
}

func TestLogTailLines(t *testing.T) {
	for _, keep := range []int64{0, 14} { // with 14: "o\n\nfour\nfive" and a bit
		for _, end := range []string{"", "\n"} {
			kept := "one\ntwo\n\nfour\nfive" + end
			s := newStore(t)
			r := newRun(t, s)
			w, err := r.OpenLog(Stdout, keep)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, kept)
			w.Close()
			if keep > 0 {
				kept = kept[len(kept)-int(keep):]
			}
			for n := -1; n < 8; n++ {
				l := openLog(t, s, r.ID())
				if err := l.Tail(n); err != nil {
					t.Fatal(err)
				}
				want := kept
				if lines := strings.SplitAfter(strings.TrimSuffix(kept, "\n"), "\n"); n >= 0 && n < len(lines) {
					want = strings.Join(lines[len(lines)-n:], "") + strings.Repeat(end, min(n, 1))
				}
				if got := string(readAll(t, l)); got != want {
					t.Errorf("keep %d, end %q, tail %d: got %q, want %q", keep, end, n, got, want)
				}
			}
		}
	}
}

func TestLogTailLinesAcrossBlocks(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	w, err := r.OpenLog(Stdout, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(logBytes(0, 3<<20)) // lines of 8 bytes
	l := openLog(t, s, r.ID())
	for _, n := range []int{1, 8191, 8192, 8193, 100_000, 131_072} {
		if err := l.Tail(n); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, l); len(got) != 8*n || !bytes.Equal(got, logBytes(3<<20-8*n, 8*n)) {
			t.Errorf("tail %d: %d bytes", n, len(got))
		}
	}
	w.Close()
}

func TestLogIsOpenedOnce(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	rec, _ := s.Load(r.ID())
	if _, err := rec.OpenLog(Stderr); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
	w, err := r.OpenLog(Stderr, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.OpenLog(Stderr, 10); err == nil {
		t.Error("a second writer for one log")
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	if _, err := r.OpenLog(Stdout, -1); err == nil {
		t.Error("a negative limit")
	}
}

// BenchmarkLog1GB writes a gigabyte of which the default 16 MiB are kept.
func BenchmarkLog1GB(b *testing.B) {
	s, err := Open(Options{Home: filepath.Join(b.TempDir(), "home")})
	if err != nil {
		b.Fatal(err)
	}
	chunk := logBytes(0, 64<<10)
	b.SetBytes(1 << 30)
	for b.Loop() {
		r, err := s.CreateRun(NewRun{Name: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		w, err := r.OpenLog(Stdout, 16<<20)
		if err != nil {
			b.Fatal(err)
		}
		for range 1 << 30 / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

// BenchmarkRecord is what the record adds to one run.
func BenchmarkRecord(b *testing.B) {
	s, err := Open(Options{Home: filepath.Join(b.TempDir(), "home")})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := s.CreateRun(NewRun{Name: "bench", Definition: map[string]string{"a": "b"}})
		if err != nil {
			b.Fatal(err)
		}
		in, err := s.Begin(Intent{ID: r.ID(), Run: r.ID(), Volatile: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := in.SetHandle([]byte(`{}`)); err != nil {
			b.Fatal(err)
		}
		for range 6 {
			if err := r.Event("step", "x"); err != nil {
				b.Fatal(err)
			}
		}
		if err := finishRun(r); err != nil {
			b.Fatal(err)
		}
		if err := in.Done(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList lists the newest 20 of 2,000 runs, and all of them.
func BenchmarkList(b *testing.B) {
	s, err := Open(Options{Home: filepath.Join(b.TempDir(), "home")})
	if err != nil {
		b.Fatal(err)
	}
	for range 2000 {
		id := s.NewID()
		if err := os.Mkdir(s.paths.Run(id), 0o700); err != nil {
			b.Fatal(err)
		}
		begin := Event{Seq: 1, Run: id, Type: EventBegin, Prev: noPrev, Data: []byte(`{"name":"n","host":{"pid":1}}`)}
		line, _ := encodeEvent(&begin)
		end := Event{Seq: 2, Run: id, Type: EventEnd, Prev: begin.Hash, Data: []byte(`{"ok":true,"cause":"exited","result":{}}`)}
		last, _ := encodeEvent(&end)
		if err := writeNew(filepath.Join(s.paths.Run(id), eventsFile), append(line, last...)); err != nil {
			b.Fatal(err)
		}
	}
	for _, limit := range []int{20, 0} {
		b.Run(fmt.Sprint("limit ", limit), func(b *testing.B) {
			for b.Loop() {
				if l, err := s.List(Filter{Limit: limit}); err != nil || len(l) < 20 {
					b.Fatal(len(l), err)
				}
			}
		})
	}
}
