//go:build linux

package files

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// startBwrap builds and starts the backend; the test is skipped where it cannot run, and fails if HUTCH_TEST_REQUIRE
// lists bwrap.
func startBwrap(t *testing.T) *backend.Backend {
	t.Helper()
	need := func(err error) {
		t.Helper()
		switch {
		case err == nil:
		case slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "bwrap"):
			t.Fatal(err)
		default:
			t.Skip(err)
		}
	}
	_, err := exec.LookPath("bwrap")
	need(err)
	bin := testbackend.Dir(t, "bwrap")
	dir, err := store.NewRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	p := backend.NewPool(backend.Options{Dir: dir.Path(), CacheDir: t.TempDir(), Paths: []string{bin}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		_ = dir.Close()
	})
	b, err := p.Get(t.Context(), "bwrap")
	if err != nil {
		t.Fatal(err)
	}
	findings, err := b.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Status == sdk.SeverityError {
			need(fmt.Errorf("%s: %s", f.Name, f.Detail))
		}
	}
	return b
}

// shell runs a script in the workspace and returns what it printed.
func shell(t *testing.T, sb *client.Sandbox, script string) string {
	t.Helper()
	var out, errs bytes.Buffer
	exit, err := sb.Exec(t.Context(), &client.Command{Argv: []string{"/bin/sh", "-c", script}, Dir: "/workspace", Env: map[string]string{"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, Stdout: &out, Stderr: &errs, Timeout: 30 * time.Second})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v %v\n%s", script, exit, err, &errs)
	}
	return out.String()
}

// TestInASandbox uses all tools on real sandboxes, on one whose layers lie on this host and on one whose writes are in
// memory, and compares what they say with what commands in the sandbox say.
func TestInASandbox(t *testing.T) {
	b := startBwrap(t)
	for name, limits := range map[string]sdk.Limits{"layers": {}, "in memory": {Disk: 64 << 20}} {
		t.Run(name, func(t *testing.T) {
			src := t.TempDir()
			fill(t, src, project)
			sb, err := b.Create(t.Context(), &sdk.CreateRequest{ID: "files-" + strings.ReplaceAll(name, " ", "-"), StateDir: t.TempDir(),
				Spec: sdk.Spec{Network: sdk.NetworkNone, Limits: limits, Workspace: sdk.Workspace{Source: src, Mode: sdk.WorkspacePrivate}}})
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Destroy(context.WithoutCancel(t.Context()))
			if has := sb.Ready().Layers != nil; has != (limits.Disk == 0) {
				t.Fatalf("layers: %t", has)
			}
			f, err := Open(sb, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			shell(t, sb, `rm gone.txt; rm -r old; mkdir old; echo new > old/new; echo upper > shown; chmod 755 shown; mkfifo fifo; echo r > /output/r
				ln README.md hard; mkdir -p many/a/b; for i in 1 2 3; do echo "line $i needle" > many/a/b/$i; done`)
			useTools(t, f, sb)
			compareWithShell(t, f, sb)
			if got := paths(must(f.List(t.Context(), ListRequest{Path: "/output"}))); !slices.Equal(got, []string{"/output/r"}) {
				t.Errorf("output: %q", got)
			}
			if b, err := os.ReadFile(src + "/README.md"); string(b) != project["README.md"] {
				t.Errorf("the project's file is %q, %v", b, err)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// useTools changes files, and looks at them from inside.
func useTools(t *testing.T, f *Files, sb *client.Sandbox) {
	t.Helper()
	ctx := t.Context()
	_, err1 := f.Write(ctx, WriteRequest{Path: "made/by/tool.sh", Data: []byte("#!/bin/sh\necho ran\n"), Mode: 0o755})
	_, err2 := f.Write(ctx, WriteRequest{Path: "in/er/x.txt", Data: []byte("needle, written through a link\n")})
	_, err3 := f.EditFile(ctx, EditRequest{Path: "src/main.go", Edits: []Edit{{Old: "func main() {}", New: "func main() { println(1) }"}, {Old: "package main", New: "package x"}}})
	_, err4 := f.EditFile(ctx, EditRequest{Path: "shown", Edits: []Edit{{Old: "upper", New: "edited"}}})
	_, err5 := f.Remove(ctx, "README.md", false)
	_, err6 := f.Remove(ctx, "many/a", true)
	for i, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			t.Errorf("change %d: %v", i+1, err)
		}
	}
	got := shell(t, sb, `made/by/tool.sh; cat src/deep/er/x.txt src/main.go shown; stat -c %a shown made/by/tool.sh; ls README.md many 2>&1 || true`)
	want := "ran\nneedle, written through a link\npackage x\n\nfunc main() { println(1) }\nedited\n755\n755\nls: cannot access 'README.md': No such file or directory\nmany:\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the tools did, seen from inside:\n%s", diff)
	}
}

// compareWithShell compares a list with find, and a search with grep.
func compareWithShell(t *testing.T, f *Files, sb *client.Sandbox) {
	t.Helper()
	l := must(f.List(t.Context(), ListRequest{}))
	letters := map[string]string{"file": "f", "directory": "d", "symlink": "l", "fifo": "p"}
	var have []string
	for _, e := range l.Entries {
		size := ""
		if e.Type == "file" {
			size = fmt.Sprint(e.Size)
		}
		if e.Type == "fifo" && e.Mode == "0000" {
			e.Mode = "0644" // a tree that is fetched does not tell the mode of what it leaves out
		}
		have = append(have, fmt.Sprintf("%s %s %s %s %s", letters[e.Type], strings.TrimPrefix(e.Mode, "0"), e.Path, size, e.Target))
	}
	found := shell(t, sb, `find . -mindepth 1 -type f -printf '%y %03m %P %s %l\n' -o -mindepth 1 -printf '%y %03m %P  %l\n'`)
	want := strings.Split(strings.TrimSuffix(found, "\n"), "\n")
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("list (-find +list):\n%s", diff)
	}
	m := must(f.Grep(t.Context(), GrepRequest{Pattern: "needle|x"}))
	var b bytes.Buffer
	if err := m.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	grepped := strings.Split(shell(t, sb, `grep -rnE 'needle|x' . | sed 's,^\./,,'`), "\n")
	got := strings.Split(b.String(), "\n")
	slices.Sort(grepped)
	slices.Sort(got)
	if diff := cmp.Diff(grepped, got); diff != "" {
		t.Errorf("search (-grep +search):\n%s", diff)
	}
}
