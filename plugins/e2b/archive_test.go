package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/tree"
)

// member is an entry of an archive that a hostile machine sends.
type member struct {
	name, link, content string
	typ                 byte
	mode                int64
	uid                 int
	pax                 map[string]string
}

func file(name, content string) member {
	return member{name: name, content: content, typ: tar.TypeReg, mode: 0o644}
}
func symlink(name, to string) member {
	return member{name: name, link: to, typ: tar.TypeSymlink, mode: 0o777}
}

// archive writes members into a tar.gz.
func archive(t testing.TB, list ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for _, m := range list {
		h := &tar.Header{Name: m.name, Linkname: m.link, Typeflag: m.typ, Mode: m.mode, Uid: m.uid, Size: int64(len(m.content)), PAXRecords: m.pax}
		if m.typ == tar.TypeChar || m.typ == tar.TypeBlock {
			h.Devmajor, h.Devminor = 1, 3
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// relayed is what is left of an archive.
func relayed(t testing.TB, zipped []byte) ([]byte, error) {
	t.Helper()
	var out bytes.Buffer
	err := unzip(bytes.NewReader(zipped), func(r io.Reader) error { return relay(t.Context(), r, &out) })
	return out.Bytes(), err
}

// TestHostileArchives: what a machine sends is refused, or harmless, before the host unpacks it; and what the host then
// writes lies below its destination. The rows of the security catalogue are named.
func TestHostileArchives(t *testing.T) {
	deep := strings.Repeat("d/", 100)
	cases := []struct {
		name    string
		members []member
		refused string // by the backend; "" for what it passes on
		unpack  string // what the host's unpacking says then; "" when it works
	}{
		{"ARC-01 a name with ..", []member{file("../evil", "x")}, "leads out", ""},
		{"ARC-01 an absolute name", []member{file("/abs", "x")}, "leads out", ""},
		{"ARC-01 .. inside", []member{file("a/../../x", "x")}, "leads out", ""},
		{"ARC-01 .. at the end", []member{file("a/..", "x")}, "leads out", ""},
		{"ARC-01 a good file first", []member{file("good", "x"), file("../evil", "x")}, "leads out", ""},
		{"ARC-02 below a link", []member{symlink("l", "/etc"), file("l/x", "x")}, "no directory", ""},
		{"ARC-02 below a link, deeper", []member{symlink("l", "/etc"), file("l/a/b/x", "x")}, "no directory", ""},
		{"ARC-02 a hard link", []member{{name: "h", link: "/etc/passwd", typ: tar.TypeLink}}, "hard link", ""},
		{"ARC-02 a chain of links", []member{symlink("a", "b"), symlink("b", "..")}, "", "leads out"},
		{"ARC-02 an absolute link", []member{symlink("l", "/etc/passwd")}, "", "leads out"},
		{"ARC-03 a character device", []member{{name: "dev", typ: tar.TypeChar, mode: 0o666}}, "", "neither a file nor a directory"},
		{"ARC-03 a block device", []member{{name: "dev", typ: tar.TypeBlock, mode: 0o666}}, "", "neither a file nor a directory"},
		{"ARC-03 a FIFO", []member{{name: "fifo", typ: tar.TypeFifo, mode: 0o666}}, "", "neither a file nor a directory"},
		{"ARC-04 the same name twice", []member{file("a", "1"), file("a", "2")}, "twice", ""},
		{"ARC-04 the same name twice, spelled otherwise", []member{file("a", "1"), file("./a", "2")}, "twice", ""},
		{"ARC-04 two cases", []member{file("A", "1"), file("a", "2")}, "", `"A"`},
		{"ARC-04 two forms", []member{file("cafe\u0301", "1"), file("caf\u00e9", "2")}, "", "caf"},
		{"ARC-05 a hundred directories", []member{file(deep+"x", "x")}, "", "deep"},
		{"ARC-05 a thousand directories", []member{file(strings.Repeat("d/", 1000)+"x", "x")}, "too deep", ""},
		{"a file that is a directory", []member{file("a", "1"), file("a/b", "2")}, "no directory", ""},
		{"a word of hutch's own", []member{{name: "x", typ: tar.TypeReg, mode: 0o644, pax: map[string]string{"HUTCH.left_out": "io"}}}, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, err := relayed(t, archive(t, c.members...))
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || sdk.ReasonOf(err) != sdk.ReasonDenied {
					t.Fatalf("got %v; want it refused, with %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			outside := t.TempDir()
			dir := filepath.Join(outside, "in")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			_, err = tree.Unpack(t.Context(), bytes.NewReader(out), root, tree.Caps{})
			if c.unpack == "" && err != nil || c.unpack != "" && (err == nil || !strings.Contains(err.Error(), c.unpack)) {
				t.Errorf("unpacking says %v; want %q", err, c.unpack)
			}
			if c.unpack != "" {
				if left, _ := os.ReadDir(dir); len(left) != 0 {
					t.Errorf("a tree that was refused left %v", left)
				}
			}
			if all, _ := os.ReadDir(outside); len(all) != 1 {
				t.Errorf("something was written outside: %v", all)
			}
		})
	}
}

// TestWhatIsLeftOfAnEntry is ARC-03: of owners, set-id bits and attributes nothing comes through.
func TestWhatIsLeftOfAnEntry(t *testing.T) {
	out, err := relayed(t, archive(t, member{name: "su", typ: tar.TypeReg, mode: 0o4755, content: "x", pax: map[string]string{"SCHILY.xattr.security.capability": "all"}}))
	if err != nil {
		t.Fatal(err)
	}
	h, err := tar.NewReader(bytes.NewReader(out)).Next()
	if err != nil {
		t.Fatal(err)
	}
	if h.Mode != 0o755 || h.Uid != 0 || h.Uname != "" || len(h.PAXRecords) > 1 || h.PAXRecords["SCHILY.xattr.security.capability"] != "" {
		t.Errorf("it came through as %+v", h)
	}
}

// zeros is a tar of one file of zeros, and what its header says of it.
func zeros(size, stated int64) []byte {
	var b bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w := tar.NewWriter(zip)
	_ = w.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Mode: 0o644, Size: stated, Format: tar.FormatPAX})
	_, _ = io.CopyN(zip, zeroReader{}, size)
	_ = zip.Close()
	return b.Bytes()
}

type zeroReader struct{}

// Read implements [io.Reader].
func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestBombs is ARC-05: what is too much ends at a bound, and a lie about a size is an error.
func TestBombs(t *testing.T) {
	t.Run("256 MiB of zeros in 260 kB", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it takes a second")
		}
		const size = 256 << 20
		bomb := zeros(size, size)
		if len(bomb) > 300_000 {
			t.Fatalf("the bomb has %d bytes", len(bomb))
		}
		root, _ := os.OpenRoot(t.TempDir())
		defer root.Close()
		r, w := io.Pipe()
		go func() {
			w.CloseWithError(unzip(bytes.NewReader(bomb), func(r io.Reader) error { return relay(t.Context(), r, w) }))
		}()
		_, err := tree.Unpack(t.Context(), r, root, tree.Caps{Bytes: 1 << 20})
		r.CloseWithError(errReaderGone)
		if err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("a cap of 1 MiB: %v", err)
		}
	})
	t.Run("a size that is a lie", func(t *testing.T) {
		if _, err := relayed(t, zeros(1000, 1<<20)); err == nil {
			t.Error("it was accepted")
		}
	})
	t.Run("a size beyond the bound is reported and left out", func(t *testing.T) {
		var out bytes.Buffer
		r := &taker{ctx: t.Context(), out: tar.NewWriter(&out), seen: map[string]byte{}}
		if err := r.entry(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 1 << 40}, zeroReader{}); err != nil {
			t.Fatal(err)
		}
		h, err := tar.NewReader(&out).Next()
		if err != nil {
			t.Fatal(err)
		}
		if reason, _ := tree.LeftOut(h); reason != "too_big" {
			t.Errorf("the reason is %q", reason)
		}
	})
	t.Run("too many entries", func(t *testing.T) {
		r := &taker{ctx: t.Context(), out: tar.NewWriter(io.Discard), seen: map[string]byte{}}
		var err error
		for i := 0; err == nil && i <= maxEntries; i++ {
			err = r.entry(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeReg}, strings.NewReader(""))
		}
		if err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("a million entries: %v", err)
		}
	})
}

