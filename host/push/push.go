// Package push sends the branch that is checked out, and a plan, into a persistent sandbox, and runs there what the run
// file names.
//
// It works over the ordinary contract, on every backend whose sandboxes have git. The branch travels as a git bundle:
// through the directory that host and sandbox both see, where the backend has one ([sdk.Ready.Exchange]), else as a
// single file. In the sandbox, the workspace has two directories: the clone, which is called as the sandbox is, and the
// exchange.
//
// Package pull brings the commits back.
package push

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/host/instructions"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
)

const instructionsName = instructions.Name

// DefaultTimeout is the timeout of a command whose run file says none: 24 hours, because a plan takes its time.
const DefaultTimeout = 24 * time.Hour

// EventPush is in a sandbox's chain: a branch was sent into it.
const EventPush store.EventType = "push"

// Ref is where the commits of a sandbox are kept in the user's repository.
func Ref(name string) string { return "refs/hutch/" + name }

// NewName returns a name for a sandbox: push- and eight random hexadecimal digits.
func NewName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return "push-" + hex.EncodeToString(b[:])
}

// CheckName refuses names of sandboxes that cannot be the name of a ref.
func CheckName(name string) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	if strings.Contains(name, "..") || strings.HasSuffix(name, ".") || strings.HasSuffix(name, ".lock") {
		return refuse(nil, fmt.Sprintf("%q cannot be the name of a git ref, %s", name, Ref(name)),
			"leave out .. and a dot or .lock at the end")
	}
	return nil
}

// CheckRun refuses runs that cannot be pushed to.
func CheckRun(d *runfile.Definition) error {
	if d.Workspace != nil {
		return refuse(nil, fmt.Sprintf("run %q has a workspace block, and push makes a workspace of its own", d.Instance),
			"leave the block out: the command starts in a clone of the branch")
	}
	return nil
}

// Make makes the sandbox of d, and puts w into it. What goes wrong leaves nothing behind, but what gc finishes. It
// returns the record of the sandbox, in which nothing runs yet. progress gets each step.
func Make(ctx context.Context, m *sandbox.Manager, d *runfile.Definition, w *Work, name string,
	progress func(step string)) (_ *store.SandboxInfo, err error) {
	p, err := whole(ctx, w, w.Depth) // goes on while the sandbox is made
	if err != nil {
		return nil, err
	}
	defer p.close()
	info, err := m.Create(ctx, d, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Remove(context.WithoutCancel(ctx), info.ID, true))
		}
	}()
	sb, err := m.Open(ctx, info.ID, sandbox.Exclusive)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	if !sb.Facts().Has(sdk.CapPut) || !sb.Facts().Has(sdk.CapGet) || !sb.Facts().Has(sdk.CapRemove) {
		return nil, refuse(nil, fmt.Sprintf("backend %q cannot put files into a sandbox and take them out", info.Backend),
			"use another backend: hutch backend list")
	}
	s := newSending(sb, w, progress)
	s.setWorkdir(d.Workdir)
	s.push.Timeout = cmp.Or(time.Duration(d.Limits.Timeout), DefaultTimeout)
	if err := s.first(ctx, p); err != nil {
		return nil, err
	}
	return &sb.Record, s.record()
}

// Again sends w into the sandbox that ref means, which an earlier push made, and where nothing runs: only what is new
// since then, where the clone there still has what it was sent. The clone is moved forward as pull moves the branch, or
// not at all.
func Again(ctx context.Context, m *sandbox.Manager, ref string, w *Work, timeout time.Duration,
	progress func(step string)) (_ *store.SandboxInfo, err error) {
	sb, err := m.Open(ctx, ref, sandbox.Exclusive)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	old := sb.Record.Push
	if old == nil {
		return nil, NotPushed(sb.Record)
	}
	if old.Repository != w.Repo.Dir || old.Branch != w.Branch {
		return nil, refuse(nil, fmt.Sprintf("the sandbox %s is for the branch %s of %s, and this is the branch %s of %s",
			sb.Record.Name, old.Branch, old.Repository, w.Branch, w.Repo.Dir),
			"go there and check that branch out, or push without --into, which makes another sandbox")
	}
	s := newSending(sb, w, progress)
	s.push.Workdir, s.push.Timeout = old.Workdir, cmp.Or(timeout, old.Timeout)
	if err := s.again(ctx, old); err != nil {
		return nil, err
	}
	return &sb.Record, s.record()
}

// NotPushed is the refusal for a sandbox that push did not make.
func NotPushed(i store.SandboxInfo) error {
	return refuse(nil, fmt.Sprintf("sandbox %s was not made by hutch push", i.Name),
		"hutch ps lists sandboxes; hutch diff and hutch apply are for those with a workspace of yours")
}

