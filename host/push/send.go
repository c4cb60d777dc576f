package push

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/git/bundle"
	"github.com/hutch-run/hutch/host/instructions"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
)

// sending is one work on its way into one sandbox.
type sending struct {
	sb       *sandbox.Sandbox
	x        *Exchange
	w        *Work
	push     *store.SandboxPush // what becomes the record
	progress func(step string)
}

func newSending(sb *sandbox.Sandbox, w *Work, progress func(string)) *sending {
	s := &sending{sb: sb, x: exchangeOf(sb.Sandbox), w: w, progress: progress}
	s.push = &store.SandboxPush{
		Repository: w.Repo.Dir, Branch: w.Branch, Head: w.Head, Base: w.Commit, Plan: w.Plan, Exchange: s.x.Dir,
		Clone: cloneIn(sb),
	}
	s.push.PlanPath = path.Join(s.push.Clone, w.Plan)
	if !w.PlanIn {
		s.push.PlanPath = path.Join(s.x.Dir, planDir, path.Base(w.Plan))
	}
	return s
}

// cloneIn is the directory of the clone. Where a backend gives each sandbox a workspace that is called as the sandbox
// is, that is it; elsewhere the workspace is /workspace for all, may hold directories of hutch, and the clone is one in
// it.
func cloneIn(sb *sandbox.Sandbox) string {
	ws, out := sb.Ready().Workspace, sb.Ready().Output
	if path.Base(ws) == sb.Record.ID && !strings.HasPrefix(out, ws+"/") && sb.Ready().Exchange != nil {
		return ws
	}
	return path.Join(ws, sb.Record.Name)
}

// setWorkdir says where the command starts: below the clone, unless it is absolute.
func (s *sending) setWorkdir(dir string) {
	switch {
	case dir == "":
	case path.IsAbs(dir):
		s.push.Workdir = dir
	default:
		s.push.Workdir = path.Join(s.push.Clone, dir)
	}
}

// first sends into a sandbox that has nothing yet.
func (s *sending) first(ctx context.Context, p *packing) error {
	if err := s.put(ctx, p); err != nil {
		return err
	}
	s.progress("cloning")
	code, _, said, err := script(ctx, s.sb.Sandbox, cloneScript, s.in(inputBundle), s.w.Branch, s.push.Clone, s.w.Name,
		s.w.Email, s.w.Commit, s.ends(p), s.w.Repo.Format)
	switch {
	case err != nil:
		return err
	case code == codeNoGit:
		return noGit()
	case code != 0:
		return fmt.Errorf("clone in the sandbox: %s (code %d)", said, code)
	}
	return nil
}

// noGit is the refusal for a sandbox without git.
func noGit() error {
	return refuse(nil, "the sandbox has no git", "use an image, or a machine, with git in it")
}

// again sends what is new since old was sent.
func (s *sending) again(ctx context.Context, old *store.SandboxPush) error {
	if forward, err := ancestor(ctx, s.w.Repo, old.Base, s.w.Commit); err != nil {
		return err
	} else if !forward {
		name := s.sb.Record.Name
		return refuse(nil, fmt.Sprintf("the branch %s does not build on %.12s, which was sent into %s", s.w.Branch, old.Base,
			name),
			fmt.Sprintf("hutch pull %s brings what was committed there; a push without --into makes another sandbox", name))
	}
	have, err := s.known(ctx, old)
	if err != nil {
		return err
	}
	var p *packing
	in := ""
	if have != s.w.Commit {
		if p, err = pack(ctx, s.w, bundle.Part{Have: []string{have}}); err != nil {
			return err
		}
		defer p.close()
		in = s.in(inputBundle)
	}
	if err := s.put(ctx, p); err != nil {
		return err
	}
	return s.forward(ctx, in)
}

// known is the newest commit that the clone has, as far as this host knows: what was pulled from it, or what it was
// sent.
func (s *sending) known(ctx context.Context, old *store.SandboxPush) (string, error) {
	pulled, err := s.w.Repo.Commit(ctx, Ref(s.sb.Record.Name))
	var none *git.Error
	switch {
	case errors.As(err, &none):
		return old.Base, nil
	case err != nil:
		return "", err
	}
	for _, pair := range [][2]string{{old.Base, pulled}, {pulled, s.w.Commit}} {
		if in, err := ancestor(ctx, s.w.Repo, pair[0], pair[1]); err != nil || !in {
			return old.Base, err
		}
	}
	return pulled, nil
}

// ancestor is [git.Repo.Ancestor], and false where a commit is not there any more.
func ancestor(ctx context.Context, r *git.Repo, a, b string) (bool, error) {
	in, err := r.Ancestor(ctx, a, b)
	var gone *git.Error
	if errors.As(err, &gone) {
		return false, nil
	}
	return in, err
}

