package ui

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/internal/gittest"
)

func TestPages(t *testing.T) {
	w := newWorld(t)
	w.see("/", "No sandboxes yet", "hutch create")
	w.see("/runs", "No runs yet")
	a, b := w.create("left"), w.create("right")
	w.sh(a, "echo left >> a.txt; mkdir new; echo new > new/file")
	run := w.sh(b, "echo right >> a.txt; echo said; exit 3")
	home := w.see("/", "left", "right", "fake", "exit 3", "2 sandboxes")
	if strings.Index(home, "card-"+a) > strings.Index(home, "card-"+b) {
		t.Error("the cards are not in the order in which they were made")
	}
	w.see("/sandbox/"+a+"/do", "hutch reset", "hutch rm", "(3 paths, ")
	w.see("/sandbox/"+a, "a.txt", "new/file", "left", "hutch apply left")
	w.see("/sandbox/"+a+"/file?path="+ref("a.txt"), "Apply this file", ">left<")
	w.see("/runs", run, "exit 3")
	w.see("/runs/"+run+"?check=1", "said", "exit code 3", "timeout", "Intact", "run.begin", "wait status")
	for _, missing := range []string{"/sandbox/nothing", "/runs/nothing", "/sandbox/" + a + "/file?path=" + ref("nothing"), "/nothing"} {
		if code, _ := w.get(missing); code != http.StatusNotFound {
			t.Errorf("%s: %d", missing, code)
		}
	}
}

func TestActions(t *testing.T) {
	w := newWorld(t)
	id := w.create("box")
	w.sh(id, "echo three >> a.txt; echo b > b.txt; printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; mkdir -p d/e; echo f > d/e/f")
	if at := w.post("/sandbox/"+id+"/apply", url.Values{"what": {"chosen"}}); !strings.Contains(at, "no file and no hunk was chosen") {
		t.Error("nothing was chosen, and it was applied")
	}
	if at := w.post("/sandbox/"+id+"/apply", url.Values{"what": {"all"}}); !strings.Contains(at, "refused: run.sh: it becomes executable") || !strings.Contains(at, "(--allow-exec)") || w.read("b.txt") != "" {
		t.Errorf("it was applied, or the reason is missing:\n%s", at)
	}
	at := w.post("/sandbox/"+id+"/apply", url.Values{"what": {"chosen"}, "path": {ref("a.txt"), ref("d/e/f")}})
	if !strings.Contains(at, "applied to "+w.project) || !strings.Contains(at, "hutch apply box a.txt d/e/f") || w.read("a.txt") != "one\ntwo\nthree\n" || w.read("d/e/f") != "f\n" || w.read("b.txt") != "" {
		t.Errorf("not the chosen files:\n%s", at)
	}
	if at := w.post("/sandbox/"+id+"/undo", nil); !strings.Contains(at, "restored to what was before") || w.read("a.txt") != "one\ntwo\n" {
		t.Errorf("not undone:\n%s", at)
	}
	if at := w.post("/sandbox/"+id+"/undo", nil); !strings.Contains(at, "no apply to undo") {
		t.Errorf("undone twice:\n%s", at)
	}
	w.post("/sandbox/"+id+"/apply", url.Values{"what": {"all"}, "allow": {"--allow-exec"}})
	if w.read("run.sh") == "" {
		t.Error("allowed, and not applied")
	}
	w.sh(id, "echo mine > c.txt; echo mine >> a.txt")
	w.write("a.txt", "the project's\n")
	if at := w.post("/sandbox/"+id+"/apply", url.Values{"what": {"all"}}); !strings.Contains(at, "conflict: a.txt:") || w.read("c.txt") != "" {
		t.Errorf("a conflict was overwritten:\n%s", at)
	}
	w.post("/sandbox/"+id+"/apply", url.Values{"what": {"all"}, "take": {ref("a.txt")}})
	if !strings.HasSuffix(w.read("a.txt"), "mine\n") {
		t.Error("the sandbox's version was not taken")
	}
	if at := w.post("/sandbox/"+id+"/fork", nil); !strings.Contains(at, "box was forked") || !strings.Contains(at, "<h1>box-2</h1>") || !strings.Contains(at, "hutch fork box") {
		t.Errorf("not forked:\n%s", at)
	}
	w.see("/", "from box", ">box-2<")
	if err := w.manager.Remove(t.Context(), "box-2", true); err != nil {
		t.Error(err)
	}
	if at := w.post("/sandbox/"+id+"/reset", url.Values{"hard": {"on"}, "home": {"1"}}); !strings.Contains(at, "box was reset") || !strings.Contains(at, "hutch reset --hard box") {
		t.Errorf("not reset:\n%s", at)
	}
	w.see("/sandbox/"+id, "nothing differs from the project")
	if at := w.post("/sandbox/"+id+"/remove", nil); !strings.Contains(at, "box was removed") || !strings.Contains(at, "No sandboxes yet") {
		t.Errorf("not removed:\n%s", at)
	}
}

