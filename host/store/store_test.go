package store

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestOpenRefusesWhatOthersMayWrite(t *testing.T) {
	cases := map[string]struct {
		prepare func(t *testing.T, base string) (home string)
		want    string // in the error; empty: it opens
	}{
		"missing":        {func(t *testing.T, base string) string { return filepath.Join(base, "a", "b") }, ""},
		"private":        {func(t *testing.T, base string) string { return mkdir(t, base, "h", 0o700) }, ""},
		"readable":       {func(t *testing.T, base string) string { return mkdir(t, base, "h", 0o755) }, ""},
		"group-writable": {func(t *testing.T, base string) string { return mkdir(t, base, "h", 0o770) }, "chmod go-w"},
		"world-writable": {func(t *testing.T, base string) string { return mkdir(t, base, "h", 0o777) }, "chmod go-w"},
		"sticky":         {func(t *testing.T, base string) string { return mkdir(t, base, "h", 0o777|fs.ModeSticky) }, "chmod go-w"},
		"in open parent": {func(t *testing.T, base string) string { return filepath.Join(mkdir(t, base, "p", 0o777), "h") }, "chmod o-w"},
		"in sticky parent": {func(t *testing.T, base string) string {
			return filepath.Join(mkdir(t, base, "p", 0o777|fs.ModeSticky), "h")
		}, ""},
		"link to private": {func(t *testing.T, base string) string {
			link := filepath.Join(base, "l")
			if err := os.Symlink(mkdir(t, base, "h", 0o700), link); err != nil {
				t.Fatal(err)
			}
			return link
		}, ""},
		"link to open": {func(t *testing.T, base string) string {
			link := filepath.Join(base, "l")
			if err := os.Symlink(mkdir(t, base, "h", 0o777), link); err != nil {
				t.Fatal(err)
			}
			return link
		}, "chmod go-w"},
		"link in open parent": {func(t *testing.T, base string) string {
			link := filepath.Join(mkdir(t, base, "p", 0o777), "l")
			if err := os.Symlink(mkdir(t, base, "h", 0o700), link); err != nil {
				t.Fatal(err)
			}
			return link
		}, "chmod o-w"},
		"file": {func(t *testing.T, base string) string {
			mustWrite(t, filepath.Join(base, "f"), nil)
			return filepath.Join(base, "f")
		}, "not a directory"},
		"somebody else's": {func(t *testing.T, base string) string {
			if os.Geteuid() != 0 {
				return "/usr/bin" // root's, and others may not write it: only the owner is wrong
			}
			home := mkdir(t, base, "h", 0o700)
			if err := os.Chown(home, 65534, 65534); err != nil {
				t.Fatal(err)
			}
			return home
		}, "belongs to uid"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			home := c.prepare(t, t.TempDir())
			s, err := Open(Options{Home: home})
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				for _, dir := range []string{s.paths.Runs(), s.paths.Intents(), s.paths.Deps(), s.paths.Sandboxes()} {
					if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
						t.Errorf("%s: %v %v", dir, fi.Mode(), err)
					}
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q in it", err, c.want)
			}
			if c.want != "not a directory" && !errors.Is(err, ErrUnsafe) {
				t.Errorf("%v is not ErrUnsafe", err)
			}
		})
	}
}

func mkdir(t *testing.T, base, name string, mode fs.FileMode) string {
	t.Helper()
	dir := filepath.Join(base, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpenFindsItsPlace(t *testing.T) {
	base := t.TempDir()
	t.Setenv("HUTCH_HOME", "")
	t.Setenv("HOME", base)
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(base, "c"))
	t.Setenv("XDG_STATE_HOME", "relative") // which the specification has programs ignore
	t.Setenv("XDG_CONFIG_HOME", "")
	s, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(base, "c", "hutch"); s.paths.Cache != want {
		t.Errorf("cache in %s, want %s", s.paths.Cache, want)
	}
	if !strings.HasPrefix(s.paths.Data, base) || !strings.HasPrefix(s.paths.State, base) || !strings.HasPrefix(s.paths.Config, base) {
		t.Errorf("%+v is not all below %s", s.paths, base)
	}
	t.Setenv("HUTCH_HOME", filepath.Join(base, "own"))
	if s, err = Open(Options{}); err != nil {
		t.Fatal(err)
	}
	if s.paths.Data != filepath.Join(base, "own") {
		t.Errorf("data in %s", s.paths.Data)
	}
}

// Without HOME, as under a service manager, it is not the root directory that is the home.
func TestHomeOfTheUser(t *testing.T) {
	u, err := user.Current()
	if err != nil {
		t.Skip("this user is not in the user database: ", err)
	}
	for _, name := range []string{"HUTCH_HOME", "HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(name, "")
	}
	p, err := findPaths("")
	if err != nil || p.Data != filepath.Join(u.HomeDir, ".local/share/hutch") {
		t.Errorf("%v %+v", err, p)
	}
	if home := os.Getenv("HOME"); home != "" {
		t.Errorf("HOME is %q afterwards", home)
	}
}

func TestConcurrentOpenAndRuns(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	const n = 16
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			s, err := Open(Options{Home: home})
			if err != nil {
				t.Error(err)
				return
			}
			r, err := s.CreateRun(NewRun{Name: "x"})
			if err != nil {
				t.Error(err)
				return
			}
			if err := finishRun(r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, err := Open(Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	reports := verifyAll(t, s)
	if len(reports) != n+1 || reports[""].Events != 2*n {
		t.Errorf("%d reports, %d audit entries", len(reports), reports[""].Events)
	}
	for _, rep := range reports {
		wantProblems(t, rep, true)
	}
}
