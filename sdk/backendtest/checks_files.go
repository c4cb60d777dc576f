package backendtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
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

// get fetches what is at a path.
func (b *box) get(at string, f sdk.Format) []byte {
	var buf bytes.Buffer
	if err := b.Get(b.c.ctx, at, f, &buf); err != nil {
		b.c.Fatalf("get %s of %s: %v", f, at, err)
	}
	return buf.Bytes()
}

// untar reads a tar into entries, by name.
func (c *C) untar(data []byte) []entry {
	var out []entry
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			c.Fatalf("the tar cannot be read: %v", err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			c.Fatalf("the tar cannot be read: %v", err)
		}
		if path.Clean(h.Name) == "." {
			continue
		}
		out = append(out, entry{name: path.Clean(h.Name), content: string(b), link: h.Linkname, mode: h.Mode & 0o777, typ: h.Typeflag})
	}
}

// grow makes tree inside the sandbox, with a shell alone.
const grow = `mkdir -p t/dir t/empty t/closed && cd t && printf 'plain\n' > dir/plain && printf '#!/bin/sh\necho ran\n' > dir/program && printf 'p\n' > dir/private &&
printf 'in\n' > closed/in && ln -s dir/plain link && ln -s nowhere/at/all dangling && printf 'unicode\n' > 'grüße 日本.txt' && printf 'odd\n' > "with space and 'quote'" &&
: > empty-file && printf 'd\n' > ./-dash && printf 'h\n' > .hidden && chmod 644 dir/plain closed/in *.txt with* empty-file ./-dash .hidden &&
chmod 755 dir dir/program empty && chmod 600 dir/private && chmod 700 closed`

