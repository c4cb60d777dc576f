package store

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/flock"
)

func TestRuntimeDir(t *testing.T) {
	base := mkdir(t, shortTemp(t), "r", 0o700)
	open := mkdir(t, shortTemp(t), "o", 0o777)
	for name, c := range map[string]struct{ xdg, want string }{
		"xdg":                {base, filepath.Join(base, "hutch") + "/"},
		"unset":              {"", fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"missing":            {"/nonexistent", fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"others may write":   {open, fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"too long":           {mkdir(t, t.TempDir(), strings.Repeat("x", 80), 0o700), fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"relative":           {"r", fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"link to a good one": {linkTo(t, base), fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", c.xdg)
			t.Setenv("TMPDIR", "/"+strings.Repeat("long/", 40))
			d, err := NewRuntimeDir()
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if !strings.HasPrefix(d.Path(), c.want) {
				t.Errorf("%s, want %s...", d.Path(), c.want)
			}
			if fi, err := os.Lstat(d.Path()); err != nil || fi.Mode() != fs.ModeDir|0o700 {
				t.Errorf("%v %v", fi, err)
			}
			l, err := net.Listen("unix", filepath.Join(d.Path(), strings.Repeat("s", socketName)))
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			if sub, err := d.Sub("streams"); err != nil {
				t.Error(err)
			} else if fi, err := os.Lstat(sub); err != nil || fi.Mode().Perm() != 0o700 {
				t.Errorf("%v %v", fi, err)
			}
			if err := errors.Join(d.Close(), d.Close()); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(d.Path()); err == nil {
				t.Error("it is still there")
			}
		})
	}
}

func linkTo(t *testing.T, dir string) string {
	t.Helper()
	link := filepath.Join(shortTemp(t), "l")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestStaleRuntimeDirs(t *testing.T) {
	base := mkdir(t, shortTemp(t), "r", 0o700)
	t.Setenv("XDG_RUNTIME_DIR", base)
	s := newStore(t)
	mine, err := NewRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	stale := mkdir(t, filepath.Join(base, "hutch"), "abcdef", 0o700)
	l, err := net.Listen("unix", filepath.Join(stale, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	foreign := mkdir(t, filepath.Join(base, "hutch"), "something-else", 0o700)
	items, err := collect(t, s, GCOptions{})
	if err != nil || len(items) != 1 || items[0].Path != stale || items[0].Error != "" {
		t.Errorf("%+v %v", items, err)
	}
	for path, there := range map[string]bool{stale: false, mine.Path(): true, foreign: true} {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A directory that gc takes between its making and its locking is not handed out.
	taken := mkdir(t, filepath.Join(base, "hutch"), "zzzzzz", 0o700)
	f, _ := openOwnDir(taken)
	defer f.Close()
	if err := flock.Try(f, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := claimRuntimeDir(taken); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
}

// A gc that looks while a directory is made may take it for one that is left; its maker then makes another one.
func TestRuntimeDirsAreMadeDuringGC(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "h-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	t.Setenv("XDG_RUNTIME_DIR", base)
	done, collected := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(collected)
		for {
			select {
			case <-done:
				return
			default:
				_ = staleRuntimeDirs(func(path string) error {
					if !strings.HasPrefix(path, base) {
						return nil // in /tmp, of others
					}
					return os.RemoveAll(path)
				})
			}
		}
	}()
	for range 300 {
		d, err := NewRuntimeDir()
		if err != nil {
			t.Error(err)
			break
		}
		if _, err := os.Stat(d.Path()); err != nil {
			t.Errorf("it was taken away: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	<-collected
}
