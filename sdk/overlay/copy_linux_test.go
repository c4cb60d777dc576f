package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCopyOfARealOverlay copies an upper layer: it changes the same in the lower one, and shows the same when mounted.
func TestCopyOfARealOverlay(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		trusted bool
	}{
		"in a user namespace": {options: "userxattr"},
		"by root":             {options: "redirect_dir=off,metacopy=off", trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.trusted && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			l := newLayers(t)
			makeLower(t, l.lower)
			l.run(t, c.options, script+"\ncd ..; chmod 0 added.txt newdir; truncate -s 64M sparse; printf end >> sparse; ln sparse sparse2")
			copied := filepath.Join(t.TempDir(), "upper")
			t.Cleanup(func() { // they must be removed
				os.Chmod(filepath.Join(copied, "newdir"), 0o700)
				os.Chmod(filepath.Join(l.upper, "newdir"), 0o700)
			})
			if err := Copy(t.Context(), l.upper, copied, nil); err != nil {
				t.Fatal(err)
			}
			before := changesOf(t, l.lower, l.upper, c.trusted)
			if diff := cmp.Diff(before, changesOf(t, l.lower, copied, c.trusted)); diff != "" || len(before) < 25 {
				t.Errorf("%d changes, in the copy:\n%s", len(before), diff)
			}
			var st, st2 syscall.Stat_t
			for path, to := range map[string]*syscall.Stat_t{"sparse": &st, "sparse2": &st2} {
				if err := syscall.Lstat(filepath.Join(copied, path), to); err != nil {
					t.Fatal(err)
				}
			}
			if st.Size != 64<<20+3 || st.Blocks > 64 || st.Ino != st2.Ino {
				t.Errorf("a sparse file with two names: %d bytes in %d blocks, inodes %d and %d", st.Size, st.Blocks, st.Ino, st2.Ino)
			}
			shown := layers{l.lower, copied, l.work, l.merged}
			shown.run(t, c.options, `test ! -e gone && test ! -e opaque/old1 && test "$(cat opaque/kept)" = k && test "$(readlink newdir/evil)" = /etc/passwd && test -p pipe`)
		})
	}
}

func changesOf(t *testing.T, lower, upper string, trusted bool) []Change {
	t.Helper()
	got, err := Changes(t.Context(), root(t, lower), root(t, upper), Options{Trusted: trusted})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCopyGivesToOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(filepath.Join(from, "file"), []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	owner := func(uid, gid uint32) (uint32, uint32) { return uid + 4242, gid + 4243 }
	if err := Copy(t.Context(), from, to, owner); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{to, filepath.Join(to, "file")} {
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil || st.Uid != 4242 || st.Gid != 4243 {
			t.Errorf("%s belongs to %d:%d, %v", p, st.Uid, st.Gid, err)
		}
	}
}

// TestCopyTree keeps what a project is made of, and leaves out what cannot be copied.
func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	old := time.Unix(1_000_000_000, 0)
	for _, err := range []error{
		os.Mkdir(filepath.Join(from, "d"), 0o755), os.WriteFile(filepath.Join(from, "d", "f"), []byte("text"), 0o640),
		os.Symlink("d/f", filepath.Join(from, "l")), syscall.Mkfifo(filepath.Join(from, "fifo"), 0o600),
		os.Chtimes(filepath.Join(from, "d", "f"), old, old), os.Chmod(filepath.Join(from, "d"), 0o555),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	left, err := CopyTree(t.Context(), from, to)
	if err != nil || left != 1 {
		t.Fatal(left, err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(from, "d"), 0o755); os.Chmod(filepath.Join(to, "d"), 0o755) })
	text, rerr := os.ReadFile(filepath.Join(to, "l"))
	f, ferr := os.Stat(filepath.Join(to, "d", "f"))
	d, derr := os.Stat(filepath.Join(to, "d"))
	if errors.Join(rerr, ferr, derr) != nil || string(text) != "text" || f.Mode() != 0o640 ||
		!f.ModTime().Equal(old) || d.Mode().Perm() != 0o555 {
		t.Errorf("%q %v %v %v %v %v", text, f, d, rerr, ferr, derr)
	}
}

// TestCopyOfProjectWithStore has HUTCH_HOME in the project.
func TestCopyOfProjectWithStore(t *testing.T) {
	from := t.TempDir()
	layer := filepath.Join(from, ".hutch", "layer")
	if err := os.MkdirAll(layer, 0o755); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(layer, "workspace")
	if _, err := CopyTree(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(to, ".hutch", "layer")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy is in itself: %v", err)
	}
}
