package push

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/keep"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// What hutch itself runs in a sandbox. Each is one shell, because starting a command may cost a tenth of a second on
// some backends; values come as its arguments, and nothing is put together by the shell.
const (
	// clone makes the clone, with the user's name for commits, and proves that it is at the commit that was sent. git
	// clone takes no bundle whose history is cut off: git has to know the ends of it before.
	cloneScript = `command -v git >/dev/null 2>&1 || exit 27
set -eu
if [ -z "$7" ]; then
	git clone --quiet --no-hardlinks ${4:+-c "user.name=$4"} ${5:+-c "user.email=$5"} --branch "$2" -- "$1" "$3"
	cd -- "$3"
else
	if [ "$8" = sha1 ]; then git init --quiet -- "$3"; else git init --quiet --object-format="$8" -- "$3"; fi
	cd -- "$3"
	git symbolic-ref HEAD "refs/heads/$2"
	cat -- "$7" > .git/shallow
	git remote add origin "$1"
	git fetch --quiet --no-tags origin
	git checkout --quiet -B "$2" --track "origin/$2"
	if [ -n "$4" ]; then git config -- user.name "$4"; fi
	if [ -n "$5" ]; then git config -- user.email "$5"; fi
fi
test "$(git rev-parse HEAD)" = "$6"`

	// forward moves a clone to a commit that was sent later, in a bundle unless $1 is empty.
	forwardScript = `command -v git >/dev/null 2>&1 || exit 27
cd -- "$3" && git rev-parse --git-dir >/dev/null || exit 28
if [ -n "$1" ]; then git fetch --quiet --no-tags -- "$1" "+refs/heads/$2:refs/remotes/origin/$2" || exit 30; fi
git cat-file -e "$4^{commit}" || exit 30
test "$(git symbolic-ref --quiet --short HEAD)" = "$2" || exit 31
git merge-base --is-ancestor HEAD "$4" || exit 32
git merge --quiet --ff-only "$4" || exit 33
test "$(git rev-parse HEAD)" = "$4"`

	// bundle hands in what was committed, unless that has been done. It prints how many paths are not committed. The
	// supervisor and a pull may do so at once, each under its own name: the last rename wins, with the same commits.
	bundleScript = `cd -- "$1" || exit 28
git status --porcelain --untracked-files=all 2>/dev/null | wc -l
if [ -e "$3" ]; then exit 34; fi
n=$(git rev-list --count "$2..HEAD") || exit 28
if [ "$n" -eq 0 ]; then exit 29; fi
set -e
mkdir -p -- "$4"
git bundle create "$3.$5" "$2..HEAD" >&2 || { rm -f -- "$3.$5"; exit 1; }
mv -f -- "$3.$5" "$3"`
)

// Exit codes of the scripts.
const (
	codeNoGit     = 27
	codeNoClone   = 28
	codeNothing   = 29
	codeLacks     = 30
	codeElsewhere = 31
	codeAhead     = 32
	codeInTheWay  = 33
	codeThere     = 34
	scriptTime    = time.Hour // a big history through an emulated machine takes its time
	maxScriptOut  = 64 << 10
)

// script runs one of the scripts and returns its code and what it printed. The error is that of the backend, or
// about a shell that did not end by itself.
func script(ctx context.Context, sb *client.Sandbox, text string, args ...string) (code int, stdout, stderr string,
	err error) {
	out, errs := keep.Head{Max: maxScriptOut}, keep.Head{Max: maxScriptOut}
	exit, err := sb.Exec(ctx, &client.Command{
		Argv: append([]string{"sh", "-c", text, "sh"}, args...),
		Env:  map[string]string{"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
		Dir:  sb.Ready().Workspace, Stdout: &out, Stderr: &errs, Timeout: scriptTime,
	})
	if cause := context.Cause(ctx); cause != nil {
		return 0, "", "", cause
	}
	switch {
	case err != nil:
		return 0, "", "", err
	case exit.NotStarted:
		return 0, "", "", fmt.Errorf("the sandbox has no shell: %s", termsafe.Line(exit.Evidence))
	case exit.Cause != sdk.CauseExited && exit.Cause != sdk.CauseDisk:
		return 0, "", "", fmt.Errorf("git in the sandbox ended with %s: %s", exit.Cause, termsafe.Line(exit.Evidence))
	}
	return exit.Code, out.String(), lastLine(errs.String()), nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return termsafe.Line(lines[len(lines)-1])
}

// Outcome is what is in the clone when nothing works in it any more.
type Outcome struct {
	Nothing     bool `json:"nothing,omitempty"` // there is no new commit, and so no bundle
	Uncommitted int  `json:"uncommitted"`       // paths that are in no commit
}

// EventHandIn is in a sandbox's chain: hutch made the bundle of all that was committed, or found no commit. Its data is
// a [HandedIn].
const EventHandIn store.EventType = "handin"

// HandedIn is what a hand-in found.
type HandedIn struct {
	After uint64 `json:"after"` // sequence number of the chain's last event before hutch looked
	Outcome
}

// HandIn makes the output bundle of what was committed in the sandbox, if nobody has made one.
func HandIn(ctx context.Context, sb *sandbox.Sandbox, p *store.SandboxPush) (o Outcome, err error) {
	events, err := sb.Events()
	if err != nil {
		return o, err
	}
	x := exchangeOf(sb.Sandbox)
	code, out, said, err := script(ctx, sb.Sandbox, bundleScript, p.Clone, p.Base, x.Bundle(), x.Dir, rand.Text())
	if err != nil {
		return o, err
	}
	uncommitted, _ := strconv.ParseUint(strings.TrimSpace(out), 10, 31) // 0 when the sandbox says anything else
	o.Uncommitted = int(uncommitted)
	switch code {
	case 0:
	case codeThere: // made by somebody else, perhaps before the last commit
		return o, nil
	case codeNothing:
		o.Nothing = true
	case codeNoClone:
		return o, goneError(p.Clone, said)
	default:
		return o, fmt.Errorf("make the bundle in the sandbox: %s (code %d)", said, code)
	}
	h := HandedIn{Outcome: o}
	if n := len(events); n > 0 {
		h.After = events[n-1].Seq
	}
	return o, sb.Changed(EventHandIn, h)
}

// goneError is the refusal for a clone that is no longer a repository.
func goneError(clone, said string) error {
	return refuse(nil, fmt.Sprintf("the clone %s in the sandbox is gone, or no git repository any more: %s", clone, said))
}

// ExchangeOf is where the bundles of a sandbox are.
func ExchangeOf(sb *client.Sandbox) *Exchange { return exchangeOf(sb) }

// environment is the command's environment.
func environment(p *store.SandboxPush) map[string]string {
	return map[string]string{
		"HUTCH_CLONE": p.Clone, "HUTCH_PLAN": p.PlanPath, "HUTCH_BASE": p.Base,
		"HUTCH_BUNDLE": path.Join(p.Exchange, outputBundle), "HUTCH_INSTRUCTIONS": path.Join(p.Exchange, instructionsName),
	}
}
