package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallRun is a finished run with a file, and the path of its chain.
func smallRun(t *testing.T, s *Store) (*Run, string) {
	t.Helper()
	r := newRun(t, s)
	ref, err := r.WriteCode("a.txt", 0o644, strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Event(EventCode, map[string]int{"files": 1}, ref); err != nil {
		t.Fatal(err)
	}
	finish(t, r)
	return r, filepath.Join(r.Dir(), eventsFile)
}

// stride is the distance between the bytes that a test looks at: with -short a sample, else each one.
func stride() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// TestEveryFlippedByteOfAChainShows flips a bit of each byte of a finished run's chain, and of the audit chain.
func TestEveryFlippedByteOfAChainShows(t *testing.T) {
	s := newStore(t)
	r, chain := smallRun(t, s)
	for _, path := range []string{chain, s.paths.Audit()} {
		good := mustRead(t, path)
		for i := 0; i < len(good); i += stride() {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			mustWrite(t, path, bad)
			reports := verifyAll(t, s)
			if reports[""].OK && reports[r.ID()].OK {
				t.Fatalf("bit %d of byte %d of %s does not show: %+v", i%8, i, path, reports[r.ID()])
			}
			if events := reports[""].Events + reports[r.ID()].Events; events < 4 {
				t.Fatalf("byte %d of %s: only %d events are seen", i, path, events)
			}
		}
		mustWrite(t, path, good)
	}
	wantProblems(t, verify(t, s, r.ID()), true)
}

// TestEveryCutOfAChain cuts a chain at every byte. A finished run is never fine then; of one that was interrupted no
// earlier event is lost, and the next writer repairs the tail.
func TestEveryCutOfAChain(t *testing.T) {
	s := newStore(t)
	r, path := smallRun(t, s)
	good := mustRead(t, path)
	for n := 0; n < len(good); n += stride() {
		mustWrite(t, path, good[:n])
		if rep := verify(t, s, r.ID()); rep.OK {
			t.Fatalf("finished, cut at %d of %d: %+v", n, len(good), rep)
		}
	}

	open := newDeadRun(t, s)
	for i := range 3 {
		if err := open.Event("step", i); err != nil {
			t.Fatal(err)
		}
	}
	open.Close()
	path = filepath.Join(open.Dir(), eventsFile)
	good = mustRead(t, path)
	first := bytes.IndexByte(good, '\n') + 1
	for n := first; n <= len(good); n += stride() {
		mustWrite(t, path, good[:n])
		whole := uint64(bytes.Count(good[:n], []byte{'\n'}))
		torn := good[bytes.LastIndexByte(good[:n], '\n')+1 : n]
		want := []Problem{ProblemUnfinished}
		if len(torn) > 0 {
			want = append(want, ProblemTornTail)
		}
		rep := verify(t, s, open.ID())
		wantProblems(t, rep, true, want...)
		if rep.Events != whole {
			t.Fatalf("cut at %d: %d events, want %d", n, rep.Events, whole)
		}

		c := newChain(path, s.now)
		if _, _, err := c.append(Event{Run: open.ID(), Type: "after"}); err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		c.close()
		after := mustRead(t, path)
		if !bytes.HasPrefix(after, good[:n-len(torn)]) {
			t.Fatalf("cut at %d: the repair changed an earlier event", n)
		}
		want, added, aside := []Problem{ProblemUnfinished}, uint64(1), ""
		if len(torn) > 0 {
			want, added = append(want, ProblemRepaired), 2
			aside = fmt.Sprintf("%s.torn-%d", path, n-len(torn))
			if got := mustRead(t, aside); !bytes.Equal(got, torn) {
				t.Fatalf("cut at %d: %d torn bytes were kept of %d", n, len(got), len(torn))
			}
		}
		rep = verify(t, s, open.ID())
		wantProblems(t, rep, true, want...)
		if rep.Events != whole+added {
			t.Fatalf("cut at %d: %d events after the repair, want %d", n, rep.Events, whole+added)
		}
		os.Remove(aside) // where there is one
	}
}

// TestWhatVerifySays has one row for each way in which a finished run can be tampered with.
func TestWhatVerifySays(t *testing.T) {
	lines := func(b []byte) [][]byte { return bytes.SplitAfter(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) }
	cases := map[string]struct {
		tamper func(t *testing.T, s *Store, r *Run, chain string)
		want   []Problem
		event  uint64 // of the first finding, where it matters
	}{
		"nothing": {func(*testing.T, *Store, *Run, string) {}, nil, 0},
		"zero bytes at the end": {func(t *testing.T, s *Store, r *Run, chain string) {
			mustWrite(t, chain, append(mustRead(t, chain), make([]byte, 512)...))
		}, []Problem{ProblemTornTail}, 4},
		"byte in the middle": {func(t *testing.T, s *Store, r *Run, chain string) {
			b := mustRead(t, chain)
			b[bytes.Index(b, []byte("a.txt"))] = 'b'
			mustWrite(t, chain, b)
		}, []Problem{ProblemBrokenEvent}, 2},
		"last event cut off": {func(t *testing.T, s *Store, r *Run, chain string) {
			l := lines(mustRead(t, chain))
			mustWrite(t, chain, bytes.Join(l[:len(l)-1], nil))
		}, []Problem{ProblemHeadMismatch}, 3},
		"middle event removed": {func(t *testing.T, s *Store, r *Run, chain string) {
			l := lines(append(mustRead(t, chain), '\n'))
			mustWrite(t, chain, append(l[0], l[2]...))
		}, []Problem{ProblemBrokenLink, ProblemHeadMismatch}, 3},
		"first event removed": {func(t *testing.T, s *Store, r *Run, chain string) {
			b := mustRead(t, chain)
			mustWrite(t, chain, b[bytes.IndexByte(b, '\n')+1:])
		}, []Problem{ProblemRecord, ProblemBrokenLink, ProblemHeadMismatch}, 0},
		"event twice": {func(t *testing.T, s *Store, r *Run, chain string) {
			l := lines(append(mustRead(t, chain), '\n'))
			mustWrite(t, chain, bytes.Join([][]byte{l[0], l[1], l[1], l[2]}, nil))
		}, []Problem{ProblemBrokenLink, ProblemHeadMismatch}, 2},
		"events swapped": {func(t *testing.T, s *Store, r *Run, chain string) {
			l := lines(append(mustRead(t, chain), '\n'))
			mustWrite(t, chain, bytes.Join([][]byte{l[0], l[2], l[1]}, nil))
		}, []Problem{ProblemBrokenLink}, 3},
		"event changed and hashed again": {func(t *testing.T, s *Store, r *Run, chain string) {
			l := lines(append(mustRead(t, chain), '\n'))
			d := decodeEvent(bytes.TrimSuffix(l[1], []byte("\n")))
			d.event.Data = []byte(`{"files":2}`)
			l[1], _ = encodeEvent(&d.event)
			mustWrite(t, chain, bytes.Join(l, nil))
		}, []Problem{ProblemBrokenLink}, 3},
		"chain of another run": {func(t *testing.T, s *Store, r *Run, chain string) {
			_, other := smallRun(t, s)
			mustWrite(t, chain, mustRead(t, other))
		}, []Problem{ProblemRecord, ProblemBrokenLink, ProblemHeadMismatch}, 0},
		"chain recreated": {func(t *testing.T, s *Store, r *Run, chain string) {
			os.Remove(chain)
			c := newChain(chain, s.now)
			c.append(Event{Run: r.ID(), Type: EventBegin}, Event{Run: r.ID(), Type: EventCode},
				Event{Run: r.ID(), Type: EventEnd, Data: []byte(`{"ok":true,"cause":"exited","exit_code":0}`)})
			c.close()
		}, []Problem{ProblemRecord, ProblemHeadMismatch, ProblemUnknownFile}, 0},
		"chain deleted": {func(t *testing.T, s *Store, r *Run, chain string) { os.Remove(chain) }, []Problem{ProblemRecord, ProblemFileMissing, ProblemHeadMismatch}, 0},
		"chain a FIFO": {func(t *testing.T, s *Store, r *Run, chain string) {
			os.Remove(chain)
			mkfifo(t, chain)
		}, nil, 0},
		"file changed": {func(t *testing.T, s *Store, r *Run, chain string) {
			mustWrite(t, filepath.Join(r.CodeDir(), "a.txt"), []byte("CONTENT"))
		}, []Problem{ProblemFileChanged}, 2},
		"file longer": {func(t *testing.T, s *Store, r *Run, chain string) {
			mustWrite(t, filepath.Join(r.CodeDir(), "a.txt"), []byte("content."))
		}, []Problem{ProblemFileChanged}, 2},
		"file gone": {func(t *testing.T, s *Store, r *Run, chain string) {
			os.Remove(filepath.Join(r.CodeDir(), "a.txt"))
		}, []Problem{ProblemFileMissing}, 2},
		"file a link to one that is the same": {func(t *testing.T, s *Store, r *Run, chain string) {
			mustWrite(t, filepath.Join(r.CodeDir(), "b.txt"), []byte("content"))
			os.Remove(filepath.Join(r.CodeDir(), "a.txt"))
			os.Symlink("b.txt", filepath.Join(r.CodeDir(), "a.txt"))
		}, []Problem{ProblemFileChanged, ProblemUnknownFile}, 2},
		"a file more": {func(t *testing.T, s *Store, r *Run, chain string) {
			mustWrite(t, filepath.Join(r.Dir(), "note"), nil)
		}, []Problem{ProblemUnknownFile}, 0},
		"a file more that looks temporary": {func(t *testing.T, s *Store, r *Run, chain string) {
			mustWrite(t, tempPath(filepath.Join(r.Dir(), "stdout.log")), nil)
		}, []Problem{ProblemUnknownFile}, 0},
		"an output more": {func(t *testing.T, s *Store, r *Run, chain string) {
			mustWrite(t, filepath.Join(r.OutputDir(), "out"), nil)
		}, []Problem{ProblemUnknownFile}, 0},
		"a link more": {func(t *testing.T, s *Store, r *Run, chain string) {
			os.Symlink("/etc", filepath.Join(r.Dir(), "etc"))
		}, []Problem{ProblemUnknownFile}, 0},
		"mode changed": {func(t *testing.T, s *Store, r *Run, chain string) {
			os.Chmod(filepath.Join(r.CodeDir(), "a.txt"), 0o755)
		}, []Problem{ProblemFileChanged}, 2},
		"audit chain gone": {func(t *testing.T, s *Store, r *Run, chain string) { os.Remove(s.paths.Audit()) },
			[]Problem{ProblemHeadMismatch, ProblemUnknownRun}, 0},
		"audit chain loses its last entry": {func(t *testing.T, s *Store, r *Run, chain string) {
			l := lines(mustRead(t, s.paths.Audit()))
			mustWrite(t, s.paths.Audit(), bytes.Join(l[:len(l)-1], nil))
		}, []Problem{ProblemHeadMismatch}, 0},
		"writer died before the last entry": {func(t *testing.T, s *Store, r *Run, chain string) {
			os.Chmod(chain, 0o600)
			l := lines(mustRead(t, s.paths.Audit()))
			mustWrite(t, s.paths.Audit(), bytes.Join(l[:len(l)-1], nil))
		}, nil, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			r, chain := smallRun(t, s)
			c.tamper(t, s, r, chain)
			if name == "chain a FIFO" { // it must not hang, and it cannot look
				if _, err := s.Verify(t.Context(), r.ID()); err == nil || !strings.Contains(err.Error(), "regular") {
					t.Fatalf("got %v", err)
				}
				return
			}
			rep := verify(t, s, r.ID())
			wantProblems(t, rep, len(c.want) == 0, c.want...)
			if c.event != 0 && (len(rep.Findings) == 0 || rep.Findings[0].Event != c.event) {
				t.Errorf("found at %+v, want event %d", rep.Findings, c.event)
			}
		})
	}
}

