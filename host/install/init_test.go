package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/host/lockfile"
	"github.com/hutch-run/hutch/host/runfile"
)

func TestInitLocksAndInstalls(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	m := w.release("1.2.0")
	w.release("2.0.0-rc.1")

	got := w.must(InitOptions{}, w.requires("./dist", "~> 1.0"))
	if got.Version != "1.2.0" || !got.Fetched || got.Was != "" {
		t.Fatalf("got %+v", got)
	}
	if p := w.program(got.Path); !strings.Contains(p, "1.2.0 for "+here) {
		t.Errorf("the program is %q", p)
	}
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(got.Path), "LICENSE")); err != nil || len(b) == 0 {
		t.Errorf("what lies beside it: %v", err)
	}
	f, err := lockfile.Read(w.project)
	if err != nil {
		t.Fatal(err)
	}
	l := f.Find("acme")
	if l == nil || l.Version != "1.2.0" || l.Constraint != "~> 1.0" || len(l.Platforms) != 2 {
		t.Fatalf("locked: %+v", l)
	}
	for _, a := range m.Archives {
		if p, ok := l.For(a.Platform); !ok || p.Archive != a.SHA256 || p.Binary != a.BinarySHA256 {
			t.Errorf("%s: locked %+v, released %+v", a.Platform, p, a)
		}
	}

	// What is there is not fetched again, and newer versions wait until they are asked for.
	w.release("1.3.0")
	before := w.lock()
	if got := w.must(InitOptions{}, w.requires("./dist", "~> 1.0")); got.Version != "1.2.0" || got.Fetched {
		t.Errorf("again: %+v", got)
	}
	if err := os.Rename(w.dist, w.dist+".away"); err != nil {
		t.Fatal(err)
	}
	if got := w.must(InitOptions{Locked: true}, w.requires("./dist", "~> 1.0")); got.Fetched {
		t.Errorf("without its source: %+v", got)
	}
	if err := os.Rename(w.dist+".away", w.dist); err != nil {
		t.Fatal(err)
	}
	if string(before) != string(w.lock()) {
		t.Errorf("the lock file changed to\n%s", w.lock())
	}
	if got := w.must(InitOptions{Upgrade: true}, w.requires("./dist", "~> 1.0")); got.Version != "1.3.0" || got.Was != "1.2.0" || !got.Fetched {
		t.Errorf("upgrade: %+v", got)
	}
	w.clean()
}

