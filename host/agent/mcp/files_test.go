package mcp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/push"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/files"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/internal/gittest"
)

func TestFiles(t *testing.T) {
	w := newWorld(t, nil)
	sb := w.create(m{})
	at := func(extra m) m {
		extra["sandbox"] = sb
		return extra
	}
	var l files.Listing
	w.call("list_files", at(m{"limit": 2}), &l, "")
	if len(l.Entries) != 2 || l.Next != 2 || l.Entries[0].Path != "a.txt" {
		t.Errorf("the first page is %+v", l)
	}
	w.call("list_files", at(m{"offset": 2}), &l, "")
	if len(l.Entries) != 1 || l.Entries[0].Path != "src/main.go" {
		t.Errorf("the second page is %+v", l)
	}
	w.call("list_files", at(m{"offset": -1}), nil, "negative")
	var r files.Content
	w.call("read_file", at(m{"path": "src/main.go", "offset": 3, "limit": 1}), &r, "")
	if r.Text != "func main() {}\n" || r.Lines != 3 || r.First != 3 {
		t.Errorf("read %+v", r)
	}
	w.call("read_file", at(m{"path": "../../etc/passwd"}), nil, "outside of the workspace")
	w.call("read_file", at(m{"path": "/etc/passwd"}), nil, "/etc/passwd")
	w.call("read_file", at(m{"path": "none"}), nil, "no such file")
	var wr files.Written
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
	var e files.Entry
	w.call("stat_file", at(m{"path": "bin/x"}), &e, "")
	if e.Type != "file" || e.Mode != "0755" || e.Size != 2 {
		t.Errorf("stat %+v", e)
	}
	var ed files.Edited
	w.call("edit_file", at(m{"path": "src/main.go", "edits": []m{{"old": "main() {}", "new": "main() { run() }"}}}), &ed, "")
	if ed.Replaced != 1 || ed.Lines[0] != 3 {
		t.Errorf("edited %+v", ed)
	}
	w.call("edit_file", at(m{"path": "src/main.go", "edits": []m{{"old": "main", "new": "x"}}}), nil, "is there 2 times, at")
	w.call("edit_file", at(m{"path": "src/main.go", "edits": []m{}}), nil, "nothing to replace")
	var g files.Matches
	w.call("grep", at(m{"pattern": `run\(`, "before": 1, "after": 1}), &g, "")
	if g.Count != 1 || g.Files[0].Path != "src/main.go" || len(g.Files[0].Lines) != 2 {
		t.Errorf("grep %+v", g)
	}
	w.call("grep", at(m{"pattern": `(`}), nil, "pattern")
	w.call("write_file", at(m{"path": "b/many.txt", "content": "many 1\nmany 2\nmany 3\nmany 4\nmany 5\n"}), nil, "")
	g = files.Matches{}
	w.call("grep", at(m{"pattern": "^many", "limit": 2, "offset": 2}), &g, "")
	if g.Count != 2 || g.Next != 4 || g.Files[0].Lines[0].Number != 3 {
		t.Errorf("the second page is %+v", g)
	}
	g = files.Matches{}
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
	ledger := review.NewLedger(t.TempDir(), nil)
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
	w := newWorld(t, func(o *Options) { o.Ledger = review.NewLedger(t.TempDir(), nil) })
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

// badBases are bases of which none can be written.
type badBases struct{ *store.Store }

func (b badBases) PlaceSandboxBase(string) error { return syscall.ENOSPC }

// Command line and MCP apply and review in the same way.
func TestL9(t *testing.T) {
	gittest.Need(t)
	t.Run("the project was changed and the base cannot be written", func(t *testing.T) {
		w := newWorld(t, nil)
		w.o.Ledger = review.NewLedger(t.TempDir(), badBases{w.store})
		w.reviewTools()
		sb := w.create(m{"name": "box"})
		w.sh(sb, "echo bye > a.txt")
		var a applyOut
		w.call("apply", m{"sandbox": sb}, &a, "")
		if len(a.Applied) != 1 || len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "the changes were applied, but the sandbox's base could not be written") {
			t.Errorf("it answers %+v", a)
		}
	})
	t.Run("a pushed sandbox", func(t *testing.T) {
		w := newWorld(t, nil)
		sb := w.create(m{"name": "box"})
		git := func(args ...string) string { return strings.TrimSpace(gittest.Run(t, w.project, args...)) }
		git("init", "-q")
		git("add", "-A")
		git("commit", "-q", "-m", "sent")
		base := git("rev-parse", "HEAD")
		if err := os.WriteFile(filepath.Join(w.project, "a.txt"), []byte("bye\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		git("commit", "-q", "-a", "-m", "pulled")
		git("update-ref", push.Ref("box"), "HEAD")
		git("reset", "-q", "--hard", base)
		s, err := w.o.Manager.Open(t.Context(), sb, sandbox.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		top := git("rev-parse", "--show-toplevel")
		if err := errors.Join(s.SetPush(&store.SandboxPush{Repository: top, Base: base, Clone: "/workspace"}), s.Close()); err != nil {
			t.Fatal(err)
		}
		var d diffOut
		w.call("diff", m{"sandbox": sb}, &d, "")
		if d.Total != 1 || !strings.Contains(d.Patch, "-hello\n+bye\n") {
			t.Errorf("it shows %+v", d)
		}
	})
}
