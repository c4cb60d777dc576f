package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// TestForgedMarksAreData writes marks of the other kind, and tries to write those of the mount itself, from inside.
func TestForgedMarksAreData(t *testing.T) {
	const forge = `
		attr() { python3 -c 'import os,sys; os.setxattr(sys.argv[1], sys.argv[2], sys.argv[3].encode())' "$@" 2>/dev/null || true; }
		: > base.empty; : > README.fake
		attr src user.overlay.opaque y
		attr src user.overlay.opaque x
		attr src/a.py user.overlay.whiteout y
		: > src/a.py; attr src/a.py user.overlay.whiteout y
		touch .wh.README .wh..wh..opq src/.wh..wh..opq src/.wh.a.py
		mknod dev c 0 0 2>/dev/null && echo "made a whiteout" || true
		mknod src/deep c 0 0 2>/dev/null && echo "made a whiteout" || true`
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 to set extended attributes")
	}
	expect := []string{
		"added    .wh..wh..opq", "added    .wh.README", "added    README.fake", "added    base.empty",
		"added    src/.wh..wh..opq", "added    src/.wh.a.py", "modified src/a.py",
	}
	for name, c := range map[string]struct {
		options string
		trusted bool
	}{"userxattr": {"userxattr", false}, "trusted": {"redirect_dir=off,metacopy=off", true}} {
		t.Run(name, func(t *testing.T) {
			if c.trusted && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			l := newLayers(t)
			makeLower(t, l.lower)
			l.run(t, c.options, forge)
			got, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{Trusted: c.trusted})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(expect, show(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMarksInTheUpperDirectory makes the marks by hand, in the form that newer kernels and other tools write.
func TestMarksInTheUpperDirectory(t *testing.T) {
	l := newLayers(t)
	makeLower(t, l.lower)
	set := func(path, attr, value string) {
		t.Helper()
		if err := unix.Setxattr(l.upper+"/"+path, attr, []byte(value), 0); err != nil {
			t.Skipf("this file system has no user attributes: %v", err)
		}
	}
	if err := os.MkdirAll(l.upper+"/src", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"src/a.py", "plain-empty", "README"} {
		if err := os.WriteFile(l.upper+"/"+f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set("src", "user.overlay.opaque", "x")
	set("src/a.py", "user.overlay.whiteout", "")
	set("README", "user.overlay.whiteout", "y") // its directory is not marked, so this is a file
	got, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"modified README", "added    plain-empty", "deleted  src/a.py"}, show(got)); diff != "" {
		t.Error(diff)
	}
	set("src", "user.overlay.redirect", "elsewhere")
	if _, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{}); err == nil || !strings.Contains(err.Error(), "redirect_dir=off") {
		t.Errorf("redirect: %v, want an error that names the mount option", err)
	}
}

func TestChangesFollowsNoLink(t *testing.T) {
	l := newLayers(t)
	secret := t.TempDir()
	if err := os.WriteFile(secret+"/key", []byte("k"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.lower+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{l.upper + "/d", l.upper + "/e"} {
		if err := os.Symlink(secret, p); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"type     d", "added    e"}, show(got)); diff != "" {
		t.Error(diff)
	}
}

func TestFIFOInPlaceOfAFileDoesNotHang(t *testing.T) {
	l := newLayers(t)
	up, err := openTop(root(t, l.upper))
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	if err := unix.Mkfifo(l.upper+"/f", 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := safefile.OpenFileAt(up.fd(), "f"); err == nil {
		t.Error("a FIFO was opened as a file")
	}
}

func TestHiddenDirectoriesAreRead(t *testing.T) {
	l := newLayers(t)
	if err := os.MkdirAll(l.upper+"/hidden/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.upper+"/hidden/sub/f", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/hidden/sub", "/hidden"} {
		if err := os.Chmod(l.upper+d, 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(l.upper+d, 0o700)
	}
	got, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"added    hidden", "added    hidden/sub", "added    hidden/sub/f"}, show(got)); diff != "" {
		t.Error(diff)
	}
	if st, err := os.Stat(l.upper + "/hidden"); err != nil || st.Mode().Perm() != 0 {
		t.Errorf("the directory's mode is %v, %v; want 0 as it was", st.Mode(), err)
	}
}

func TestBounds(t *testing.T) {
	l := newLayers(t)
	deep := l.upper
	for range 20 {
		deep += "/d"
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := os.WriteFile(fmt.Sprintf("%s/f%02d", l.upper, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{MaxDepth: 5})
	if !errors.Is(err, ErrTooMany) || len(got) != 55 {
		t.Errorf("depth: %d changes, %v; want 5 levels, 50 files and ErrTooMany", len(got), err)
	}
	got, err = Changes(context.Background(), root(t, l.lower), root(t, l.upper), Options{MaxEntries: 30})
	if !errors.Is(err, ErrTooMany) || len(got) != 30 {
		t.Errorf("entries: %d changes, %v; want 30 and ErrTooMany", len(got), err)
	}
	s, err := Take(context.Background(), root(t, l.upper), Options{MaxEntries: 30})
	if !errors.Is(err, ErrTooMany) || len(s.Entries) != 30 {
		t.Errorf("snapshot: %d, %v", len(s.Entries), err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := Changes(ctx, root(t, l.lower), root(t, l.upper), Options{}); !errors.Is(err, stop) {
		t.Errorf("cancelled: %v, want the cause", err)
	}
}
