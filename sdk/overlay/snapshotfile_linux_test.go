package overlay

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hutch-run/hutch/sdk/safefile"
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

func TestLoadRefusesDamage(t *testing.T) {
	s := &Snapshot{Taken: time.Unix(1, 2), Complete: true, Entries: []Entry{
		{Path: "a", Stat: safefile.Stat{Mode: 0o644, Size: 3, Mtime: 5, Ctime: 7, Ino: 9}, Content: "twenty bytes of name"},
		{Path: "ab", Stat: safefile.Stat{Mode: fs.ModeSymlink | 0o777, Link: "a", Ino: 8}},
	}}
	save := func(s *Snapshot) []byte {
		var disk bytes.Buffer
		if err := s.Save(&disk); err != nil {
			t.Fatal(err)
		}
		return disk.Bytes()
	}
	good := save(s)
	again, err := Load(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, again, cmpopts.IgnoreUnexported(Snapshot{})); d != "" {
		t.Errorf("-saved +loaded:\n%s", d)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x41
		if _, err := Load(bytes.NewReader(bad)); err == nil {
			t.Errorf("a flipped byte at %d goes unnoticed", i)
		}
		if _, err := Load(bytes.NewReader(good[:i])); err == nil {
			t.Errorf("a snapshot cut to %d bytes is taken", i)
		}
	}
	if _, err := Load(bytes.NewReader(append(bytes.Clone(good), 0))); err == nil {
		t.Error("bytes after the end go unnoticed")
	}
	for _, path := range []string{"", ".", "..", "../x", "/x", "x/", "x//y", "x\x00", strings.Repeat("x", 5000)} {
		if _, err := Load(bytes.NewReader(save(&Snapshot{Entries: []Entry{{Path: path}}}))); err == nil {
			t.Errorf("the path %.20q is taken", path)
		}
	}
	if _, err := Load(bytes.NewReader(save(&Snapshot{Entries: []Entry{{Path: "b"}, {Path: "a"}}}))); err == nil {
		t.Error("entries out of order are taken")
	}
}

// FuzzLoad gives what follows to the decoder with a good checksum, as nothing else gets that far.
func FuzzLoad(f *testing.F) {
	for _, s := range []*Snapshot{{}, {Taken: time.Unix(1, 2), Complete: true, contents: true, Entries: []Entry{
		{Path: "a/b", Stat: safefile.Stat{Mode: 0o644, Size: 1, Mtime: 1 << 60, Ctime: -5, Ino: 1 << 63}, Content: "xyz"},
		{Path: "l", Stat: safefile.Stat{Mode: fs.ModeSymlink, Link: "\xff"}},
	}}} {
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes()[:b.Len()-crc32.Size])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := Load(bytes.NewReader(binary.LittleEndian.AppendUint32(body[:len(body):len(body)], crc32.Checksum(body, castagnoli))))
		if err != nil {
			return
		}
		for _, e := range s.Entries {
			if !safefile.Local(e.Path) {
				t.Errorf("the path %q is taken", e.Path)
			}
		}
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Load(&b)
		if err != nil {
			t.Fatalf("what was loaded cannot be loaded again: %v", err)
		}
		if d := cmp.Diff(s, again, cmp.AllowUnexported(Snapshot{}), cmpopts.IgnoreTypes(gaps{})); d != "" {
			t.Errorf("it changes on the way:\n%s", d)
		}
	})
}
