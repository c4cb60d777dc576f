package outputs

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

type entry struct {
	name, body, link string
	typ              byte
	mode             int64
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.typ == 0 {
			e.typ = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
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
	return b.Bytes()
}

func collect(t *testing.T, data []byte, patterns []string, caps Caps) (map[string]string, map[string]safefile.Reason, *Result) {
	t.Helper()
	outer := t.TempDir()
	dst := filepath.Join(outer, "dst")
	if err := os.Mkdir(dst, 0o700); err != nil {
		t.Fatal(err)
	}
	res, err := Collect(context.Background(), bytes.NewReader(data), dst, patterns, caps, nil)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, o := range res.Outputs {
		b, err := os.ReadFile(filepath.Join(dst, o.Path))
		if err != nil {
			t.Error(err)
		}
		files[o.Path] = o.Mode + " " + string(b)
	}
	skipped := map[string]safefile.Reason{}
	for _, s := range res.Skipped {
		skipped[s.Path] = s.Reason
	}
	if left, _ := os.ReadDir(outer); len(left) != 1 {
		t.Errorf("something was written beside the destination: %v", left)
	}
	return files, skipped, res
}

func TestCollectTakesFilesAndSkipsTheRest(t *testing.T) {
	data := tarOf(t,
		entry{name: "./", typ: tar.TypeDir, mode: 0o755},
		entry{name: "./a.txt", body: "A"},
		entry{name: "d/", typ: tar.TypeDir},
		entry{name: "d/run", body: "R", mode: 0o6755},
		entry{name: "link", typ: tar.TypeSymlink, link: "/etc"},
		entry{name: "link/passwd", body: "x"},
		entry{name: "hard", typ: tar.TypeLink, link: "a.txt"},
		entry{name: "dev", typ: tar.TypeChar},
		entry{name: "fifo", typ: tar.TypeFifo},
		entry{name: "../evil", body: "x"},
		entry{name: "/abs", body: "x"},
		entry{name: "d/../../evil2", body: "x"},
		entry{name: "A.TXT", body: "other"},
		entry{name: "a.txt", body: "again"},
		entry{name: "esc\x1b[2J", body: "x"},
		entry{name: "last", body: "L"},
	)
	files, skipped, _ := collect(t, data, nil, Caps{})
	if diff := cmp.Diff(map[string]string{"a.txt": "0644 A", "d/run": "0755 R", "link/passwd": "0644 x", "last": "0644 L"}, files); diff != "" {
		t.Error(diff)
	}
	want := map[string]safefile.Reason{
		"link": safefile.ReasonSymlink, "hard": safefile.ReasonHardlink, "dev": safefile.ReasonSpecial, "fifo": safefile.ReasonSpecial,
		"../evil": safefile.ReasonName, "/abs": safefile.ReasonName, "d/../../evil2": safefile.ReasonName,
		"A.TXT": safefile.ReasonName, "a.txt": safefile.ReasonName, "esc\x1b[2J": safefile.ReasonName,
	}
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Error(diff)
	}
}

