package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
)

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m, 10*time.Minute)) }

// world is a server whose backend is plugins/fake, as a process of its own, and a client of it.
type world struct {
	*Server
	t       *testing.T
	store   *store.Store
	project string
	client  *mcp.ClientSession
}

func newServer(t *testing.T, change func(*Options)) *world {
	t.Helper()
	bin := testbackend.Dir(t, "fake")
	t.Setenv("HUTCH_BACKEND_PATH", bin)
	t.Setenv("TMPDIR", t.TempDir())
	st, err := store.Open(store.Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := store.NewRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	pool := backend.NewPool(backend.Options{Dir: dir.Path(), HostVersion: "test"})
	t.Cleanup(func() { _ = errors.Join(pool.Close(context.Background()), dir.Close(), st.Close()) })
	w := &world{t: t, store: st, project: t.TempDir()}
	for name, text := range map[string]string{"a.txt": "hello\n", "src/main.go": "package main\n\nfunc main() {}\n"} {
		p := filepath.Join(w.project, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Backend: "fake", Version: "test", Workspaces: []string{w.project}, Manager: sandbox.New(sandbox.Options{
		Run: run.Options{Store: st, Backends: pool, TakeBase: review.WriteBase},
		Destroy: func(ctx context.Context, i store.Intent) error {
			b, err := pool.Get(ctx, i.Backend)
			if err != nil {
				return err
			}
			return b.Destroy(ctx, sdk.Handle{ID: i.ID, Data: i.Handle})
		},
	})}
	if change != nil {
		change(&o)
	}
	w.Server = New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := w.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// newWorld is a server with a client in the same process.
func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := newServer(t, change)
	ours, theirs := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = w.server.Run(ctx, ours) }()
	w.connect(theirs)
	return w
}

func (w *world) connect(transport mcp.Transport) {
	w.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	session, err := c.Connect(w.t.Context(), transport, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = session.Close() })
	w.client = session
}

// m are the arguments of a call.
type m = map[string]any

// call calls a tool and decodes its structured answer; want is a part of the error, "" for none.
func (w *world) call(name string, args m, out any, want string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := w.client.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		w.t.Fatalf("%s %v: %v", name, args, err)
	}
	var text []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text = append(text, t.Text)
		}
	}
	got := strings.Join(text, "\n")
	switch {
	case r.IsError && want == "":
		w.t.Fatalf("%s %v: %s", name, args, got)
	case !r.IsError && want != "":
		w.t.Fatalf("%s %v: no error, want %q: %s", name, args, want, got)
	case r.IsError:
		if !strings.Contains(got, want) {
			w.t.Errorf("%s %v: the error is %q, want %q", name, args, got, want)
		}
		return
	}
	b, err := json.Marshal(r.StructuredContent)
	if err != nil {
		w.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			w.t.Fatalf("%s: %v\n%s", name, err, b)
		}
	}
	var a, c any
	if err := errors.Join(json.Unmarshal(b, &a), json.Unmarshal([]byte(got), &c)); err != nil || fmt.Sprint(a) != fmt.Sprint(c) {
		w.t.Errorf("%s: the text is not the structured content: %s", name, got)
	}
}

// create makes a sandbox and returns its name.
func (w *world) create(args m) string {
	w.t.Helper()
	var out sandboxOut
	w.call("create_sandbox", args, &out, "")
	return out.Name
}

func (w *world) sh(sb, line string) tools.ExecOut {
	w.t.Helper()
	var out tools.ExecOut
	w.call("exec", m{"sandbox": sb, "command": line}, &out, "")
	return out
}

