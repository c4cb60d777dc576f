package security

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/files"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestSwappedPaths has a program in a sandbox exchange files and directories for links that lead out, FIFOs and hard
// links, as fast as it can, while the host reads, lists, searches, writes, edits, removes, copies, compares and applies
// them. The host must read nothing from outside of the workspace, write nothing there, and never hang.
func TestSwappedPaths(t *testing.T) {
	for _, c := range []struct{ name, block string }{
		{"bwrap", `backend "bwrap" {}`},
		{"podman/native", `backend "podman" { overlay = "native" }`},
		{"podman/copy", `backend "podman" { overlay = "copy" }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := ""
			if strings.HasPrefix(c.name, "podman") {
				image = podmantest.Busybox(t)
			} else {
				e2e.Require(t, "bwrap")
			}
			newRace(t, image, c.block).run(t)
		})
	}
}

// race is a host at work on a sandbox in which paths are swapped.
type race struct {
	*world
	outside string // where the links lead; each file there holds the secret
	secret  []byte
	before  string // what outside looked like
	out     string // where copies go
	store   *store.Store
	manager *sandbox.Manager
	ledger  *review.Ledger
	went    map[string]int // by operation, how often it went well
	refused map[string]int
}

// swapped is what is exchanged all the time, below the directory "dir" that the project has as well.
var swapped = []string{"dir/d/f", "dir/deep/sub/f", "dir/f", "dir/pipe", "dir/plain", "dir/d2/f"}

func newRace(t *testing.T, image, block string) *race {
	p := place{backend: "bwrap", uid: os.Getuid(), gid: os.Getgid()}
	if image != "" {
		p.backend, p.env = "podman", ownPodman(image)
		t.Setenv("PODMAN_IMAGE", image)
	}
	w := newWorld(t, p)
	r := &race{world: w, outside: filepath.Join(filepath.Dir(w.home), "outside"), secret: []byte("SECRET " + nonce), out: t.TempDir(), went: map[string]int{}, refused: map[string]int{}}
	for _, name := range []string{"f", "sub/f"} {
		at := filepath.Join(r.outside, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, r.secret, 0o644)))
	}
	r.before = picture(t, r.outside)
	file := filepath.Join(w.home, "box.hcl")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "run \"box\" {\n  %s\n  workspace { source = \"project\" }\n  command = [\"true\"]\n}\n", block), 0o644))
	if out, errs, code := w.run(t, e2e.Hutch(), "create", file, "--name", "box"); code != 0 {
		t.Fatalf("create: %s%s", out, errs)
	}
	t.Cleanup(func() {
		cmd := exec.Command(e2e.Hutch(), "rm", "-f", "box")
		w.as(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("rm: %v: %s", err, out)
		}
	})
	r.attack(t)
	r.open(t)
	return r
}

// attack starts the program in the sandbox, and waits until it is at work.
func (r *race) attack(t *testing.T) {
	const start = "exec /workspace/probe RACE /workspace/dir $0"
	cmd := exec.Command(e2e.Hutch(), "exec", "-q", "--timeout", "2m", "box", "--", "sh", "-c", start, r.outside)
	r.as(cmd)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "swapping\n" {
		t.Fatalf("the attack does not begin: %q, %v", line, err)
	}
}

// open opens the sandbox as the commands do, without their start for each call.
func (r *race) open(t *testing.T) {
	st, err := store.Open(store.Options{Home: filepath.Join(r.home, ".hutch")})
	must(t, err)
	dir, err := store.NewRuntimeDir()
	must(t, err)
	pool := backend.NewPool(backend.Options{Dir: dir.Path(), HostVersion: "test", Paths: []string{filepath.Join(e2e.Dir, "libexec", "hutch")}})
	t.Cleanup(func() { must(t, errors.Join(pool.Close(context.Background()), dir.Close(), st.Close())) })
	r.store, r.ledger = st, review.NewLedger(st.Paths().Applies(), st)
	r.manager = sandbox.New(sandbox.Options{Run: run.Options{Store: st, Backends: pool, TakeBase: review.WriteBase}})
}

// run does everything again and again, until each operation has met enough of what is exchanged.
func (r *race) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second) // a reader of a FIFO waits for ever
	defer cancel()
	ws, err := workspace.Open(ctx, r.manager, "box", sandbox.Shared)
	must(t, err)
	defer ws.Close()
	f, err := ws.Files(files.Options{})
	must(t, err)
	defer f.Close()
	open, err := r.manager.Open(ctx, "box", sandbox.Shared)
	must(t, err)
	defer open.Close()
	total := 0
	for round := 0; ctx.Err() == nil && !t.Failed() && !r.enough(total); round++ {
		total += r.files(t, ctx, f)
		if round%10 == 0 {
			total += r.review(t, ctx) + r.copies(t, ctx, open)
		}
	}
	if ctx.Err() != nil {
		t.Errorf("something hung, or these %d calls prove little: went well: %v; refused: %v", total, r.went, r.refused)
	}
	if after := picture(t, r.outside); after != r.before {
		t.Errorf("outside changed from\n%s to\n%s", r.before, after)
	}
	r.clean(t, r.project)
	r.clean(t, r.out)
	t.Logf("%d calls; went well: %v; refused: %v", total, r.went, r.refused)
}

// enough reports whether the calls so far prove something: that each operation works while paths are exchanged, and
// that it meets them exchanged.
func (r *race) enough(total int) bool {
	for _, op := range []string{"read", "stat", "write", "edit", "diff", "apply"} {
		if r.went[op] < 5 {
			return false
		}
	}
	return total >= 2000 && r.refused["read"] >= 10 && r.refused["write"] >= 10
}

// note counts the outcome of a call, and fails the test when the secret is in what it brought.
func (r *race) note(t *testing.T, op string, err error, brought ...[]byte) {
	t.Helper()
	if err != nil {
		r.refused[op]++
	} else {
		r.went[op]++
	}
	for _, b := range brought {
		if bytes.Contains(b, r.secret) {
			t.Errorf("%s brought what lies outside: %.100q", op, b)
		}
	}
}

func (r *race) files(t *testing.T, ctx context.Context, f *files.Files) (calls int) {
	for _, name := range swapped {
		c, err := f.Read(ctx, files.ReadRequest{Path: name})
		var data []byte
		if err == nil {
			data = c.Data
		}
		r.note(t, "read", err, data)
		_, err = f.Stat(ctx, name)
		r.note(t, "stat", err)
		_, err = f.Write(ctx, files.WriteRequest{Path: name, Data: []byte("inside, written\n")})
		r.note(t, "write", err)
		_, err = f.EditFile(ctx, files.EditRequest{Path: name, Edits: []files.Edit{{Old: "inside", New: "INSIDE"}}})
		r.note(t, "edit", err)
		calls += 4
	}
	made := "dir/d/made"
	_, err := f.Write(ctx, files.WriteRequest{Path: made, Data: []byte("inside\n")})
	r.note(t, "write", err)
	_, err = f.Remove(ctx, made, false)
	r.note(t, "remove", err)
	_, err = f.List(ctx, files.ListRequest{Path: "dir"})
	r.note(t, "list", err)
	m, err := f.Grep(ctx, files.GrepRequest{Pattern: "SECRET " + nonce, Paths: []string{"dir"}})
	r.note(t, "grep", err)
	if err == nil && m.Count > 0 {
		t.Errorf("a search found what lies outside: %+v", m.Files)
	}
	return calls + 4
}

// review compares, and applies what can be applied.
func (r *race) review(t *testing.T, ctx context.Context) int {
	v, err := workspace.OpenReview(ctx, r.manager, "box", sandbox.Shared, review.Options{Keep: r.ledger.Dir(), Paths: []string{"dir"}})
	if err != nil {
		r.note(t, "diff", err)
		return 1
	}
	defer v.Close()
	var patch bytes.Buffer
	r.note(t, "diff", v.Unified(ctx, &patch, review.Style{}), patch.Bytes())
	plan, err := v.Plan(ctx, v.All(), review.Policy{Partial: true})
	if err == nil && len(plan.Paths()) > 0 {
		var done *review.Applied
		if done, err = r.ledger.Apply(ctx, v.Review, plan); err == nil {
			must(t, done.NoBase)
		}
		r.note(t, "apply", err)
	}
	return 2
}

// copies takes files and the directory out.
func (r *race) copies(t *testing.T, ctx context.Context, open *sandbox.Sandbox) int {
	for i, name := range append([]string{"dir"}, swapped...) {
		at := filepath.Join(r.out, fmt.Sprint(i))
		must(t, os.RemoveAll(at))
		r.note(t, "cp", open.CopyOut(ctx, "/workspace/"+name, at, sandbox.Caps{}, nil))
	}
	return 1 + len(swapped)
}

// clean checks that no file below dir has the secret, and no link leads to it.
func (r *race) clean(t *testing.T, dir string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch d.Type() {
		case fs.ModeSymlink:
			if to, err := os.Readlink(p); err != nil || strings.HasPrefix(to, r.outside) {
				t.Errorf("%s leads to %s, %v", p, to, err)
			}
		case 0:
			if b, err := os.ReadFile(p); err != nil || bytes.Contains(b, r.secret) {
				t.Errorf("%s has what lies outside, %v", p, err)
			}
		}
		return nil
	}))
}

// picture is all that is in a directory.
func picture(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", p, fi.Mode())
		if fi.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %v %q", fi.ModTime(), data)
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}
