package review

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk/overlay"
)

func TestBaseSurvivesTheDisk(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"a", "a.b", "a/b", "sub/deep/file", "sub/deep/other", "odd\n\x1bname", "caf\xe9"} {
		if p == "a/b" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), []byte(p), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../elsewhere", filepath.Join(dir, "sub/link")); err != nil {
		t.Fatal(err)
	}
	b, err := TakeBase(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Complete || len(b.Entries) != 9 {
		t.Errorf("complete %v with %d entries, want all 9", b.Complete, len(b.Entries))
	}
	var disk bytes.Buffer
	if err := b.Save(&disk); err != nil {
		t.Fatal(err)
	}
	got, err := overlay.Load(bytes.NewReader(disk.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.Entries, got.Entries); d != "" {
		t.Errorf("entries (-saved +loaded):\n%s", d)
	}
	if !got.Complete || !got.Taken.Equal(b.Taken) {
		t.Errorf("complete %v, taken %v; want true, %v", got.Complete, got.Taken, b.Taken)
	}
	e, ok := got.Lookup("sub/link")
	if !ok || e.Link != "../elsewhere" || e.Mode.Type() != fs.ModeSymlink {
		t.Errorf("sub/link is %+v, %v", e, ok)
	}
	if _, ok := got.Lookup("sub/lin"); ok {
		t.Error("a path that is not there is found")
	}
}

func BenchmarkBase50000(b *testing.B) {
	dir := b.TempDir()
	for i := range 500 {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%d.go", j)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	var disk bytes.Buffer
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			base, err := TakeBase(b.Context(), dir)
			if err != nil {
				b.Fatal(err)
			}
			disk.Reset()
			if err := base.Save(&disk); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(disk.Len()), "bytes")
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if _, err := overlay.Load(bytes.NewReader(disk.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}
