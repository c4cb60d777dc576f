package overlay

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSnapshotSavedAndLoaded(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a": "a", "d/b": "b", "d/\xff\n": "odd", "gone": "x", "same": "same"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, o := range []Options{{Contents: true}, {}} {
		s, err := Take(context.Background(), root, o)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{0, 1, b.Len() / 2, b.Len() - 1} {
			if _, err := Load(bytes.NewReader(b.Bytes()[:cut])); err == nil {
				t.Errorf("the first %d bytes of %d were taken for all", cut, b.Len())
			}
		}
		again, err := Load(&b)
		if err != nil {
			t.Fatal(err)
		}
		if o.Contents { // once is enough
			change(t, dir)
		}
		want, err := s.Changes(context.Background(), root, o)
		if err != nil || o.Contents && len(want) != 5 {
			t.Fatalf("%+v %v", want, err)
		}
		got, err := again.Changes(context.Background(), root, o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-from the snapshot +from the one that was loaded:\n%s", diff)
		}
	}
}

func change(t *testing.T, dir string) {
	t.Helper()
	at := func(n string) string { return filepath.Join(dir, n) }
	for _, err := range []error{
		os.WriteFile(at("a"), []byte("A"), 0o644), os.Chmod(at("d/b"), 0o755), os.Remove(at("gone")), os.WriteFile(at("new"), nil, 0o644),
		os.Remove(at("link")), os.Symlink("d", at("link")), os.WriteFile(at("same"), []byte("same"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []*Snapshot{{}, {entries: map[string]seen{"a/b": {mode: 0o644, size: 1}, "l": {link: "\xff"}}, contents: true}} {
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Load(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Load(&b)
		if err != nil {
			t.Fatalf("what was loaded cannot be loaded again: %v", err)
		}
		if d := cmp.Diff(s.entries, again.entries, cmp.AllowUnexported(seen{})); d != "" || s.contents != again.contents {
			t.Errorf("it changes on the way:\n%s", d)
		}
	})
}