func TestWholeRunsThatVanishOrAppear(t *testing.T) {
	s := newStore(t)
	gone, _ := smallRun(t, s)
	stays, _ := smallRun(t, s)
	if err := os.RemoveAll(gone.Dir()); err != nil {
		t.Fatal(err)
	}
	other := newStore(t)
	foreign, _ := smallRun(t, other)
	if err := os.Rename(foreign.Dir(), s.paths.Run(foreign.ID())); err != nil {
		t.Fatal(err)
	}
	reports := verifyAll(t, s)
	wantProblems(t, reports[""], false, ProblemRunMissing)
	wantProblems(t, reports[stays.ID()], true)
	wantProblems(t, reports[foreign.ID()], false, ProblemUnknownRun, ProblemHeadMismatch)
	if !strings.Contains(reports[""].Findings[0].Detail, gone.ID()) {
		t.Errorf("%+v", reports[""].Findings)
	}
}

// TestGoingOnAfterDamage: a record that is damaged at its end goes on, and the scar stays visible.
func TestGoingOnAfterDamage(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"flipped byte":  func(b []byte) []byte { b[len(b)-100] ^= 1; return b },
		"foreign line":  func(b []byte) []byte { return append(b, "not an event\n"...) },
		"broken number": func(b []byte) []byte { return append(b, bytes.Repeat([]byte("x"), maxLine+10)...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			smallRun(t, s)
			b := damage(mustRead(t, s.paths.Audit()))
			if name == "broken number" {
				b = append(b, '\n')
			}
			mustWrite(t, s.paths.Audit(), b)
			fresh, err := Open(Options{Home: s.paths.Data})
			if err != nil {
				t.Fatal(err)
			}
			r, _ := smallRun(t, fresh)
			reports := verifyAll(t, fresh)
			wantProblems(t, reports[""], false, ProblemBrokenEvent)
			wantProblems(t, reports[r.ID()], true)
		})
	}
}

