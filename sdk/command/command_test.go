//go:build unix

package command

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
)

// bound is for what should come at once.
const bound = time.Minute

// pretended is a command that only notes what it receives.
type pretended struct {
	started  chan struct{}
	ran      bool
	received chan string

	mu   sync.Mutex
	dies string // what it dies of
	dead chan struct{}
}

func pretend(dies string) *pretended {
	return &pretended{started: make(chan struct{}), received: make(chan string, 100), dies: dies, dead: make(chan struct{})}
}

func (p *pretended) Started() <-chan struct{} { return p.started }
func (p *pretended) Executed() bool           { return p.ran }

func (p *pretended) say(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.received <- what
	if what == p.dies {
		close(p.dead)
	}
	return nil
}

func (p *pretended) Signal(s syscall.Signal) error      { return p.say("signal " + s.String()) }
func (p *pretended) SignalGroup(s syscall.Signal) error { return p.say("group " + s.String()) }
func (p *pretended) Kill() error                        { return p.say("kill") }

func (p *pretended) hear(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-p.received:
		if got != want {
			t.Errorf("it received %q, want %q", got, want)
		}
	case <-time.After(bound):
		t.Fatalf("it never received %q", want)
	}
}

// TestWatch delivers the start, a signal that came before it, and window sizes.
func TestWatch(t *testing.T) {
	p := pretend("")
	signals, resizes, sizes, begun := make(chan int, 1), make(chan sdk.WindowSize), make(chan sdk.WindowSize, 1), make(chan bool, 1)
	c := &sdk.Command{Signals: signals, Resizes: resizes, Started: func() { begun <- true }}
	stop := Watch(t.Context(), p, c, func(s sdk.WindowSize) { sizes <- s })
	signals <- int(syscall.SIGHUP) // waits for the start
	p.ran = true
	close(p.started)
	p.hear(t, "signal hangup")
	resizes <- sdk.WindowSize{Rows: 3, Cols: 4}
	if s := <-sizes; s.Rows != 3 || s.Cols != 4 {
		t.Errorf("the size is %+v", s)
	}
	close(signals)
	close(resizes)
	stop()
	if len(begun) != 1 {
		t.Errorf("its start was reported %d times", len(begun))
	}
}

// TestWatchOfWhatNeverRuns reports no start of a command that was not executed.
func TestWatchOfWhatNeverRuns(t *testing.T) {
	p := pretend("")
	resizes := make(chan sdk.WindowSize)
	stop := Watch(t.Context(), p, &sdk.Command{Resizes: resizes, Started: func() { t.Error("a start was reported") }}, nil)
	close(p.started)
	stop()
}

// TestWatchEnds ends a command in order, by force when it does not end, and at once when it does not run yet.
func TestWatchEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		started bool
		dies    string
		want    []string
	}{
		{"in order", true, "group terminated", []string{"group terminated"}},
		{"by force", true, "kill", []string{"group terminated", "kill"}},
		{"before it runs", false, "kill", []string{"kill"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pretend(c.dies)
			if c.started {
				close(p.started)
			}
			ctx, cancel := context.WithCancel(t.Context())
			grace := time.Duration(1)
			if c.dies != "kill" {
				grace = bound
			}
			stop := Watch(ctx, p, &sdk.Command{Grace: grace}, nil)
			cancel()
			for _, want := range c.want {
				p.hear(t, want)
			}
			<-p.dead
			stop()
		})
	}
}

func TestEnded(t *testing.T) {
	for ws, want := range map[syscall.WaitStatus]sdk.Exit{
		3 << 8: {Cause: sdk.CauseExited, Code: 3, Evidence: "wait status: exit 3"},
		9:      {Cause: sdk.CauseSignaled, Code: 137, Signal: "SIGKILL", Evidence: "wait status: signal 9"},
		1:      {Cause: sdk.CauseSignaled, Code: 129, Signal: "SIGHUP", Evidence: "wait status: signal 1"},
	} {
		if d := cmp.Diff(want, *Ended(ws)); d != "" {
			t.Errorf("%#x (-want +got):\n%s", ws, d)
		}
	}
	for errno, code := range map[syscall.Errno]int{syscall.ENOENT: 127, syscall.ENOTDIR: 127, syscall.EACCES: 126, syscall.ENOEXEC: 126} {
		e := NotStarted(errno, []string{"/bin/x", "/usr/bin/x"})
		if e.Code != code || !e.NotStarted || e.Evidence != "execve: "+errno.Error()+" (tried /bin/x, /usr/bin/x)" {
			t.Errorf("%v: %+v", errno, e)
		}
	}
}

func TestBlame(t *testing.T) {
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(sdk.ErrTimeout)
	full := func() bool { return true }
	for _, c := range []struct {
		name string
		ctx  context.Context
		code int
		met  Met
		want sdk.Cause
	}{
		{"nothing", t.Context(), 1, Met{}, sdk.CauseExited},
		{"stopped before all", stopped, 1, Met{OOMKills: 1, PIDsHits: 1, Full: full}, sdk.CauseTimeout},
		{"memory before processes", t.Context(), 1, Met{OOMKills: 1, PIDsHits: 1, Full: full}, sdk.CauseOOM},
		{"processes before disk", t.Context(), 1, Met{PIDsHits: 1, Full: full}, sdk.CausePIDs},
		{"disk", t.Context(), 1, Met{Full: full}, sdk.CauseDisk},
		{"room is left", t.Context(), 1, Met{Full: func() bool { return false }}, sdk.CauseExited},
		{"who succeeds met no limit", t.Context(), 0, Met{OOMKills: 1, PIDsHits: 1, Full: full}, sdk.CauseExited},
	} {
		e := &sdk.Exit{Cause: sdk.CauseExited, Code: c.code}
		if Blame(c.ctx, e, c.met); e.Cause != c.want {
			t.Errorf("%s: %s, want %s", c.name, e.Cause, c.want)
		}
	}
	if Since(3, 5) != 2 || Since(5, 0) != 0 {
		t.Error("a counter that could not be read has grown")
	}
}

// TestLend gives away a FIFO, and nothing else.
func TestLend(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file away")
	}
	fifo, file := t.TempDir()+"/fifo", t.TempDir()+"/file"
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var owners []uint32
	for _, name := range []string{fifo, file} {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		Lend(f, 4321, 4321)
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, st.Sys().(*syscall.Stat_t).Uid)
	}
	if !slices.Equal(owners, []uint32{4321, 0}) {
		t.Errorf("the FIFO and the file belong to %v", owners)
	}
}