// TestHostileArchiveOnTheWay has a machine answer with an archive that is not the one that was packed.
func TestHostileArchiveOnTheWay(t *testing.T) {
	s := local(t)
	h := newHost(t)
	sb := h.box(request(t, ""))
	must(t, sb, "mkdir t; echo x > t/x")
	for name, evil := range map[string][]byte{"a name that leads out": archive(t, file("../evil", "x")), "a good archive, and not the one that was packed": archive(t, file("x", "y\n"))} {
		t.Run(name, func(t *testing.T) {
			fault := s.Inject(e2btest.Fault{Method: "GET", Path: "/files", Status: 200, Body: string(evil), Header: map[string]string{"Content-Type": "application/octet-stream"}})
			defer fault.Remove()
			if err := sb.Get(t.Context(), "/workspace/t", sdk.FormatTar, io.Discard); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}

// TestRefusedTreeLeavesNothing puts a tree that is refused on this machine, where it is unpacked first.
func TestRefusedTreeLeavesNothing(t *testing.T) {
	local(t)
	sb := newHost(t).box(request(t, ""))
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	evil, err := gzip.NewReader(bytes.NewReader(archive(t, file("a", "x"), file("../evil", "x"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Put(t.Context(), "/workspace/t", sdk.FormatTar, evil); sdk.ReasonOf(err) != sdk.ReasonConfig {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func FuzzRelay(f *testing.F) {
	f.Add(archive(f, file("a", "1"), symlink("l", "a")))
	f.Add(archive(f, file("../a", "1")))
	f.Add(zeros(1000, 2000))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := relayed(t, b)
		if err != nil {
			return
		}
		for r := tar.NewReader(bytes.NewReader(out)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatalf("what was passed on is no archive: %v", err)
			}
			if name := strings.TrimSuffix(h.Name, "/"); !isBelow(name) || h.Mode&^0o777 != 0 || h.Typeflag == tar.TypeLink {
				t.Fatalf("%+v came through", h)
			}
		}
	})
}

func FuzzListing(f *testing.F) {
	f.Add([]byte("f 644 3 12 1.0 2.0\x00a/b\x00\x00l 777 1 13 -1.5 2.0\x00l\x00to\x00end 0\x00\x00\x00"))
	f.Add([]byte("f 644 3 12 1.0 2.0\x00../a\x00\x00end 0\x00\x00\x00"))
	f.Add([]byte("f 644 3 12 1.0 2.0\x00a\x00\x00end 1\x00\x00\x00"))
	f.Add([]byte("end 0\x00a\x00b\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readListing(b, ".")
		for name := range got {
			if err == nil && !isBelow(name) {
				t.Fatalf("%q is in the list", name)
			}
		}
		if err == nil && !bytes.HasSuffix(b, []byte("end 0\x00\x00\x00")) {
			t.Fatal("a list that breaks off is taken for a whole one")
		}
	})
}

func FuzzHandle(f *testing.F) {
	for _, s := range []string{`{"tag":"t","api":"https://a.example","domain":"a.example","machine":"m"}`, `{"tag":"t","api":"http://127.0.0.1:1","domain":"a","daemons":"https://x/"}`, `{}`, `[]`, `{"machine":"../x"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := readHandle(sdk.Handle{ID: "x", Data: data})
		if err == nil && (checkURL(p.API) != nil || p.Machine != "" && strings.ContainsAny(p.Machine, "/.?#@:")) {
			t.Fatalf("%+v", p)
		}
	})
}
