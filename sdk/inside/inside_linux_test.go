package inside

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// newFiles is a root directory with a workspace, in which links lead out.
func newFiles(t *testing.T) (f Files, dir string) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	for _, err := range []error{
		root.MkdirAll("workspace/sub", 0o755), root.WriteFile("workspace/a", []byte("a\n"), 0o640), root.WriteFile("workspace/sub/b", []byte("b\n"), 0o600),
		root.Symlink("/etc", "workspace/out"), root.Symlink("a", "workspace/link"), root.Link("workspace/a", "workspace/second"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return Files{Root: root, Own: []string{"/workspace", "", "/workspace/output"}}, dir
}

func tarOf(t *testing.T, names ...string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range names {
		if err := w.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: 1, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestFiles does what can be done, and says of what cannot be done why, in the words of the contract.
func TestFiles(t *testing.T) {
	f, dir := newFiles(t)
	get := func(p string, format sdk.Format) (string, error) {
		var b strings.Builder
		err := f.Get(t.Context(), p, format, &b)
		return b.String(), err
	}
	put := func(p string, format sdk.Format, r io.Reader) error { return f.Put(t.Context(), p, format, r) }
	if got, err := get("/workspace/sub/b", sdk.FormatFile); got != "b\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := get("/workspace", sdk.FormatTar); err != nil || !strings.Contains(got, "sub/b") {
		t.Errorf("a tree of %d bytes, %v", len(got), err)
	}
	if err := put("/workspace/a", sdk.FormatFile, strings.NewReader("new\n")); err != nil {
		t.Error(err)
	}
	if err := put("/workspace/made/here", sdk.FormatTar, tarOf(t, "x/y")); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"a": "new\n", "second": "a\n", "made/here/x/y": "x"} {
		if b, err := os.ReadFile(dir + "/workspace/" + name); string(b) != want || err != nil {
			t.Errorf("%s has %q, %v; want %q", name, b, err, want)
		}
	}
	if fi, err := os.Stat(dir + "/workspace/a"); err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("a file that was replaced has the mode %v, %v", fi.Mode(), err)
	}
	_, missing := get("/workspace/none", sdk.FormatFile)
	_, below := get("/workspace/a/x", sdk.FormatFile)
	_, link := get("/workspace/link", sdk.FormatFile)
	_, out := get("/workspace/out/passwd", sdk.FormatFile)
	_, format := get("/workspace/a", "zip")
	_, relative := get("workspace/a", sdk.FormatFile)
	for what, c := range map[string]struct {
		err  error
		want sdk.Reason
	}{
		"missing": {missing, sdk.ReasonNotFound}, "below a file": {below, sdk.ReasonNotFound}, "a link": {link, sdk.ReasonConfig}, "through a link that leads out": {out, sdk.ReasonConfig},
		"a format": {format, sdk.ReasonUnsupported}, "a relative path": {relative, sdk.ReasonConfig}, "put without a format": {put("/workspace/a", "zip", nil), sdk.ReasonUnsupported},
		"put to a directory": {put("/workspace/sub", sdk.FormatFile, strings.NewReader("")), sdk.ReasonConfig}, "a tree upon a file": {put("/workspace/a", sdk.FormatTar, tarOf(t, "x")), sdk.ReasonConfig},
		"a tree that leads out": {put("/workspace", sdk.FormatTar, tarOf(t, "../x")), sdk.ReasonConfig}, "put below nothing": {put("/workspace/none/x", sdk.FormatFile, strings.NewReader("")), sdk.ReasonNotFound},
		"remove the workspace": {f.Remove("/workspace", true), sdk.ReasonConfig}, "remove the root": {f.Remove("/", true), sdk.ReasonConfig},
		"remove a directory": {f.Remove("/workspace/sub", false), sdk.ReasonConfig}, "remove nothing": {f.Remove("/workspace/none", true), sdk.ReasonNotFound},
	} {
		if got := sdk.ReasonOf(c.err); got != c.want {
			t.Errorf("%s: %q (%v), want %q", what, got, c.err, c.want)
		}
	}
	for _, p := range []string{"/workspace/sub", "/workspace/out"} {
		if err := f.Remove(p, true); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir + p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", p, err)
		}
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Errorf("the link was followed: %v", err)
	}
}

// TestReasons maps errors of the system.
func TestReasons(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for err, want := range map[error]sdk.Reason{
		syscall.ENOSPC: sdk.ReasonQuota, syscall.EDQUOT: sdk.ReasonQuota, syscall.EROFS: sdk.ReasonDenied, fs.ErrPermission: sdk.ReasonDenied, syscall.ENOTDIR: sdk.ReasonNotFound,
	} {
		if got := sdk.ReasonOf(Error("/x", err)); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
		if err != syscall.ENOTDIR {
			if got := sdk.ReasonOf(Refused(t.Context(), "/x", err)); got != want {
				t.Errorf("a tree, %v: %q, want %q", err, got, want)
			}
		}
		if got := Refused(gone, "/x", err); got != err {
			t.Errorf("a tree that was cancelled: %v", got)
		}
	}
	if Error("/x", nil) != nil || Refused(t.Context(), "/x", nil) != nil {
		t.Error("no error is one")
	}
}

