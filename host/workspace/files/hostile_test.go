package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// PATH-01, PATH-02 and PATH-06 of the catalogue of attacks.
func TestPathsThatLeadOut(t *testing.T) {
	both(t, project, nil, func(t *testing.T, f *Files, b *box) {
		for name, want := range map[string]Reason{
			"../../etc/passwd": ReasonOutside, "/etc/passwd": ReasonOutside, "src/../../x": ReasonOutside, "..": ReasonOutside, "/": ReasonOutside, "/workspacex/a": ReasonOutside, "/workspace/../etc/passwd": ReasonOutside,
			"out": ReasonOutside, "up/passwd": ReasonOutside, "loop": ReasonLinkLoop, "dangling": ReasonMissing,
			"": ReasonName, "a\x00b": ReasonName, strings.Repeat("a/", 3000): ReasonName, strings.Repeat("n", 300): ReasonName,
			".": ReasonDir, "src/": ReasonDir, "-rf": ReasonMissing, "\n": ReasonMissing, "src/main.go/": ReasonMissing,
		} {
			if name == "src/main.go/" {
				continue // the same file: a path is cleaned before it is used
			}
			if b.ready.Layers == nil && name == strings.Repeat("n", 300) {
				continue // whether a name is too long is for the backend to say
			}
			_, err := f.Read(t.Context(), ReadRequest{Path: name})
			wantReason(t, fmt.Sprintf("read %.40q", name), err, want)
			if want == ReasonOutside || want == ReasonName || want == ReasonLinkLoop {
				_, err = f.Write(t.Context(), WriteRequest{Path: name, Data: []byte("owned")})
				if err == nil {
					t.Errorf("write %.40q was done", name)
				}
				_, err = f.EditFile(t.Context(), EditRequest{Path: name, Edits: []Edit{{Old: "root", New: "owned"}}})
				if err == nil {
					t.Errorf("edit %.40q was done", name)
				}
			}
		}
		for _, p := range b.puts {
			t.Errorf("something was put: %s", p)
		}
		for _, name := range []string{"-rf", "\n", "a b", "é", "\xff\xfe"} {
			if _, err := f.Write(t.Context(), WriteRequest{Path: name, Data: []byte(name)}); err != nil {
				t.Errorf("write %q: %v", name, err)
			}
			if c, err := f.Read(t.Context(), ReadRequest{Path: name}); err != nil || string(c.Data) != name {
				t.Errorf("read %q: %v", name, err)
			}
		}
	})
}