func getChecks() []Check {
	needs := []Need{needCap(sdk.CapGet)}
	asTar := append(slices.Clone(needs), needFormat(sdk.FormatTar))
	asFile := append(slices.Clone(needs), needFormat(sdk.FormatFile))
	return []Check{
		{ID: "get/file", Needs: asFile, Proves: "a file that is fetched has exactly its bytes", Fix: "send what is there, to its end",
			run: func(c *C) {
				b := c.used()
				data := noise(3 << 20)
				b.must("cat > file", stdin(string(data)))
				c.sameBytes("the file", b.get(b.Ready().Workspace+"/file", sdk.FormatFile), data)
			}},
		{ID: "get/file-10mib", Needs: asFile, Proves: "10 MiB can be fetched", Fix: "send pieces of at most 256 KiB",
			run: func(c *C) {
				b := c.used()
				b.must("head -c 10485760 /dev/zero > file")
				if got := b.get(b.Ready().Workspace+"/file", sdk.FormatFile); len(got) != tenMiB || len(bytes.Trim(got, "\x00")) != 0 {
					c.Fatalf("%d bytes arrived", len(got))
				}
			}},
		{ID: "get/file-size", Needs: asFile, Proves: "the size of a file is said before its first byte, holes included", Fix: "sdk.Progress(ctx)(sdk.FetchingFile, 0, size) once the file is open",
			run: func(c *C) {
				b := c.used()
				b.must("printf x > file && dd if=/dev/null of=file bs=1 seek=3000000 2>/dev/null")
				var said, got bytes.Buffer
				ctx := sdk.WithProgress(c.ctx, func(_ string, _, total int64) {
					if got.Len() == 0 {
						fmt.Fprintln(&said, total)
					}
				})
				if err := b.Get(ctx, b.Ready().Workspace+"/file", sdk.FormatFile, &got); err != nil || got.Len() != 3000000 {
					c.Fatalf("%d bytes arrived: %v", got.Len(), err)
				}
				c.eq("what was said before the first byte", said.String(), "3000000\n")
			}},
		{ID: "get/file-empty", Needs: asFile, Proves: "an empty file is fetched as one", Fix: "a stream without data is an empty file",
			run: func(c *C) {
				b := c.used()
				b.must(": > file")
				if got := b.get(b.Ready().Workspace+"/file", sdk.FormatFile); len(got) != 0 {
					c.Fatalf("%d bytes arrived", len(got))
				}
			}},
		{ID: "get/missing", Needs: needs, Proves: "what does not exist is said to be not found", Fix: "reason not_found",
			run: func(c *C) {
				b := c.used()
				for _, f := range c.facts.Formats {
					if f != sdk.FormatBundle {
						c.wantReason(b.Get(c.ctx, b.Ready().Workspace+"/no/such", f, io.Discard), "fetching what does not exist as "+string(f), sdk.ReasonNotFound)
					}
				}
			}},
		{ID: "get/directory-as-file", Needs: asFile, Proves: "a directory cannot be fetched as a file", Fix: "look at what is there first",
			run: func(c *C) {
				b := c.used()
				c.wantReason(b.Get(c.ctx, b.Ready().Workspace, sdk.FormatFile, io.Discard), "fetching a directory as a file", sdk.ReasonConfig, sdk.ReasonUnsupported, sdk.ReasonNotFound)
			}},
		{ID: "get/file-link", Needs: asFile, Proves: "a symbolic link to a file outside the sandbox is not followed when it is fetched as a file", Fix: "open with O_NOFOLLOW below the sandbox's root, as sdk/inside does",
			run: func(c *C) {
				outside := filepath.Join(c.dir, "outside")
				c.write(outside, "secret of the host\n", 0o644)
				b := c.used()
				b.must("", argv("/bin/ln", "-s", outside, "link"))
				var got bytes.Buffer
				if err := b.Get(c.ctx, b.Ready().Workspace+"/link", sdk.FormatFile, &got); err == nil || got.Len() > 0 {
					c.Fatalf("it gave %s (%v)", quote(got.String()), err)
				}
			}},
		{ID: "get/tree", Needs: asTar, Proves: "a tree that is fetched has its modes, symbolic links, empty directories and names", Fix: "write a header for each entry; names are relative",
			run: func(c *C) {
				b := c.used()
				b.must(grow)
				c.eq("the tree", treeText(c.untar(b.get(b.Ready().Workspace+"/t", sdk.FormatTar))), treeText(tree))
			}},
		{ID: "get/symlinks", Needs: asTar, Proves: "symbolic links are fetched as links and never followed", Fix: "use lstat; a sandbox may link to anything",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir t && ln -s /etc/passwd t/passwd && ln -s / t/root && ln -s loop t/loop")
				for _, e := range c.untar(b.get(b.Ready().Workspace+"/t", sdk.FormatTar)) {
					if e.typ != tar.TypeSymlink {
						c.Fatalf("%s came as type %q with %d bytes", e.name, e.typ, len(e.content))
					}
				}
			}},
		{ID: "get/special", Needs: asTar, Proves: "a FIFO in a tree does not hold the fetching up", Fix: "open nothing but regular files",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir t && mkfifo t/fifo && echo x > t/file")
				if !slices.ContainsFunc(c.untar(b.get(b.Ready().Workspace+"/t", sdk.FormatTar)), func(e entry) bool { return e.name == "file" && e.content == "x\n" }) {
					c.Fatalf("the file beside it is missing")
				}
			}},
		{ID: "get/output", Needs: asTar, Proves: "what a command leaves in the output directory can be fetched", Fix: "fill in Ready.Output, and let Get reach it",
			run: func(c *C) {
				b := c.used()
				o := b.Ready().Output
				if o == "" {
					c.skipf("needs an output directory")
				}
				b.must("mkdir -p \"$OUT/sub\" && echo result > \"$OUT/sub/r.txt\"", env(map[string]string{"OUT": o}))
				got := c.untar(b.get(o, sdk.FormatTar))
				if !slices.ContainsFunc(got, func(e entry) bool { return e.name == "sub/r.txt" && e.content == "result\n" }) {
					c.Fatalf("got %+v", got)
				}
			}},
		{ID: "get/while-running", Needs: asFile, Proves: "files can be fetched while a command runs", Fix: "do not hold a lock while a command runs",
			run: func(c *C) {
				b := c.used()
				r := b.begin("echo x > file; echo ready; exec sleep 300")
				c.eq("the file", string(b.get(b.Ready().Workspace+"/file", sdk.FormatFile)), "x\n")
				r.Stop(sdk.CauseCancelled)
				r.end(soon)
			}},
		{ID: "get/round-trip", Needs: append(slices.Clone(asTar), needCap(sdk.CapPut)), Proves: "a tree that is put, and fetched again, is the same", Fix: "see put/tree and get/tree",
			run: func(c *C) {
				b := c.used()
				at := b.Ready().Workspace + "/rt"
				if err := b.Put(c.ctx, at, sdk.FormatTar, bytes.NewReader(c.tar(tree...))); err != nil {
					c.Fatalf("%v", err)
				}
				c.eq("the tree", treeText(c.untar(b.get(at, sdk.FormatTar))), treeText(tree))
			}},
		{ID: "get/destroyed", Needs: asFile, Proves: "fetching from a destroyed sandbox is refused as not found", Fix: "reason not_found",
			run: func(c *C) {
				b := c.destroyed()
				c.wantReason(b.Get(c.ctx, b.Ready().Workspace+"/x", sdk.FormatFile, io.Discard), "a get", sdk.ReasonNotFound)
			}},
		{ID: "get/bundle", Needs: append(slices.Clone(needs), needFormat(sdk.FormatBundle)), Proves: "a workspace that is a git repository can be fetched as a bundle", Fix: "git bundle create - --all",
			run: func(c *C) {
				b := c.used()
				if b.sh("command -v git").Code != 0 {
					c.skipf("there is no git in the sandbox, with which a repository could be made")
				}
				b.must("git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one")
				if got := b.get(b.Ready().Workspace+"/r", sdk.FormatBundle); !bytes.HasPrefix(got, []byte("# v")) || !bytes.Contains(got, []byte("git bundle")) {
					c.Fatalf("it begins with %s", quote(string(got[:min(len(got), 40)])))
				}
			}},
	}
}

