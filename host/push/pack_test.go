package push

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/git/bundle"
)

// work is a repository with one commit, which holds more than a pipe does.
func work(t *testing.T) *Work {
	t.Helper()
	dir := t.TempDir()
	big := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(big) // nothing that git could make smaller; it never fails
	if err := os.WriteFile(filepath.Join(dir, "big"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "big"}, {"-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "one"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	r, err := git.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &Work{Repo: r}
	if w.Branch, w.Commit, err = r.Branch(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPack(t *testing.T) {
	w := work(t)
	var want strings.Builder
	if err := bundle.Write(t.Context(), w.Repo, w.Commit, w.Branch, bundle.Part{}, &want); err != nil {
		t.Fatal(err)
	}
	p, err := whole(t.Context(), w, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	got, err := io.ReadAll(p)
	if err != nil || string(got) != want.String() || p.sent != int64(len(got)) {
		t.Errorf("%d bytes, %d counted, %v; want %d", len(got), p.sent, err, want.Len())
	}
	if n, err := p.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
}

// TestPackFails has git find fault, after the header has gone: the end is no good end then, however often it is asked
// for.
func TestPackFails(t *testing.T) {
	w := work(t)
	w.Commit = strings.Repeat("1", len(w.Commit))
	p, err := pack(t.Context(), w, bundle.Part{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	var failed *git.Error
	if _, err := io.ReadAll(p); !errors.As(err, &failed) {
		t.Errorf("git's failure is %v", err)
	}
	if _, err := p.Read(make([]byte, 1)); !errors.As(err, &failed) {
		t.Errorf("asked again: %v", err)
	}
}

// TestPackLeft leaves a bundle that nobody reads: git is gone when close returns, and does not wait for room in the
// pipe.
func TestPackLeft(t *testing.T) {
	w := work(t)
	for name, early := range map[string]func(p *packing, cancel context.CancelFunc){
		"not read":  func(*packing, context.CancelFunc) {},
		"begun":     func(p *packing, _ context.CancelFunc) { _, _ = io.ReadFull(p, make([]byte, 200<<10)) },
		"cancelled": func(_ *packing, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := whole(ctx, w, 0)
			if err != nil {
				t.Fatal(err)
			}
			early(p, cancel)
			p.close()
			if !p.ended || p.err == nil {
				t.Errorf("git has ended: %v, with %v", p.ended, p.err)
			}
		})
	}
}