func TestTools(t *testing.T) {
	for _, apply := range []bool{false, true} {
		w := newWorld(t, func(o *Options) {
			if apply {
				o.Ledger = review.NewLedger(t.TempDir())
			}
		})
		list, err := w.client.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			a := tool.Annotations
			if tool.InputSchema == nil || tool.OutputSchema == nil || tool.Title == "" || tool.Description == "" || a == nil || a.OpenWorldHint == nil || *a.OpenWorldHint {
				t.Errorf("%s is not described in full", tool.Name)
			}
			reading := slices.Contains([]string{"list_sandboxes", "sandbox_status", "job_output", "list_files", "stat_file", "read_file", "grep", "diff"}, tool.Name)
			if a.ReadOnlyHint != reading {
				t.Errorf("%s: read only is %v", tool.Name, a.ReadOnlyHint)
			}
		}
		slices.Sort(names)
		want := "apply_patch create_sandbox destroy_sandbox diff edit_file exec grep job_output list_files list_sandboxes read_file remove_file reset_sandbox sandbox_status stat_file stop_job write_file"
		if apply {
			want = "apply " + want
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("the tools are %s, want %s", got, want)
		}
	}
}

func TestLife(t *testing.T) {
	w := newWorld(t, nil)
	w.call("exec", m{"sandbox": "box", "command": "true"}, nil, `there is no sandbox "box" here`)
	name := w.create(m{"name": "box"})
	w.call("create_sandbox", m{"name": "box"}, nil, "box")
	w.call("create_sandbox", m{"name": "not a name"}, nil, "name")
	w.call("create_sandbox", m{"workspace": "/etc"}, nil, "makes no sandbox on")
	w.call("create_sandbox", m{"network": true}, nil, "--allow-network")
	var l listOut
	w.call("list_sandboxes", m{}, &l, "")
	if len(l.Sandboxes) != 1 || l.Sandboxes[0].Name != name || l.Sandboxes[0].Workspace != w.project || !l.Sandboxes[0].Made {
		t.Errorf("the list is %+v", l)
	}
	w.sh(name, "echo x > new.txt")
	var st statusOut
	w.call("sandbox_status", m{"sandbox": name}, &st, "")
	if st.State != "ready" || st.Changes == nil || st.Changes.Entries != 1 || len(st.Jobs) != 1 || len(st.Limits) == 0 {
		t.Errorf("the status is %+v", st)
	}
	w.call("reset_sandbox", m{"sandbox": name}, nil, "")
	if got := w.sh(name, "cat new.txt").Stdout.Text; got != "x\n" {
		t.Errorf("after a reset: %q", got)
	}
	w.call("reset_sandbox", m{"sandbox": name, "hard": true}, nil, "")
	if out := w.sh(name, "cat new.txt"); out.OK {
		t.Errorf("after a hard reset: %+v", out)
	}
	var gone destroyedOut
	w.call("destroy_sandbox", m{"sandbox": name}, &gone, "")
	if !gone.Destroyed {
		t.Error("not destroyed")
	}
	w.call("destroy_sandbox", m{"sandbox": name}, &gone, "")
	if gone.Destroyed {
		t.Error("destroyed twice")
	}
}

// What was not made here is as good as not there, unless it is named, and stays either way.
func TestOthersSandboxes(t *testing.T) {
	var named []string
	w := newServer(t, nil)
	other, err := w.Server.create(t.Context(), createIn{Name: "others"})
	if err != nil {
		t.Fatal(err)
	}
	o := w.o
	for range 2 {
		o.Sandboxes = named
		s := New(o)
		ours, theirs := mcp.NewInMemoryTransports()
		go func() { _ = s.server.Run(t.Context(), ours) }()
		w.connect(theirs)
		var l listOut
		w.call("list_sandboxes", m{}, &l, "")
		if len(l.Sandboxes) != len(named) {
			t.Errorf("the list is %+v", l)
		}
		if named == nil {
			for _, c := range []struct {
				tool string
				args m
			}{
				{"exec", m{"command": "true"}}, {"read_file", m{"path": "a.txt"}}, {"write_file", m{"path": "a.txt", "content": ""}}, {"diff", m{}},
				{"sandbox_status", m{}}, {"reset_sandbox", m{}}, {"list_files", m{}}, {"grep", m{"pattern": "x"}},
			} {
				for _, ref := range []string{other.Name, other.ID, other.ID[:15]} {
					c.args["sandbox"] = ref
					w.call(c.tool, c.args, nil, "there is no sandbox")
				}
			}
		} else {
			w.sh(other.Name, "true")
			w.call("destroy_sandbox", m{"sandbox": other.Name}, nil, "hutch rm others removes it")
		}
		if left, err := s.Close(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("left %v %v", left, err)
		}
		if _, err := w.store.FindSandbox(other.Name); err != nil {
			t.Errorf("the other one: %v", err)
		}
		named = []string{other.Name}
	}
}

