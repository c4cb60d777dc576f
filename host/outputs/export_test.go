package outputs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	e := Exporter{Dir: to}
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
