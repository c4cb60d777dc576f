package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		r   Request
		fds int
		err string // "" is fine
	}{
		{Request{Op: Exec, ID: 1}, 4, ""},
		{Request{Op: Exec, ID: 1, Flags: OnTerminal, Arg: 24<<16 | 80}, 1, ""},
		{Request{Op: Exec, ID: 1}, 3, "malformed"},
		{Request{Op: Exec, ID: 1, Arg: 1}, 4, "malformed"},
		{Request{Op: Exec, ID: 1, Flags: 2}, 4, "malformed"},
		{Request{Op: Exec}, 4, "malformed"},
		{Request{Op: Signal, ID: 1, Arg: 64, Flags: ToGroup}, 0, ""},
		{Request{Op: Signal, ID: 1, Arg: 65}, 0, "malformed"},
		{Request{Op: Signal, ID: 1}, 0, "signal 0"},
		{Request{Op: Kill, ID: 1}, 0, ""},
		{Request{Op: Kill, ID: 1, Arg: 9}, 0, "malformed"},
		{Request{Op: Kill, ID: 1}, 1, "malformed"},
		{Request{Op: Lifeline}, 0, ""},
		{Request{Op: Lifeline, ID: 1}, 0, "malformed"},
		{Request{}, 0, "no request 0"},
		{Request{Op: Dial, ID: 1, Arg: 65535}, 0, ""},
		{Request{Op: Dial, ID: 1, Arg: 65536}, 0, "malformed"},
		{Request{Op: Dial, ID: 1}, 0, "port 0"},
		{Request{Op: Dial, Arg: 1}, 0, "malformed"},
		{Request{Op: 6, ID: 1}, 0, "no request 6"},
	} {
		got, err := ParseRequest(c.r.Append(nil), c.fds)
		switch {
		case c.err == "" && (err != nil || got != c.r):
			t.Errorf("%+v with %d descriptors: %+v, %v", c.r, c.fds, got, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%+v with %d descriptors: %v, want %q", c.r, c.fds, err, c.err)
		}
	}
}

func TestReplies(t *testing.T) {
	for _, c := range []struct {
		r   Reply
		fds int
		ok  bool
	}{
		{Reply{Op: Hello, Value: 7}, 0, true},
		{Reply{Op: Hello, Value: 7, ID: 1}, 0, false},
		{Reply{Op: Tied}, 0, true},
		{Reply{Op: Tied, Value: 1}, 0, false},
		{Reply{Op: Terminal, ID: 1}, 1, true},
		{Reply{Op: Terminal, ID: 1}, 0, false},
		{Reply{Op: Started, ID: 1, Value: 5}, 0, true},
		{Reply{Op: Started, ID: 1, Value: 1 << 23}, 0, false},
		{Reply{Op: Failed, ID: 1, Value: uint32(Lost), Errno: 3}, 0, true},
		{Reply{Op: Failed, ID: 1, Value: uint32(Lost) + 1}, 0, false},
		{Reply{Op: Failed, ID: 1}, 0, false},
		{Reply{Op: Failed, ID: 1, Value: 1, Errno: 4096}, 0, false},
		{Reply{Op: Exited, ID: 1, Value: 0xffff, Flags: LeftBehind, User: 1, Sys: 2, MaxRSS: 3}, 0, true},
		{Reply{Op: Exited, ID: 1, Value: 0x10000}, 0, false},
		{Reply{Op: Exited, ID: 1, User: 1 << 63}, 0, false},
		{Reply{Op: Exited, ID: 1, MaxRSS: 1 << 50}, 0, false},
		{Reply{Op: Exited, ID: 1}, 1, false},
		{Reply{ID: 1}, 0, false},
	} {
		got, err := ParseReply(c.r.Append(nil), c.fds)
		if (err == nil) != c.ok || c.ok && got != c.r {
			t.Errorf("%+v with %d descriptors: %+v, %v", c.r, c.fds, got, err)
		}
	}
}

// What is accepted is what would be sent, and so has one form only.
func FuzzRequest(f *testing.F) {
	for op := range RequestOp(6) {
		f.Add(Request{Op: op, ID: 1, Arg: 9}.Append(nil), 0)
	}
	f.Add(Request{Op: Exec, ID: 1}.Append(nil), 4)
	f.Add(Request{Op: Exec, ID: 1, Flags: OnTerminal}.Append(nil), 1)
	f.Fuzz(func(t *testing.T, b []byte, fds int) {
		r, err := ParseRequest(b, fds)
		if err != nil {
			return
		}
		if again := r.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x was read as %+v, which is %x", b, r, again)
		}
		if r.Op == Signal && (r.Arg < 1 || r.Arg > 64) || fds > MaxFDs {
			t.Errorf("accepted %+v with %d descriptors", r, fds)
		}
	})
}

func FuzzReply(f *testing.F) {
	for op := range ReplyOp(8) {
		f.Add(Reply{Op: op, ID: 1, Value: 1}.Append(nil), 0)
		f.Add(Reply{Op: op, Value: 1}.Append(nil), 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, fds int) {
		r, err := ParseReply(b, fds)
		if err != nil {
			return
		}
		if again := r.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x was read as %+v, which is %x", b, r, again)
		}
		if int64(r.MaxRSS<<10) < 0 || time.Duration(r.User)*time.Microsecond < 0 || time.Duration(r.Sys)*time.Microsecond < 0 || fds > 1 {
			t.Errorf("accepted %+v with %d descriptors", r, fds)
		}
	})
}

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
