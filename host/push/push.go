package push

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/git/bundle"
	"github.com/hutch-run/hutch/host/instructions"
	"github.com/hutch-run/hutch/host/review"
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

// Make makes the sandbox of d, and puts w into it. What goes wrong leaves nothing behind, but what gc finishes. It returns the
// record of the sandbox, in which nothing runs yet. progress is told what is being done.
func Make(ctx context.Context, m *sandbox.Manager, d *runfile.Definition, w *Work, name string, progress func(step string)) (_ *store.SandboxInfo, err error) {
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
	p, err := send(ctx, sb, w, d.Workdir, progress)
	if err != nil {
		return nil, err
	}
	p.Timeout = cmp.Or(d.Limits.Timeout, DefaultTimeout)
	if err := saveBase(sb, w.base); err != nil {
		return nil, err
	}
	if err := sb.SetPush(p); err != nil {
		return nil, err
	}
	err = sb.Changed(EventPush, map[string]any{"repository": p.Repository, "branch": p.Branch, "head": p.Head, "base": p.Base, "plan": p.Plan})
	return &sb.Record, err
}

// send brings the branch and the plan in.
func send(ctx context.Context, sb *sandbox.Sandbox, w *Work, workdir string, progress func(string)) (*store.SandboxPush, error) {
	x := exchangeOf(sb.Sandbox)
	p := &store.SandboxPush{
		Repository: w.Repo.Dir, Branch: w.Branch, Head: w.Head, Base: w.Commit, Plan: w.Plan, Exchange: x.Dir, Clone: cloneIn(sb),
	}
	p.PlanPath = path.Join(p.Clone, p.Plan)
	if !w.PlanIn {
		p.PlanPath = path.Join(x.Dir, planDir, path.Base(p.Plan))
	}
	switch {
	case workdir == "":
	case path.IsAbs(workdir):
		p.Workdir = workdir
	default:
		p.Workdir = path.Join(p.Clone, workdir)
	}
	progress("looking for git in the sandbox")
	code, _, said, err := script(ctx, sb.Sandbox, probeScript, path.Join(x.Dir, planDir))
	switch {
	case err != nil:
		return nil, err
	case code == codeNoGit:
		return nil, refuse(nil, "the sandbox has no git", "use an image, or a machine, with git in it")
	case code != 0:
		return nil, fmt.Errorf("make %s in the sandbox: %s (code %d)", x.Dir, said, code)
	}
	progress("sending the branch " + w.Branch)
	if err := x.in(ctx, inputBundle, func(to io.Writer) error { return bundle.Write(ctx, w.Repo, w.Commit, w.Branch, to) }); err != nil {
		return nil, fmt.Errorf("send the bundle: %w", err)
	}
	if !w.PlanIn {
		if err := x.in(ctx, path.Join(planDir, path.Base(p.Plan)), func(to io.Writer) error { return copyPlan(to, w) }); err != nil {
			return nil, fmt.Errorf("send the plan: %w", err)
		}
	}
	err = x.in(ctx, instructionsName, func(to io.Writer) error {
		_, err := to.Write(instructions.ExecutingPlans)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("send the instructions: %w", err)
	}
	progress("cloning")
	code, _, said, err = script(ctx, sb.Sandbox, cloneScript, path.Join(x.Dir, inputBundle), w.Branch, p.Clone, w.Name, w.Email, w.Commit)
	if err == nil && code != 0 {
		err = fmt.Errorf("clone in the sandbox: %s (code %d)", said, code)
	}
	return p, err
}

// cloneIn is the directory of the clone. Where a backend gives each sandbox a workspace that is called as the sandbox is, that
// is it; elsewhere the workspace is /workspace for all, may hold directories of hutch, and the clone is one in it.
func cloneIn(sb *sandbox.Sandbox) string {
	ws, out := sb.Ready().Workspace, sb.Ready().Output
	if path.Base(ws) == sb.Record.ID && !strings.HasPrefix(out, ws+"/") && sb.Ready().Exchange != nil {
		return ws
	}
	return path.Join(ws, sb.Record.Name)
}

func copyPlan(to io.Writer, w *Work) error {
	f, err := os.Open(filepath.Join(w.Repo.Dir, filepath.FromSlash(w.Plan)))
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(to, io.LimitReader(f, MaxPlan+1))
	if err == nil && n > MaxPlan {
		err = errors.New("it has grown")
	}
	return err
}

// saveBase keeps what the work tree looked like, for hutch diff and hutch apply.
func saveBase(sb *sandbox.Sandbox, b *review.Base) (err error) {
	f, err := os.OpenFile(sb.Base+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Save(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return sb.PlaceBase()
}

// NotPushed is the refusal for a sandbox that push did not make.
func NotPushed(i store.SandboxInfo) error {
	return refuse(nil, fmt.Sprintf("sandbox %s was not made by hutch push", i.Name), "hutch ps lists sandboxes; hutch diff and hutch apply are for those with a workspace of yours")
}