func changesChecks() []Check {
	needs := []Need{needCap(sdk.CapChanges), needWorkspace(sdk.WorkspacePrivate)}
	some := func(c *C, at string) {
		for name, content := range map[string]string{"a.txt": "a\n", "dir/b.txt": "b\n", "dir/c.txt": "c\n", "z.txt": "z\n"} {
			c.write(filepath.Join(at, name), content, 0o644)
		}
	}
	changes := func(b *box) []sdk.Change {
		ch, err := b.Changes(b.c.ctx)
		if err != nil {
			b.c.Fatalf("changes: %v", err)
		}
		return ch
	}
	// after runs a script in a workspace made from some files, and returns the changes.
	after := func(c *C, script string) []sdk.Change {
		src := c.hostDir("source")
		some(c, src)
		b := c.box(withSource(src, sdk.WorkspacePrivate))
		b.must(script)
		return changes(b)
	}
	want := func(c *C, got []sdk.Change, want map[string]sdk.ChangeKind) {
		have := map[string]sdk.ChangeKind{}
		for _, ch := range got {
			have[strings.TrimSuffix(ch.Path, "/")] = ch.Kind
		}
		if !maps.Equal(have, want) {
			c.Fatalf("got %v, want %v", have, want)
		}
	}
	// Checks of one change share a workspace, in which each has a directory.
	shared := []string{"added", "modified", "modified-same-size", "deleted", "mode", "type"}
	one := func(name, what, script, at string, kind sdk.ChangeKind) Check {
		return Check{ID: "changes/" + name, Needs: needs, Proves: what, Fix: "compare the workspace with what it was made from",
			run: func(c *C) {
				b := c.usedFor("changes", func(r *sdk.CreateRequest) {
					r.Workspace = sdk.Workspace{Source: r.StateDir + "-source", Mode: sdk.WorkspacePrivate}
					for _, name := range shared {
						some(c, filepath.Join(r.Workspace.Source, name))
					}
				})
				b.must("cd " + name + "; " + script)
				got := slices.DeleteFunc(changes(b), func(ch sdk.Change) bool {
					dir, _, _ := strings.Cut(ch.Path, "/")
					return dir != name && slices.Contains(shared, dir)
				})
				want(c, got, map[string]sdk.ChangeKind{path.Join(name, at): kind})
			}}
	}
	return []Check{
		{ID: "changes/none", Needs: needs, Proves: "a workspace that was only read has no changes", Fix: "compare contents, not times of access",
			run: func(c *C) { want(c, after(c, "cat a.txt dir/*; ls -lR"), map[string]sdk.ChangeKind{}) }},
		one("added", "a new file is an addition", "echo n > dir/new", "dir/new", sdk.ChangeAdded),
		one("modified", "a file with another content is a modification", "echo more >> a.txt", "a.txt", sdk.ChangeModified),
		one("modified-same-size", "a file with another content of the same size is a modification", "printf 'A\\n' > a.txt", "a.txt", sdk.ChangeModified),
		one("deleted", "a file that is gone is a deletion", "rm dir/b.txt", "dir/b.txt", sdk.ChangeDeleted),
		one("mode", "a file with another mode is a change of mode", "chmod 755 a.txt", "a.txt", sdk.ChangeMode),
		one("type", "a file in whose place something else stands is a change of type", "rm a.txt && ln -s z.txt a.txt", "a.txt", sdk.ChangeType),
		{ID: "changes/order", Needs: needs, Proves: "changes come in the order of their paths", Fix: "sort them",
			run: func(c *C) {
				ch := after(c, "echo 1 > z.txt; echo 1 > a.txt; echo 1 > dir/b.txt; rm dir/c.txt; echo 1 > m; echo 1 > B")
				if !slices.IsSortedFunc(ch, func(a, b sdk.Change) int { return strings.Compare(a.Path, b.Path) }) || len(ch) != 6 {
					c.Fatalf("%+v", ch)
				}
			}},
		{ID: "changes/input-output", Needs: needs, Proves: "input and output directories are no changes of the workspace", Fix: "leave them out",
			run: func(c *C) {
				src, in := c.hostDir("source"), c.hostDir("in")
				c.write(filepath.Join(in, "f"), "f\n", 0o644)
				b := c.box(withSource(src, sdk.WorkspacePrivate), func(r *sdk.CreateRequest) { r.Input = in })
				b.must(`if [ -n "$OUT" ]; then echo x > "$OUT/x"; fi`, env(map[string]string{"OUT": b.Ready().Output}))
				want(c, changes(b), map[string]sdk.ChangeKind{})
			}},
		{ID: "changes/names", Needs: needs, Proves: "names of any bytes are reported as they are", Fix: "do not quote paths",
			run: func(c *C) {
				want(c, after(c, `printf x > 'grüße'; printf x > "new
line"; printf x > 'a "quoted" \ name'`), map[string]sdk.ChangeKind{"grüße": sdk.ChangeAdded, "new\nline": sdk.ChangeAdded, `a "quoted" \ name`: sdk.ChangeAdded})
			}},
	}
}