func TestCloseDestroys(t *testing.T) {
	for _, keep := range []bool{false, true} {
		w := newWorld(t, func(o *Options) { o.Keep = keep })
		name := w.create(m{})
		var out tools.ExecOut
		w.call("exec", m{"sandbox": name, "command": "echo on; sleep 1000", "background": true}, &out, "")
		left, err := w.Close(t.Context())
		if err != nil || (len(left) == 1) != keep {
			t.Errorf("keep %v: left %v %v", keep, left, err)
		}
		if _, err := w.store.FindSandbox(name); (err == nil) != keep {
			t.Errorf("keep %v: %v", keep, err)
		}
		if keep {
			if err := w.o.Manager.Remove(t.Context(), name, true); err != nil {
				t.Error(err)
			}
			w.made = map[string]bool{}
		}
	}
}

func TestExec(t *testing.T) {
	w := newWorld(t, nil)
	name := w.create(m{})
	var out tools.ExecOut
	w.call("exec", m{"sandbox": name, "argv": []string{"sh", "-c", `echo "$1 $V"; cat; echo err >&2; pwd; exit 3`, "sh", "arg"},
		"env": m{"V": "value"}, "stdin": "input\n", "workdir": "src"}, &out, "")
	if out.Running || out.OK || out.ExitCode == nil || *out.ExitCode != 3 || out.Cause != "exited" || out.Run == "" {
		t.Errorf("the job is %+v", out)
	}
	if !strings.HasPrefix(out.Stdout.Text, "arg value\ninput\n") || !strings.HasSuffix(out.Stdout.Text, "src\n") || out.Stderr.Text != "err\n" {
		t.Errorf("the output is %+v", out)
	}
	if rec, err := w.store.Load(out.Run); err != nil || rec == nil {
		t.Errorf("its record: %v", err)
	}
	w.call("exec", m{"sandbox": name}, nil, "either command")
	w.call("exec", m{"sandbox": name, "command": "true", "argv": []string{"true"}}, nil, "either command")
	w.call("exec", m{"sandbox": name, "command": "true", "timeout": "30"}, nil, "has no unit")
	w.call("exec", m{"sandbox": name, "command": "true", "env": m{"A=B": "x"}}, nil, "no name of a variable")
	out = tools.ExecOut{}
	w.call("exec", m{"sandbox": name, "argv": []string{"no-such-program"}}, &out, "")
	if out.OK || out.Cause != "setup_failed" || !strings.Contains(out.Evidence, "no-such-program") || out.ExitCode != nil {
		t.Errorf("a program that is not there: %+v", out)
	}
	w.call("exec", m{"sandbox": name, "command": "sleep 1000", "timeout": "100ms"}, &out, "")
	if out.Cause != "timeout" || out.OK {
		t.Errorf("a timeout: %+v", out)
	}
	w.call("job_output", m{"job": "job-99"}, nil, "there is no job")
}