// TestCutUnderALiveWriter: events cut off while their writer lives leave a gap that shows.
func TestCutUnderALiveWriter(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	for i := range 3 {
		r.Event("step", i)
	}
	path := filepath.Join(r.Dir(), eventsFile)
	b := mustRead(t, path)
	if err := os.Truncate(path, int64(bytes.IndexByte(b, '\n')+1)); err != nil {
		t.Fatal(err)
	}
	finish(t, r)
	rep := verify(t, s, r.ID())
	if rep.OK || rep.Findings[0].Problem != ProblemBrokenLink {
		t.Errorf("%+v", rep)
	}
}

// TestKeptHead shows what a copy of the audit chain's head is good for: nothing in the store shows a run whose
// directory and entries were taken out of it together, or of a store that was recreated.
func TestKeptHead(t *testing.T) {
	s := newStore(t)
	smallRun(t, s)
	first := audited(t, s, "")
	smallRun(t, s)
	if rep := audited(t, s, first.Head); !rep.OK || rep.Head == first.Head {
		t.Errorf("a chain that went on: %+v", rep)
	}
	audit := s.paths.Audit()
	b := mustRead(t, audit)
	lines := bytes.SplitAfter(b, []byte("\n"))
	mustWrite(t, audit, bytes.Join(lines[:int(first.Events)-1], nil))
	if rep := audited(t, s, first.Head); rep.OK || rep.Findings[len(rep.Findings)-1].Problem != ProblemHeadMismatch {
		t.Errorf("a chain that was cut: %+v", rep)
	}
	mustWrite(t, audit, b)
	if rep := audited(t, s, strings.Repeat("0", 64)); rep.OK {
		t.Error("a head that never was is in the chain")
	}
}

