package client

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// lender lends memory, all of it good, or none that can be written to.
type lender struct {
	bytes.Buffer
	mem     []byte
	given   int
	refused bool
	open    bool
	first   chan struct{} // closed by the first Space
	t       *testing.T
}

func (l *lender) Space(n int) []byte {
	if l.refused || n <= 0 {
		return nil
	}
	if l.open {
		l.t.Error("Space without the Commit before it")
	}
	if l.given == 0 {
		close(l.first)
	}
	l.open = true
	l.given++
	return l.mem[:min(n, len(l.mem))]
}

func (l *lender) Commit(p []byte) error {
	l.open = false
	l.Buffer.Write(p)
	return nil
}

func (l *lender) NoSpace() { l.refused = true }

func TestLender(t *testing.T) {
	for name, prot := range map[string]int{"good memory": unix.PROT_READ | unix.PROT_WRITE, "memory that cannot be written to": unix.PROT_READ} {
		t.Run(name, func(t *testing.T) {
			mem, err := unix.Mmap(-1, 0, 8192, prot, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Munmap(mem)
			var seq pipeCounter
			f, err := seq.newFIFO(t.TempDir(), "o")
			if err != nil {
				t.Fatal(err)
			}
			defer f.drop()
			l := &lender{mem: mem, first: make(chan struct{}), t: t}
			done := make(chan error)
			go func() { done <- f.drain(l) }()
			want := bytes.Repeat([]byte("0123456789abcdef"), 5000)
			if _, err := f.Write(want); err != nil { // the end is open for writing too
				t.Fatal(err)
			}
			<-l.first
			f.stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(l.Bytes(), want) {
				t.Errorf("%d bytes came of %d", l.Len(), len(want))
			}
			if writable := prot&unix.PROT_WRITE != 0; l.refused == writable || l.given == 0 && writable {
				t.Errorf("lent %d times, refused %v", l.given, l.refused)
			}
		})
	}
}