func TestCreate(t *testing.T) {
	w := newWorld(t)
	w.see("/", "New sandbox", "<option>fake</option>")
	form := func(kv ...string) url.Values {
		f := url.Values{}
		for i := 0; i < len(kv); i += 2 {
			f.Set(kv[i], kv[i+1])
		}
		return f
	}
	at := w.post("/create", form("source", w.project, "backend", "fake", "name", "new"))
	if !strings.Contains(at, "new was created") || !strings.Contains(at, "hutch create --backend fake --workspace "+w.project+" --name new") {
		t.Errorf("not created:\n%s", at)
	}
	file := filepath.Join(w.t.TempDir(), "two.hcl")
	run := func(name string) string {
		return fmt.Sprintf("run %q {\n  backend \"fake\" {}\n  command = [\"true\"]\n  workspace {\n    source = %q\n  }\n}\n", name, w.project)
	}
	if err := os.WriteFile(file, []byte(run("one")+run("two")), 0o600); err != nil {
		t.Fatal(err)
	}
	if at := w.post("/create", form("source", file, "run", "two", "name", "other")); !strings.Contains(at, "other was created") {
		t.Errorf("not created from a run file:\n%s", at)
	}
	for what, f := range map[string]struct {
		form url.Values
		want string
	}{
		"a name that is taken":         {form("source", w.project, "backend", "fake", "name", "new"), "new"},
		"a relative path":              {form("source", "project", "backend", "fake"), "is not an absolute path"},
		"nothing there":                {form("source", w.project+"/none", "backend", "fake"), "no such file"},
		"a file with several runs":     {form("source", file), "choose one of the runs of " + file + ": one, two"},
		"a backend that there is not":  {form("source", w.project, "backend", "nothing"), "nothing"},
		"no default backend installed": {form("source", w.project), "no default backend is installed"},
		"what is no run file":          {form("source", filepath.Join(w.project, "a.txt")), "a.txt"},
	} {
		if at := w.post("/create", f.form); !strings.Contains(at, `class="notice failed"`) || !strings.Contains(at, f.want) {
			t.Errorf("%s:\n%s", what, at)
		}
	}
	w.see("/", "2 sandboxes")
	for _, name := range []string{"new", "other"} {
		if err := w.manager.Remove(t.Context(), name, true); err != nil {
			t.Error(err)
		}
	}
}

