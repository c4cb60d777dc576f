package outputs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func open(t *testing.T, dir string) *Exporter {
	t.Helper()
	e, err := NewExporter(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// TestExport: every run has its own directory, whatever its name, and a link in the destination leads nowhere.
func TestExport(t *testing.T) {
	from, to, away := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	list := []Output{{Path: "a", Size: 1}, {Path: "sub/b", Size: 1}}
	for _, o := range list {
		if err := os.WriteFile(filepath.Join(from, o.Path), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := open(t, to)
	for _, run := range []string{"test", `each["3.12"]`, "test", "..", "../../x", "/"} {
		if err := e.Export(t.Context(), run, from, list); err != nil {
			t.Error(err)
		}
	}
	found, err := filepath.Glob(filepath.Join(to, "*/sub/b"))
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, f := range found {
		dir, _ := filepath.Rel(to, filepath.Dir(filepath.Dir(f)))
		dirs = append(dirs, dir)
	}
	if d := cmp.Diff([]string{"..-..-x", "each--3.12", "run", "run-2", "test", "test-2"}, dirs); d != "" {
		t.Error(d)
	}
	if err := os.Symlink(away, filepath.Join(to, "evil")); err != nil {
		t.Fatal(err)
	}
	if err := e.Export(t.Context(), "evil", from, list); err == nil {
		t.Error("a link out of the directory was followed")
	}
	if left, _ := os.ReadDir(away); len(left) > 0 {
		t.Errorf("%v was written outside", left)
	}
}

// TestExportIntoHostileDirectory has a program with a shared workspace prepare the directory: whatever stands there is
// replaced or refused, and never written to, followed or waited for.
func TestExportIntoHostileDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(dir, away string) error // dir is the directory of the run, away is outside of it
		fails   bool
	}{
		"existing file": {prepare: func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "sub", "b"), []byte("longer"), 0o600)
		}},
		"link": {prepare: func(dir, away string) error {
			return os.Symlink(filepath.Join(away, "f"), filepath.Join(dir, "sub", "b"))
		}},
		"inner link": {prepare: func(dir, _ string) error { return os.Symlink("../../kept", filepath.Join(dir, "sub", "b")) }},
		"hard link":  {prepare: func(dir, away string) error { return os.Link(filepath.Join(away, "f"), filepath.Join(dir, "sub", "b")) }},
		"fifo":       {prepare: func(dir, _ string) error { return syscall.Mkfifo(filepath.Join(dir, "sub", "b"), 0o600) }},
		"directory":  {prepare: func(dir, _ string) error { return os.Mkdir(filepath.Join(dir, "sub", "b"), 0o755) }, fails: true},
		"linked parent": {prepare: func(dir, _ string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "sub")), os.Mkdir(filepath.Join(dir, "other"), 0o755), os.Symlink("other", filepath.Join(dir, "sub")))
		}, fails: true},
		"fifo for a parent": {prepare: func(dir, _ string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "sub")), syscall.Mkfifo(filepath.Join(dir, "sub"), 0o600))
		}, fails: true},
		"replaced directory": {prepare: func(dir, away string) error {
			to := filepath.Dir(dir)
			return errors.Join(os.Rename(to, to+"-moved"), os.Symlink(away, to))
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			from, away, to := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "to")
			dir := filepath.Join(to, "run")
			e := open(t, to)
			for _, err := range []error{
				os.Mkdir(filepath.Join(from, "sub"), 0o755), os.WriteFile(filepath.Join(from, "sub", "b"), []byte("x"), 0o600),
				os.MkdirAll(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(to, "kept"), []byte("kept"), 0o600),
				os.WriteFile(filepath.Join(away, "f"), []byte("kept"), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := c.prepare(dir, away); err != nil {
				t.Fatal(err)
			}
			err := e.Export(t.Context(), "run", from, []Output{{Path: "sub/b", Size: 1}})
			if (err != nil) != c.fails {
				t.Error(err)
			}
			got, rerr := "x", error(nil)
			if !c.fails {
				data, err := e.root.ReadFile("run/sub/b")
				got, rerr = string(data), err
			}
			kept, kerr := e.root.ReadFile("kept")
			outside, oerr := os.ReadFile(filepath.Join(away, "f"))
			if kerr != nil || oerr != nil || rerr != nil || got+string(kept)+string(outside) != "xkeptkept" {
				t.Errorf("%q %v, %q %v, %q %v", got, rerr, kept, kerr, outside, oerr)
			}
			if left, _ := os.ReadDir(away); len(left) != 1 {
				t.Errorf("%v was written outside", left)
			}
		})
	}
}

// TestExportIsJudged refuses what a tool would run, also where a repository arrives in pieces, and a file that is not of
// the size that was recorded.
func TestExportIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		there []string // in the directory before
		size  int64
		want  string
	}{
		"plain":          {files: []string{"a/b.txt", "Makefile"}, size: 1},
		"settings":       {files: []string{"b.txt", ".vscode/tasks.json"}, size: 1, want: ".vscode/tasks.json"},
		"environment":    {files: []string{".envrc"}, size: 1, want: ".envrc"},
		"git in pieces":  {files: []string{"config"}, there: []string{"HEAD", "objects/x", "refs/x"}, size: 1, want: "config"},
		"longer than it": {files: []string{"b.txt"}, want: "b.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := t.TempDir(), t.TempDir()
			write := func(dir, name string) {
				p := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var list []Output
			for _, f := range c.files {
				write(from, f)
				list = append(list, Output{Path: f, Size: c.size})
			}
			for _, f := range c.there {
				write(filepath.Join(to, "run"), f)
			}
			err := open(t, to).Export(t.Context(), "run", from, list)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Error(err)
			}
			for _, f := range c.files {
				if _, err := os.Lstat(filepath.Join(to, "run", f)); (err == nil) != (c.want == "") {
					t.Errorf("%s: %v", f, err)
				}
			}
		})
	}
}