func TestCollectTellsWhatTheBackendLeftOut(t *testing.T) {
	src := t.TempDir()
	for _, name := range []string{"a.json", "giant.json", "giant.txt"} {
		if err := os.WriteFile(filepath.Join(src, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"giant.json", "giant.txt"} {
		if err := os.Truncate(filepath.Join(src, name), 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(src)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var b bytes.Buffer
	if _, err := tree.Pack(context.Background(), root, &b, tree.PackOptions{Special: true}); err != nil {
		t.Fatal(err)
	}
	files, skipped, _ := collect(t, b.Bytes(), []string{"*.json"}, Caps{})
	if diff := cmp.Diff(map[string]string{"a.json": "0600 {}"}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]safefile.Reason{"giant.json": safefile.ReasonTooBig}, skipped); diff != "" {
		t.Error(diff)
	}
}

// A file of zeros is collected without taking the room of one.
func TestCollectLeavesHoles(t *testing.T) {
	dst := t.TempDir()
	data := tarOf(t, entry{name: "zeros", body: strings.Repeat("\x00", 8<<20) + "end"})
	if _, err := Collect(context.Background(), bytes.NewReader(data), dst, nil, Caps{}, nil); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dst, "zeros"), &st); err != nil || st.Size != 8<<20+3 || st.Blocks*512 > 1<<20 {
		t.Errorf("%v: %d bytes in %d", err, st.Size, st.Blocks*512)
	}
}

func TestCollectRenames(t *testing.T) {
	data := tarOf(t,
		entry{name: "tok3n.txt", body: "1"},
		entry{name: "(x).txt", body: "2"},
		entry{name: "TOK3N.c", body: "3"},
		entry{name: "d/tok3n-tok3n", body: "4"},
		entry{name: "tok3n/deep", body: "5"},
		entry{name: "tok3n.bin", typ: tar.TypeSymlink, link: "tok3n"},
		entry{name: "../tok3n", body: "6"},
		entry{name: strings.Repeat("n", 110) + "tok3n\x1b", body: "7"}, // its quotation is cut inside the secret
		entry{name: "other", body: "8"},
	)
	dst := t.TempDir()
	rename := func(name string) string { return strings.ReplaceAll(name, "tok3n", "(x)") }
	res, err := Collect(context.Background(), bytes.NewReader(data), dst, []string{"*tok3n*", "**/*tok3n*", "tok3n/**", "TOK3N.c", "(x)*"}, Caps{}, rename)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range res.Outputs {
		b, err := os.ReadFile(filepath.Join(dst, o.Path))
		if err != nil {
			t.Error(err)
		}
		got[o.Path] = o.From + " " + string(b)
	}
	want := map[string]string{
		"(x).txt": "tok3n.txt 1", "(x)-2.txt": "(x).txt 2", "TOK3N.c": "TOK3N.c 3", "d/(x)-(x)": "d/tok3n-tok3n 4", "(x)/deep": "tok3n/deep 5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(res.Skipped) != 3 {
		t.Errorf("skipped %+v", res.Skipped)
	}
	for _, s := range res.Skipped {
		if strings.Contains(s.Path+s.Detail, "tok3") {
			t.Errorf("%+v reveals the secret", s)
		}
	}
}

func TestCollectPatternsAndHash(t *testing.T) {
	data := tarOf(t, entry{name: "a.json", body: "{}"}, entry{name: "b.txt", body: "x"}, entry{name: "deep/er/c.json", body: "[]"})
	files, skipped, res := collect(t, data, []string{"**/*.json"}, Caps{})
	if len(files) != 2 || files["deep/er/c.json"] == "" || len(skipped) != 0 {
		t.Errorf("%v %v", files, skipped)
	}
	if got := res.Outputs[0].SHA256; got != "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" {
		t.Errorf("sha256 of {} is %s", got)
	}
	if _, err := Collect(context.Background(), bytes.NewReader(data), t.TempDir(), []string{"[a"}, Caps{}, nil); err == nil {
		t.Error("a malformed pattern was taken")
	}
}

func TestCollectCaps(t *testing.T) {
	data := tarOf(t, entry{name: "a", body: strings.Repeat("x", 10)}, entry{name: "b", body: strings.Repeat("x", 4)},
		entry{name: "c", body: strings.Repeat("x", 4)}, entry{name: "d/e/f", body: "x"})
	for name, tc := range map[string]struct {
		caps  Caps
		files []string
		skip  map[string]safefile.Reason
	}{
		"file":    {Caps{File: 5}, []string{"b", "c", "d/e/f"}, map[string]safefile.Reason{"a": safefile.ReasonTooBig}},
		"total":   {Caps{Total: 14}, []string{"a", "b"}, map[string]safefile.Reason{"c": safefile.ReasonTotal, "d/e/f": safefile.ReasonTotal}},
		"count":   {Caps{Count: 3}, []string{"a", "b", "c"}, map[string]safefile.Reason{"d/e/f": safefile.ReasonTooMany}},
		"entries": {Caps{Entries: 2}, []string{"a", "b"}, map[string]safefile.Reason{"c": safefile.ReasonTooMany}},
		"depth":   {Caps{Depth: 2}, []string{"a", "b", "c"}, map[string]safefile.Reason{"d/e/f": safefile.ReasonTooDeep}},
	} {
		t.Run(name, func(t *testing.T) {
			files, skipped, _ := collect(t, data, nil, tc.caps)
			var got []string
			for _, f := range []string{"a", "b", "c", "d/e/f"} {
				if files[f] != "" {
					got = append(got, f)
				}
			}
			if diff := cmp.Diff(tc.files, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.skip, skipped); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCollectCutStreamKeepsWhatWasWhole(t *testing.T) {
	data := tarOf(t, entry{name: "a", body: "A"}, entry{name: "b", body: strings.Repeat("x", 4096)})
	dst := t.TempDir()
	res, err := Collect(context.Background(), bytes.NewReader(data[:len(data)-4096]), dst, nil, Caps{}, nil)
	if err == nil || len(res.Outputs) != 1 || res.Outputs[0].Path != "a" {
		t.Errorf("%v, %+v", err, res)
	}
	if _, err := os.Stat(filepath.Join(dst, "b")); err == nil {
		t.Error("half of a file was left")
	}
}

func FuzzCollect(f *testing.F) {
	f.Add([]byte("not a tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dst := filepath.Join(outer, "dst")
		if err := os.Mkdir(dst, 0o700); err != nil {
			t.Fatal(err)
		}
		_, _ = Collect(context.Background(), bytes.NewReader(data), dst, nil, Caps{Total: 1 << 20}, nil)
		if left, _ := os.ReadDir(outer); len(left) != 1 {
			t.Fatalf("written outside: %v", left)
		}
	})
}

// TestS2OutputsHoldNoRepository has a program leave a git repository in its output directory, whose parts come in any
// order.
func TestS2OutputsHoldNoRepository(t *testing.T) {
	data := tarOf(t,
		entry{name: "b/config", body: "[core]"}, entry{name: "b/objects/x"}, entry{name: "b/refs/x"}, entry{name: "b/HEAD"}, entry{name: "b/readme"},
		entry{name: "c/.git/config"}, entry{name: "d/HEAD"}, entry{name: "d/config"}, entry{name: "e/commondir"}, entry{name: "e/HEAD"}, entry{name: "e/config.worktree"},
	)
	want := map[string]string{"b/readme": "0644 ", "d/HEAD": "0644 ", "d/config": "0644 "}
	git := safefile.ReasonGit
	left := map[string]safefile.Reason{
		"b/config": git, "b/objects/x": git, "b/refs/x": git, "b/HEAD": git, "c/.git/config": git, "e/commondir": git, "e/HEAD": git, "e/config.worktree": git,
	}
	files, skipped, _ := collect(t, data, nil, Caps{})
	if d := cmp.Diff(want, files) + cmp.Diff(left, skipped); d != "" {
		t.Error(d)
	}
}
