// Package ui holds the test of `hutch ui` in a real Chromium: two agents change the same file, a person watches, resets
// one by a button, reviews the other, applies a file and takes that back.
package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-agent": "cmd/hutch-agent"}))
}

// bound is how long the journey may take on a busy machine; it takes about ten seconds.
const bound = 4 * time.Minute

// journey is one person with one browser.
type journey struct {
	t       testing.TB
	home    string
	project string
	ctx     context.Context // of the browser's first window
	server  *os.Process     // hutch ui

	mu       sync.Mutex
	problems []string // exceptions and violations of the policy that the browser reported
}

func newJourney(t testing.TB) *journey {
	t.Helper()
	e2e.Require(t, "bwrap")
	e2e.Require(t, "chromium")
	j := &journey{t: t, home: t.TempDir(), project: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	profile, err := os.MkdirTemp("/tmp", "hutch-ui-") // t.TempDir would fail where the browser still writes
	if err != nil {
		t.Fatal(err)
	}
	options := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath("chromium"), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.UserDataDir(profile),
		chromedp.Env("XDG_CONFIG_HOME=" + profile), // for its crash reports
	}, chromedp.WSURLReadTimeout(time.Minute))
	for _, f := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(f, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP rebound.example 127.0.0.1"))
	allocator, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	t.Cleanup(end)
	j.ctx = j.window(allocator, chromedp.WithErrorf(func(string, ...any) {})) // of events that it does not know
	return j
}

// window opens a window, with a listener for what goes wrong in it.
func (j *journey) window(parent context.Context, o ...chromedp.ContextOption) context.Context {
	j.t.Helper()
	ctx, cancel := chromedp.NewContext(parent, o...)
	j.t.Cleanup(cancel)
	chromedp.ListenTarget(ctx, func(e any) {
		j.mu.Lock()
		defer j.mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			j.problems = append(j.problems, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Source == log.SourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy") {
				j.problems = append(j.problems, e.Entry.Text)
			}
		case *page.EventJavascriptDialogOpening:
			j.problems = append(j.problems, "a dialog: "+e.Message)
		}
	})
	j.run(ctx, log.Enable(), emulation.SetFocusEmulationEnabled(true)) // both windows are visible
	return ctx
}

func (j *journey) run(ctx context.Context, actions ...chromedp.Action) {
	j.t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var at string
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body ? document.body.innerText : ""`, &at))
		j.t.Fatalf("%v; the page:\n%s", err, at)
	}
}

// await waits until an expression of script holds in a window.
func (j *journey) await(ctx context.Context, what, expression string) {
	j.t.Helper()
	var err error
	if e2e.Eventually(time.Minute, func() (held bool) {
		err = chromedp.Run(ctx, chromedp.Evaluate("!!("+expression+")", &held)) // it fails while a page is loaded
		return held
	}) {
		return
	}
	var at string
	_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &at))
	j.t.Fatalf("%s: %v; the page:\n%s", what, err, at)
}

// shows waits until an element has a text.
func (j *journey) shows(ctx context.Context, selector, text string) {
	j.t.Helper()
	j.await(ctx, selector+" shows "+text, fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.innerText.replace(/\s+/g, " ").includes(%q))`, selector, text))
}

func (j *journey) hutch(args ...string) string {
	j.t.Helper()
	cmd := exec.CommandContext(j.ctx, e2e.Hutch(), args...)
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+j.home, "HUTCH_BACKEND_PATH=")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		j.t.Fatalf("hutch %q: %v\n%s%s", args, err, out, &errs)
	}
	return string(out)
}

func (j *journey) file() string {
	j.t.Helper()
	b, err := os.ReadFile(filepath.Join(j.project, "plan.md"))
	if err != nil {
		j.t.Fatal(err)
	}
	return string(b)
}

// serve starts `hutch ui` and returns its link and the function that ends it by ^C.
func (j *journey) serve() (link string, interrupt func()) {
	j.t.Helper()
	cmd := exec.Command(e2e.Hutch(), "ui", "--no-open")
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+j.home, "HUTCH_BACKEND_PATH=")
	var out, errs e2e.Output
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.server = cmd.Process
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case err := <-ended:
			if err != nil {
				j.t.Errorf("hutch ui: %v\n%s", err, errs.String())
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			j.t.Errorf("hutch ui does not end\n%s", errs.String())
		}
	})
	j.t.Cleanup(stop)
	if !e2e.Eventually(time.Minute, func() bool { return strings.HasSuffix(out.String(), "\n") }) {
		j.t.Fatalf("no link\n%s", errs.String())
	}
	return strings.TrimSpace(out.String()), stop
}

