//go:build linux

package store

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestSpaceIsAsGoodAsWrite mixes both ways into a log, and looks at the log as a reader would after a crash at any of
// the steps, and at the end.
func TestSpaceIsAsGoodAsWrite(t *testing.T) {
	const keep = minMapped + 4093 // no multiple of anything
	rng := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	w, err := newLogWriter(dir, Stdout, keep)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	lent := 0
	for len(all) < 4*keep {
		n := 1 + rng.IntN(300<<10)
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		var space []byte
		if rng.IntN(4) > 0 {
			space = w.Space(n)
		}
		if space == nil {
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		} else {
			if len(space) > n || len(space) == 0 {
				t.Fatalf("%d bytes lent of %d", len(space), n)
			}
			lent++
			data = data[:rng.IntN(len(space)+1)]
			copy(space, data)
			if err := w.Commit(len(data)); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, data...)
		total, dropped := w.Counts()
		if want := max(0, int64(len(all)-keep)); total != int64(len(all)) || dropped != want {
			t.Fatalf("%d total, %d dropped; want %d, %d", total, dropped, len(all), want)
		}
		if lent%16 == 1 {
			r, err := newLogReader(dir, Stdout, over)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if _, err := r.WriteTo(&b); err != nil {
				t.Fatal(err)
			}
			r.Close()
			if want := all[max(0, len(all)-keep):]; !bytes.Equal(b.Bytes(), want) {
				t.Fatalf("a reader gets %d bytes, want %d", b.Len(), len(want))
			}
		}
	}
	if lent < 5 {
		t.Fatalf("memory was lent %d times", lent)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "stdout.log"))
	if err != nil || !bytes.Equal(got, all[len(all)-keep:]) {
		t.Errorf("%v: the log has %d bytes", err, len(got))
	}
	if w.Space(10) != nil {
		t.Error("a closed log lends memory")
	}
}

func TestNoSpaceBeforeItIsARing(t *testing.T) {
	w, err := newLogWriter(t.TempDir(), Stdout, minMapped)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.Space(10) != nil {
		t.Error("a plain log lends memory")
	}
	if _, err := w.Write(make([]byte, minMapped+1)); err != nil {
		t.Fatal(err)
	}
	if w.Space(10) == nil {
		t.Error("a ring lends none")
	}
	if err := w.Commit(0); err != nil {
		t.Fatal(err)
	}
	if w.NoSpace(); w.Space(10) != nil {
		t.Error("it lends memory after it was told not to")
	}
}
