package guestfiles

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unpacked unpacks entries into dir, as the user of the test.
func unpacked(t *testing.T, dir string, in []byte) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return unpack(root, os.Getuid(), os.Getgid(), tar.NewReader(bytes.NewReader(in)))
}

// TestUnpack is about what the host brings: links may lead anywhere, and nothing is written through one.
func TestUnpack(t *testing.T) {
	outside := t.TempDir()
	reg := func(name string, mode int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}
	}
	for _, tc := range []struct {
		name string
		in   []tar.Header
		bad  bool
		want []string
	}{
		{name: "parents that nobody names", in: []tar.Header{reg("a/b/c", 0o755)}, want: []string{"a drwxr-xr-x", "a/b drwxr-xr-x", "a/b/c -rwxr-xr-x in a/b/c"}},
		{name: "a directory that may not be written to, and what is in it",
			in:   []tar.Header{{Typeflag: tar.TypeDir, Name: "ro/", Mode: 0o555}, reg("ro/file", 0o444)},
			want: []string{"ro dr-xr-xr-x", "ro/file -r--r--r-- in ro/file"}},
		{name: "set-id bits are lost", in: []tar.Header{reg("tool", 0o6755)}, want: []string{"tool -rwxr-xr-x in tool"}},
		{name: "a link that leads out stays one", in: []tar.Header{{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "../../etc"}}, want: []string{"out -> ../../etc"}},
		{name: "the second of a name replaces the first", in: []tar.Header{{Typeflag: tar.TypeSymlink, Name: "x", Linkname: filepath.Join(outside, "x")}, reg("x", 0o644)}, want: []string{"x -rw-r--r-- in x"}},
		{name: "nothing goes through a link", in: []tar.Header{{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, reg("out/file", 0o644)}, bad: true, want: []string{"out -> " + outside}},
		{name: "nothing goes above", in: []tar.Header{reg("../file", 0o644)}, bad: true},
		{name: "what is no file is left out", in: []tar.Header{{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o644}, reg("file", 0o644)}, want: []string{"file -rw-r--r-- in file"}},
		{name: "the directory itself", in: []tar.Header{{Typeflag: tar.TypeDir, Name: "./", Mode: 0}, reg("file", 0o644)}, want: []string{"file -rw-r--r-- in file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "workspace")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "ro"), 0o755) })
			if err := unpacked(t, dir, archive(t, tc.in...)); (err != nil) != tc.bad {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(tc.want, listing(t, dir)); diff != "" {
				t.Error(diff)
			}
			if left := listing(t, outside); left != nil {
				t.Errorf("written outside: %v", left)
			}
		})
	}
}

func TestUnpackTorn(t *testing.T) {
	in := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o644})
	if err := unpacked(t, t.TempDir(), in[:515]); err == nil {
		t.Error("half a file was taken")
	}
}
