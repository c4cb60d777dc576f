package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk"
)

func TestParseBytes(t *testing.T) {
	for name, c := range map[string]struct {
		answer, want string // the files as path=content, or the error
	}{
		"crlf everywhere":     {"```python path=main.py\r\nprint(1)\r\n```\r\n", "main.py=print(1)\n"},
		"crlf here and there": {"```python path=main.py\nprint(1)\r\n```\n", "main.py=print(1)\r\n"},
		"byte order mark":     {"\xef\xbb\xbf{\"code\":\"x\"}", "main.py=x"},
		"empty":               {"", "the answer is empty"},
		"only blanks":         {" \n\t\n", "the answer is empty"},
		"not UTF-8":           {"a\nb\xff\n", "line 2 of the answer: the answer is not UTF-8"},
		"a zero byte":         {"a\n\nb\x00\n", "line 3 of the answer: the answer holds a zero byte"},
		"no line end at all":  {"```python path=main.py\nprint(1)\n```", "main.py=print(1)\n"},
		"zero byte in JSON":   {`{"files":[{"path":"x.bin","content":"a\u0000b"}]}`, "x.bin=a\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Parse([]byte(c.answer), "")
			got := fmt.Sprint(err)
			if err == nil {
				var parts []string
				for _, f := range a.Files {
					parts = append(parts, f.Path+"="+string(f.Content))
				}
				got = strings.Join(parts, ";")
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, err := Parse([]byte("x"), "yaml"); err == nil || !strings.Contains(err.Error(), `there is no format "yaml"`) {
		t.Errorf("an unknown format: %v", err)
	}
}

func TestBounds(t *testing.T) {
	var many strings.Builder
	for i := range runfile.MaxFiles + 1 {
		fmt.Fprintf(&many, "-- f%d --\n", i)
	}
	for name, c := range map[string]struct{ answer, want string }{
		"too many files":    {many.String(), fmt.Sprintf("more than %d files", runfile.MaxFiles)},
		"too long":          {strings.Repeat("a", MaxAnswer+1), "at most 64MiB are read"},
		"too many problems": {strings.Repeat("-- ../x --\n", 1000), "and 980 more"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.answer), ""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.300v, want %q", err, c.want)
			}
		})
	}
}

// TestHostileSizes gives each format a megabyte or so that is bad for anyone who looks for its end again and again. All
// of it takes less than a second; after five minutes a machine of any speed, under the race detector, has shown that the
// time is not linear.
func TestHostileSizes(t *testing.T) {
	const n = 50_000
	lines := strings.Repeat("x\n", n)
	answers := map[string]string{
		"open braces":         strings.Repeat("{", 10*n),
		"open objects":        strings.Repeat(`{"a":`, 2*n),
		"open strings":        strings.Repeat(`{"`, 5*n),
		"files in files":      strings.Repeat(`{"files":[`, n),
		"trailing commas":     "[" + strings.Repeat("[1,],", 2*n) + "]",
		"broken files":        strings.Repeat("{\"files\": x}\n", n),
		"fences":              strings.Repeat("```\n", n),
		"unpaired fences":     strings.Repeat("```a\n```b\n```\n", n),
		"open fences":         strings.Repeat("```a\n", n),
		"ever longer fences":  fences(1000),
		"search marks":        strings.Repeat("<<<<<<< SEARCH\n", n),
		"search and divider":  strings.Repeat("<<<<<<< SEARCH\n=======\n", n),
		"tags":                strings.Repeat("<file path=\"a\">\n", n),
		"diff headers":        strings.Repeat("--- a\n+++ a\n@@\n", n),
		"hunks":               "--- a\n+++ a\n" + strings.Repeat("@@ -1,9999 +1,9999 @@\n x\n", n),
		"counts of everyone":  "--- a\n+++ a\n@@ -1,1000000000 +1,1000000000 @@\n" + strings.Repeat(" x\n", n),
		"anchors":             "*** Begin Patch\n*** Update File: a\n" + strings.Repeat("@@ x\n", 1000) + "-y\n*** End Patch\n",
		"a hunk that repeats": "*** Begin Patch\n*** Update File: a\n@@\n" + strings.Repeat("-x\n", n/2) + "-y\n*** End Patch\n",
		"txtar":               strings.Repeat("-- a --\n", n),
		"thoughts":            strings.Repeat("<think>", n),
		"one long line":       strings.Repeat("a: ", n),
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			a, err := Parse([]byte(answer), "")
			if err == nil {
				_, _, err = a.Apply(memTree{"a": lines})
			}
			if err != nil {
				checkError(t, err)
			}
			if took := time.Since(start); took > 5*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func fences(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("`", 3+i) + "a\n")
	}
	return b.String()
}

