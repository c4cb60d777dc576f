package review

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// BenchmarkReview10000 opens a review of 10,000 changes in a project of 20,000 files, and renders it.
func BenchmarkReview10000(b *testing.B) {
	top := b.TempDir()
	project, upper := top+"/project", top+"/upper"
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	content := bytes.Repeat([]byte("func f() int { return 1 }\n"), 40)
	for i := range 200 {
		dir := fmt.Sprintf("d%03d", i)
		must(os.MkdirAll(filepath.Join(project, dir), 0o755))
		must(os.MkdirAll(filepath.Join(upper, dir), 0o755))
		for j := range 100 {
			must(os.WriteFile(filepath.Join(project, dir, fmt.Sprintf("f%02d.go", j)), content, 0o644))
		}
		for j := range 40 {
			must(os.WriteFile(filepath.Join(upper, dir, fmt.Sprintf("f%02d.go", j)), append(content, "// changed\n"...), 0o644))
		}
		for j := range 5 {
			must(unix.Mknod(filepath.Join(upper, dir, fmt.Sprintf("f%02d.go", 40+j)), unix.S_IFCHR, 0))
			must(os.WriteFile(filepath.Join(upper, dir, fmt.Sprintf("new%d.go", j)), []byte("package d\n"), 0o644))
		}
	}
	base, err := TakeBase(b.Context(), project)
	must(err)
	s := Subject{Name: "box", Project: project, Base: base, Layers: &sdk.Layers{Lower: project, Upper: upper}}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			r, err := Open(b.Context(), s, Options{})
			must(err)
			if len(r.Changes) != 10_000 {
				b.Fatalf("%d changes", len(r.Changes))
			}
			r.Close()
		}
	})
	r, err := Open(b.Context(), s, Options{})
	must(err)
	defer r.Close()
	b.Run("unified", func(b *testing.B) {
		for b.Loop() {
			must(r.Unified(b.Context(), io.Discard, Style{}))
		}
	})
	var disk bytes.Buffer
	must(base.Save(&disk))
	b.Run("base", func(b *testing.B) {
		for b.Loop() {
			_, err := overlay.Load(bytes.NewReader(disk.Bytes()))
			must(err)
		}
	})
}
