package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/e2b/internal/envd"
	"github.com/hutch-run/hutch/plugins/e2b/scripts"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// stuckTime bounds the wait for the reader of a command's output once the command is to end.
const stuckTime = 20 * time.Second

// endTime bounds the wait for the word that a command which was killed has ended.
const endTime = 30 * time.Second

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if tooLong(c) {
		return &sdk.Exit{Cause: sdk.CauseExited, Code: 126, NotStarted: true,
			Evidence: "the arguments and variables are longer than Linux takes"}, nil
	}
	user := cmp.Or(c.User, s.user())
	if err := s.jobsOf(ctx, user); err != nil {
		return nil, err
	}
	j, err := newJob(c, user)
	if err != nil {
		return nil, err
	}
	if j.path, err = s.sendText(ctx, j.dir+"/", user, j.text); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, typed(err, "send the command")
	}
	d, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	io, err := openStreams(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = io.close() }()
	release, err := s.claim(j.mark)
	if err != nil {
		return nil, err
	}
	r := &running{s: s, d: d, c: c, io: io, job: j, closed: map[*os.File]bool{},
		begun: make(chan struct{}), ended: make(chan struct{})}
	exit, err := r.run(ctx)
	return exit, errors.Join(err, release(!r.left))
}

// commandPrefix begins the names of files in the sandbox's directory on the host that stand for commands in the
// machine.
const commandPrefix = "command-"

// claim records in a file that this process has a command in the machine, which does not end with this process. The
// file is locked before it gets its name and until release: one that is not locked is of a process that was killed.
// release removes it, unless the command may still run: then the next process that attaches ends the command.
func (s *sandbox) claim(mark string) (release func(ended bool) error, err error) {
	f, err := os.CreateTemp(s.dir, "new-"+commandPrefix)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(s.dir, commandPrefix+mark)
	if err := errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX), os.Rename(f.Name(), name)); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return func(ended bool) error {
		defer f.Close()
		if !ended {
			return nil
		}
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) { // else the sandbox was destroyed meanwhile
			return err
		}
		return nil
	}, nil
}

// endOrphans ends the commands of processes that were killed.
func (s *sandbox) endOrphans(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if mark, ok := strings.CutPrefix(e.Name(), commandPrefix); ok {
			if err := s.endOrphan(ctx, mark); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sandbox) endOrphan(ctx context.Context, mark string) error {
	f, err := os.OpenFile(filepath.Join(s.dir, commandPrefix+mark), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just ended
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // its process lives
	}
	if err := s.sh(ctx, "end a command that was left", rootUser, scripts.End, nil, "KILL", mark, "-"); err != nil {
		return err
	}
	return os.Remove(f.Name())
}

// sendText sends a small file, and returns its path, which begins with prefix. It retries under another name each
// time: the daemon may still be writing what it was sent before.
func (s *sandbox) sendText(ctx context.Context, prefix, user, text string) (string, error) {
	for n := 1; ; n++ {
		d, err := s.connect(ctx)
		if err != nil {
			return "", err
		}
		to := prefix + rand.Text()
		if err = d.Upload(ctx, to, user, strings.NewReader(text)); err == nil {
			return to, nil
		}
		s.lost(err)
		defer s.drop(ctx, to)
		if n == 4 || ctx.Err() != nil || !transient(err) || s.backend.sleep(ctx, lookAgain[1]*time.Duration(n)) != nil {
			return "", err
		}
	}
}

// transient reports whether a transfer that failed may work when it is repeated: the connection broke, or the daemon or
// a proxy before it failed.
func transient(err error) bool {
	var e *envd.Error
	if errors.As(err, &e) {
		return !envd.Gone(err) && slices.Contains([]int{429, 500, 502, 503, 504}, e.Status)
	}
	var ours *sdk.Error
	return !errors.As(err, &ours)
}

// running is one command while it runs.
type running struct {
	s   *sandbox
	d   *envd.Client
	c   *sdk.Command
	io  *streams
	job *job

	begin sync.Once
	begun chan struct{} // closed when the command itself runs
	ended chan struct{} // closed when its end has been reported, or never will be

	pid    atomic.Uint32
	closed map[*os.File]bool // output streams without a reader; used by output only

	mu      sync.Mutex
	first   []byte // what came on stderr until the sign was whole
	signed  bool
	joined  bool   // the sign may never come
	refusal string // the job's own word for why the command does not run
	code    int    // and the code for that
	broken  error  // of the input

	left bool // the command may still run, although run has returned
}

// run starts the command and returns how it ended.
func (r *running) run(ctx context.Context) (*sdk.Exit, error) {
	// Events are received after ctx has ended, too: what the command printed until then belongs to it.
	events, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var side sync.WaitGroup
	side.Go(func() { r.control(ctx, stop) })
	cmd := envd.Command{User: r.job.user, Path: "/bin/sh", Args: []string{r.job.path}, Dir: "/", Stdin: hasInput(r.c)}
	if r.c.TTY != nil {
		cmd.PTY = &envd.Size{Rows: r.c.TTY.Rows, Cols: r.c.TTY.Cols}
	}
	began := time.Now()
	end, err := r.d.Run(events, cmd, envd.Events{Started: r.started, Joined: r.rejoined, Output: r.output})
	wall := time.Since(began)
	close(r.ended)
	_ = r.io.stdin.SetReadDeadline(time.Now()) // a reader that still waits for input
	side.Wait()
	var lost *envd.LostError
	mayRun := errors.As(err, &lost) && !envd.Gone(err)
	if r.c.TTY != nil || end == nil && mayRun { // a terminal's end comes before the rest is gone
		r.left = !r.end(context.WithoutCancel(ctx), "KILL") && end == nil
	}
	exit, err := r.exit(ctx, end, err)
	if exit != nil && exit.Usage.Wall == 0 {
		exit.Usage.Wall = wall
	}
	return exit, err
}

func (r *running) started(pid uint32) { r.pid.Store(pid) }

// rejoined takes a command for begun whose word of that may have been lost with the connection. If it still comes, it
// counts.
func (r *running) rejoined() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.signed {
		r.joined = true
		r.hasStarted()
	}
}