// audited is the report on the audit chain.
func audited(t *testing.T, s *Store, head string) (audit *Report) {
	t.Helper()
	if err := s.VerifyAll(context.Background(), head, func(r *Report) error {
		if r.Run == "" {
			audit = r
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return audit
}

// TestVerifyBesideWriters: runs that begin, end and go while everything is verified are never called damaged.
func TestVerifyBesideWriters(t *testing.T) {
	s := newStore(t)
	beside(t, 300, func(n int) error {
		r, err := s.CreateRun(NewRun{Name: "busy"})
		if err != nil {
			return err
		}
		ref, err := r.WriteCode("f", 0o600, strings.NewReader("x"))
		if err == nil {
			err = r.Event(EventCode, nil, ref)
		}
		if err == nil {
			err = finishRun(r)
		}
		if err == nil && n%3 > 0 {
			err = s.Remove(r.ID())
		}
		return err
	}, func() {
		for id, rep := range verifyAll(t, s) {
			if !rep.OK {
				t.Errorf("run %q: %+v", id, rep)
			}
		}
	})
}

// FuzzChain feeds anything to the reader of chains and to the writer that goes on after it.
func FuzzChain(f *testing.F) {
	e := Event{Seq: 1, Run: "r", Type: "x", Prev: noPrev}
	line, _ := encodeEvent(&e)
	second := Event{Seq: 2, Run: "r", Type: "y", Prev: e.Hash}
	next, _ := encodeEvent(&second)
	f.Add([]byte{})
	f.Add(line)
	f.Add(append(bytes.Clone(line), next...))
	f.Add(append(bytes.Clone(line), next[:30]...))
	f.Add(append(bytes.Clone(line), 0, 0, 0, '\n'))
	f.Add([]byte("\n\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		mustWrite(t, path, data)
		before := countValid(t, path)
		c := newChain(path, newClock())
		defer c.close()
		if _, _, err := c.append(Event{Run: "r", Type: "z"}); err != nil {
			t.Fatal(err)
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		if after := mustRead(t, path); !bytes.HasPrefix(after, whole) {
			t.Fatal("a complete line was changed")
		}
		if after := countValid(t, path); after <= before {
			t.Fatalf("%d valid events, %d before", after, before)
		}
	})
}

func countValid(t *testing.T, path string) (n int) {
	t.Helper()
	check := chainChecker{find: func(Finding) {}, ok: func(Event) { n++ }}
	if _, err := readChain(path, func(n uint64, d decoded) error { check.line(n, d); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
