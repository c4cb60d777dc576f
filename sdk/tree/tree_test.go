package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"

	_ "github.com/hutch-run/hutch/sdk/tree/zstd"
)

func root(t *testing.T, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func sample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a.txt": 0o644, "bin/run": 0o755, "bin/deep/x": 0o600, "z": 0o644} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("content of "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "bin/run", "bin/up": "../a.txt", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			m[rel] = "dir"
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(p)
			m[rel] = "-> " + target
		default:
			b, _ := os.ReadFile(p)
			m[rel] = fmt.Sprintf("%v %s", info.Mode(), b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestThereAndBack(t *testing.T) {
	src := sample(t)
	for _, c := range []Compression{None, Gzip, Zstd} {
		t.Run(string(c), func(t *testing.T) {
			var b, again bytes.Buffer
			sum, err := Pack(context.Background(), root(t, src), &b, PackOptions{Compression: c})
			if err != nil || sum.Files != 4 || sum.Dirs != 3 || sum.Symlinks != 3 {
				t.Fatalf("%+v %v", sum, err)
			}
			if err := os.Chtimes(filepath.Join(src, "z"), unixEpoch, unixEpoch); err != nil {
				t.Fatal(err)
			}
			if _, err := Pack(context.Background(), root(t, src), &again, PackOptions{Compression: c}); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
				t.Errorf("the same tree gives other bytes (%v)", err)
			}
			dst := t.TempDir()
			back, err := Unpack(context.Background(), &b, root(t, dst), Caps{})
			if err != nil || back != sum {
				t.Errorf("%+v %v", back, err)
			}
			if diff := cmp.Diff(list(t, src), list(t, dst)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPackSkipsAndRefuses(t *testing.T) {
	src := sample(t)
	if err := unix.Mkfifo(filepath.Join(src, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := Pack(context.Background(), root(t, src), &b, PackOptions{}); err == nil || !strings.Contains(err.Error(), `"fifo"`) {
		t.Errorf("a FIFO: %v", err)
	}
	b.Reset()
	if _, err := Pack(context.Background(), root(t, src), &b, PackOptions{Special: true}); err != nil {
		t.Error(err)
	}
	if _, err := Unpack(context.Background(), &b, root(t, t.TempDir()), Caps{}); err == nil {
		t.Error("a FIFO was unpacked")
	}
	b.Reset()
	sum, err := Pack(context.Background(), root(t, src), &b, PackOptions{Skip: func(p string, dir bool) bool { return p == "fifo" || dir && p == "bin" }})
	if err != nil || sum.Files != 2 {
		t.Errorf("%+v %v", sum, err)
	}
	for _, o := range []PackOptions{{MaxEntries: 3, Special: true}, {MaxBytes: 10}, {Compression: "x"}} {
		if _, err := Pack(context.Background(), root(t, src), &bytes.Buffer{}, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Pack(ctx, root(t, src), &bytes.Buffer{}, PackOptions{}); err == nil {
		t.Error("a context that has ended was ignored")
	}
}

// What one entry is must not cost a receiver the others.
func TestPackLeavesOut(t *testing.T) {
	src := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a": 0o644, "closed": 0, "z": 0o600} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(src, "locked"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(src, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "giant"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(src, "giant"), 1<<40); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	sum, err := Pack(context.Background(), root(t, src), &b, PackOptions{Special: true})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]safefile.Reason{}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		reason, detail := LeftOut(h)
		if got[h.Name] = reason; (reason == "") != (detail == "") {
			t.Errorf("%s: %q %q", h.Name, reason, detail)
		}
	}
	want := map[string]safefile.Reason{"a": "", "closed": safefile.ReasonIO, "fifo": safefile.ReasonSpecial, "giant": safefile.ReasonTooBig, "locked/": safefile.ReasonIO, "z": ""}
	files := 2
	if os.Getuid() == 0 { // to whom nothing is closed
		want["closed"], want["locked/"], files = "", "", 3
	}
	if diff := cmp.Diff(want, got); diff != "" || sum.Files != files {
		t.Errorf("%+v %s", sum, diff)
	}
}

var unixEpoch = time.Unix(0, 0)

type entry struct {
	name, body, link string
	typ              byte
	mode             int64
}

func tarOf(t *testing.T, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.typ == 0 {
			e.typ = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Typeflag: e.typ, Size: int64(len(e.body)), Linkname: e.link, Mode: e.mode}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

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

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, body := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
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

func TestLinksThatStayInside(t *testing.T) {
	for _, c := range []struct {
		name, target string
		ok           bool
	}{
		{"l", "x", true}, {"l", "x/y", true}, {"l", "./x", true}, {"a/l", "../x", true}, {"a/b/l", "../../x", true}, {"a/l", "..", true},
		{"a/l", ".././x", true}, {"l", "l", true}, {"l", "..x", true}, {"l", "x..", true},
		{"l", "..", false}, {"l", "../x", false}, {"a/l", "../..", false}, {"a/l", "./../../x", false}, {"l", "/", false}, {"l", "x/..", false},
		{"a/b/l", "../x/../y", false}, {"l", "", false}, {"l", ".//../x", false}, {"a/l", "..//../x", false},
	} {
		if err := checkTarget(c.name, c.target); (err == nil) != c.ok {
			t.Errorf("%s -> %s: %v", c.name, c.target, err)
		}
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

// smallFiles is a tree like a source directory, on a file system in memory where there is one.
func smallFiles(b *testing.B, n int) (src, dst string) {
	b.Helper()
	top, err := os.MkdirTemp("/dev/shm", "tree-bench-")
	if err != nil {
		top = b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(top) })
	src = top + "/src"
	body := bytes.Repeat([]byte("a line of source\n"), 120)
	for i := range n {
		d := fmt.Sprintf("%s/pkg%02d/sub%d", src, i%50, i%3)
		os.MkdirAll(d, 0o755)
		if err := os.WriteFile(fmt.Sprintf("%s/f%d.go", d, i), body, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return src, top
}

func BenchmarkThereAndBack5000(b *testing.B) {
	src, top := smallFiles(b, 5000)
	n := 0
	b.Run("tar to tar", func(b *testing.B) {
		for b.Loop() {
			n++
			dst := fmt.Sprintf("%s/d%d", top, n)
			if out, err := exec.Command("sh", "-c", `mkdir "$2" && tar -C "$1" -c . | tar -C "$2" -x`, "sh", src, dst).CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			b.StopTimer()
			os.RemoveAll(dst)
			b.StartTimer()
		}
	})
	b.Run("tree", func(b *testing.B) {
		for b.Loop() {
			n++
			dst := fmt.Sprintf("%s/d%d", top, n)
			os.Mkdir(dst, 0o755)
			from, _ := os.OpenRoot(src)
			to, _ := os.OpenRoot(dst)
			r, w, err := os.Pipe()
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				if _, err := Pack(context.Background(), from, w, PackOptions{}); err != nil {
					b.Error(err)
				}
				w.Close()
			}()
			if _, err := Unpack(context.Background(), r, to, Caps{}); err != nil {
				b.Fatal(err)
			}
			from.Close()
			to.Close()
			r.Close()
			b.StopTimer()
			os.RemoveAll(dst)
			b.StartTimer()
		}
	})
}

func TestPackTimes(t *testing.T) {
	dir := t.TempDir()
	when := time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "f"), when, when); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, times := range []bool{false, true} {
		var b bytes.Buffer
		if _, err := Pack(t.Context(), root, &b, PackOptions{Times: times}); err != nil {
			t.Fatal(err)
		}
		h, err := tar.NewReader(&b).Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Equal(when) != times {
			t.Errorf("with Times %v the file is from %s", times, h.ModTime)
		}
	}
}
