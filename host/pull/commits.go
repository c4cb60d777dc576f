package pull

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/git/bundle"
	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/push"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// A private workspace over a repository has commits in a layer over its .git. They come back as those of a push do: the
// sandbox makes a bundle, of what it has on top of a commit of this repository, and the bundle is checked.

// Waiting is what was committed in a private workspace and is not in its project.
type Waiting struct {
	Branch  string   `json:"branch"`  // of the project, that is checked out
	Commits []string `json:"commits"` // abbreviated name and subject, escaped, newest first, at most [MaxWaiting]
	More    int      `json:"more,omitempty"`
}

// MaxWaiting is how many commits [Commits] names.
const MaxWaiting = 20

const (
	// waitingScript prints what the commits have in common with a commit of the project, how many paths are in no commit,
	// how many commits there are on top, and the last of them.
	waitingScript = `command -v git >/dev/null 2>&1 || exit 27
git rev-parse --verify --quiet HEAD >/dev/null || exit 29
git merge-base HEAD "$1" || exit 28
git status --porcelain 2>/dev/null | wc -l
git rev-list --count "$1..HEAD"
git --no-pager log --no-color --no-show-signature --format='%h %s' -n "$2" "$1..HEAD"`
	bundleOutScript = `exec git bundle create --quiet - "$1..HEAD"`

	gitTime = 10 * time.Minute // of a script, on a big repository
)

// errNoCommits says that the project or the workspace has no commits that could be compared.
var errNoCommits = errors.New("the workspace is not that of a repository with commits")

// Commits says what waits in the sandbox that ref means; nil where nothing does.
func Commits(ctx context.Context, m *sandbox.Manager, ref string) (*Waiting, error) {
	p := &puller{m: m}
	w, err := p.look(ctx, ref)
	if p.sb != nil {
		defer func() { _ = p.sb.Close() }()
	}
	if errors.Is(err, errNoCommits) || errors.Is(err, git.ErrDetached) || err == nil && len(w.Commits) == 0 {
		return nil, nil
	}
	return w, err
}

// look asks the sandbox for its commits. p.sb is open afterwards, also with some errors.
func (p *puller) look(ctx context.Context, ref string) (_ *Waiting, err error) {
	if p.sb, err = p.m.Open(ctx, ref, sandbox.Shared); err != nil {
		return nil, err
	}
	p.info = p.sb.Record
	of := p.info.Workspace
	if of.Source == "" || of.Mode != string(sdk.WorkspacePrivate) {
		return nil, push.NotPushed(p.info)
	}
	p.repo, err = git.Open(ctx, of.Source)
	if errors.Is(err, git.ErrNoRepository) || err == nil && !sameDir(p.repo.Dir, of.Source) {
		return nil, errNoCommits
	} else if err != nil {
		return nil, err
	}
	branch, head, err := p.repo.Branch(ctx)
	if errors.Is(err, git.ErrUnborn) {
		return nil, errNoCommits
	} else if err != nil {
		return nil, err
	}
	text := keep.Head{Max: 64 << 10}
	code, err := p.script(ctx, &text, waitingScript, head, fmt.Sprint(MaxWaiting))
	switch {
	case err != nil:
		return nil, err
	case code != 0:
		return nil, errNoCommits
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) < 3 {
		return nil, fmt.Errorf("git in the sandbox says %q", termsafe.Line(text.String()))
	}
	// The sandbox may say anything. What it builds on has to be a commit that the branch has.
	base, err := p.repo.Commit(ctx, strings.TrimSpace(lines[0]))
	if err != nil {
		return nil, errNoCommits
	}
	if there, err := p.repo.Ancestor(ctx, base, head); err != nil || !there {
		return nil, errors.Join(errNoCommits, err)
	}
	p.push = &store.SandboxPush{Repository: p.repo.Dir, Branch: branch, Head: base, Base: base,
		Clone: p.sb.Ready().Workspace}
	p.out = Pulled{Sandbox: p.info.Name, Repository: p.repo.Dir, Branch: branch, Ref: push.Ref(p.info.Name)}
	w, count := &Waiting{Branch: branch}, 0
	_, _ = fmt.Sscan(lines[1], &p.out.Uncommitted)
	_, _ = fmt.Sscan(lines[2], &count)
	for _, line := range lines[3:] {
		w.Commits = append(w.Commits, termsafe.Line(line))
	}
	w.Commits = w.Commits[:min(len(w.Commits), MaxWaiting)]
	w.More = max(0, count-len(w.Commits))
	return w, nil
}

