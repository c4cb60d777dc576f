package guestfiles

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// reason is that of an error on the wire; "" for nil.
func reason(err error) contract.Reason {
	if err == nil {
		return ""
	}
	return remote.AsError(err).Reason
}

func write(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
}

// archive is a tar stream of entries.
func archive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text = "in " + h.Name
			h.Size = int64(len(text))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// listing is what lies below dir: a line for each path with its mode and what it holds.
func listing(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		what := ""
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what = string(b)
		case st.Mode().Type() == fs.ModeSymlink:
			if what, err = os.Readlink(p); err != nil {
				return err
			}
			list = append(list, fmt.Sprintf("%s -> %s", rel, what))
			return nil
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %v %s", rel, st.Mode(), what)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// operate does one operation with stdin and returns what it printed.
func operate(t *testing.T, in []byte, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "in"), string(in), 0o600)
	stdin, err := os.Open(filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	oldIn, oldOut, oldMask := os.Stdin, os.Stdout, unix.Umask(0o022)
	os.Stdin, os.Stdout = stdin, stdout
	defer func() {
		os.Stdin, os.Stdout = oldIn, oldOut
		unix.Umask(oldMask)
	}()
	err = files(args)
	out, rerr := os.ReadFile(filepath.Join(dir, "out"))
	if rerr != nil {
		t.Fatal(rerr)
	}
	return string(out), err
}

func TestFiles(t *testing.T) {
	for _, tc := range []struct {
		name   string
		op     string // without its path
		path   string // below the directory that holds tree
		in     []byte
		want   contract.Reason
		stdout string
		after  []string // nil for as it was
	}{
		{name: "a new file", op: "put file", path: "dir/new", in: []byte("text"), after: []string{"dir drwxr-xr-x", "dir/kept -rw-r-----  kept", "dir/new -rw-r--r-- text", "link -> dir"}},
		{name: "a file keeps its mode", op: "put file", path: "dir/kept", in: []byte("text"), after: []string{"dir drwxr-xr-x", "dir/kept -rw-r----- text", "link -> dir"}},
		{name: "a file in the place of a directory", op: "put file", path: "dir", want: contract.ReasonConfig},
		{name: "a file in the place of a link", op: "put file", path: "link", want: contract.ReasonConfig},
		{name: "a file where no directory is", op: "put file", path: "none/new", want: contract.ReasonNotFound},
		{name: "a file below a file", op: "put file", path: "dir/kept/new", want: contract.ReasonNotFound},
		{name: "a tree", op: "put tar", path: "deep/er", in: archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Mode: 0o755}),
			after: []string{"deep drwxr-xr-x", "deep/er drwxr-xr-x", "deep/er/a drwxr-xr-x", "deep/er/a/b -rwxr-xr-x in a/b", "dir drwxr-xr-x", "dir/kept -rw-r----- kept", "link -> dir"}},
		{name: "a tree in the place of a file", op: "put tar", path: "dir/kept", in: archive(t), want: contract.ReasonConfig},
		{name: "a tree that leads out", op: "put tar", path: "dir", in: archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "../x", Mode: 0o644}), want: contract.ReasonConfig},
		{name: "no tree", op: "put tar", path: "dir", in: []byte(strings.Repeat("no tar ", 200)), want: contract.ReasonConfig},
		{name: "a file comes back", op: "get file", path: "dir/kept", stdout: "4\nkept"},
		{name: "no file to come back", op: "get file", path: "none", want: contract.ReasonNotFound},
		{name: "a directory is no file", op: "get file", path: "dir", want: contract.ReasonConfig},
		{name: "a link is no file", op: "get file", path: "link", want: contract.ReasonConfig},
		{name: "a file is no tree", op: "get tar", path: "dir/kept", want: contract.ReasonConfig},
		{name: "no tree to come back", op: "get tar", path: "none", want: contract.ReasonNotFound},
		{name: "a file is removed", op: "remove", path: "dir/kept", after: []string{"dir drwxr-xr-x", "link -> dir"}},
		{name: "a link is removed, and not what it leads to", op: "remove-all", path: "link", after: []string{"dir drwxr-xr-x", "dir/kept -rw-r----- kept"}},
		{name: "a directory is not removed unasked", op: "remove", path: "dir", want: contract.ReasonConfig},
		{name: "a directory is removed", op: "remove-all", path: "dir", after: []string{"link -> dir"}},
		{name: "nothing to remove", op: "remove-all", path: "none", want: contract.ReasonNotFound},
		{name: "an unknown operation", op: "rename", path: "dir", want: contract.ReasonUnsupported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "dir", "kept"), "kept", 0o640)
			if err := errors.Join(os.Chmod(filepath.Join(dir, "dir"), 0o755), os.Symlink("dir", filepath.Join(dir, "link"))); err != nil {
				t.Fatal(err)
			}
			want := tc.after
			if want == nil {
				want = listing(t, dir)
			}
			out, err := operate(t, tc.in, append(strings.Fields(tc.op), filepath.Join(dir, tc.path))...)
			if reason(err) != tc.want || out != tc.stdout {
				t.Errorf("error %v (%q), want %q; printed %q, want %q", err, reason(err), tc.want, out, tc.stdout)
			}
			for i, line := range want {
				want[i] = strings.Join(strings.Fields(line), " ")
			}
			if diff := cmp.Diff(want, listing(t, dir)); diff != "" {
				t.Errorf("afterwards (-want +got)\n%s", diff)
			}
		})
	}
}

// TestFilesTree has a tree come back as it went in.
func TestFilesTree(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "a", "run.sh"), "run", 0o755)
	if err := os.Symlink("run.sh", filepath.Join(from, "a", "link")); err != nil {
		t.Fatal(err)
	}
	out, err := operate(t, nil, "get", "tar", from)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operate(t, []byte(out), "put", "tar", to); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(listing(t, from), listing(t, to)); diff != "" {
		t.Error(diff)
	}
}

func TestFilesWithoutPath(t *testing.T) {
	if _, err := operate(t, nil, "remove"); reason(err) != contract.ReasonInternal {
		t.Errorf("the error is %v", err)
	}
}

// TestRemoveClosed removes what a command has closed to itself.
func TestRemoveClosed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "closed", "in", "file"), "x", 0o600)
	for _, name := range []string{"closed/in", "closed"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := operate(t, nil, "remove-all", filepath.Join(dir, "closed")); err != nil {
		t.Error(err)
	}
	if left := listing(t, dir); left != nil {
		t.Errorf("left: %v", left)
	}
}