// TestAsUser writes with another user's rights, and removes what that user closed to itself.
func TestAsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	f, dir := newFiles(t)
	f.As = func(change func() error) error { return AsUser(4321, 4321, change) }
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(t.Context(), "/workspace/mine", sdk.FormatFile, strings.NewReader("")); sdk.ReasonOf(err) != sdk.ReasonDenied {
		t.Errorf("a write into root's directory: %v", err)
	}
	if err := os.Chown(dir+"/workspace", 4321, 4321); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(t.Context(), "/workspace/mine/deep", sdk.FormatTar, tarOf(t, "x")); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir + "/workspace/mine/deep/x"); err != nil || st.Sys().(*syscall.Stat_t).Uid != 4321 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := os.Chmod(dir+"/workspace/mine/deep", 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove("/workspace/mine", true); err != nil {
		t.Errorf("a directory that is closed to its owner: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Error("the process became somebody else")
	}
}

// TestWorkspaces says what changed in a layer, and since a snapshot.
func TestWorkspaces(t *testing.T) {
	source, layer := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{source + "/a": "a", layer + "/a": "A", layer + "/new": "n", layer + "/input": "of the project"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	upper, err := os.OpenRoot(layer)
	if err != nil {
		t.Fatal(err)
	}
	defer upper.Close()
	kinds := func(list []sdk.Change, err error) map[string]sdk.ChangeKind {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		got := map[string]sdk.ChangeKind{}
		for _, c := range list {
			got[c.Path] = c.Kind
		}
		return got
	}
	want := map[string]sdk.ChangeKind{"a": sdk.ChangeModified, "new": sdk.ChangeAdded, "input": sdk.ChangeAdded}
	if d := cmp.Diff(want, kinds(Changes(t.Context(), source, upper, overlay.Options{}))); d != "" {
		t.Error(d)
	}
	snap, note, err := Snapshot(t.Context(), source)
	if err != nil || note != "" {
		t.Fatal(note, err)
	}
	if err := os.WriteFile(source+"/more", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]sdk.ChangeKind{"more": sdk.ChangeAdded}, kinds(ChangesSince(t.Context(), snap, source))); d != "" {
		t.Error(d)
	}
	for _, err := range []error{
		func() error { _, err := Changes(t.Context(), source+"/none", upper, overlay.Options{}); return err }(),
		func() error { _, _, err := Snapshot(t.Context(), source+"/none"); return err }(),
	} {
		if err == nil {
			t.Error("a workspace that is not there")
		}
	}
}

// TestFIFOsAreNotWaitedFor asks for a tree, and writes one, where there is a FIFO.
func TestFIFOsAreNotWaitedFor(t *testing.T) {
	f, dir := newFiles(t)
	if err := syscall.Mkfifo(dir+"/workspace/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Get(t.Context(), "/workspace/fifo", sdk.FormatTar, io.Discard); sdk.ReasonOf(err) != sdk.ReasonConfig {
		t.Errorf("a tree of a FIFO: %v", err)
	}
	if err := f.Put(t.Context(), "/workspace/fifo", sdk.FormatTar, strings.NewReader("")); err == nil {
		t.Error("a tree was written to a FIFO")
	}
}

// TestS13 has a directory of another user's, which the caller cannot read, in a shared workspace.
func TestS13AnUnreadableDirectoryIsLeftOut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's directory")
	}
	dir := t.TempDir()
	for _, err := range []error{
		os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o777), os.WriteFile(dir+"/a", nil, 0o644),
		os.Mkdir(dir+"/theirs", 0o700), os.Chown(dir+"/theirs", 12345, 12345), os.Mkdir(dir+"/opened", 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	as := func(uid int) {
		if err := unix.Setfsuid(uid); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { as(0); runtime.UnlockOSThread() })
	as(65534)
	snap, note, err := Snapshot(t.Context(), dir)
	if err != nil || !strings.Contains(note, `"theirs"`) {
		t.Fatalf("note %q, %v", note, err)
	}
	if err := os.WriteFile(dir+"/new", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := ChangesSince(t.Context(), snap, dir)
	if err != nil || len(list) != 1 || list[0].Path != "new" {
		t.Errorf("changes %v, %v", list, err)
	}
	// One that is closed later may hide changes.
	as(0)
	if err := os.Chmod(dir+"/opened", 0); err != nil {
		t.Fatal(err)
	}
	as(65534)
	if _, err := ChangesSince(t.Context(), snap, dir); !errors.Is(err, overlay.ErrUnreadable) {
		t.Errorf("a directory that was closed meanwhile: %v", err)
	}
}
