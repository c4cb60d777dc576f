package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// Refusal says why something is not done, and what the user can do.
type Refusal struct {
	Summary string
	Hints   []string
	Err     error // underneath; may be nil
}

// Error implements error.
func (r *Refusal) Error() string { return r.Summary }

// Unwrap returns what is underneath.
func (r *Refusal) Unwrap() error { return r.Err }

func refuse(err error, summary string, hints ...string) *Refusal {
	return &Refusal{Summary: summary, Hints: hints, Err: err}
}

// Request is what the user asks for.
type Request struct {
	Dir  string // where the user is: in a repository
	Plan string // path of the plan, relative to Dir or absolute
	// AllowDirty leaves out what is not committed; IncludeUncommitted sends it along, in a commit that no branch of the
	// user ever has. One of them, or neither.
	AllowDirty, IncludeUncommitted bool
	Depth                          int // how many commits of the history are sent, one behind the other; 0 for all
}

// Work is what is sent.
type Work struct {
	Repo        *git.Repo
	Branch      string
	Head        string // commit of the branch
	Commit      string // what is sent: Head, or a commit on top of it
	Depth       int    // as in the request
	Plan        string // relative to the work tree
	PlanIn      bool   // Commit has the plan as it is on disk
	Left        []git.Dirty
	Name, Email string // of the user, for commits; may be empty

	planText []byte       // of a plan that Commit does not have as it is; else nil
	base     *review.Base // what the work tree looked like, where it is what Commit holds
}

// MaxPlan is how large a plan may be, in bytes.
const MaxPlan = 16 << 20

// Prepare checks all that can be checked before there is a sandbox. What stands against it is a [*Refusal]. With
// IncludeUncommitted it makes the commit.
func Prepare(ctx context.Context, r Request) (*Work, error) {
	w := &Work{Depth: r.Depth}
	var err error
	switch w.Repo, err = git.Open(ctx, r.Dir); {
	case errors.Is(err, git.ErrMissing):
		return nil, refuse(err, "git is not installed on this host", "install git, for example: apt install git")
	case errors.Is(err, git.ErrNoRepository):
		return nil, refuse(err, err.Error(), "push sends a branch: go into the repository, or make one with git init")
	case err != nil:
		return nil, err
	}
	switch w.Branch, w.Head, err = w.Repo.Branch(ctx); {
	case errors.Is(err, git.ErrDetached):
		return nil, refuse(err, err.Error()+" in "+w.Repo.Dir, "git switch -c NAME makes one here")
	case errors.Is(err, git.ErrUnborn):
		return nil, refuse(err, fmt.Sprintf("the branch %s has no commit yet", w.Branch), "commit something first")
	case err != nil:
		return nil, err
	}
	if err := w.plan(r); err != nil {
		return nil, err
	}
	// Looked at before git compares it: what is changed in between counts as touched since.
	base, err := review.TakeBase(ctx, w.Repo.Dir)
	if err != nil {
		return nil, err
	}
	dirty, err := w.Repo.Status(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(dirty, git.Dirty.Conflicted); i >= 0 {
		return nil, refuse(nil, fmt.Sprintf("%s is in conflict: a merge or rebase is not finished",
			review.Quote(dirty[i].Path)), "finish it, or git merge --abort")
	}
	w.Commit = w.Head
	changed := slices.ContainsFunc(dirty, func(d git.Dirty) bool { return d.Path == w.Plan })
	if w.PlanIn, err = w.Repo.Has(ctx, w.Head, w.Plan); err != nil {
		return nil, err
	}
	w.PlanIn = w.PlanIn && !changed
	// The plan is sent anyway, so it alone is nothing that would be left out.
	w.Left = slices.DeleteFunc(dirty, func(d git.Dirty) bool { return d.Path == w.Plan })
	switch {
	case r.IncludeUncommitted && (len(w.Left) > 0 || changed):
		if w.Commit, err = w.Repo.Snapshot(ctx, w.Head,
			"uncommitted changes\n\nThe work tree as it was when hutch push sent it."); err != nil {
			return nil, err
		}
		if w.PlanIn, err = w.Repo.Has(ctx, w.Commit, w.Plan); err != nil {
			return nil, err
		}
		w.Left = nil
	case len(w.Left) > 0 && !r.AllowDirty:
		return nil, refuse(nil, "the work tree is not clean; this would be left out:\n"+List(w.Left),
			"commit it, or --include-uncommitted sends it along, or --allow-dirty leaves it out")
	}
	if w.Commit == w.Head {
		differ := map[string]overlay.Entry{} // what stands there counts as changed in the project
		for _, d := range dirty {
			differ[d.Path] = overlay.Entry{}
		}
		base = base.With(differ)
	}
	w.base = base
	if !w.PlanIn {
		if w.planText, err = readPlan(w.Repo.Dir, w.Plan); err != nil {
			return nil, err
		}
	}
	w.Name, w.Email, err = w.Repo.Identity(ctx)
	return w, err
}

// plan finds the plan, which has to be a file of the repository.
func (w *Work) plan(r Request) error {
	at := r.Plan
	if !filepath.IsAbs(at) {
		at = filepath.Join(r.Dir, at)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(at))
	if err != nil {
		return refuse(err, fmt.Sprintf("there is no plan %s", r.Plan))
	}
	at = filepath.Join(dir, filepath.Base(at))
	st, err := os.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse(err, fmt.Sprintf("there is no plan %s", r.Plan))
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return refuse(nil, fmt.Sprintf("the plan %s is not a file", r.Plan))
	case st.Size() > MaxPlan:
		return refuse(nil, fmt.Sprintf("the plan %s is larger than %d MiB", r.Plan, MaxPlan>>20))
	}
	top, err := filepath.EvalSymlinks(w.Repo.Dir)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(top, at)
	if err != nil || !filepath.IsLocal(rel) || rel == "." || judge.GitPath(filepath.ToSlash(rel)) {
		return refuse(err, fmt.Sprintf("the plan %s is not inside the repository %s", r.Plan, w.Repo.Dir), "copy it there")
	}
	w.Plan = filepath.ToSlash(rel)
	return nil
}

// readPlan reads the plan as it is on disk.
func readPlan(dir, plan string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(plan)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxPlan+1))
	if err == nil && len(text) > MaxPlan {
		err = fmt.Errorf("the plan %s has grown beyond %d MiB", plan, MaxPlan>>20)
	}
	return text, err
}

// mostListed is how many paths a message names.
const mostListed = 10

// List names paths, one a line, for a person.
func List(l []git.Dirty) string {
	var b strings.Builder
	for i, d := range l {
		if i == mostListed {
			fmt.Fprintf(&b, "  and %d more", len(l)-i)
			break
		}
		fmt.Fprintf(&b, "  %s %s\n", d.State, review.Quote(d.Path))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