func TestJourney(t *testing.T) {
	j := newJourney(t)
	if err := os.WriteFile(filepath.Join(j.project, "plan.md"), []byte("the plan\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var long []string
	for i := range 40 {
		long = append(long, fmt.Sprintf("line %d\n", i))
	}
	if err := os.WriteFile(filepath.Join(j.project, "long.md"), []byte(strings.Join(long, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	link, interrupt := j.serve()
	j.run(j.ctx, chromedp.Navigate(link), chromedp.WaitVisible(".empty"))
	j.shows(j.ctx, "#live", "Live")

	// Two agents come and change the same file. The page is not touched.
	j.hutch("create", "--backend", "bwrap", "--workspace", j.project, "--name", "left")
	t.Cleanup(func() { j.remove("left") })
	j.shows(j.ctx, ".card", "left ready")
	second := j.window(j.ctx)
	j.run(second, chromedp.Navigate(j.at("/")), chromedp.WaitVisible(".card"), chromedp.Click("#new summary"),
		chromedp.SendKeys("[name=source]", j.project), chromedp.SendKeys(".create [name=name]", "right"),
		chromedp.SetValue(".create [name=backend]", "bwrap"), chromedp.Click(".create .button"), chromedp.WaitVisible("#notice"))
	t.Cleanup(func() { j.remove("right") })
	j.shows(second, "#notice", "right was created The same in a terminal: hutch create --backend bwrap --workspace "+j.project+" --name right")
	j.shows(j.ctx, ".card", "right ready")
	j.hutch("exec", "left", "--", "sh", "-c", "echo from the left >> plan.md; for i in 1 2 3 4 5 6 7 8 9; do echo $i > file$i; done")
	j.hutch("exec", "right", "--", "sh", "-c", `echo from the right >> plan.md; echo x > '<img src=x onerror=alert(1)>'; printf '<script>alert(2)</script>\033[31mred\033[0m\n'`)
	j.shows(j.ctx, ".card", "left ready backend bwrap isolation namespace workspace overlay Changes 10 paths")
	j.shows(j.ctx, ".card", "Changes 2 paths")

	// What the right one wrote is hostile, and is shown.
	j.run(second, chromedp.Navigate(j.at("/")), chromedp.WaitVisible(".card"))
	j.follow(second, "right", ".card h3 a")
	j.shows(second, ".file .name", "<img src=x onerror=alert(1)>")
	j.follow(second, "sh", ".list a")
	j.shows(second, ".output", "<script>alert(2)</script>red")
	j.await(second, "only colours come through", `document.querySelector(".output .term-fg31") && !document.querySelector("main img, main script")`)

	j.run(second, chromedp.Navigate(j.at("/")), chromedp.WaitVisible(".card"))
	j.follow(second, "right", ".card h3 a")
	j.shows(second, ".file summary", "plan.md also in left")

	// It is reset by its button, from the keyboard, in one window; the other one shows it.
	j.run(second, chromedp.Navigate(j.at("/")), chromedp.WaitVisible(".card"))
	j.tab(`e.matches("[data-open]") && e.closest(".card").querySelector("h3").textContent === "right"`)
	j.run(j.ctx, chromedp.KeyEvent(kb.Enter))
	j.await(j.ctx, "the dialog opens", `!!document.querySelector("dialog:modal")`)
	j.run(j.ctx, chromedp.KeyEvent(kb.Escape))
	j.await(j.ctx, "the dialog closes", `!document.querySelector("dialog:modal")`)
	j.run(j.ctx, chromedp.KeyEvent(kb.Enter)) // the focus is where it was
	j.await(j.ctx, "the dialog opens again", `!!document.querySelector("dialog:modal")`)
	j.hutch("exec", "left", "--", "sh", "-c", "echo 10 > file10") // the page is fetched again under the open dialog
	j.shows(j.ctx, ".card", "Changes 11 paths")
	j.tab(`e.matches("dialog [name=hard]")`)
	j.run(j.ctx, chromedp.KeyEvent(" "), chromedp.WaitVisible("dialog .if-hard"))
	j.tab(`e.matches("dialog [action$=reset] .danger")`)
	j.run(j.ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#notice"))
	j.shows(j.ctx, "#notice", "right was reset, and what it had changed was dropped The same in a terminal: hutch reset --hard right")
	j.shows(second, ".card", "Changes none")
	if left := j.hutch("diff", "--name-only", "right"); left != "" {
		t.Errorf("after the reset: %s", left)
	}

	// The left one is reviewed. A difference is fetched when it is opened; a file is applied and the apply taken back.
	j.tab(`e.matches(".card h3 a") && e.textContent === "left"`)
	j.run(j.ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#apply"))
	j.await(j.ctx, "the differences are not fetched", `document.querySelectorAll(".file .lazy").length === 11 && !document.querySelector(".diff")`)
	plan := `e.closest(".file")?.querySelector(".name").textContent === "plan.md"`
	j.tab(`e.matches("[name=path]") && ` + plan)
	j.run(j.ctx, chromedp.KeyEvent(" "))
	j.tab(`e.matches("summary") && ` + plan)
	j.run(j.ctx, chromedp.KeyEvent(kb.Enter))
	j.shows(j.ctx, ".diff .add .text", "from the left")
	j.hutch("exec", "left", "--", "sh", "-c", "rm file10") // what is ticked and open stays so
	j.await(j.ctx, "the page follows", `document.querySelectorAll(".file").length === 10 && !!document.querySelector("[name=path]:checked") && !!document.querySelector(".diff .add")`)
	j.tab(`e.matches("[value=chosen]")`)
	j.run(j.ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#notice"))
	j.shows(j.ctx, "#notice", "1 change applied to "+j.project)
	if got := j.file(); got != "the plan\nfrom the left\n" {
		t.Errorf("applied: %q", got)
	}
	j.shows(second, ".card", "Changes 9 paths")
	j.tab(`e.matches(".undo .button")`)
	j.run(j.ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitNotPresent(".undo"))
	j.shows(j.ctx, "#notice", "restored to what was before the apply")
	if got := j.file(); got != "the plan\n" {
		t.Errorf("undone: %q", got)
	}
	j.shows(second, ".card", "Changes 10 paths")

	// Half of a file is taken: one hunk of two. A tick of the file gives way to one of a hunk.
	j.hutch("exec", "left", "--", "sed", "-i", "-e", "s/^line 3$/three/", "-e", "s/^line 36$/last/", "long.md")
	review := `[...document.querySelectorAll(".file")].find(f => f.querySelector(".name").textContent === "long.md")`
	j.await(j.ctx, "the file appears", review)
	j.run(j.ctx, chromedp.Evaluate(review+`.querySelector("summary").click()`, nil))
	j.shows(j.ctx, ".diff .head", "hunk 2")
	j.run(j.ctx, chromedp.Evaluate(review+`.querySelector("[name=path]").click()`, nil), chromedp.Evaluate(review+`.querySelector("[name=hunk]").click()`, nil))
	j.await(j.ctx, "the file is not ticked", "!"+review+`.querySelector("[name=path]").checked`)
	j.hutch("exec", "left", "--", "sed", "-i", "s/^last$/the end/", "long.md") // the tick stays with its hunk
	j.shows(j.ctx, ".diff .add .text", "the end")
	j.run(j.ctx, chromedp.Click("[value=chosen]"), chromedp.WaitVisible("#notice"))
	j.shows(j.ctx, "#notice", "1 change applied to "+j.project+" The same in a terminal: hutch apply left --hunks long.md:1")
	long[3] = "three\n"
	if got, err := os.ReadFile(filepath.Join(j.project, "long.md")); err != nil || string(got) != strings.Join(long, "") {
		t.Errorf("not the chosen hunk: %q %v", got, err)
	}
	j.shows(second, ".card", "Changes 11 paths")

	// The machine sleeps, and wakes up.
	j.run(j.ctx, page.SetWebLifecycleState(page.SetWebLifecycleStateStateFrozen))
	if err := j.server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	j.hutch("exec", "left", "--", "sh", "-c", "echo x > dreamt")
	if err := j.server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	j.run(j.ctx, page.SetWebLifecycleState(page.SetWebLifecycleStateStateActive))
	j.shows(j.ctx, ".file .name", "dreamt")
	j.shows(j.ctx, "#live", "Live")
	j.shows(second, ".card", "Changes 12 paths")

	j.strangers(second)
	j.run(second, chromedp.Navigate(j.at("/")), chromedp.WaitVisible(".card"))

	// What is refused says why and what allows it.
	j.hutch("exec", "left", "--", "sh", "-c", "printf '#!/bin/sh\n' > run.sh; chmod +x run.sh")
	j.shows(j.ctx, ".file .tag", "--allow-exec")
	j.run(j.ctx, chromedp.Click("[value=all]"), chromedp.WaitVisible("#notice.failed"))
	j.shows(j.ctx, "#notice", "refused: run.sh: it becomes executable (mode 0755) (--allow-exec)")

	// A command runs, and its output is seen as it comes.
	j.run(j.ctx, chromedp.SendKeys("#command-line", "echo begun; sleep 600"+kb.Enter), chromedp.WaitVisible(".output"))
	j.shows(j.ctx, ".output", "begun")
	j.shows(second, ".card", "since")
	j.await(second, "the card says what the command uses", `/Uses [0-9]+ % of a processor, [0-9.]+ [KM]iB in [0-9]+ process/.test(document.querySelector(".cards").innerText.replace(/\s+/g, " "))`)
	j.run(j.ctx, chromedp.Click("form .danger"))
	j.shows(j.ctx, ".result", "cancelled")

	interrupt()
	j.shows(second, "#live", "Not connected")
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.problems) > 0 {
		t.Errorf("the browser reports: %s", strings.Join(j.problems, "\n"))
	}
}

// strangers has another server of this machine, which knows every path, try to reset a sandbox, and a foreign name lead
// to ours. Its browser never shows it the cookie.
func (j *journey) strangers(ctx context.Context) {
	j.t.Helper()
	var form string
	j.run(j.ctx, chromedp.Evaluate(`document.querySelector("[data-open]").href.replace(/do$/, "reset")`, &form))
	var mu sync.Mutex
	cookies := ""
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		cookies += r.Header.Get("Cookie")
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%s"><input name="hard" value="on"><input name="csrf" value="guess"></form><script>document.forms[0].submit()</script>`, form)
	}))
	defer stranger.Close()
	j.run(ctx, chromedp.Navigate(stranger.URL))
	j.shows(ctx, "body", "hutch: this origin is not served")
	j.run(ctx, chromedp.Navigate(strings.Replace(j.at("/"), "127.0.0.1", "rebound.example", 1)))
	j.shows(ctx, "body", "hutch: this host is not served")
	mu.Lock()
	defer mu.Unlock()
	if cookies != "" {
		j.t.Errorf("the browser sent another server %q", cookies)
	}
}

// tab presses the tabulator key until an expression of script holds for the element e that has the focus.
func (j *journey) tab(expression string) {
	j.t.Helper()
	for range 200 {
		var there bool
		j.run(j.ctx, chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`(e => !!(`+expression+`))(document.activeElement)`, &there))
		if there {
			return
		}
	}
	j.t.Fatalf("the keyboard does not lead to %s", expression)
}

// at is a page of the server that the first window is on.
func (j *journey) at(path string) string {
	j.t.Helper()
	var to string
	j.run(j.ctx, chromedp.Evaluate(`location.origin + "/" + location.pathname.split("/")[1]`, &to))
	return to + path
}

// follow clicks the first link with a text and waits for the page.
func (j *journey) follow(ctx context.Context, text, selector string) {
	j.t.Helper()
	j.shows(ctx, selector, text)
	var to string
	j.run(ctx, chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll(%q)].find(e => e.textContent.trim() === %q).href`, selector, text), &to))
	j.run(ctx, chromedp.Navigate(to), chromedp.WaitVisible(".crumbs"))
}

// remove removes sandboxes.
func (j *journey) remove(names ...string) {
	if len(names) == 0 {
		return
	}
	cmd := exec.Command(e2e.Hutch(), append([]string{"rm", "-f"}, names...)...)
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+j.home, "HUTCH_BACKEND_PATH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		j.t.Errorf("%v\n%s", err, out)
	}
}