// forward moves the clone to the commit that is sent, in the bundle in unless that is "".
func (s *sending) forward(ctx context.Context, in string) error {
	s.progress("moving the clone forward")
	code, _, said, err := script(ctx, s.sb.Sandbox, forwardScript, in, s.w.Branch, s.push.Clone, s.w.Commit)
	if err != nil {
		return err
	}
	name := s.sb.Record.Name
	goIn := fmt.Sprintf("hutch exec -it -w %s %s -- sh goes in", s.push.Clone, name)
	switch code {
	case 0:
		return nil
	case codeNoGit:
		return noGit()
	case codeNoClone:
		return goneError(s.push.Clone, said)
	case codeLacks:
		return refuse(nil, fmt.Sprintf("the clone %s does not take the bundle, or lost what it was sent: %s", s.push.Clone,
			said), "a push without --into makes another sandbox; "+goIn)
	case codeElsewhere:
		return refuse(nil, fmt.Sprintf("the branch %s is not checked out in the clone %s", s.w.Branch, s.push.Clone),
			fmt.Sprintf("git switch %s there; %s", s.w.Branch, goIn))
	case codeAhead:
		return refuse(nil, fmt.Sprintf("the clone %s has commits that the branch %s does not have", s.push.Clone,
			s.w.Branch), fmt.Sprintf("hutch pull %s brings them", name))
	case codeInTheWay:
		return refuse(nil, fmt.Sprintf("what is not committed in the clone %s stands in the way: %s", s.push.Clone, said),
			"commit it there, or throw it away; "+goIn)
	}
	return fmt.Errorf("move the clone in the sandbox forward: %s (code %d)", said, code)
}

// in is the path of a file of the exchange, as commands see it.
func (s *sending) in(name string) string { return path.Join(s.x.Dir, name) }

// ends is the path of the file with the ends of the history; "" where there are none.
func (s *sending) ends(p *packing) string {
	if len(p.ends) == 0 {
		return ""
	}
	return s.in(inputShallow)
}

// put puts in what is beside the branch, and then the branch as p, unless that is nil.
func (s *sending) put(ctx context.Context, p *packing) error {
	s.progress("sending the branch " + s.w.Branch)
	files := beside(s.w.Plan, s.w.planText)
	if p != nil && len(p.ends) > 0 {
		files = append(files, file{inputShallow, []byte(strings.Join(p.ends, "\n") + "\n")})
	}
	if err := s.x.files(ctx, files); err != nil {
		return fmt.Errorf("send the plan and the instructions: %w", err)
	}
	s.push.Sent = 0
	if p == nil {
		return nil
	}
	if err := s.x.in(ctx, inputBundle, p); err != nil {
		return fmt.Errorf("send the bundle: %w", err)
	}
	s.push.Sent = p.sent
	return nil
}

// beside are the files that a command finds beside the clone: the instructions, and a plan that the branch does not
// have as it is, unless text is nil.
func beside(plan string, text []byte) []file {
	files := []file{{instructionsName, instructions.ExecutingPlans}}
	if text != nil {
		files = append(files, file{path.Join(planDir, path.Base(plan)), text})
	}
	return files
}

// record writes down what was sent.
func (s *sending) record() error {
	if err := errors.Join(s.sb.SaveBase(s.w.base.Save), savePlan(s.sb, s.w.planText)); err != nil {
		return err
	}
	if err := s.sb.SetPush(s.push); err != nil {
		return err
	}
	p := s.push
	return s.sb.Changed(EventPush, map[string]any{"repository": p.Repository, "branch": p.Branch, "head": p.Head,
		"base": p.Base, "plan": p.Plan, "sent": p.Sent})
}

// planCopy is the file in the sandbox's state with a plan that the branch does not have: a pull removes the exchange,
// and the command may run again.
const planCopy = ".hutch-plan"

// savePlan keeps the plan, which may be nil.
func savePlan(sb *sandbox.Sandbox, text []byte) error {
	name := filepath.Join(sb.State, planCopy)
	if text == nil {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return os.WriteFile(name, text, 0o600)
}

// restore puts in once more what the pull has removed that came after the command ran last.
func restore(ctx context.Context, sb *sandbox.Sandbox) error {
	text, err := os.ReadFile(filepath.Join(sb.State, planCopy))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := exchangeOf(sb.Sandbox).files(ctx, beside(sb.Record.Push.Plan, text)); err != nil {
		return fmt.Errorf("send the plan and the instructions: %w", err)
	}
	return nil
}
