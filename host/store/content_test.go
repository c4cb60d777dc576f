package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// codeRun is a finished run with one declared file.
func codeRun(t *testing.T, s *Store, mode os.FileMode, content []byte) *Run {
	t.Helper()
	r := newRun(t, s)
	ref, err := r.WriteCode("dir/data.bin", mode, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Event(EventCode, nil, ref); err != nil {
		t.Fatal(err)
	}
	finish(t, r)
	return r
}

func inode(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Sys().(*syscall.Stat_t)
}

func dataOf(r *Run) string { return filepath.Join(r.CodeDir(), "dir/data.bin") }

func intact(t *testing.T, s *Store, r *Run) bool {
	t.Helper()
	rep, err := s.Verify(t.Context(), r.ID())
	if err != nil {
		t.Fatal(err)
	}
	return rep.OK
}

func TestL7(t *testing.T) {
	t.Run("L7 runs keep a content once, and gc collects it", func(t *testing.T) {
		s := newStore(t)
		content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
		var runs []*Run
		for range 20 {
			runs = append(runs, codeRun(t, s, 0o644, content))
		}
		if used := treeSizeOnce(t, s.paths.Data); used > 2<<20 {
			t.Errorf("20 runs with one file of 1 MiB take %d bytes", used)
		}
		other := codeRun(t, s, 0o755, content)
		if inode(t, dataOf(other)).Ino == inode(t, dataOf(runs[0])).Ino || inode(t, dataOf(other)).Mode&0o777 != 0o755 {
			t.Error("a file of another mode shares the inode, or does not have its mode")
		}
		for _, r := range runs {
			if !intact(t, s, r) {
				t.Error("the record does not verify")
			}
		}
		collect := func(o GCOptions) (names []string, freed int64) {
			items, err := s.GC(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range items {
				if i.Kind != GCRun && i.Kind != GCContent {
					continue // left in the machine's temporary directory by others
				}
				names = append(names, i.Kind)
				freed += i.Bytes
			}
			return names, freed
		}
		if kinds, freed := collect(GCOptions{KeepRuns: 1, DryRun: true}); len(kinds) != 21 || !slices.Contains(kinds, GCContent) || freed < 1<<20 || freed > 2<<20 {
			t.Errorf("a dry run says %q, %d bytes", kinds, freed)
		}
		if kinds, _ := collect(GCOptions{}); len(kinds) > 0 {
			t.Errorf("contents in use go: %q", kinds)
		}
		if kinds, freed := collect(GCOptions{KeepRuns: 1}); len(kinds) != 21 || kinds[20] != GCContent || freed < 1<<20 || freed > 2<<20 {
			t.Errorf("gc removed %q, %d bytes", kinds, freed)
		}
		if !intact(t, s, other) {
			t.Error("the run that is left does not verify")
		}
	})
	t.Run("L7 a content that was changed is not used", func(t *testing.T) {
		s := newStore(t)
		content := bytes.Repeat([]byte("x"), minShared)
		first := codeRun(t, s, 0o644, content)
		f, err := os.OpenFile(dataOf(first), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString("forged")
		f.Close()
		second, third := codeRun(t, s, 0o644, content), codeRun(t, s, 0o644, content)
		if intact(t, s, first) || !intact(t, s, second) || !intact(t, s, third) {
			t.Error("a forged file is used, or not found")
		}
		if inode(t, dataOf(second)).Ino != inode(t, dataOf(third)).Ino {
			t.Error("the good content is not shared")
		}
	})
	t.Run("L7 side by side, and beside gc", func(t *testing.T) {
		s := newStore(t)
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				if i%6 == 0 {
					if _, err := s.GC(t.Context(), GCOptions{}); err != nil {
						t.Error(err)
					}
					return
				}
				r := codeRun(t, s, 0o644, bytes.Repeat(fmt.Append(nil, i%2), minShared))
				if !intact(t, s, r) {
					t.Error("a record does not verify")
				}
			})
		}
		wg.Wait()
		entries, err := os.ReadDir(s.paths.Content())
		if err != nil || len(entries) != 2 {
			t.Errorf("%d contents, %v", len(entries), err)
		}
	})
}

// treeSizeOnce counts each inode once.
func treeSizeOnce(t *testing.T, dir string) int64 {
	seen := map[uint64]bool{}
	return sizeOf(dir, func(st *syscall.Stat_t) bool {
		defer func() { seen[st.Ino] = true }()
		return !seen[st.Ino]
	})
}