func TestInitMendsWhatIsOnDisk(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	path := w.must(InitOptions{}, w.requires("./dist", "")).Path
	w.write(path, "#!/bin/sh\necho something else\n", 0o755)
	if got := w.must(InitOptions{Locked: true}, w.requires("./dist", "")); !got.Fetched || !strings.Contains(w.program(path), "1.0.0") {
		t.Errorf("changed: %+v, %q", got, w.program(path))
	}
	if err := os.RemoveAll(w.Dir); err != nil {
		t.Fatal(err)
	}
	if got := w.must(InitOptions{Locked: true}, w.requires("./dist", "")); !got.Fetched {
		t.Errorf("removed: %+v", got)
	}
	// What a killed installation left goes.
	if err := os.MkdirAll(filepath.Join(w.Dir, tmpPrefix+"x", "tree"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(w.Dir, "acme")); err != nil {
		t.Fatal(err)
	}
	w.must(InitOptions{}, w.requires("./dist", ""))
	w.clean()
}

func TestInitRefusals(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	w.refused("does not name it", InitOptions{Locked: true}, w.requires("./dist", ""))
	w.refused(`has no version that fits ">= 2.0"; there are 1.0.0`, InitOptions{}, w.requires("./dist", ">= 2.0"))
	w.refused("there is no such file or directory", InitOptions{}, w.requires("./nowhere", ""))
	w.refused("hutch-backend-acme_VERSION_manifest.json", InitOptions{}, w.requires("../project", ""))
	w.must(InitOptions{}, w.requires("./dist", ""))

	w.release("1.1.0")
	w.refused("is required in version >= 1.1", InitOptions{}, w.requires("./dist", ">= 1.1"))
	w.refused("is required in version >= 1.1", InitOptions{Locked: true, Upgrade: true}, w.requires("./dist", ">= 1.1"))
	w.refused("hutch init -upgrade", InitOptions{}, w.requires("./dist/../dist", ""))
	w.refused("--locked leaves it as it is", InitOptions{Locked: true}, w.requires("./dist", ">= 0.1"))
	w.refused(`is required from ./other here and from ./dist elsewhere`, InitOptions{}, w.requires("./dist", ""), w.requires("./other", ""))
	w.refused("is no source", InitOptions{}, w.requires("acme", ""))

	w.Platform = "plan9/amd64"
	w.refused("is not for plan9/amd64; there are darwin/arm64, linux/amd64", InitOptions{}, w.requires("./dist", ""))
}

// A version whose files changed after it was locked is not taken, whichever file it is.
func TestAReleaseThatChanged(t *testing.T) {
	w := newWorld(t)
	m := w.release("1.0.0")
	w.must(InitOptions{}, w.requires("./dist", ""))
	if err := os.RemoveAll(w.Dir); err != nil {
		t.Fatal(err)
	}
	file := func(platform string) string {
		a, _ := m.For(platform)
		return filepath.Join(w.dist, a.File)
	}
	good, err := os.ReadFile(file(here))
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte{}, good...)
	flipped[len(flipped)/2] ^= 1
	w.write(file(here), string(flipped), 0o644)
	w.refused("is not the archive of the manifest", InitOptions{}, w.requires("./dist", ""))
	w.write(file(here), string(good[:len(good)-1]), 0o644)
	w.refused("its manifest says", InitOptions{}, w.requires("./dist", ""))
	w.write(file(here), string(good)+"x", 0o644)
	w.refused("hutch-backend-acme_1.0.0_linux_amd64.tar.gz", InitOptions{}, w.requires("./dist", ""))
	w.write(file(here), string(good), 0o644)
	w.must(InitOptions{}, w.requires("./dist", ""))

	// Now the publisher makes the release once more, with another program.
	if err := os.RemoveAll(w.dist); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(w.Dir); err != nil {
		t.Fatal(err)
	}
	m = w.release("1.0.0")
	path := filepath.Join(w.dist, "hutch-backend-acme_1.0.0_manifest.json")
	raw := w.program(path)
	a, _ := m.For("darwin/arm64")
	w.write(path, strings.Replace(raw, a.SHA256, strings.Repeat("0", 64), 1), 0o644)
	w.refused("is not what it was when it was locked", InitOptions{}, w.requires("./dist", ""))
}

func TestTheWholeDirectoryForgets(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	w.must(InitOptions{}, w.requires("./dist", ""))
	empty := &runfile.RunFile{Path: "b.hcl", Dir: w.project}
	if _, err := w.init(InitOptions{}, empty); err != nil || !strings.Contains(string(w.lock()), "acme") {
		t.Errorf("one file of several took out what another one needs: %v\n%s", err, w.lock())
	}
	if _, err := w.init(InitOptions{Whole: true, Locked: true}, empty); err == nil {
		t.Error("--locked changed the file, or did not say that it had to")
	}
	if _, err := w.init(InitOptions{Whole: true}, empty); err != nil || strings.Contains(string(w.lock()), "acme") {
		t.Errorf("%v\n%s", err, w.lock())
	}
}

func TestBundledIsNotLocked(t *testing.T) {
	w := newWorld(t)
	f := w.requires("", ">= 0.1")
	if got := w.must(InitOptions{Whole: true}, f); got.Name != "acme" || got.Version != "" || w.lock() != nil {
		t.Errorf("got %+v and\n%s", got, w.lock())
	}
}

// Many at once, as in a monorepo's CI: one of them installs, none is in the way of another.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := w.init(InitOptions{}, w.requires("./dist", "")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.clean()
	if got := w.must(InitOptions{Locked: true}, w.requires("./dist", "")); got.Fetched {
		t.Errorf("got %+v", got)
	}
}

