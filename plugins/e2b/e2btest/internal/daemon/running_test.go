package daemon

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	pb "github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// answers is a terminal whose reads are answered in order: an empty one is the end that the kernel reports.
type answers []string

// Read implements [io.Reader].
func (a *answers) Read(b []byte) (int, error) {
	if len(*a) == 0 {
		return 0, io.ErrUnexpectedEOF // nobody may ask again
	}
	text := (*a)[0]
	*a = (*a)[1:]
	if text == "" {
		return 0, syscall.EIO
	}
	return copy(b, text), nil
}

// TestLastBytesOfATerminal: what is written just before the terminal's end is reported although the kernel reported the
// end first.
func TestLastBytesOfATerminal(t *testing.T) {
	for name, c := range map[string]struct {
		reads answers
		want  string
	}{
		"in order":              {answers{"first", "last", "", ""}, "firstlast"},
		"the end first":         {answers{"first", "", "last", "", ""}, "firstlast"},
		"the end first, always": {answers{"", "a", "", "b", "", ""}, "ab"},
		"nothing":               {answers{"", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &running{}
			l, _ := r.listen()
			var got bytes.Buffer
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					select {
					case e := <-l.events:
						got.Write(e.GetData().GetPty())
					case <-l.gone:
						return
					}
				}
			}()
			r.read(&terminal{tty: &c.reads}, 100, func(b []byte) *pb.ProcessEvent_DataEvent {
				return &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: b}}
			})
			r.leave(l)
			<-done
			if got.String() != c.want || len(c.reads) != 0 {
				t.Errorf("got %q with %q unread, want %q", &got, c.reads, c.want)
			}
		})
	}
}