// Run runs the command of the run file on what was pushed into the sandbox that ref means, and then hands in what it
// committed, if it has not done so itself. begun is notified of the sandbox, with the id of the run in it, as soon as
// the run's record is on disk. When ctx ends, the command is stopped, the sandbox stays, and nothing is handed in: pull
// does that.
func Run(ctx context.Context, m *sandbox.Manager, st *store.Store, ref string, streams run.Streams,
	begun func(store.SandboxInfo)) (*result.Result, Outcome, error) {
	info, err := begin(ctx, m, st, ref)
	if err != nil {
		return nil, Outcome{}, err
	}
	sb, err := m.Open(ctx, info.ID, sandbox.Shared)
	if err != nil {
		return nil, Outcome{}, err
	}
	defer func() { _ = sb.Close() }()
	c := command(info.Push)
	c.Begun = func() { begun(info) }
	r, err := sb.Run(ctx, c, streams)
	if err != nil || ctx.Err() != nil {
		return r, Outcome{}, err
	}
	if now, err := st.FindSandbox(info.ID); err != nil || now.State != store.SandboxReady {
		return r, Outcome{}, nil // the command ended because somebody removes the sandbox: nothing may begin in it any more
	}
	o, err := HandIn(ctx, sb, info.Push)
	return r, o, err
}

// begin notes that a command is about to run on a push, and returns the record with the id of its run. Nothing else may
// be running in the sandbox then. A bundle that was handed in and not fetched is dropped: the next one will hold its
// commits too.
func begin(ctx context.Context, m *sandbox.Manager, st *store.Store, ref string) (info store.SandboxInfo, err error) {
	sb, err := m.Open(ctx, ref, sandbox.Exclusive)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	if sb.Record.Push == nil {
		return info, NotPushed(sb.Record)
	}
	if err := exchangeOf(sb.Sandbox).Drop(ctx); err != nil {
		return info, err
	}
	p := *sb.Record.Push
	if p.Run != "" { // what was sent may be gone with a pull
		if err := restore(ctx, sb); err != nil {
			return info, err
		}
	}
	p.Run = st.NewID()
	err = sb.SetPush(&p)
	return sb.Record, err
}

// command is the command of the run file, on what was pushed, as the run that begin has named.
func command(p *store.SandboxPush) sandbox.Command {
	c := sandbox.Command{ID: p.Run, Env: environment(p), Workdir: p.Workdir, Timeout: p.Timeout}
	if c.Workdir == "" {
		c.Workdir = p.Clone
	}
	return c
}

// A detached command is kept by a supervisor: the same program once more, in its own session, with nothing of the
// caller's terminal. It writes the record of the run as any other host process does, so that `hutch logs -f`, `hutch
// runs` and `hutch pull` know no difference.

// supervisorLog is the file beside the backend's own with what the supervisor itself had to say. It goes with the
// sandbox.
const supervisorLog = ".hutch-supervisor.log"

// reportFD is where the supervisor says how it began.
const reportFD = 3

// report is what the supervisor sends: the run, or an error.
type report struct {
	Run   string   `json:"run,omitempty"`
	Error string   `json:"error,omitempty"`
	Hints []string `json:"hints,omitempty"`
}

// Detach starts a supervisor for the sandbox, as the program exe with args and the sandbox's id behind them, and
// returns the id of the run once its record is on disk.
func Detach(ctx context.Context, st *store.Store, id, exe string, args ...string) (string, error) {
	logName := filepath.Join(st.Paths().SandboxState(id), supervisorLog)
	log, err := os.OpenFile(logName, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd := exec.Command(exe, append(args, id)...) // which must outlive ctx
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(cmd.Start(), w.Close())
	if err != nil {
		return "", fmt.Errorf("start the supervisor: %w", err)
	}
	line := make(chan []byte, 1)
	go func() {
		b, _ := bufio.NewReader(io.LimitReader(r, 1<<20)).ReadBytes('\n')
		line <- b
	}()
	var said report
	select {
	case b := <-line:
		if json.Unmarshal(b, &said) != nil {
			return "", errors.Join(fmt.Errorf("the supervisor ended before it had begun: %s", lastOf(logName)), cmd.Wait())
		}
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return "", errors.Join(context.Cause(ctx), cmd.Wait())
	}
	if said.Error != "" {
		_ = cmd.Wait()
		return "", refuse(nil, termsafe.String(said.Error), said.Hints...)
	}
	return said.Run, cmd.Process.Release()
}

// lastOf is the last line of a log.
func lastOf(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return termsafe.Line(lines[len(lines)-1])
}

// Supervise is what the supervisor does: [Run], with nobody watching.
func Supervise(ctx context.Context, m *sandbox.Manager, st *store.Store, id string) error {
	to := os.NewFile(reportFD, "report")
	if to == nil {
		return errors.New("a supervisor is started by hutch push --detach")
	}
	syscall.CloseOnExec(reportFD)
	reported := false
	tell := func(r report) {
		if reported {
			return
		}
		reported = true
		_ = json.NewEncoder(to).Encode(r) // the caller may be gone
		_ = to.Close()
	}
	_, _, err := Run(ctx, m, st, id, run.Streams{}, func(i store.SandboxInfo) { tell(report{Run: i.Push.Run}) })
	if err != nil {
		r := report{Error: err.Error()}
		var why *Refusal
		if errors.As(err, &why) {
			r.Hints = why.Hints
		}
		tell(r)
	}
	return err
}
