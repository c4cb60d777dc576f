package bundle

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's own
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/internal/gittest"
)

// fixture is a repository of the user, whose branch main has one commit.
type fixture struct {
	t    *testing.T
	repo *git.Repo
	base string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	gittest.Need(t)
	f := &fixture{t: t}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "README"), "one\n")
	write(t, filepath.Join(dir, "src/main.c"), "int main;\n")
	gittest.Commit(t, dir)
	var err error
	if f.repo, err = git.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, f.base, err = f.repo.Branch(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// shallow is the same repository as a shallow clone of one commit.
func (f *fixture) shallow() *fixture {
	f.t.Helper()
	dir := filepath.Join(f.t.TempDir(), "shallow")
	gittest.Run(f.t, f.repo.Dir, "clone", "-q", "--depth", "1", "file://"+f.repo.Dir, dir)
	repo, err := git.Open(f.t.Context(), dir)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &fixture{t: f.t, repo: repo}
	if _, s.base, err = repo.Branch(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return s
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// clone is what the sandbox has: a clone of what was pushed.
func (f *fixture) clone() string {
	f.t.Helper()
	dir := f.t.TempDir()
	in := filepath.Join(dir, "input.bundle")
	w, err := os.Create(in)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := Write(f.t.Context(), f.repo, f.base, "main", Part{}, w); err != nil {
		f.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
	gittest.Run(f.t, dir, "clone", "-q", "-b", "main", "--", in, filepath.Join(dir, "clone"))
	return filepath.Join(dir, "clone")
}

// check checks the bytes of a bundle.
func (f *fixture) check(b []byte, caps Caps) (*Checked, error) {
	f.t.Helper()
	name := filepath.Join(f.t.TempDir(), "output.bundle")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		f.t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	c, err := Check(f.t.Context(), f.repo, file, Wanted{Base: f.base, Refs: []string{"HEAD"}, Caps: caps})
	if c != nil {
		f.t.Cleanup(c.Close)
	}
	return c, err
}

// object is one object of a pack that a test writes by hand.
type object struct {
	kind string
	data []byte
}

func (o object) name() string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", o.kind, len(o.data)), o.data...)) //nolint:gosec // git's own
	return hex.EncodeToString(sum[:])
}

func blob(s string) object { return object{"blob", []byte(s)} }

// treeEntry is one line of a tree, with whatever mode and name.
type treeEntry struct {
	mode, name string
	of         string
}

func tree(entries ...treeEntry) object {
	var b bytes.Buffer
	for _, e := range entries {
		raw, _ := hex.DecodeString(e.of)
		fmt.Fprintf(&b, "%s %s\x00%s", e.mode, e.name, raw)
	}
	return object{"tree", b.Bytes()}
}

func commit(tree string, parents ...string) object {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	b.WriteString("author A <a@example.com> 1700000000 +0000\ncommitter A <a@example.com> 1700000000 +0000\n\nhostile\n")
	return object{"commit", []byte(b.String())}
}

// pack writes objects as a pack, in which every size is true.
func pack(objects ...object) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	b.Write(binary.BigEndian.AppendUint32(nil, 2))
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(objects))))
	for _, o := range objects {
		b.Write(entryHead(map[string]byte{"commit": 1, "tree": 2, "blob": 3, "tag": 4}[o.kind], uint64(len(o.data))))
		b.Write(deflate(o.data))
	}
	return seal(b.Bytes())
}

// seal puts the checksum behind a pack.
func seal(b []byte) []byte {
	sum := sha1.Sum(b) //nolint:gosec // git's own
	return append(b, sum[:]...)
}

func entryHead(kind byte, size uint64) []byte {
	c := kind<<4 | byte(size&15)
	size >>= 4
	var out []byte
	for size > 0 {
		out = append(out, c|0x80)
		c = byte(size & 0x7f)
		size >>= 7
	}
	return append(out, c)
}

func deflate(p []byte) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write(p)
	_ = z.Close()
	return b.Bytes()
}

// zeros is how n zero bytes look deflated, without n bytes of memory.
func zeros(n int64) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = io.CopyN(z, zeroReader{}, n)
	_ = z.Close()
	return b.Bytes()
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// bundled puts a header before a pack.
func bundled(p []byte, prerequisites []string, refs ...Ref) []byte {
	h := Header{Format: "sha1", Prerequisites: prerequisites, Refs: refs}
	return append([]byte(h.String()), p...)
}