func sameDir(a, b string) bool {
	real, err := filepath.EvalSymlinks(b)
	return err == nil && a == real
}

// script runs a shell in the workspace. What git says there besides is not shown.
func (p *puller) script(ctx context.Context, out *keep.Head, text string, args ...string) (int, error) {
	exit, err := p.sb.Exec(ctx, &client.Command{
		Argv: append([]string{"sh", "-c", text, "sh"}, args...), Env: gitEnv(p.sb.Ready().Workspace),
		Dir: p.sb.Ready().Workspace, Stdout: out, Timeout: gitTime,
	})
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return 0, cause
	case err != nil:
		return 0, err
	case exit.Cause != sdk.CauseExited:
		return 0, fmt.Errorf("git in the sandbox ended with %s: %s", exit.Cause, termsafe.Line(exit.Evidence))
	}
	return exit.Code, nil
}

// gitEnv lets git work in a directory whose owner is another one, as in a user namespace.
func gitEnv(dir string) map[string]string {
	return map[string]string{"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": dir}
}

// pullWorkspace brings the commits of a private workspace.
func pullWorkspace(ctx context.Context, m *sandbox.Manager, ref string, o Options) (*Pulled, error) {
	p := &puller{m: m, o: o}
	w, err := p.look(ctx, ref)
	if p.sb != nil {
		defer func() { _ = p.sb.Close() }()
	}
	switch {
	case errors.Is(err, errNoCommits):
		return nil,
			&push.Refusal{Summary: fmt.Sprintf("there is nothing to pull: %s and its project have no commit in common",
				p.info.Name), Hints: []string{
				fmt.Sprintf("hutch diff %s and hutch apply %[1]s are for the files", p.info.Name)}, Err: err}
	case err != nil:
		return nil, err
	case len(w.Commits) == 0:
		return nil, &push.Refusal{Summary: fmt.Sprintf("there is nothing to pull: no commit was made in %s", p.info.Name),
			Hints: []string{
				fmt.Sprintf("hutch diff %s and hutch apply %[1]s are for what is in no commit", p.info.Name)}}
	}
	f, err := p.bundle(ctx)
	if err != nil {
		return nil, err
	}
	return p.bring(ctx, f)
}

// bundle has the sandbox write its commits into a file that is nobody else's.
func (p *puller) bundle(ctx context.Context) (f *os.File, err error) {
	if f, err = os.OpenFile(store.TempName("pull"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	errs := keep.Head{Max: 4 << 10}
	limit := &keep.Limit{W: f, Max: p.o.Caps.MaxBytes()}
	exit, err := p.sb.Exec(ctx, &client.Command{
		Argv: []string{"sh", "-c", bundleOutScript, "sh", p.push.Base}, Env: gitEnv(p.push.Clone), Dir: p.push.Clone,
		Stdout: limit, Stderr: &errs, Timeout: gitTime,
	})
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return nil, cause
	case err != nil:
		return nil, fmt.Errorf("make the bundle in the sandbox: %w", err)
	case exit.Cause != sdk.CauseExited || exit.Code != 0:
		return nil, &push.Refusal{Summary: fmt.Sprintf("the sandbox %s makes no bundle of its commits: %s", p.info.Name,
			termsafe.Line(errs.String()))}
	}
	return f, nil
}

// refusedWorkspace says what can be done with commits of a private workspace that are refused.
func (p *puller) refusedWorkspace(err error) error {
	e := &push.Refusal{Summary: err.Error(), Err: err,
		Hints: []string{fmt.Sprintf("nothing in %s changed, and the commits stay in the sandbox %s", p.push.Repository,
			p.info.Name)}}
	if errors.Is(err, bundle.ErrLargeFile) {
		e.Hints = append(e.Hints, "hutch pull --max-file SIZE "+p.info.Name+" takes larger files")
	}
	e.Hints = append(e.Hints, fmt.Sprintf("hutch diff %s and hutch apply %[1]s take the files instead", p.info.Name))
	return e
}