// PATH-05 and PATH-07 of the catalogue of attacks, and what else a program leaves in the way of those who read.
func TestHostileFiles(t *testing.T) {
	b := newBox(t, true, map[string]string{"plain": "needle\n", "victim": "needle\n"}, nil)
	f := b.open(Options{})
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("needle secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	big := b.upper + "/big"
	for _, err := range []error{
		os.Link(outside, b.upper+"/hard"), os.Symlink(outside, b.upper+"/soft"), unix.Mkfifo(b.upper+"/fifo", 0o644),
		os.WriteFile(big, nil, 0o644), os.Truncate(big, 1<<40),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := unix.Mknod(b.upper+"/dev", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil { // endless zeros
			t.Logf("no device: %v", err)
		}
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	t.Chdir(b.upper)
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: "socket"}); err != nil {
		t.Fatal(err)
	}
	reasons := map[string]Reason{"hard": Reason(safefile.ReasonHardlink), "soft": ReasonOutside, "fifo": Reason(safefile.ReasonSpecial), "socket": Reason(safefile.ReasonSpecial), "big": ReasonTooBig}
	if _, err := os.Lstat("dev"); err == nil {
		reasons["dev"] = Reason(safefile.ReasonSpecial)
	}
	for name, want := range reasons {
		_, err := f.Read(t.Context(), ReadRequest{Path: name})
		wantReason(t, "read "+name, err, want)
		_, err = f.EditFile(t.Context(), EditRequest{Path: name, Edits: []Edit{{Old: "needle", New: "x"}}})
		if want == Reason(safefile.ReasonSpecial) || want == ReasonOutside || want == ReasonTooBig || want == Reason(safefile.ReasonHardlink) {
			wantReason(t, "edit "+name, err, want)
		}
	}
	m, err := f.Grep(t.Context(), GrepRequest{Pattern: "needle"})
	if err != nil || m.Count != 2 || m.Files[0].Path != "plain" {
		t.Errorf("a search found %+v, %v", m, err)
	}
	var skips []string
	for _, s := range m.Skipped {
		skips = append(skips, s.Path+" "+string(s.Reason))
	}
	if diff := cmp.Diff([]string{"big too_big"}, skips); diff != "" || m.Linked != 1 {
		t.Errorf("%d files with several links, want 1; %s", m.Linked, diff)
	}
	// A write replaces the hard link, and so never reaches the file outside.
	if _, err := f.Write(t.Context(), WriteRequest{Path: "hard", Data: []byte("mine\n")}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"soft", "fifo"} {
		if _, err := f.Write(t.Context(), WriteRequest{Path: name, Data: []byte("owned\n")}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if got, err := os.ReadFile(outside); string(got) != "needle secret\n" {
		t.Errorf("the file outside is now %q, %v", got, err)
	}
	if fi, err := os.Lstat("fifo"); err != nil || fi.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the fifo is now %v, %v", fi, err)
	}
}

// TestTreeOfLinks works in a tree as pnpm and uv leave it, where every file of a package has a second link.
func TestTreeOfLinks(t *testing.T) {
	b := newBox(t, true, map[string]string{"main.js": "needle\n"}, map[string]string{"store/a": "needle\n", "store/b": "needle\n", "node_modules/": ""})
	for _, name := range []string{"a", "b"} {
		if err := os.Link(b.upper+"/store/"+name, b.upper+"/node_modules/"+name); err != nil {
			t.Fatal(err)
		}
	}
	f := b.open(Options{Name: "mine"})
	l, err := f.List(t.Context(), ListRequest{})
	if err != nil || l.Linked != 4 || len(l.Entries) != 8 { // output among them
		t.Errorf("a list of %d entries, %d with several links, %v; want 8 and 4", len(l.Entries), l.Linked, err)
	}
	m, err := f.Grep(t.Context(), GrepRequest{Pattern: "needle"})
	if err != nil || m.Count != 1 || m.Linked != 4 || len(m.Skipped) != 0 {
		t.Errorf("a search found %+v, %v", m, err)
	}
	_, err = f.Read(t.Context(), ReadRequest{Path: "node_modules/a"})
	if e := wantReason(t, "read", err, ReasonLinked); !strings.Contains(e.Hint, "hutch exec mine -- cat /workspace/node_modules/a") {
		t.Errorf("the hint does not say what to do: %s", e.Hint)
	}
	_, err = f.Grep(t.Context(), GrepRequest{Pattern: "needle", Paths: []string{"store/a"}})
	wantReason(t, "a search of that file alone", err, ReasonLinked)
}

// TestSymlinkRace swaps a directory of the workspace for a link that leads out while files below it are read.
func TestSymlinkRace(t *testing.T) {
	b := newBox(t, true, nil, map[string]string{"d/f": "inside\n", "d/sub/f": "inside\n"})
	f := b.open(Options{})
	outside := t.TempDir()
	fill(t, outside, map[string]string{"f": "SECRET\n", "sub/f": "SECRET\n"})
	if err := os.Symlink(outside, b.upper+"/evil"); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, b.upper+"/d", unix.AT_FDCWD, b.upper+"/evil", unix.RENAME_EXCHANGE)
				n++
			}
		}
	}()
	seen := 0
	for range 3000 {
		for _, name := range []string{"d/f", "d/sub/f"} {
			if c, err := f.Read(t.Context(), ReadRequest{Path: name}); err == nil {
				if seen++; string(c.Data) != "inside\n" {
					t.Errorf("read %s: %q", name, c.Data)
				}
			}
		}
		if m, err := f.Grep(t.Context(), GrepRequest{Pattern: "SECRET"}); err == nil && m.Count > 0 {
			t.Errorf("found %+v", m.Files)
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	if n := <-done; n < 100 || seen < 10 {
		t.Errorf("%d swaps and %d reads that went well prove nothing", n, seen)
	}
}

func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	b := newBox(t, true, nil, map[string]string{"shut/f": "x\n", "f": "x\n"})
	f := b.open(Options{})
	if err := os.Chmod(b.upper+"/shut", 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(b.upper+"/shut", 0o755)
	l, err := f.List(t.Context(), ListRequest{})
	if err != nil || len(l.Unreadable) != 1 || l.Unreadable[0].Reason != ReasonDenied {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestDeviceZeroIsData is PATH-08: what looks like a mark, where nothing is below it to be hidden, is data.
func TestDeviceZeroIsData(t *testing.T) {
	b := newBox(t, true, map[string]string{"a": "a\n", ".wh.a": "data\n"}, map[string]string{".wh.b": "data\n"})
	f := b.open(Options{})
	l, err := f.List(t.Context(), ListRequest{})
	if diff := cmp.Diff([]string{".wh.a", ".wh.b", "a", "output"}, paths(l)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if err := unix.Mknod(b.upper+"/w", syscall.S_IFCHR, 0); err != nil {
		t.Skipf("no device 0:0 can be made here: %v", err)
	}
	b.ready.Layers.Lower = ""
	alone := b.open(Options{})
	if e, err := alone.Stat(t.Context(), "w"); err != nil || e.Type != "device" {
		t.Errorf("without a lower layer: %+v, %v", e, err)
	}
}
