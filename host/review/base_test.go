package review

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	if !b.Complete() || b.Len() != 9 {
		t.Errorf("complete %v with %d entries, want all 9", b.Complete(), b.Len())
	}
	var disk bytes.Buffer
	if err := b.Save(&disk); err != nil {
		t.Fatal(err)
	}
	got, err := LoadBase(bytes.NewReader(disk.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.list(), got.list()); d != "" {
		t.Errorf("entries (-saved +loaded):\n%s", d)
	}
	if !got.Complete() || !got.Taken().Equal(b.Taken()) {
		t.Errorf("complete %v, taken %v; want true, %v", got.Complete(), got.Taken(), b.Taken())
	}
	e, ok := got.Lookup("sub/link")
	if !ok || e.Link != "../elsewhere" || e.Mode.Type() != fs.ModeSymlink {
		t.Errorf("sub/link is %+v, %v", e, ok)
	}
	if _, ok := got.Lookup("sub/lin"); ok {
		t.Error("a path that is not there is found")
	}
	for _, paths := range [][]string{
		{"", "a", "a.b", "a.c", "sub", "sub/deep/file", "sub/lin", "sub/link", "zz"},
		{"sub/link", "a", "sub/deep/other", "nothing", "a.b", "zz", "odd\n\x1bname"}, // in no order
	} {
		find := got.lookups()
		for _, p := range paths {
			have, ok := find(p)
			if want, known := b.Lookup(p); ok != known || have != want {
				t.Errorf("of %q, %q is %+v, %v; want %+v, %v", paths, p, have, ok, want, known)
			}
		}
	}
}

func TestLoadBaseRefusesDamage(t *testing.T) {
	b := &Base{taken: time.Unix(1, 2), complete: true, entries: []Entry{
		{Entry: overlay.Entry{Path: "a", Mode: 0o644, Size: 3, Mtime: 5, Ctime: 7, Ino: 9}, Blob: "twenty bytes of name"},
		{Entry: overlay.Entry{Path: "ab", Mode: fs.ModeSymlink | 0o777, Link: "a", Ino: 8}},
	}}
	var disk bytes.Buffer
	if err := b.Save(&disk); err != nil {
		t.Fatal(err)
	}
	good := disk.Bytes()
	if _, err := LoadBase(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x41
		if _, err := LoadBase(bytes.NewReader(bad)); err == nil {
			t.Errorf("a flipped byte at %d goes unnoticed", i)
		}
		if _, err := LoadBase(bytes.NewReader(good[:i])); err == nil {
			t.Errorf("a base cut to %d bytes is taken", i)
		}
	}
	if _, err := LoadBase(bytes.NewReader(append(bytes.Clone(good), 0))); err == nil {
		t.Error("bytes after the end go unnoticed")
	}
	for _, path := range []string{"", ".", "..", "../x", "/x", "x/", "x//y", "x\x00", strings.Repeat("x", 5000)} {
		var disk bytes.Buffer
		if err := (&Base{entries: []Entry{{Entry: overlay.Entry{Path: path}}}}).Save(&disk); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadBase(&disk); err == nil {
			t.Errorf("the path %.20q is taken", path)
		}
	}
}

func FuzzLoadBase(f *testing.F) {
	for n := range 3 {
		b := &Base{taken: time.Unix(int64(n), 0), complete: n == 1}
		for i := range n * 3 {
			b.entries = append(b.entries, Entry{overlay.Entry{Path: fmt.Sprintf("dir/file%d", i), Mode: 0o644, Size: int64(i), Mtime: 1 << 60, Ctime: -5, Ino: 1 << 63}, strings.Repeat("x", i)})
		}
		var disk bytes.Buffer
		if err := b.Save(&disk); err != nil {
			f.Fatal(err)
		}
		f.Add(disk.Bytes())
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		b, err := LoadBase(bytes.NewReader(p))
		if err != nil {
			return
		}
		var disk bytes.Buffer
		if err := b.Save(&disk); err != nil {
			t.Fatal(err)
		}
		again, err := LoadBase(&disk)
		if err != nil {
			t.Fatalf("what was loaded cannot be loaded again: %v", err)
		}
		if d := cmp.Diff(b.list(), again.list()); d != "" {
			t.Errorf("entries change on the way:\n%s", d)
		}
	})
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
			if _, err := LoadBase(bytes.NewReader(disk.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}
