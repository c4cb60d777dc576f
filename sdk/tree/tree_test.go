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
