package backend

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// Each way not to be a backend has its own line, which says what was found and
// what to do.
func TestStartErrors(t *testing.T) {
	script := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		make func(t *testing.T, path string) // nil: the test binary
		want string                          // PATH stands for the path
	}{
		"garbage":   {nil, `it printed "Usage: garbage [options]" where the first line of a backend belongs; it is another program, or one that prints before it calls sdk.Serve`},
		"endless":   {nil, `it printed more than 4096 bytes without a newline, beginning with "` + strings.Repeat("x", 80) + `…"; it is another program, or one that prints before it calls sdk.Serve`},
		"hang":      {nil, `it printed nothing within 400ms; it hangs, or waits for something; start it by hand to see more: PATH`},
		"waits":     {script("#!/bin/sh\necho waiting for the licence >&2; exec sleep 1000\n"), `it printed nothing within 5s, saying "waiting for the licence"; it hangs, or waits for something; start it by hand to see more: PATH`},
		"exit3":     {nil, `it ended at once (exit status 3), saying "the licence has expired"; start it by hand to see more: PATH`},
		"core9":     {nil, `it speaks go-plugin's core protocol 9, and this hutch speaks 1; rebuild the backend with the go-plugin that hutch uses`},
		"app99":     {nil, `it speaks backend protocol 99, and this hutch speaks 1; upgrade hutch, or install an older version of the backend`},
		"tcp":       {nil, `it listens on "tcp 127.0.0.1:1", and not on a socket in the directory that it was given; do not use it: others on this machine could talk to it`},
		"foreign":   {nil, `it listens on "unix /tmp/somebody-elses.sock", and not on a socket in the directory that it was given; do not use it: others on this machine could talk to it`},
		"netrpc":    {nil, `it does not speak gRPC; a backend is served by sdk.Serve, or by go-plugin with gRPC`},
		"nosocket":  {nil, `it says that it listens on the socket "s", which is not there; a backend listens before it prints its first line`},
		"wrongname": {nil, `it says its name is "another"; rename the file to hutch-backend-NAME`},
		"empty":     {script(""), `it cannot be executed (exec format error); install the build for this machine`},
		"text":      {script("this is no program\n"), `it cannot be executed (exec format error); install the build for this machine`},
		"nointerp":  {script("#!/no/such/interpreter\n"), `it cannot be executed (no such file or directory); see whether the interpreter in its first line is there`},
		"says":      {script("#!/bin/sh\necho hello\n"), `it printed "hello" where the first line of a backend belongs; it is another program, or one that prints before it calls sdk.Serve`},
		"silent":    {script("#!/bin/sh\nexit 0\n"), `it ended at once (exit status 0); start it by hand to see more: PATH`},
		"closes":    {script("#!/bin/sh\nexec >&-; sleep 1000\n"), `it closed its standard output and did not end; it is another program`},
		"escapes":   {script("#!/bin/sh\nprintf '\\033[2J|x|\\n'\n"), `it printed "\x1b[2J|x|" where the first line of a backend belongs; it is another program, or one that prints before it calls sdk.Serve`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var dir string
			if tt.make == nil {
				dir = install(t, name)
			} else {
				dir = t.TempDir()
				tt.make(t, filepath.Join(dir, Prefix+name))
			}
			// All are written before the first one is started: a process that is just being made holds whatever is open for
			// writing, and what somebody may write to cannot be executed.
			t.Parallel()
			limit := 10 * time.Second
			switch name {
			case "hang":
				limit = 400 * time.Millisecond
			case "closes": // long enough for a busy machine to start a shell, which does not end before it is up
				limit = 4 * time.Second
			}
			if name == "waits" {
				limit = 5 * time.Second // enough for a shell to say something on a busy machine
			}
			p := pool(t, func(o *Options) { o.Paths, o.StartTimeout = []string{dir}, limit })
			_, err := p.Get(context.Background(), name)
			var se *StartError
			if !errors.As(err, &se) {
				t.Fatalf("got %T %v, want a *StartError", err, err)
			}
			path := filepath.Join(dir, Prefix+name)
			want := `backend "` + name + `" at ` + path + ": " + strings.ReplaceAll(tt.want, "PATH", path)
			if err.Error() != want {
				t.Errorf("got\n%s\nwant\n%s", err, want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Error("more than one line")
			}
		})
	}
}