func TestJobs(t *testing.T) {
	w := newWorld(t, nil)
	name := w.create(m{})
	var out tools.ExecOut
	w.call("exec", m{"sandbox": name, "command": "echo begun; while [ ! -e go ]; do sleep 0.05; done; seq 1 20000", "background": true}, &out, "")
	if !out.Running {
		t.Fatalf("the job is %+v", out)
	}
	w.call("write_file", m{"sandbox": name, "path": "go", "content": ""}, nil, "")
	w.call("job_output", m{"job": out.Job, "wait": "90s", "max_bytes": 1000}, &out, "")
	if out.Running || !out.OK || len(out.Stdout.Text) != 1000 || out.Stdout.Next != 1000 {
		t.Fatalf("the first page is %+v", out)
	}
	all := out.Stdout.Text
	for out.Stdout.Next < out.Stdout.Total {
		w.call("job_output", m{"job": out.Job, "stdout_offset": out.Stdout.Next, "max_bytes": 50_000}, &out, "")
		all += out.Stdout.Text
	}
	want := "begun\n"
	for i := range 20000 {
		want += fmt.Sprintln(i + 1)
	}
	if all != want {
		t.Errorf("%d bytes came in pages, want %d", len(all), len(want))
	}
	w.call("job_output", m{"job": out.Job, "stdout_offset": -1, "max_bytes": 6}, &out, "")
	if out.Stdout.Text != "20000\n" {
		t.Errorf("the end is %q", out.Stdout.Text)
	}
	w.call("exec", m{"sandbox": name, "command": "sleep 1000", "wait": "50ms"}, &out, "")
	if !out.Running {
		t.Fatalf("the job is %+v", out)
	}
	var stopped tools.JobOut
	w.call("stop_job", m{"job": out.Job}, &stopped, "")
	if stopped.Running || stopped.OK || stopped.Cause != "cancelled" {
		t.Errorf("stopped: %+v", stopped)
	}
	w.call("stop_job", m{"job": out.Job}, nil, "")
	w.call("exec", m{"sandbox": name, "command": "sleep 1000", "background": true}, &out, "")
	w.call("destroy_sandbox", m{"sandbox": name}, nil, "") // ends its jobs
}

