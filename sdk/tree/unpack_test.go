package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestUnpackRefusesTheWholeHostileTree(t *testing.T) {
	ok := entry{name: "good", body: "x"}
	sym := func(name, target string) entry { return entry{name: name, typ: tar.TypeSymlink, link: target} }
	for name, es := range map[string][]entry{
		"parent":             {{name: "../evil", body: "x"}},
		"absolute":           {{name: "/tmp/evil", body: "x"}},
		"inner parent":       {{name: "a/../../evil", body: "x"}},
		"absolute link":      {sym("l", "/etc")},
		"link upwards":       {sym("l", "..")},
		"deep link upwards":  {sym("a/l", "../../x")},
		"climbs in between":  {sym("l", "d/../../x")},
		"climbs over a link": {sym("a", "."), sym("b", "a/nowhere/../..")},
		"empty link":         {sym("l", "")},
		"own name":           {{name: ".hutch-unpack-x/f", body: "x"}},
		"chain of links":     {{name: "p/q/", typ: tar.TypeDir}, sym("p/q/s", "../.."), sym("t", "p/q/s/../..")},
		"write through link": {sym("l", "d"), {name: "d/", typ: tar.TypeDir}, {name: "l/x", body: "x"}},
		"hard link":          {{name: "h", typ: tar.TypeLink, link: "good"}},
		"device":             {{name: "d", typ: tar.TypeChar}},
		"fifo":               {{name: "f", typ: tar.TypeFifo}},
		"twice":              {{name: "good", body: "y"}},
		"case":               {{name: "GOOD", body: "y"}},
		"unicode":            {{name: "cafe\u0301", body: "1"}, {name: "caf\u00e9", body: "2"}},
		"file as directory":  {{name: "good/x", body: "y"}},
		"control":            {{name: "a\x1bb", body: "y"}},
		"too big":            {{name: "b", body: strings.Repeat("x", 101)}},
		"too big together":   {{name: "b", body: strings.Repeat("x", 90)}, {name: "c", body: strings.Repeat("x", 90)}},
		"too deep":           {{name: strings.Repeat("d/", 10) + "x", body: "x"}},
		"too many":           {{name: "1"}, {name: "2"}, {name: "3"}, {name: "4"}, {name: "5"}},
	} {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dst := filepath.Join(outer, "dst")
			if err := os.Mkdir(dst, 0o755); err != nil {
				t.Fatal(err)
			}
			_, err := Unpack(context.Background(), tarOf(t, append([]entry{ok}, es...)...), root(t, dst), Caps{File: 100, Bytes: 150, Depth: 8, Entries: 5})
			if err == nil {
				t.Error("it was taken")
			}
			if left := list(t, outer); len(left) != 1 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestUnpackModes(t *testing.T) {
	dst := t.TempDir()
	_, err := Unpack(context.Background(), tarOf(t, entry{name: "s", mode: 0o6777}, entry{name: "n", mode: 0}, entry{name: "d/", typ: tar.TypeDir, mode: 0}, entry{name: "d/x", mode: 0o444}), root(t, dst), Caps{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"s": 0o755, "n": 0o600, "d/x": 0o644, "d": fs.ModeDir | 0o700} {
		if st, err := os.Stat(filepath.Join(dst, name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v %v, want %v", name, st.Mode(), err, want)
		}
	}
}

func TestUnpackBrokenStreams(t *testing.T) {
	whole := tarOf(t, entry{name: "a", body: strings.Repeat("x", 3000)}).Bytes()
	for name, data := range map[string][]byte{
		"cut": whole[:1500], "garbage": bytes.Repeat([]byte("garbage "), 200), "gzip": {0x1f, 0x8b, 1, 2}, "zstd": {0x28, 0xb5, 0x2f, 0xfd, 1},
	} {
		dst := t.TempDir()
		if _, err := Unpack(context.Background(), bytes.NewReader(data), root(t, dst), Caps{}); err == nil {
			t.Errorf("%s was taken", name)
		}
		if left := list(t, dst); len(left) > 0 {
			t.Errorf("%s left %v", name, left)
		}
	}
	if _, err := Unpack(context.Background(), bytes.NewReader(nil), root(t, t.TempDir()), Caps{}); err != nil {
		t.Errorf("an empty stream is an empty tree: %v", err)
	}
}

func TestUnpackMerges(t *testing.T) {
	dst, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	write(t, dst, map[string]string{"src/old": "old", "src/both": "old", "other/x": "x"})
	if err := os.WriteFile(outside, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dst, "src/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(outside, filepath.Join(dst, "src/hard")); err != nil {
		t.Fatal(err)
	}
	b := tarOf(t, entry{name: "src/both", body: "new"}, entry{name: "src/new/deep", body: "new"}, entry{name: "src/link", body: "new"}, entry{name: "src/hard", body: "new"})
	if _, err := Unpack(context.Background(), b, root(t, dst), Caps{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"other": "dir", "other/x": "-rw-r--r-- x", "src": "dir", "src/old": "-rw-r--r-- old", "src/both": "-rw------- new",
		"src/new": "dir", "src/new/deep": "-rw------- new", "src/link": "-rw------- new", "src/hard": "-rw------- new",
	}
	if diff := cmp.Diff(want, list(t, dst)); diff != "" {
		t.Error(diff)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "untouched" {
		t.Errorf("written through a link: %q, %v", data, err)
	}
}

func TestUnpackThatFailsLeavesWhatWasThere(t *testing.T) {
	secret := t.TempDir()
	for name, es := range map[string][]entry{
		"bad name":           {{name: "src/a", body: "new"}, {name: "../evil"}},
		"file for directory": {{name: "src/a", body: "new"}, {name: "zdir", body: "x"}},
		"directory for file": {{name: "src/a", body: "new"}, {name: "zfile/x", body: "x"}},
		"directory for link": {{name: "src/a", body: "new"}, {name: "zlink/x", body: "x"}},
	} {
		dst := t.TempDir()
		write(t, dst, map[string]string{"src/a": "old", "src/b": "old", "zdir/x": "x", "zfile": "f"})
		if err := os.Symlink(secret, filepath.Join(dst, "zlink")); err != nil {
			t.Fatal(err)
		}
		before := list(t, dst)
		if _, err := Unpack(context.Background(), tarOf(t, es...), root(t, dst), Caps{}); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if diff := cmp.Diff(before, list(t, dst)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if left := list(t, secret); len(left) > 0 {
		t.Errorf("written outside: %v", left)
	}
}

func TestUnpackOntoAnotherFileSystem(t *testing.T) {
	dst, err := os.MkdirTemp("/dev/shm", "tree-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dst)
	// A mount needs rights; what the fallback does can be called by itself.
	m := merger{dst: root(t, dst), stage: "stage"}
	write(t, dst, map[string]string{"stage/d/f": "new", "stage/g": "new", "g": "old"})
	if err := os.Symlink("f", filepath.Join(dst, "stage/d/l")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "g"} {
		if err := m.copy("stage/"+name, name); err != nil {
			t.Fatal(err)
		}
	}
	got := list(t, dst)
	for name, want := range map[string]string{"d": "dir", "d/f": "-rw-r--r-- new", "d/l": "-> f", "g": "-rw-r--r-- new"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

func TestUnpackMakesHolesOfZeros(t *testing.T) {
	const size = 64 << 20
	body := make([]byte, size)
	copy(body[size/2:], "in the middle")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range []string{"holes", "all"} {
		if err := w.WriteHeader(&tar.Header{Name: n, Size: size + 1, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if n == "all" {
			clear(body)
		}
		if _, err := w.Write(append(body, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dst := t.TempDir()
	if _, err := Unpack(context.Background(), &b, root(t, dst), Caps{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"holes", "all"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dst, n), &st); err != nil || st.Size != size+1 || st.Blocks*512 > 1<<20 {
			t.Errorf("%s: %d bytes in %d blocks, %v", n, st.Size, st.Blocks, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dst, "holes"))
	if err != nil || string(data[size/2:size/2+13]) != "in the middle" || bytes.Count(data, []byte{0}) != size+1-13 {
		t.Errorf("content is not what it was: %v", err)
	}
}

// checksum makes a tar header valid.
func checksum(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
}

func TestBombsStopAtTheirCaps(t *testing.T) {
	pax := func(n int) *bytes.Buffer { // n extended headers and no file
		var b bytes.Buffer
		record := "30 mtime=1350244992.023960108\n"
		h := make([]byte, 512)
		copy(h, "x")
		copy(h[100:], "0000644\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", len(record), 0))
		copy(h[257:], "ustar\x0000")
		h[156] = 'g'
		checksum(h)
		body := make([]byte, 512)
		copy(body, record)
		for range n {
			b.Write(h)
			b.Write(body)
		}
		return &b
	}
	if _, err := Unpack(context.Background(), pax(10), root(t, t.TempDir()), Caps{}); err != nil {
		t.Errorf("a few global headers: %v", err)
	}
	for name, c := range map[string]struct {
		stream *bytes.Buffer
		want   string
	}{
		"headers only": {pax(1000), "more than 100 entries"},
		"zeros":        {tarOf(t, entry{name: "z", body: strings.Repeat("\x00", 2<<20)}), "at most 1048576"},
	} {
		var packed bytes.Buffer
		z, finish, err := compress(&packed, Gzip)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.stream.WriteTo(z); err != nil {
			t.Fatal(err)
		}
		if err := finish(); err != nil {
			t.Fatal(err)
		}
		dst := t.TempDir()
		_, err = Unpack(context.Background(), &packed, root(t, dst), Caps{Bytes: 1 << 20, Entries: 100})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if left := list(t, dst); len(left) > 0 {
			t.Errorf("%s left %v", name, left)
		}
	}
	// What is no entry at all counts too: here, extended headers that each replace the one before.
	spam := pax(6000).Bytes()
	for i := 0; i < len(spam); i += 1024 {
		spam[i+156] = 'x'
		checksum(spam[i : i+512])
	}
	if _, err := Unpack(context.Background(), bytes.NewReader(spam), root(t, t.TempDir()), Caps{Bytes: 1 << 20, Entries: 100}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("extended headers without end: %v", err)
	}
}

func TestUnpackDropsOwnersAndAttributes(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "f", Uid: 4242, Gid: 4242, Mode: 0o4755, Format: tar.FormatPAX, ModTime: unixEpoch,
		PAXRecords: map[string]string{"SCHILY.xattr.user.evil": "yes"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dst := t.TempDir()
	if _, err := Unpack(context.Background(), &b, root(t, dst), Caps{}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dst+"/f", &st); err != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o7777 != 0o755 {
		t.Errorf("uid %d mode %o, %v", st.Uid, st.Mode, err)
	}
	if n, err := unix.Getxattr(dst+"/f", "user.evil", nil); err == nil {
		t.Errorf("an attribute of %d bytes was taken over", n)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("no tar"))
	seed := func(es ...tar.Header) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range es {
			if h.Typeflag == tar.TypeReg {
				h.Size = 3
			}
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if h.Size > 0 {
				w.Write([]byte("abc"))
			}
		}
		w.Close()
		f.Add(b.Bytes())
		for _, c := range []Compression{Gzip, Zstd} {
			var z bytes.Buffer
			zw, finish, _ := compress(&z, c)
			zw.Write(b.Bytes())
			finish()
			f.Add(z.Bytes())
		}
	}
	seed(tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../x"})
	seed(tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "."}, tar.Header{Name: "b", Typeflag: tar.TypeSymlink, Linkname: "a/.."})
	seed(tar.Header{Name: "../evil", Typeflag: tar.TypeReg}, tar.Header{Name: "/abs", Typeflag: tar.TypeReg})
	seed(tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}, tar.Header{Name: "c", Typeflag: tar.TypeChar})
	seed(tar.Header{Name: strings.Repeat("long/", 30) + "x", Typeflag: tar.TypeReg, Format: tar.FormatPAX})
	seed(tar.Header{Name: strings.Repeat("g", 150), Typeflag: tar.TypeReg, Format: tar.FormatGNU})
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dst := filepath.Join(outer, "dst")
		if err := os.Mkdir(dst, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := Unpack(context.Background(), bytes.NewReader(data), root(t, dst), Caps{Bytes: 1 << 20, Entries: 100})
		left := list(t, outer)
		if err != nil && len(left) != 1 {
			t.Errorf("after %v: %v", err, left)
		}
		for name := range left {
			if name != "dst" && !strings.HasPrefix(name, "dst/") {
				t.Errorf("written outside: %s", name)
			}
			if strings.Contains(name, stagePrefix) {
				t.Errorf("the stage is left: %s", name)
			}
			// Whatever links there are, what they lead to is inside or is not there.
			if real, err := filepath.EvalSymlinks(filepath.Join(outer, name)); err == nil && real != dst && !strings.HasPrefix(real, dst+"/") {
				t.Errorf("%s leads to %s", name, real)
			}
		}
	})
}
