package supervise

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// sockets returns the two ends of a connection.
func sockets(t *testing.T) (a, b *Socket) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err = NewSocket(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err = NewSocket(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestSocketCarriesDescriptors(t *testing.T) {
	a, b := sockets(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := a.Send([]byte("hello"), int(w.Fd()), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	m, err := b.Recv(make([]byte, 6))
	if err != nil || string(m.Data) != "hello" || len(m.FDs) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, fd := range m.FDs {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a descriptor is left open for commands: %#x, %v", flags, err)
		}
	}
	if _, err := unix.Write(m.FDs[1], []byte("x")); err != nil {
		t.Error(err)
	}
	m.Close()
	if _, err := b.TryRecv(make([]byte, 6)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("nothing to receive gave %v", err)
	}
}

func TestSocketRefuses(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	a, b := sockets(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := open()
	many := make([]int, 200)
	for i := range many {
		many[i] = int(null.Fd())
	}
	if err := a.Send([]byte("hello"), many...); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Recv(make([]byte, 6)); !errors.Is(err, ErrNoFiles) || len(m.FDs) != 0 {
		t.Errorf("200 descriptors gave %+v, %v", m, err)
	}
	if err := a.Send([]byte("much too long"), many[:3]...); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Recv(make([]byte, 6)); err == nil || len(m.FDs) != 0 {
		t.Errorf("a long message gave %+v, %v", m, err)
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors were open before and %d are after messages that were refused", before, after)
	}
	a.Close()
	if _, err := b.Recv(make([]byte, 6)); !errors.Is(err, io.EOF) {
		t.Errorf("the end gave %v", err)
	}
	if err := b.Send([]byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("sending to nobody gave %v", err)
	}
}