// hasStarted says that the command itself runs.
func (r *running) hasStarted() {
	r.begin.Do(func() {
		close(r.begun)
		r.c.Started()
	})
}

// output takes what the machine sends, one piece at a time.
func (r *running) output(from envd.Source, b []byte) error {
	to := r.io.stdout
	if from != envd.Stdout {
		if b = r.unsign(b); len(b) == 0 {
			return nil
		}
		if from == envd.Stderr {
			to = r.io.stderr
		}
	}
	return r.write(to, b)
}

// write passes output on. When its reader is gone the command gets SIGPIPE; the other stream goes on.
func (r *running) write(to *os.File, b []byte) error {
	if r.closed[to] {
		return nil
	}
	_, err := to.Write(b)
	if err == nil {
		return nil
	}
	r.closed[to] = true
	switch {
	case errors.Is(err, syscall.EPIPE):
		go r.end(context.Background(), "PIPE")
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("pass on the command's output: %w", err)
	}
	return nil
}

// unsign takes the sign from the beginning of stderr, or of what a terminal shows.
func (r *running) unsign(b []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.code != 0:
		return nil // no command runs, so this is not its output
	case r.signed:
		return b
	}
	r.first = append(r.first, b...)
	// What stands before the sign is of those who start the command: the daemon's nice, for one, may say that it cannot.
	at := bytes.Index(r.first, []byte(r.job.sign))
	switch {
	case at < 0 && r.joined:
		r.signed = true
		return r.first
	case at < 0 && len(r.first) > 64<<10:
		r.signed = true // it never comes
		return nil
	case at < 0:
		return nil
	}
	r.first = r.first[at:]
	word, rest, whole := strings.Cut(string(r.first[len(r.job.sign):]), ";")
	if !whole {
		return nil
	}
	r.signed = true
	code, why, _ := strings.Cut(word, ":")
	if code == "0" {
		r.hasStarted()
		return []byte(rest)
	}
	r.refusal = why
	if n, err := strconv.ParseUint(code, 10, 8); err == nil && n > 0 {
		r.code = int(n)
	} else {
		r.code = 125
	}
	return nil
}

// control passes on what the host sends while the command runs, and ends it when ctx does. giveUp stops the events.
func (r *running) control(ctx context.Context, giveUp func()) {
	var input sync.WaitGroup
	defer input.Wait()
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	signals, resizes, begun := r.c.Signals, r.c.Resizes, r.begun
	var waiting []int
	for {
		select {
		case <-r.ended:
			return
		case <-ctx.Done():
			r.finish(background, giveUp)
			return
		case <-begun:
			begun = nil
			if hasInput(r.c) {
				input.Go(func() { r.input(background) })
			}
			for _, n := range waiting {
				r.signal(background, n)
			}
		case n, ok := <-signals:
			if !ok {
				signals = nil
			} else if begun != nil {
				waiting = append(waiting, n)
			} else {
				r.signal(background, n)
			}
		case size, ok := <-resizes:
			if !ok {
				resizes = nil
				continue
			}
			if pid := r.pid.Load(); pid != 0 { // it fails for one that has ended
				_ = r.d.Resize(background, pid, envd.Size{Rows: size.Rows, Cols: size.Cols})
			}
		}
	}
}

// signal sends a signal to the command itself.
func (r *running) signal(ctx context.Context, n int) {
	const script = `kill -"$1" "$2" 2>/dev/null; exit 0`
	if err := r.s.sh(ctx, "send a signal", rootUser, script, nil, fmt.Sprint(n), fmt.Sprint(r.pid.Load())); err != nil {
		sdk.Logger().Warn("a signal could not be sent", "sandbox", r.s.id, "signal", n, "error", err)
	}
}

// end sends a signal to all processes of the command, and reports whether that worked.
func (r *running) end(ctx context.Context, signal string) bool {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	err := r.s.sh(ctx, "end the command", rootUser, scripts.End, nil, signal, r.job.mark, r.job.path)
	if err != nil && sdk.ReasonOf(err) != sdk.ReasonNotFound {
		sdk.Logger().Warn("a command could not be ended", "sandbox", r.s.id, "signal", signal, "error", err)
		return false
	}
	return true
}

// finish ends the command: in order first, and after its grace by force.
func (r *running) finish(ctx context.Context, giveUp func()) {
	grace := r.c.Grace
	if grace <= 0 {
		grace = supervise.DefaultGrace
	}
	for _, f := range []*os.File{r.io.stdout, r.io.stderr} {
		_ = f.SetWriteDeadline(time.Now().Add(grace + stuckTime))
	}
	r.end(ctx, "TERM")
	if r.waitEnd(grace) {
		return
	}
	// A command may begin just after a signal was sent to all that ran: repeat until its end is reported.
	for began := time.Now(); time.Since(began) < endTime; {
		r.end(ctx, "KILL")
		if r.waitEnd(2 * time.Second) {
			return
		}
	}
	giveUp()
}

func (r *running) waitEnd(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.ended:
		return true
	case <-t.C:
		return false
	}
}