func TestMachineAndCompare(t *testing.T) {
	w := newWorld(t)
	w.see("/doctor", "records", "fake", "works")
	if at := w.post("/doctor", nil); !strings.Contains(at, "Checked at") {
		t.Errorf("not checked again:\n%s", at)
	}
	id := w.create("box")
	a, b := w.sh(id, "echo left"), w.sh(id, "echo '<b>right</b>'; exit 3")
	w.see("/runs", `name="run" value="`+a+`"`, "Compare what is ticked")
	w.see("/compare?run="+a+"&run="+b, "exit_code", ">left\n<", "&lt;b&gt;right", "hutch compare "+a+" "+b)
	w.see("/compare?run="+a+"&run="+a, "the same")
	for path, want := range map[string]int{
		"/compare": http.StatusBadRequest, "/compare?run=" + a: http.StatusBadRequest, "/compare?run=" + a + "&run=nothing": http.StatusNotFound,
	} {
		if code, _ := w.get(path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

func TestHunksAreApplied(t *testing.T) {
	w := newWorld(t)
	var lines []string
	for i := range 40 {
		lines = append(lines, "line "+strconv.Itoa(i))
	}
	w.write("a.txt", strings.Join(lines, "\n")+"\n")
	id := w.create("box")
	w.sh(id, "sed -i -e 's/^line 3$/three/' -e 's/^line 20$/twenty/' -e 's/^line 36$/last/' a.txt; chmod 600 a.txt; echo b > b.txt")
	page := w.see("/sandbox/"+id, "hunk 3")
	var seen []string
	for _, m := range regexp.MustCompile(`name="seen" value="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		seen = append(seen, m[1])
	}
	hunk := func(n ...int) (list []string) {
		for _, n := range n {
			value := ref("a.txt") + "." + strconv.Itoa(n)
			if !strings.Contains(page, `name="hunk" value="`+value+`"`) {
				t.Errorf("the page has no box for hunk %d", n)
			}
			list = append(list, value)
		}
		return list
	}
	hunk(0, 2)
	if strings.Contains(page, ref("b.txt")+".1") {
		t.Error("a new file has boxes for hunks")
	}
	before := w.read("a.txt")
	for what, form := range map[string]url.Values{
		"so that nobody saw it":     {"hunk": hunk(1)},
		"and the whole file":        {"hunk": hunk(1), "path": {ref("a.txt")}, "seen": seen},
		"that there is not":         {"hunk": {ref("a.txt") + ".9"}, "seen": seen},
		"that cannot be read":       {"hunk": {ref("a.txt") + ".x"}, "seen": seen},
		"of a file without changes": {"hunk": {ref("c.txt") + ".1"}, "seen": seen},
	} {
		if at := w.post("/sandbox/"+id+"/apply", form); !strings.Contains(at, "nothing was applied") && !strings.Contains(at, "invalid request") || w.read("a.txt") != before {
			t.Errorf("a hunk %s was applied:\n%s", what, at)
		}
	}
	at := w.post("/sandbox/"+id+"/apply", url.Values{"hunk": hunk(1, 3), "seen": seen})
	if !strings.Contains(at, "hutch apply box --hunks a.txt:1,3") {
		t.Errorf("the command is missing:\n%s", at)
	}
	lines[3], lines[36] = "three", "last"
	if got := w.read("a.txt"); got != strings.Join(lines, "\n")+"\n" || w.read("b.txt") != "" {
		t.Errorf("not the chosen hunks:\n%s", got)
	}
	w.see("/sandbox/"+id, "twenty", "hunk 1")
}

// TestPlacesAreResolved has both sides change a place of a text, and a person choose what becomes of it.
func TestPlacesAreResolved(t *testing.T) {
	gittest.Need(t)
	w := newWorld(t)
	text := func(third, last string) string {
		return "one\ntwo\n" + third + "\nfour\nfive\nsix\nseven\n" + last + "\n"
	}
	w.write("a.txt", text("three", "eight"))
	gittest.Run(t, w.project, "init", "-q")
	gittest.Run(t, w.project, "add", "-A")
	gittest.Run(t, w.project, "commit", "-q", "-m", "first")
	if err := os.Chtimes(filepath.Join(w.project, "a.txt"), time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, w.project, "update-index", "--refresh")
	id := w.create("box")
	w.sh(id, "sed -i -e 's/^three$/<i>sandbox<\\/i>/' -e 's/^eight$/last/' a.txt")
	w.write("a.txt", text("project", "eight"))
	page := w.see("/sandbox/"+id, "Place 1 of 1", "<pre>project\n</pre>", "&lt;i&gt;sandbox&lt;/i&gt;", "<pre>three\n</pre>", "--take a.txt")
	w.see("/sandbox/"+id+"/file?path="+ref("a.txt"), "Place 1 of 1")
	if strings.Contains(page, `name="hunk"`) {
		t.Error("hunks can be chosen that take the project's changes back")
	}
	field := placeField + ref("a.txt") + ".1"
	m := regexp.MustCompile(`name="` + regexp.QuoteMeta(field) + `" value="([^"]+)\.both"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no choice:\n%s", page)
	}
	seen, before := m[1], w.read("a.txt")
	form := func(kv ...string) url.Values {
		f := url.Values{"what": {"chosen"}, "merge": {"1"}}
		for i := 0; i < len(kv); i += 2 {
			f.Set(kv[i], kv[i+1])
		}
		return f
	}
	for what, c := range map[string]struct {
		form url.Values
		want string
	}{
		"a text that nobody saw":  {form(field, "0.both"), "what you looked at has changed"},
		"an unknown choice":       {form(field, seen+".mine"), "unknown choice"},
		"a place that is missing": {form(placeField+ref("a.txt")+".2", seen+".both"), "choose for each place"},
		"a place of no number":    {form(placeField+ref("a.txt")+".x", seen+".both"), "invalid request"},
		"the whole and its place": {form(field, seen+".both", "take", ref("a.txt")), "both the whole and places"},
		"nothing chosen":          {form("path", ref("a.txt")), "conflict: a.txt"},
	} {
		if at := w.post("/sandbox/"+id+"/apply", c.form); !strings.Contains(at, c.want) || w.read("a.txt") != before {
			t.Errorf("%s: want %q, and no apply:\n%s", what, c.want, at)
		}
	}
	at := w.post("/sandbox/"+id+"/apply", form(field, seen+".both"))
	if !strings.Contains(at, "hutch apply box a.txt --resolve a.txt:both --merge") {
		t.Errorf("not applied:\n%s", at)
	}
	if got, want := w.read("a.txt"), text("project\n<i>sandbox</i>", "last"); got != want {
		t.Errorf("it is %q, not %q", got, want)
	}
}