func TestFiles(t *testing.T) {
	w := newWorld(t, nil)
	sb := w.create(m{})
	at := func(extra m) m {
		extra["sandbox"] = sb
		return extra
	}
	var l tools.ListFilesOut
	w.call("list_files", at(m{"limit": 2}), &l, "")
	if len(l.Entries) != 2 || l.Next != 2 || l.Entries[0].Path != "a.txt" {
		t.Errorf("the first page is %+v", l)
	}
	w.call("list_files", at(m{"offset": 2}), &l, "")
	if len(l.Entries) != 1 || l.Entries[0].Path != "src/main.go" {
		t.Errorf("the second page is %+v", l)
	}
	w.call("list_files", at(m{"offset": -1}), nil, "negative")
	var r tools.ReadFileOut
	w.call("read_file", at(m{"path": "src/main.go", "offset": 3, "limit": 1}), &r, "")
	if r.Text != "func main() {}\n" || r.Lines != 3 || r.First != 3 {
		t.Errorf("read %+v", r)
	}
	w.call("read_file", at(m{"path": "../../etc/passwd"}), nil, "outside of the workspace")
	w.call("read_file", at(m{"path": "/etc/passwd"}), nil, "/etc/passwd")
	w.call("read_file", at(m{"path": "none"}), nil, "no such file")
	var wr tools.WriteFileOut
	w.call("write_file", at(m{"path": "bin/x", "content": "AAE=", "encoding": "base64", "mode": "755"}), &wr, "")
	if !wr.Created || wr.Size != 2 {
		t.Errorf("written %+v", wr)
	}
	w.call("write_file", at(m{"path": "bin/x", "content": "", "new": true}), nil, "exists")
	w.call("write_file", at(m{"path": "x", "content": "?", "encoding": "base64"}), nil, "not base64")
	w.call("write_file", at(m{"path": "x", "content": "", "mode": "4755"}), nil, "octal")
	w.call("read_file", at(m{"path": "bin/x"}), &r, "")
	if r.Text != "" || r.Base64 != "AAE=" {
		t.Errorf("read %+v", r)
	}
	var e tools.EntryOut
	w.call("stat_file", at(m{"path": "bin/x"}), &e, "")
	if e.Type != "file" || e.Mode != "0755" || e.Size != 2 {
		t.Errorf("stat %+v", e)
	}
	var ed tools.EditFileOut
	w.call("edit_file", at(m{"path": "src/main.go", "edits": []m{{"old": "main() {}", "new": "main() { run() }"}}}), &ed, "")
	if ed.Replaced != 1 || ed.Lines[0] != 3 {
		t.Errorf("edited %+v", ed)
	}
	w.call("edit_file", at(m{"path": "src/main.go", "edits": []m{{"old": "main", "new": "x"}}}), nil, "is there 2 times, at")
	w.call("edit_file", at(m{"path": "src/main.go", "edits": []m{}}), nil, "nothing to replace")
	var g tools.GrepOut
	w.call("grep", at(m{"pattern": `run\(`, "context": 1}), &g, "")
	if g.Count != 1 || g.Files[0].Path != "src/main.go" || len(g.Files[0].Lines) != 2 {
		t.Errorf("grep %+v", g)
	}
	w.call("grep", at(m{"pattern": `(`}), nil, "pattern")
	w.call("write_file", at(m{"path": "b/many.txt", "content": "many 1\nmany 2\nmany 3\nmany 4\nmany 5\n"}), nil, "")
	g = tools.GrepOut{}
	w.call("grep", at(m{"pattern": "^many", "limit": 2, "offset": 2}), &g, "")
	if g.Count != 2 || g.Next != 4 || g.Files[0].Lines[0].Line != 3 {
		t.Errorf("the second page is %+v", g)
	}
	g = tools.GrepOut{}
	w.call("grep", at(m{"pattern": "^many", "limit": 2, "offset": 4}), &g, "")
	if g.Count != 1 || g.Next != 0 || g.Truncated {
		t.Errorf("the last page is %+v", g)
	}
	var pa tools.ApplyPatchOut
	w.call("apply_patch", at(m{"patch": "*** Begin Patch\n*** Update File: b/many.txt\n*** Move to: c/few.txt\n@@\n-many 1\n-many 2\n+few\n many 3\n*** Add File: d.txt\n+new\n*** Delete File: a.txt\n*** End Patch\n"}), &pa, "")
	if got := fmt.Sprint(pa.Files); got != "[{a.txt deleted 0} {b/many.txt deleted 0} {c/few.txt added 25} {d.txt added 4}]" {
		t.Errorf("patched %s", got)
	}
	w.call("read_file", at(m{"path": "c/few.txt"}), &r, "")
	if r.Text != "few\nmany 3\nmany 4\nmany 5\n" {
		t.Errorf("read %+v", r)
	}
	w.call("stat_file", at(m{"path": "a.txt"}), nil, "no such file")
	w.call("apply_patch", at(m{"patch": "--- a/d.txt\n+++ b/d.txt\n@@ -1 +1 @@\n-new\n+newer\n--- a/c/few.txt\n+++ b/c/few.txt\n@@ -1 +1 @@\n-less\n+least\n"}), nil, "nothing was changed")
	w.call("read_file", at(m{"path": "d.txt"}), &r, "")
	if r.Text != "new\n" {
		t.Errorf("half of a patch was applied: %+v", r)
	}
	w.call("apply_patch", at(m{"patch": "*** Begin Patch\n*** Add File: ../out.txt\n+x\n*** End Patch\n"}), nil, "nothing was changed")
	w.call("apply_patch", at(m{"patch": "{\"files\":[{\"path\":\"a\",\"content\":\"x\"}]}"}), nil, "no patch")
	w.call("remove_file", at(m{"path": "bin"}), nil, "bin")
	w.call("remove_file", at(m{"path": "bin", "recursive": true}), nil, "")
	w.call("stat_file", at(m{"path": "bin"}), nil, "no such file")
	if b, err := os.ReadFile(filepath.Join(w.project, "src/main.go")); err != nil || !strings.HasSuffix(string(b), "main() {}\n") {
		t.Errorf("the project has %q %v", b, err)
	}
}

