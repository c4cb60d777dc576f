package push

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/instructions"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
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
		return refuse(nil, fmt.Sprintf("%q cannot be the name of a git ref, %s", name, Ref(name)), "leave out .. and a dot or .lock at the end")
	}
	return nil
}

// CheckRun refuses runs that cannot be pushed to.
func CheckRun(d *runfile.Definition) error {
	if d.Workspace != nil {
		return refuse(nil, fmt.Sprintf("run %q has a workspace block, and push makes a workspace of its own", d.Instance), "leave the block out: the command starts in a clone of the branch")
	}
	return nil
}

// Make makes the sandbox of d, and puts w into it. What goes wrong leaves nothing behind, but what gc finishes. It
// returns the record of the sandbox, in which nothing runs yet. progress is told what is being done.
func Make(ctx context.Context, m *sandbox.Manager, d *runfile.Definition, w *Work, name string, progress func(step string)) (_ *store.SandboxInfo, err error) {
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
		return nil, refuse(nil, fmt.Sprintf("backend %q cannot put files into a sandbox and take them out", info.Backend), "use another backend: hutch backend list")
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
func Again(ctx context.Context, m *sandbox.Manager, ref string, w *Work, timeout time.Duration, progress func(step string)) (_ *store.SandboxInfo, err error) {
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
		return nil, refuse(nil, fmt.Sprintf("the sandbox %s is for the branch %s of %s, and this is the branch %s of %s", sb.Record.Name, old.Branch, old.Repository, w.Branch, w.Repo.Dir),
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
	return refuse(nil, fmt.Sprintf("sandbox %s was not made by hutch push", i.Name), "hutch ps lists sandboxes; hutch diff and hutch apply are for those with a workspace of yours")
}