func removeChecks() []Check {
	needs := []Need{needCap(sdk.CapRemove)}
	remove := func(b *box, at string, recursive bool) {
		if err := b.Remove(b.c.ctx, at, recursive); err != nil {
			b.c.Fatalf("removing %s: %v", at, err)
		}
	}
	return []Check{
		{ID: "remove/file", Needs: needs, Proves: "a file that is removed is gone, and its neighbours are not", Fix: "remove what the path names, as a command of the sandbox sees it",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir d && echo x > d/a && echo x > d/b && mkfifo d/fifo && chmod 0 d/a")
				remove(b, b.Ready().Workspace+"/d/a", false)
				remove(b, b.Ready().Workspace+"/d/fifo", false)
				c.eq("ls d", b.must("ls -A d"), "b\n")
			}},
		{ID: "remove/source", Needs: append([]Need{needWorkspace(sdk.WorkspacePrivate)}, needs...), Proves: "a file of the workspace's source is gone for commands and there for the host", Fix: "remove it inside the sandbox, where the overlay or the copy is",
			run: func(c *C) {
				src := c.hostDir("source")
				c.write(path.Join(src, "file"), "x\n", 0o644)
				c.write(path.Join(src, "dir/deep/file"), "x\n", 0o600)
				c.write(path.Join(src, "kept"), "x\n", 0o644)
				before := c.hostTree(src)
				b := c.box(withSource(src, sdk.WorkspacePrivate))
				remove(b, b.Ready().Workspace+"/file", false)
				remove(b, b.Ready().Workspace+"/dir", true)
				c.eq("ls", b.must("ls -A | grep -vxE 'input|output'"), "kept\n")
				b.must("mkdir dir && test -z \"$(ls -A dir)\"")
				c.eq("the host's directory", c.hostTree(src), before)
			}},
		{ID: "remove/tree", Needs: needs, Proves: "a tree is removed with all that is in it, also where modes forbid it", Fix: "give the owner the permissions that are missing, then remove",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir -p t/closed/deep t/empty && echo x > t/closed/deep/file && echo x > t/file && ln -s / t/root && chmod 500 t/closed/deep && chmod 0 t/closed && chmod 500 t/empty")
				remove(b, b.Ready().Workspace+"/t", true)
				b.must("test ! -e t")
			}},
		{ID: "remove/directory", Needs: needs, Proves: "a directory is removed only when all that is in it is asked for, an empty one too", Fix: "reason config unless recursive",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir -p full empty && echo x > full/file")
				for _, d := range []string{"full", "empty"} {
					c.wantReason(b.Remove(c.ctx, b.Ready().Workspace+"/"+d, false), "removing a directory without recursive", sdk.ReasonConfig)
				}
				b.must("test -f full/file && test -d empty")
			}},
		{ID: "remove/link", Needs: needs, Proves: "a symbolic link is removed and not what it points to", Fix: "use lstat; never resolve the last name",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir d && echo x > d/file && ln -s d dirlink && ln -s d/file filelink && ln -s nowhere dangling")
				remove(b, b.Ready().Workspace+"/filelink", false)
				remove(b, b.Ready().Workspace+"/dirlink", true)
				remove(b, b.Ready().Workspace+"/dangling", false)
				c.eq("what is left", b.must("find . -name '*link' -o -name dangling; cat d/file"), "x\n")
			}},
		{ID: "remove/out", Needs: append([]Need{needIsolation}, needs...), Proves: "no link leads a removal out of the sandbox", Fix: "resolve the path inside the sandbox's root, as os.Root does",
			run: func(c *C) {
				b := c.used()
				victim := c.hostDir("victim")
				c.write(path.Join(victim, "file"), "x\n", 0o644)
				b.must("ln -s \"$V\" abs && ln -s ../../../../../../../../../..\"$V\" up", env(map[string]string{"V": victim}))
				for _, p := range []string{"abs/file", "up/file"} {
					if err := b.Remove(c.ctx, b.Ready().Workspace+"/"+p, true); err == nil {
						c.Fatalf("removing %s, which is not there for a command, succeeded", p)
					}
				}
				if err := b.Remove(c.ctx, b.Ready().Workspace+"/../../../../../../../../.."+victim+"/file", true); err == nil {
					c.Fatalf("removing a path with .. that leads out succeeded")
				}
				c.eq("the file outside", c.read(path.Join(victim, "file")), "x\n")
			}},
		{ID: "remove/missing", Needs: needs, Proves: "what does not exist is said to be not found", Fix: "reason not_found",
			run: func(c *C) {
				b := c.used()
				b.must("echo x > file")
				for _, recursive := range []bool{false, true} {
					for _, p := range []string{"nothing", "no/such", "file/below"} {
						c.wantReason(b.Remove(c.ctx, b.Ready().Workspace+"/"+p, recursive), "removing "+p, sdk.ReasonNotFound)
					}
				}
			}},
		{ID: "remove/own", Needs: needs, Proves: "the directories that the sandbox is made of cannot be removed, nor is what is in them", Fix: "refuse the root, workspace, input, output and what holds them; reason config",
			run: func(c *C) {
				b := c.used()
				r := b.Ready()
				b.must("echo x > file")
				for _, p := range []string{"/", r.Workspace, r.Workspace + "/", path.Dir(r.Workspace), r.Workspace + "/d/..", r.Output} {
					if p == "" {
						continue
					}
					c.wantReason(b.Remove(c.ctx, p, true), "removing "+p, sdk.ReasonConfig)
				}
				b.must("test -f file")
			}},
		{ID: "remove/relative", Needs: needs, Proves: "a path that is not absolute is refused", Fix: "reason config",
			run: func(c *C) {
				c.wantReason(c.used().Remove(c.ctx, "relative/file", true), "a relative path", sdk.ReasonConfig)
			}},
		{ID: "remove/destroyed", Needs: needs, Proves: "removing from a destroyed sandbox is refused as not found", Fix: "reason not_found",
			run: func(c *C) {
				b := c.destroyed()
				c.wantReason(b.Remove(c.ctx, b.Ready().Workspace+"/x", false), "a removal", sdk.ReasonNotFound)
			}},
	}
}