func TestDiffAndApply(t *testing.T) {
	ledger := review.NewLedger(t.TempDir())
	w := newWorld(t, func(o *Options) { o.Ledger = ledger })
	sb := w.create(m{"name": "box"})
	w.sh(sb, "echo bye > a.txt; seq 1 5000 > long.txt; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit")
	var d diffOut
	w.call("diff", m{"sandbox": sb, "change_limit": 1, "max_bytes": 2000}, &d, "")
	if d.Project != w.project || d.Total < 3 || len(d.Changes) != 1 || d.NextChange != 1 || d.Next == 0 || len(d.Patch) > 2000 {
		t.Errorf("the first page is %+v", d)
	}
	whole := d.Patch
	for d.Next > 0 {
		next := d.Next
		d = diffOut{}
		w.call("diff", m{"sandbox": sb, "offset": next, "max_bytes": 9000}, &d, "")
		whole += d.Patch
	}
	if !strings.Contains(whole, "-hello\n+bye\n") || strings.Count(whole, "\n+") < 5001 || !strings.Contains(whole, "\n+5000\n") {
		t.Errorf("the patch is %.2000s", whole)
	}
	w.call("apply", m{"sandbox": sb}, nil, "refused: .git")
	var a applyOut
	w.call("apply", m{"sandbox": sb, "paths": []string{"a.txt"}, "dry_run": true}, &a, "")
	if len(a.Applied) != 1 || a.Undo != "" {
		t.Errorf("a dry run: %+v", a)
	}
	read := func() string {
		b, err := os.ReadFile(filepath.Join(w.project, "a.txt"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(); got != "hello\n" {
		t.Errorf("after a dry run: %q", got)
	}
	w.call("apply", m{"sandbox": sb, "paths": []string{"a.txt"}}, &a, "")
	if got := read(); got != "bye\n" || a.Undo != "hutch apply --undo box" {
		t.Errorf("after the apply: %q, %+v", got, a)
	}
	if _, err := ledger.Undo(t.Context(), "box"); err != nil || read() != "hello\n" {
		t.Errorf("after the undo: %q %v", read(), err)
	}
}

// A text that both sides changed is joined where the client says so, and only then.
func TestMerge(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "git") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	w := newWorld(t, func(o *Options) { o.Ledger = review.NewLedger(t.TempDir()) })
	text := func(lines ...string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }
	plant := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(w.project, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plant("text", text("1", "2", "3", "4", "5", "6", "7"))
	plant("loose", text("1", "2", "3", "4", "5", "6", "7"))
	old := time.Now().Add(-time.Hour) // or git's index, written in the same moment, vouches for nothing
	if err := os.Chtimes(filepath.Join(w.project, "text"), old, old); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "text"}} {
		if out, err := exec.Command("git", append([]string{"-C", w.project}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	sb := w.create(m{"name": "box"})
	w.sh(sb, "for f in text loose; do sed -i s/^2/sandbox/ $f; done")
	plant("text", text("1", "2", "3", "4", "5", "project", "7"))
	plant("loose", text("1", "2", "3", "4", "5", "project", "7"))

	only := []string{"text"}
	w.call("apply", m{"sandbox": sb, "paths": only}, nil, `"merge" joins texts`)
	w.call("apply", m{"sandbox": sb, "merge": true}, nil, "conflict: loose: ")
	w.call("apply", m{"sandbox": sb, "merge": true}, nil, "cannot be merged: git does not have it")
	var d diffOut
	w.call("diff", m{"sandbox": sb, "paths": only, "merge": true}, &d, "")
	if !strings.Contains(d.Patch, "-2\n+sandbox\n") || strings.Contains(d.Patch, "-project") || len(d.Changes) != 1 || !d.Changes[0].Merged {
		t.Errorf("the merge is shown as %+v", d)
	}
	var a applyOut
	w.call("apply", m{"sandbox": sb, "paths": only, "merge": true}, &a, "")
	got, err := os.ReadFile(filepath.Join(w.project, "text"))
	if want := text("1", "sandbox", "3", "4", "5", "project", "7"); err != nil || string(got) != string(want) || len(a.Applied) != 1 || !a.Applied[0].Merged {
		t.Errorf("the project has %q %v, the answer is %+v", got, err, a)
	}
}

// Whatever a client sends is answered, and the session goes on.
func TestBadCalls(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		tool string
		args any
	}{
		{"no_such_tool", m{}}, {"exec", m{"sandbox": 1}}, {"exec", m{"sandbox": "x", "unknown": 1}}, {"exec", nil}, {"exec", []int{1}},
		{"read_file", m{"sandbox": strings.Repeat("x", 1<<16), "path": "\x00"}}, {"apply", m{"sandbox": "x"}},
	} {
		r, err := w.client.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err == nil && !r.IsError {
			t.Errorf("%s %.100v: no error", c.tool, c.args)
		}
	}
	w.call("list_sandboxes", m{}, nil, "")
}