func TestWhatWasLookedAtIsApplied(t *testing.T) {
	w := newWorld(t)
	id := w.create("box")
	w.sh(id, "echo good >> a.txt")
	page := w.see("/sandbox/" + id)
	seen := regexp.MustCompile(`name="seen" value="([^"]+)"`).FindStringSubmatch(page)
	if seen == nil {
		t.Fatal("the page does not say what it shows")
	}
	form := url.Values{"what": {"chosen"}, "path": {ref("a.txt")}, "seen": {seen[1]}}
	w.sh(id, "sed -i s/good/evil/ a.txt")
	if at := w.post("/sandbox/"+id+"/apply", form); !strings.Contains(at, "what you looked at has changed") || w.read("a.txt") != "one\ntwo\n" {
		t.Errorf("something was applied that nobody saw:\n%s", at)
	}
	w.sh(id, "sed -i s/evil/good/ a.txt")
	w.post("/sandbox/"+id+"/apply", form)
	if w.read("a.txt") != "one\ntwo\ngood\n" {
		t.Error("what was looked at was not applied")
	}
}

func TestCommands(t *testing.T) {
	w := newWorld(t)
	id := w.create("box")
	if at := w.post("/sandbox/"+id+"/run", url.Values{"command": {" "}}); !strings.Contains(at, "write a command first") {
		t.Error("an empty command was run")
	}
	page := w.post("/sandbox/"+id+"/run", url.Values{"command": {"echo begun; sleep 600"}})
	run := regexp.MustCompile(`/cancel/([0-9]+-[0-9]+-[0-9a-z]+)"`).FindStringSubmatch(page)
	if run == nil {
		t.Fatalf("no run:\n%s", page)
	}
	await(t, func() bool { return strings.Contains(w.see("/runs/"+run[1]), "begun") })
	w.see("/", "since")
	w.post("/cancel/"+run[1], nil)
	await(t, func() bool { return strings.Contains(w.see("/runs/"+run[1]), "cancelled") })
	if at := w.post("/cancel/"+run[1], nil); !strings.Contains(at, "only what runs and was started") {
		t.Error("it was ended twice")
	}
}

