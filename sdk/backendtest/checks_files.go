package backendtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// entry is one entry of a tar that the suite makes or reads.
type entry struct {
	name, content, link string
	mode                int64
	typ                 byte
}

func file(name, content string, mode int64) entry {
	return entry{name: name, content: content, mode: mode, typ: tar.TypeReg}
}
func folder(name string, mode int64) entry { return entry{name: name, mode: mode, typ: tar.TypeDir} }
func symlink(name, to string) entry {
	return entry{name: name, link: to, mode: 0o777, typ: tar.TypeSymlink}
}

func (c *C) tar(entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: e.typ, Linkname: e.link}
		if e.typ == tar.TypeChar {
			h.Devmajor, h.Devminor = 1, 3
		}
		if err := w.WriteHeader(h); err != nil {
			c.Fatalf("%v", err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			c.Fatalf("%v", err)
		}
	}
	if err := w.Close(); err != nil {
		c.Fatalf("%v", err)
	}
	return b.Bytes()
}

// tree is what every backend has to carry: names, modes, links, empty directories.
var tree = []entry{
	folder("dir", 0o755), file("dir/plain", "plain\n", 0o644), file("dir/program", "#!/bin/sh\necho ran\n", 0o755), file("dir/private", "p\n", 0o600),
	folder("empty", 0o755), folder("closed", 0o700), file("closed/in", "in\n", 0o644), symlink("link", "dir/plain"), symlink("dangling", "nowhere/at/all"),
	file("grüße 日本.txt", "unicode\n", 0o644), file("with space and 'quote'", "odd\n", 0o644), file("empty-file", "", 0o644), file("-dash", "d\n", 0o644), file(".hidden", "h\n", 0o644),
}

// describeTree prints a tree in the form of treeText, inside the sandbox.
const describeTree = `
find . -mindepth 1 | LC_ALL=C sort | while IFS= read -r p; do
  n=${p#./}
  if [ -h "$p" ]; then printf 'l 777 %s -> %s\n' "$n" "$(readlink "$p")"
  elif [ -d "$p" ]; then printf 'd %s %s\n' "$(stat -c %a "$p")" "$n"
  else printf 'f %s %s = %s\n' "$(stat -c %a "$p")" "$n" "$(cksum < "$p")"; fi
done`

// treeText is what describeTree prints for the entries, with sums left to the caller.
func treeText(entries []entry) string {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b entry) int {
		return strings.Compare("./"+path.Clean(a.name), "./"+path.Clean(b.name))
	})
	var b strings.Builder
	for _, e := range sorted {
		name := path.Clean(e.name)
		switch e.typ {
		case tar.TypeDir:
			fmt.Fprintf(&b, "d %o %s\n", e.mode, name)
		case tar.TypeSymlink:
			fmt.Fprintf(&b, "l 777 %s -> %s\n", name, e.link)
		default:
			fmt.Fprintf(&b, "f %o %s = %s\n", e.mode, name, cksum(e.content))
		}
	}
	return b.String()
}

