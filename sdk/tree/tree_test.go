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
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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
	for _, o := range []PackOptions{{MaxEntries: 3, Special: true}, {MaxBytes: 10, Special: true}, {Compression: "x"}} {
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

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("no tar"))
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
		}
	})
}