// TestLongWork has every window show how far a long action is, and one cancel it.
func TestLongWork(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.t.TempDir(), "slow.hcl")
	text := fmt.Sprintf("run \"slow\" {\n  backend \"fake\" {\n    create_delay = \"1h\"\n  }\n  command = [\"true\"]\n  workspace {\n    source = %q\n  }\n}\n", w.project)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	heard := w.listen()
	before := heard()
	w.post("/create", url.Values{"source": {file}, "name": {"slow"}})
	for heard() == before {
	}
	var id []string
	await(t, func() bool {
		page := w.see("/runs", "create slow")
		id = regexp.MustCompile(`action="[^"]*/cancel/([^"]+)"`).FindStringSubmatch(page)
		return id != nil && regexp.MustCompile(`create slow: [a-z]`).MatchString(page)
	})
	w.post("/cancel/"+id[1], nil)
	await(t, func() bool { return !strings.Contains(w.see("/"), "create slow") })
	w.see("/", "No sandboxes yet")
	n := w.notices.list[w.notices.keys[0]]
	if n == nil || !n.Failed || !strings.Contains(n.Text, "create slow: cancelled from the page") || !strings.Contains(n.Command, "hutch create") {
		t.Errorf("the notice: %+v", n)
	}
}

// listen opens a window, and returns what waits for the next version that it hears of; "" at the end.
func (w *world) listen() (next func() string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url("/events"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := w.browser.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { a.Body.Close() })
	lines := bufio.NewScanner(a.Body)
	return func() string {
		for lines.Scan() {
			if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return v
			}
		}
		return ""
	}
}

// TestEvents has a window hear of what another process does.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	id := w.create("box")
	next := w.listen()
	next()
	for _, does := range []func() error{
		func() error { w.sh(id, "echo more >> a.txt"); return nil },
		func() error { return w.manager.Reset(t.Context(), id, true, false) },
		func() error { w.create("another"); return nil },
	} {
		before := w.overview(httptest.NewRequest(http.MethodGet, "/", nil)).Version
		if err := does(); err != nil {
			t.Fatal(err)
		}
		for v := before; v == before || !strings.Contains(w.see("/"), `data-version="`+v+`"`); {
			if v = next(); v == "" {
				t.Fatal("no event")
			}
		}
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come within a minute")
		}
	}
}

func TestOutput(t *testing.T) {
	long := strings.Repeat("a line\n", 5000) + strings.Repeat("b", 3000) + "\n\x1b[1;31mred\x1b[0m\ttab"
	got := string(output([]byte(long)))
	if n := strings.Count(got, "a line"); n != 5000 || !strings.Contains(got, strings.Repeat("b", 3000)) || !strings.Contains(got, ">red</span>") {
		t.Errorf("%d lines of 5000, and at the end %q", n, got[len(got)-200:])
	}
}

// TestOnlyWhatChanged: a page that is fetched again gets the cards that changed since, and the page of a sandbox is
// fetched again for what it shows and not for sandboxes of other projects.
func TestOnlyWhatChanged(t *testing.T) {
	w := newWorld(t)
	a, project := w.create("left"), w.project
	w.project = t.TempDir()
	b := w.create("far")
	w.project = project
	w.listen() // a window is open, so that what is known is kept
	now := func() *overview { return w.overview(httptest.NewRequest(http.MethodGet, "/", nil)) }
	w.see("/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	// Any card changes now and then by itself: how long ago it was made, what its processes use.
	var wrong []string
	for range 20 {
		wrong = nil
		before := now()
		w.sh(b, "echo more >> a.txt")
		var after *overview
		for after = now(); after.of(b) == before.of(b); after = now() {
		}
		if after.of(a) != before.of(a) {
			wrong = append(wrong, "the page of a sandbox is fetched again for one of another project")
		}
		for has, want := range map[string][2]bool{before.Version: {false, true}, "unknown": {true, true}, "": {true, true}} {
			r.Header.Set(hasHeader, has)
			_, body, _ := w.do(r)
			for i, name := range []string{"left", "far"} {
				if got := strings.Contains(body, ">"+name+"</a>"); got != want[i] {
					wrong = append(wrong, fmt.Sprintf("with version %q: card of %s: %v", has, name, got))
				}
			}
		}
		if wrong == nil {
			return
		}
	}
	t.Error(wrong)
}