// cksum is POSIX cksum of a content read from stdin.
func cksum(s string) string {
	var crc uint32
	feed := func(b byte) {
		crc ^= uint32(b) << 24
		for range 8 {
			if crc&0x80000000 != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
	}
	for i := range len(s) {
		feed(s[i])
	}
	for n := len(s); n > 0; n >>= 8 {
		feed(byte(n))
	}
	return fmt.Sprintf("%d %d", ^crc, len(s))
}

func putChecks() []Check {
	needs := []Need{needCap(sdk.CapPut)}
	asTar := append(slices.Clone(needs), needFormat(sdk.FormatTar))
	asFile := append(slices.Clone(needs), needFormat(sdk.FormatFile))
	put := func(b *box, at string, f sdk.Format, data []byte) {
		if err := b.Put(b.c.ctx, at, f, bytes.NewReader(data)); err != nil {
			b.c.Fatalf("put %s at %s: %v", f, at, err)
		}
	}
	// hostile proves that a tar is refused, or at least does no harm outside its place.
	hostile := func(name, what string, entries ...entry) Check {
		return Check{ID: "put/hostile-" + name, Needs: asTar, Proves: "a tar with " + what + " writes nothing outside its place", Fix: "open files through os.Root, and refuse what leads out",
			run: func(c *C) {
				b := c.used()
				w := b.Ready().Workspace
				b.must("mkdir place other && echo untouched > other/file && echo untouched > victim")
				before := b.must("cat other/file victim; ls -A . other")
				err := b.Put(c.ctx, w+"/place", sdk.FormatTar, bytes.NewReader(c.tar(entries...)))
				if after := b.must("cat other/file victim; ls -A . other"); after != before {
					c.Fatalf("outside of its place it changed %s to %s", quote(before), quote(after))
				}
				if err == nil {
					c.Fatalf("it was accepted")
				}
				c.wantReason(err, "the tar", sdk.ReasonConfig, sdk.ReasonDenied, sdk.ReasonUnsupported)
			}}
	}
	return []Check{
		{ID: "put/file", Needs: asFile, Proves: "a file that is put has exactly its bytes", Fix: "write what comes, to its end",
			run: func(c *C) {
				b := c.used()
				data := noise(3 << 20)
				put(b, b.Ready().Workspace+"/file", sdk.FormatFile, data)
				c.eq("the sum", strings.Fields(b.must("sha256sum < file") + " -")[0], digest(data))
			}},
		{ID: "put/file-replaces", Needs: asFile, Proves: "a file that is put replaces what was there", Fix: "truncate, or rename over it",
			run: func(c *C) {
				b := c.used()
				b.must("echo a much longer content than before > file")
				put(b, b.Ready().Workspace+"/file", sdk.FormatFile, []byte("new\n"))
				c.eq("the file", b.must("cat file"), "new\n")
			}},
		{ID: "put/file-mode", Needs: asFile, Proves: "a file that is put has the permissions of the one it replaces, a new one 0644", Fix: "set the mode of what is written beside it before renaming, whatever the umask is",
			run: func(c *C) {
				b := c.used()
				b.must("for m in 755 600 664 444; do echo x > f$m; chmod $m f$m; done")
				for _, m := range []string{"755", "600", "664", "444", "new"} {
					put(b, b.Ready().Workspace+"/f"+m, sdk.FormatFile, []byte("new\n"))
				}
				c.eq("the modes", b.must("stat -c %a f755 f600 f664 f444 fnew; cat f444"), "755\n600\n664\n444\n644\nnew\n")
			}},
		{ID: "put/file-empty", Needs: asFile, Proves: "an empty file can be put", Fix: "a stream without data is an empty file",
			run: func(c *C) {
				b := c.used()
				put(b, b.Ready().Workspace+"/file", sdk.FormatFile, nil)
				b.must("test -f file && test ! -s file")
			}},
		{ID: "put/file-cut", Needs: asFile, Proves: "a put that breaks off is an error, and leaves no half of a file in place of a whole one", Fix: "write beside it and rename; treat only the stream's good end as the end",
			run: func(c *C) {
				b := c.used()
				b.must("echo whole > file")
				err := b.Put(c.ctx, b.Ready().Workspace+"/file", sdk.FormatFile, io.MultiReader(bytes.NewReader(noise(1<<20)), brokenReader{}))
				if err == nil {
					c.Fatalf("it succeeded")
				}
				c.eventually(soon, "the file is whole", func() (bool, string) { got := b.must("cat file | head -c 100"); return got == "whole\n", quote(got) })
			}},
		{ID: "put/tree", Needs: asTar, Proves: "a tree that is put has its modes, symbolic links, empty directories and names", Fix: "take modes and links from the headers; set the modes of directories last",
			run: func(c *C) {
				b := c.used()
				put(b, b.Ready().Workspace+"/in/to", sdk.FormatTar, c.tar(tree...))
				c.eq("the tree", b.must("cd in/to && "+describeTree), treeText(tree))
				c.eq("the program", b.must("in/to/dir/program"), "ran\n")
			}},
		{ID: "put/merges", Needs: asTar, Proves: "a tree that is put is merged into what is there", Fix: "remove nothing that the tar does not hold",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir -p t/dir && echo old > t/dir/old && echo old > t/dir/both")
				put(b, b.Ready().Workspace+"/t", sdk.FormatTar, c.tar(folder("dir", 0o755), file("dir/both", "new\n", 0o644), file("dir/new", "new\n", 0o644)))
				c.eq("the files", b.must("cat t/dir/old t/dir/both t/dir/new"), "old\nnew\nnew\n")
			}},
		hostile("dotdot", "a name that begins with ..", file("../victim", "owned\n", 0o644)),
		hostile("dotdot-inside", "a name with .. inside", folder("a", 0o755), file("a/../../other/file", "owned\n", 0o644)),
		hostile("symlink", "a file below a symbolic link that leads out", symlink("out", "../other"), file("out/file", "owned\n", 0o644)),
		hostile("symlink-absolute", "a file below a symbolic link to /", symlink("root", "/"), file("root/tmp/hutch-owned", "owned\n", 0o644)),
		hostile("hardlink", "a hard link to a file outside", entry{name: "hard", link: "../victim", mode: 0o644, typ: tar.TypeLink}, file("hard", "owned\n", 0o644)),
		{ID: "put/cut-tar", Needs: asTar, Proves: "a tar that ends in the middle is an error", Fix: "treat an unexpected end as a failure",
			run: func(c *C) {
				b := c.used()
				whole := c.tar(file("big", string(noise(100_000)), 0o644))
				if err := b.Put(c.ctx, b.Ready().Workspace+"/t", sdk.FormatTar, bytes.NewReader(whole[:50_000])); err == nil {
					c.Fatalf("it succeeded")
				}
			}},
		{ID: "put/not-tar", Needs: asTar, Proves: "bytes that are no tar are an error, and the backend lives", Fix: "refuse what cannot be read",
			run: func(c *C) {
				b := c.used()
				if err := b.Put(c.ctx, b.Ready().Workspace+"/t", sdk.FormatTar, bytes.NewReader(noise(100_000))); err == nil {
					c.Fatalf("they were accepted")
				}
				b.must("true")
			}},
		{ID: "put/unclaimed-format", Needs: needs, Proves: "a format that is not claimed is refused", Fix: "reason unsupported",
			run: func(c *C) {
				b := c.used()
				for _, f := range []sdk.Format{sdk.FormatTar, sdk.FormatFile, sdk.FormatBundle, "floppy"} {
					if !slices.Contains(c.facts.Formats, f) {
						err := b.Put(c.ctx, b.Ready().Workspace+"/x", f, strings.NewReader("x"))
						c.wantReason(err, "the format "+string(f), sdk.ReasonUnsupported, sdk.ReasonConfig)
					}
				}
			}},
		{ID: "put/relative", Needs: asFile, Proves: "a path that is not absolute is refused", Fix: "reason config",
			run: func(c *C) {
				c.wantReason(c.used().Put(c.ctx, "relative/file", sdk.FormatFile, strings.NewReader("x")), "a relative path", sdk.ReasonConfig)
			}},
		{ID: "put/destroyed", Needs: asFile, Proves: "putting into a destroyed sandbox is refused as not found", Fix: "reason not_found",
			run: func(c *C) {
				b := c.destroyed()
				c.wantReason(b.Put(c.ctx, b.Ready().Workspace+"/x", sdk.FormatFile, strings.NewReader("x")), "a put", sdk.ReasonNotFound)
			}},
	}
}

// brokenReader fails as a connection would.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the suite breaks off here") }
