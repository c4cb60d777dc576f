package push

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// What hutch itself runs in a sandbox. Each is one shell, because starting a command may cost a tenth of a second on some
// backends; values come as its arguments, and nothing is put together by the shell.
const (
	// probe says whether there is a git, and makes the directories for what is put in.
	probeScript = `command -v git >/dev/null 2>&1 || exit 27
mkdir -p -- "$1" && git --version`

	// clone makes the clone, with the user's name for commits, and proves that it is at the commit that was sent.
	cloneScript = `set -eu
git clone --quiet --no-hardlinks --branch "$2" -- "$1" "$3"
cd -- "$3"
if [ -n "$4" ]; then git config -- user.name "$4"; fi
if [ -n "$5" ]; then git config -- user.email "$5"; fi
test "$(git rev-parse HEAD)" = "$6"`

	// bundle hands in what was committed, unless that has been done. It prints how many paths are not committed. The
	// supervisor and a pull may do so at once, each under a name of its own: whoever renames last wins, with the same commits.
	bundleScript = `cd -- "$1" || exit 28
git status --porcelain --untracked-files=all 2>/dev/null | wc -l
if [ -e "$3" ]; then exit 0; fi
n=$(git rev-list --count "$2..HEAD") || exit 28
if [ "$n" -eq 0 ]; then exit 29; fi
set -e
mkdir -p -- "$4"
git bundle create "$3.$5" "$2..HEAD" >&2 || { rm -f -- "$3.$5"; exit 1; }
mv -f -- "$3.$5" "$3"`
)

// Exit codes of the scripts.
const (
	codeNoGit    = 27
	codeNoClone  = 28
	codeNothing  = 29
	scriptTime   = time.Hour // a big history through an emulated machine takes its time
	maxScriptOut = 64 << 10
)

// script runs one of the scripts and returns its code and what it printed. The error is that of the backend, or tells
// of a shell that did not end by itself.
func script(ctx context.Context, sb *client.Sandbox, text string, args ...string) (code int, stdout, stderr string, err error) {
	out, errs := head{max: maxScriptOut}, head{max: maxScriptOut}
	exit, err := sb.Exec(ctx, &client.Command{
		Argv: append([]string{"sh", "-c", text, "sh"}, args...), Env: map[string]string{"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
		Dir: sb.Ready().Workspace, Stdout: &out, Stderr: &errs, Timeout: scriptTime,
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

// head keeps the beginning of what a sandbox says, and drops the rest.
type head struct {
	bytes.Buffer
	max int
}

// Write implements [io.Writer].
func (h *head) Write(p []byte) (int, error) {
	if room := h.max - h.Len(); room > 0 {
		h.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return termsafe.Line(lines[len(lines)-1])
}

// Outcome is what is in the clone when nothing works in it any more.
type Outcome struct {
	Nothing     bool // there is no new commit, and so no bundle
	Uncommitted int  // paths that are in no commit
}

// HandIn makes the output bundle of what was committed in the sandbox, if nobody has made one.
func HandIn(ctx context.Context, sb *client.Sandbox, p *store.SandboxPush) (o Outcome, err error) {
	x := exchangeOf(sb)
	code, out, said, err := script(ctx, sb, bundleScript, p.Clone, p.Base, x.Bundle(), x.Dir, rand.Text())
	if err != nil {
		return o, err
	}
	o.Uncommitted, _ = strconv.Atoi(strings.TrimSpace(out))
	switch code {
	case 0:
	case codeNothing:
		o.Nothing = true
	case codeNoClone:
		return o, refuse(nil, fmt.Sprintf("the clone %s in the sandbox is gone, or no git repository any more: %s", p.Clone, said))
	default:
		return o, fmt.Errorf("make the bundle in the sandbox: %s (code %d)", said, code)
	}
	return o, nil
}

// ExchangeOf is where the bundles of a sandbox are.
func ExchangeOf(sb *client.Sandbox) *Exchange { return exchangeOf(sb) }

// environment is what the command is told.
func environment(p *store.SandboxPush) map[string]string {
	return map[string]string{
		"HUTCH_CLONE": p.Clone, "HUTCH_PLAN": p.PlanPath, "HUTCH_BASE": p.Base,
		"HUTCH_BUNDLE": path.Join(p.Exchange, outputBundle), "HUTCH_INSTRUCTIONS": path.Join(p.Exchange, instructionsName),
	}
}
