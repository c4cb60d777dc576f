package wire

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		r   Request
		fds int
		err string // "" is fine
	}{
		{Request{Op: Exec, ID: 1}, ExecFDs, ""},
		{Request{Op: Exec, ID: 1}, ExecFDs - 1, "malformed"},
		{Request{Op: Observe, ID: 1}, ObserveFDs, ""},
		{Request{Op: Observe, ID: 1}, ExecFDs, "malformed"},
		{Request{Op: Exec, ID: 1, Arg: 1}, ExecFDs, "malformed"},
		{Request{Op: Exec}, ExecFDs, "malformed"},
		{Request{Op: Await, ID: 1}, 0, ""},
		{Request{Op: Await, ID: 1, Arg: 77}, 0, ""},
		{Request{Op: Await, ID: 1, Arg: 1 << 23}, 0, "malformed"},
		{Request{Op: Lifeline}, 0, ""},
		{Request{Op: Lifeline, ID: 1}, 0, "malformed"},
		{Request{}, 0, "no request 0"},
		{Request{Op: Dial, ID: 1, Arg: 65535}, 0, ""},
		{Request{Op: Dial, ID: 1, Arg: 65536}, 0, "malformed"},
		{Request{Op: Dial, ID: 1}, 0, "port 0"},
		{Request{Op: Dial, Arg: 1}, 0, "malformed"},
		{Request{Op: Terminal, ID: 1, Arg: 24<<16 | 80}, 0, ""},
		{Request{Op: Terminal, ID: 1}, 1, "malformed"},
		{Request{Op: 7, ID: 1}, 0, "no request 7"},
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
		{Reply{Op: Opened, ID: 1}, 2, true},
		{Reply{Op: Opened, ID: 1}, 1, false},
		{Reply{Op: Failed, ID: 1, Value: uint32(Lost), Errno: 3}, 0, true},
		{Reply{Op: Failed, ID: 1, Value: uint32(Lost) + 1}, 0, false},
		{Reply{Op: Failed, ID: 1}, 0, false},
		{Reply{Op: Failed, ID: 1, Value: 1, Errno: 4096}, 0, false},
		{Reply{Op: Ended, ID: 1, Value: 0xffff, User: 1, Sys: 2, MaxRSS: 3}, 0, true},
		{Reply{Op: Ended, ID: 1, Value: 0x10000}, 0, false},
		{Reply{Op: Ended, ID: 1, User: 1 << 63}, 0, false},
		{Reply{Op: Ended, ID: 1, MaxRSS: 1 << 50}, 0, false},
		{Reply{Op: Ended, ID: 1}, 1, false},
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
	for op := range RequestOp(7) {
		f.Add(Request{Op: op, ID: 1, Arg: 9}.Append(nil), 0)
	}
	f.Add(Request{Op: Exec, ID: 1}.Append(nil), ExecFDs)
	f.Fuzz(func(t *testing.T, b []byte, fds int) {
		r, err := ParseRequest(b, fds)
		if err != nil {
			return
		}
		if again := r.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x was read as %+v, which is %x", b, r, again)
		}
		if fds > ObserveFDs {
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
		if int64(r.MaxRSS<<10) < 0 || time.Duration(r.User)*time.Microsecond < 0 || time.Duration(r.Sys)*time.Microsecond < 0 || fds > 2 {
			t.Errorf("accepted %+v with %d descriptors", r, fds)
		}
	})
}