func TestInstallForTheUser(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	w.release("1.1.0")
	lock := filepath.Join(w.Dir, "lock.hcl")
	o, err := w.Install(context.Background(), "", w.dist+":1.0.0", lock)
	if err != nil || o.Lock.Version != "1.0.0" || o.Lock.Name != "acme" {
		t.Fatalf("got %+v, %v", o, err)
	}
	if o, err = w.Install(context.Background(), "", w.dist, lock); err != nil || o.Lock.Version != "1.1.0" {
		t.Fatalf("got %+v, %v", o, err)
	}
	f, err := lockfile.ReadFile(lock)
	if err != nil || f.Find("acme").Version != "1.1.0" || f.Find("acme").Source != w.dist {
		t.Fatalf("got %+v, %v", f, err)
	}
	for _, tt := range []struct{ name, ref, want string }{
		{"", w.dist + ":9.9.9", "9.9.9"},
		{"", "https://example.com/x:1.0.0", "add --name NAME"},
		{"Bad", w.dist, "is no name of a backend"},
		{"other", w.dist, "holds no hutch-backend-other_VERSION_manifest.json"},
	} {
		if _, err := w.Install(context.Background(), tt.name, tt.ref, lock); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v", tt.name, tt.ref, err)
		}
	}
}

// What is installed already is compared with the archive on this machine, of which nothing is needed.
func TestInstalledFromAnArchiveThatChanged(t *testing.T) {
	w := newWorld(t)
	m := w.release("1.0.0")
	lock := filepath.Join(w.Dir, "lock.hcl")
	install := func(ref string) error {
		_, err := w.Install(context.Background(), "", ref, lock)
		return err
	}
	for range 2 {
		if err := install(w.dist); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := m.For(here)
	archive, manifest := filepath.Join(w.dist, a.File), filepath.Join(w.dist, "hutch-backend-acme_1.0.0_manifest.json")
	good := w.program(archive)
	w.write(archive, good[:len(good)-1]+"?", 0o644)
	for _, ref := range []string{w.dist, w.dist + ":1.0.0"} {
		if err := install(ref); err == nil || !strings.Contains(err.Error(), "is not the archive of the manifest: SHA-256 ") || !strings.Contains(err.Error(), "; what was installed from it before is as it was") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	w.write(archive, good, 0o644)
	raw := w.program(manifest)
	other, _ := m.For("darwin/arm64")
	w.write(manifest, strings.Replace(raw, other.SHA256, strings.Repeat("0", 64), 1), 0o644)
	if err := install(w.dist + ":1.0.0"); err == nil || !strings.Contains(err.Error(), "is not what it was when it was locked") {
		t.Error(err)
	}
	w.notes = nil
	if err := install(w.dist); err != nil || len(w.notes) == 0 || !strings.Contains(w.notes[len(w.notes)-1], "is not the one that was installed before") {
		t.Errorf("%v, notes %q", err, w.notes)
	}
}

func TestSources(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"registry.example.com/acme/hutch-backend-acme", ""},
		{"localhost:5000/acme", ""},
		{"oci://registry.example.com/acme", ""},
		{"./dist", ""},
		{"../a b", ""},
		{"/srv/releases", ""},
		{"https://example.com/v{version}", ""},
		{"http://127.0.0.1:8080/x", ""},
		{"", "is empty"},
		{"acme", "is no source"},
		{"acme/x", "is no source"},
		{"http://example.com/x", "http is only for this machine"},
		{"https://user:pw@example.com/x", "no user and no password"},
		{"https://example.com/x?token=1", "has no ?"},
		{"registry.example.com/acme:1.2.3", `has a version in it`},
		{"registry.example.com/acme@sha256:" + strings.Repeat("0", 64), "has a version in it"},
		{"./a\x1b[31m", "characters"},
		{"./a\u009b31m", "characters"},
		{"ftp://example.com/x", "is no source"},
	} {
		err := CheckSource(tt.text)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %q", tt.text, err, tt.want)
		}
	}
	for text, want := range map[string][2]string{
		"localhost:5000/acme":         {"localhost:5000/acme", ""},
		"localhost:5000/acme:1.2.3":   {"localhost:5000/acme", "1.2.3"},
		"localhost:5000/acme:v1.2.3":  {"localhost:5000/acme", "1.2.3"},
		"localhost:5000/acme:latest":  {"localhost:5000/acme:latest", ""},
		"./dist:1.0.0-rc.1":           {"./dist", "1.0.0-rc.1"},
		"https://h/v{version}:1.0.0":  {"https://h/v{version}", "1.0.0"},
		"https://example.com:8443/1x": {"https://example.com:8443/1x", ""},
	} {
		if s, v := SplitVersion(text); s != want[0] || v != want[1] {
			t.Errorf("%q: got %q and %q", text, s, v)
		}
	}
}