// TestS2SavedAnswersAreJudged has answers that would be a git repository where they are saved, or settings of a tool.
func TestS2SavedAnswersAreJudged(t *testing.T) {
	for name, paths := range map[string][]string{
		"--allow-git":   {"main.py", "HEAD", "objects/x", "refs/x", "config"},
		"--allow-tools": {"main.py", ".envrc"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Answer{Format: JSON}
			for _, p := range paths {
				a.Files = append(a.Files, File{Path: p, Mode: 0o644})
			}
			dir, run, bad := filepath.Join(t.TempDir(), "new"), Run{Name: "x", Program: Program{Entrypoint: "main.py"}}, new(judge.RefusedError)
			if _, err := Save(dir, a, run, nil, nil); !errors.As(err, &bad) || !slices.Equal(bad.Flags, []string{name}) {
				t.Errorf("%v", err)
			}
			if _, err := os.Lstat(dir); err == nil {
				t.Error("it landed")
			}
			if _, err := Save(dir, a, run, nil, map[judge.Rule]bool{judge.Git: true, judge.Tools: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSave(t *testing.T) {
	answer := []byte(`{"files":[{"path":"bin/run.sh","content":"echo ${x}\n","mode":"0755"},{"path":"${evil}.py","content":"print(1)\n"}],
		"entrypoint":"${evil}.py","dependencies":["a%{ if true }b"]}`)
	a, err := Parse(answer, "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Program(Program{Dependencies: []string{"more"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	file, err := Save(dir, a, Run{Name: "x", Program: p, Backend: "podman", Network: network.Network{Mode: sdk.NetworkFull},
		Limits: runfile.Limits{Timeout: units.Duration(90 * time.Second), Memory: 512 << 20, CPUs: 1.5, PIDs: 64, Disk: 1 << 30, Files: 128, Output: 1000}}, answer, nil)
	if err != nil {
		t.Fatal(err)
	}
	conf, ds := runfile.Load([]string{file}, runfile.Options{})
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	d := conf.Runs()[0]
	got := fmt.Sprintln(d.Name, d.Entrypoint, d.Dependencies, d.Backends[0].Name, d.Network, d.Limits)
	if want := fmt.Sprintln("x", "${evil}.py", []string{"a%{ if true }b", "more"}, "podman", "full", runfile.Limits{Timeout: units.Duration(90 * time.Second), Memory: 512 << 20, CPUs: 1.5, PIDs: 64, Disk: 1 << 30, Files: 128, Output: 1000}); got != want {
		t.Errorf("the run file says %s, want %s", got, want)
	}
	if len(d.Files) != 2 || d.Files[1].Path != "bin/run.sh" || d.Files[1].Mode != 0o755 {
		t.Errorf("the files are %+v", d.Files)
	}
	if b, err := os.ReadFile(filepath.Join(dir, AnswerFile)); err != nil || string(b) != string(answer) {
		t.Errorf("the answer is %q %v", b, err)
	}
	if _, err := Save(dir, a, Run{Name: "x", Program: p}, answer, nil); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a second time: %v", err)
	}
	empty := t.TempDir()
	if _, err := Save(empty, a, Run{Name: "x", Program: p}, answer, nil); err != nil {
		t.Errorf("into an empty directory: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".hutch-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRunName(t *testing.T) {
	for in, want := range map[string]string{"-": "ingested", "a/b.md": "b", "größe ä.md": "gr-e", "../..": "ingested", strings.Repeat("x", 100): strings.Repeat("x", 64), ".hidden": "ingested"} {
		if got := RunName(in); !strings.HasPrefix(got, want[:min(len(want), 2)]) || len(got) > 64 {
			t.Errorf("RunName(%q) = %q, want %q", in, got, want)
		}
	}
}

// propose applies an answer to a directory.
func propose(t *testing.T, ledger *review.Ledger, dir, answer string, allow ...judge.Rule) (*review.Review, error) {
	t.Helper()
	a, err := Parse([]byte(answer), "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Propose(t.Context(), a, dir, "ingest-x", "id")
	if err != nil {
		return nil, err
	}
	r, err := review.Open(t.Context(), p.Subject(), review.Options{Keep: ledger.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, commit(t.Context(), ledger, r, allow...)
}

func commit(ctx context.Context, ledger *review.Ledger, r *review.Review, allow ...judge.Rule) error {
	policy := review.Policy{Allow: map[judge.Rule]bool{}}
	for _, a := range allow {
		policy.Allow[a] = true
	}
	plan, err := r.Plan(ctx, r.All(), policy)
	if err != nil {
		return err
	}
	_, err = ledger.Apply(ctx, r, plan)
	return err
}

const allKinds = `*** Begin Patch
*** Update File: a.txt
@@
-one
+ONE
*** Delete File: gone.txt
*** Update File: old/name.txt
*** Move to: deep/er/name.txt
@@
-two
+TWO
*** Add File: new/dir/x.txt
+hello
*** End Patch
`

func TestProposalIsAppliedAndUndone(t *testing.T) {
	dir := t.TempDir()
	before := memTree{"a.txt": "one\n", "gone.txt": "bye\n", "old/name.txt": "two\n", "untouched": "x"}
	writeTree(t, dir, before)
	ledger := review.NewLedger(t.TempDir(), nil)
	if _, err := propose(t, ledger, dir, allKinds); err != nil {
		t.Fatal(err)
	}
	want := memTree{"a.txt": "ONE\n", "deep/er/name.txt": "TWO\n", "new/dir/x.txt": "hello\n", "untouched": "x"}
	if d := cmp.Diff(want, readTree(t, dir)); d != "" {
		t.Errorf("after the apply (-want +got):\n%s", d)
	}
	if _, err := ledger.Undo(t.Context(), "ingest-x"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, readTree(t, dir)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
}

func TestProposalIsAllOrNothing(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   string // in the error
		during func(t *testing.T, dir string)
	}{
		"a hunk that does not fit": {answer: strings.Replace(allKinds, "-two", "-other", 1), want: "old/name.txt: hunk 1: its lines are not in the file"},
		"a git hook":               {answer: "```sh path=.git/hooks/pre-commit\ntrue\n```\n```txt path=a.txt\nnew\n```\n", want: "refused change"},
		"an executable":            {answer: `{"files":[{"path":"a.txt","content":"x"},{"path":"run.sh","content":"x","mode":"0755"}]}`, want: "refused change"},
		"a link on the way":        {answer: "-- link/x.txt --\nx\n-- a.txt --\nnew\n", want: "link"},
		"a link in its place":      {answer: "-- flink --\nx\n-- a.txt --\nnew\n", want: "link"},
		"a directory in its place": {answer: "-- old --\nx\n-- a.txt --\nnew\n", want: "old: it cannot be changed"},
		"a file on the way":        {answer: "-- a.txt/x --\nx\n", want: "a.txt"},
		"a change meanwhile": {answer: allKinds, want: "conflict", during: func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("mine\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "project")
			writeTree(t, dir, memTree{"a.txt": "one\n", "gone.txt": "bye\n", "old/name.txt": "two\n"})
			writeTree(t, filepath.Join(outer, "elsewhere"), memTree{"x.txt": "not yours\n"})
			for link, to := range map[string]string{"link": "../elsewhere", "flink": "../elsewhere/x.txt"} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			before := readTree(t, filepath.Join(outer, "elsewhere"))
			project := plainTree(t, dir)
			ledger := review.NewLedger(t.TempDir(), nil)
			var err error
			if c.during == nil {
				_, err = propose(t, ledger, dir, c.answer)
			} else {
				a, perr := Parse([]byte(c.answer), "")
				if perr != nil {
					t.Fatal(perr)
				}
				p, perr := Propose(t.Context(), a, dir, "ingest-x", "id")
				if perr != nil {
					t.Fatal(perr)
				}
				c.during(t, dir)
				project = plainTree(t, dir)
				r, perr := review.Open(t.Context(), p.Subject(), review.Options{Keep: ledger.Dir()})
				if perr != nil {
					t.Fatal(perr)
				}
				defer r.Close()
				err = commit(t.Context(), ledger, r)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if d := cmp.Diff(project, plainTree(t, dir)); d != "" {
				t.Errorf("the project changed:\n%s", d)
			}
			if d := cmp.Diff(before, readTree(t, filepath.Join(outer, "elsewhere"))); d != "" {
				t.Errorf("something outside changed:\n%s", d)
			}
		})
	}
}

// plainTree is readTree without links.
func plainTree(t *testing.T, dir string) memTree {
	t.Helper()
	out := memTree{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			for name, text := range readTree(t, p) {
				out[e.Name()+"/"+name] = text
			}
			out[e.Name()+"/"] = ""
		case e.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(b)
		default:
			to, err := os.Readlink(p)
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = "-> " + to
		}
	}
	return out
}

func TestProposeErrors(t *testing.T) {
	a, err := Parse([]byte(allKinds), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Propose(t.Context(), a, filepath.Join(t.TempDir(), "none"), "n", "i"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// TestNewlineAtEnd has a V4A patch end a file that had no newline at its end, as Codex does.
func TestNewlineAtEnd(t *testing.T) {
	a, err := Parse([]byte("*** Begin Patch\n*** Update File: x\n@@\n-last\n+one\n+two\n*** End Patch\n"), V4A)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := a.Apply(memTree{"x": "last"})
	if err != nil || len(out) != 1 || string(out[0].Content) != "one\ntwo\n" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestByteOrderMark changes the first line of a file with a byte order mark, which models leave out and git does not.
func TestByteOrderMark(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"search":    {"x.py\n<<<<<<< SEARCH\none\n=======\n1\n>>>>>>> REPLACE\n", "\ufeff1\ntwo\n"},
		"v4a":       {"*** Begin Patch\n*** Update File: x.py\n@@\n-one\n+1\n two\n*** End Patch\n", "\ufeff1\ntwo\n"},
		"diff":      {"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n", "\ufeff1\ntwo\n"},
		"with mark": {"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-\ufeffone\n+1\n two\n", "1\ntwo\n"},
	} {
		a, err := Parse([]byte(c.answer), "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, _, err := a.Apply(memTree{"x.py": "\ufeffone\ntwo\n"})
		if err != nil || len(out) != 1 || string(out[0].Content) != c.want {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}