// TestL15 has a backend that leaves a process with its own session and then fails to start.
func TestL15NothingOfAFailedStartSurvives(t *testing.T) {
	for name, then := range map[string]string{"ended": "exit 1", "hung": "sleep 1000", "other": "echo hello"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "pid")
			script := "#!/bin/sh\nsetsid sh -c 'echo $$ > " + file + ".new; mv " + file + ".new " + file + "; exec sleep 1000' &\nwhile ! test -e " + file + "; do :; done\n" + then + "\n"
			if err := os.WriteFile(filepath.Join(dir, Prefix+name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			p := pool(t, func(o *Options) { o.Paths, o.StartTimeout = []string{dir}, 4*time.Second })
			if _, err := p.Get(t.Context(), name); err == nil {
				t.Fatal("it started")
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err) // the machine was too busy for the daemon to start
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil {
				t.Fatal(err)
			}
			if procstat.Alive(pid) {
				t.Errorf("process %d is alive", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
}

func TestDiscovery(t *testing.T) {
	good := install(t, "good", "other-1")
	bad := t.TempDir()
	write := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(bad, Prefix+name)
		if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain-file", 0o644)
	write("writable", 0o757)
	if err := os.Mkdir(filepath.Join(bad, Prefix+"dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(bad, Prefix+"dangling")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(good, Prefix+"good"), filepath.Join(bad, Prefix+"linked")); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(open, Prefix+"anybodys"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(t.TempDir(), "bin", "hutch")
	if err := os.MkdirAll(filepath.Dir(exe), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	libexec := filepath.Join(filepath.Dir(exe), "..", "libexec", "hutch")
	places := strings.Join([]string{bad, open, "relative", good}, ":")
	f := newFinder(Options{Executable: exe}, map[string]string{EnvPath: places})

	found := map[string]string{
		"good":    filepath.Join(good, Prefix+"good"),
		"other-1": filepath.Join(good, Prefix+"other-1"),
		"linked":  filepath.Join(good, Prefix+"good"),
	}
	for name, want := range found {
		if got, err := f.find(name); err != nil || got.path != want || got.origin.From != FromEnvironment {
			t.Errorf("%s: got %v and %v, want %q", name, got, err, want)
		}
	}
	why := func(name, path string) string {
		t.Helper()
		_, err := f.find(name)
		var nf *NotFoundError
		if !errors.As(err, &nf) {
			t.Fatalf("%s: got %v", name, err)
		}
		for _, p := range nf.Places {
			if p.Path == path {
				return p.Why
			}
		}
		t.Fatalf("%s: %s is not among the places of %v", name, path, err)
		return ""
	}
	in := func(dir, name string) string { return filepath.Join(dir, Prefix+name) }
	for _, tt := range []struct{ name, path, want string }{
		{"plain-file", in(bad, "plain-file"), "not executable: chmod +x " + in(bad, "plain-file")},
		{"writable", in(bad, "writable"), "everybody may write " + in(bad, "writable") + ": chmod o-w " + in(bad, "writable")},
		{"dir", in(bad, "dir"), "a directory"},
		{"dangling", in(bad, "dangling"), "a link to nothing"},
		{"anybodys", in(open, "anybodys"), "everybody may write " + open + ": chmod o-w " + open},
		{"absent", in(good, "absent"), "not there"},
		{"absent", in("relative", "absent"), "not an absolute path"},
		{"absent", in(libexec, "absent"), "not there"},
	} {
		if got := why(tt.name, tt.path); got != tt.want {
			t.Errorf("%s at %s: got %q, want %q", tt.name, tt.path, got, tt.want)
		}
	}
	for _, name := range []string{"", "../good", "a/b", "Good", "-good", "1good", "good\x00", strings.Repeat("a", 33)} {
		if _, err := f.find(name); err == nil || !strings.Contains(err.Error(), "is no name of a backend") {
			t.Errorf("%q: got %v", name, err)
		}
	}
	if _, err := f.find("godo"); err == nil || !strings.Contains(err.Error(), `did you mean "good"? Otherwise hutch backend install SOURCE brings one that is released, HUTCH_BACKEND_PATH names the directory of a build of your own`) {
		t.Errorf("godo: %v", err)
	}
	if got := strings.Join(f.names(), " "); got != "good linked other-1" {
		t.Errorf("names are %q", got)
	}
}

// The binary that was hashed is the one that runs, whatever happens to its path.
func TestTheHashedBytesAreExecuted(t *testing.T) {
	dir := install(t, "plain")
	path := filepath.Join(dir, Prefix+"plain")
	bin, err := openBinary("plain", path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer bin.file.Close()
	evil := filepath.Join(dir, "evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\necho evil\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(evil, path); err != nil {
		t.Fatal(err)
	}
	p := pool(t, nil)
	b, err := p.launch(p.ctx, "plain", bin, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := b.Describe(p.ctx); err != nil || f.Name != "plain" {
		t.Errorf("got %+v and %v", f, err)
	}
	if err := b.Stop(p.ctx); err != nil {
		t.Error(err)
	}
}

// What is known of a binary holds for the very same file only.
func TestTheCacheNoticesChanges(t *testing.T) {
	cache := t.TempDir()
	path := filepath.Join(t.TempDir(), Prefix+"x")
	id := func(want string) (string, bool) {
		t.Helper()
		b, err := openBinary("x", path, cache)
		if err != nil {
			t.Fatal(err)
		}
		defer b.file.Close()
		known := b.facts != nil
		b.remember(&factsOfX)
		if want != "" && b.sha256 != want {
			t.Errorf("the hash is %s, want %s", b.sha256, want)
		}
		return b.sha256, known
	}
	if err := os.WriteFile(path, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	first, known := id("7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed")
	if known {
		t.Error("known before it was ever seen")
	}
	if _, known := id(first); !known {
		t.Error("not known the second time")
	}
	old, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// The same size and the same modification time: only the change time differs.
	if err := os.WriteFile(path, []byte("two"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, old.ModTime(), old.ModTime()); err != nil {
		t.Fatal(err)
	}
	second, known := id("")
	if known || second == first {
		t.Errorf("changed bytes have the hash %s and are known: %t", second, known)
	}
	for _, f := range []string{"", "{", `{"format":1,"sha256":"x"}`, "null"} {
		entries, err := os.ReadDir(cache)
		if err != nil || len(entries) != 1 {
			t.Fatalf("the cache holds %v %v", entries, err)
		}
		if err := os.WriteFile(filepath.Join(cache, entries[0].Name()), []byte(f), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, known := id(second); known {
			t.Errorf("a cache of %q was believed", f)
		}
	}
}

func TestALongDirectoryIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 60))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := pool(t, func(o *Options) { o.Dir = dir }, "plain")
	_, err := p.Get(context.Background(), "plain")
	if err == nil || !strings.Contains(err.Error(), "bytes too long for a socket; set XDG_RUNTIME_DIR or TMPDIR to a shorter one") {
		t.Errorf("got %v", err)
	}
}
