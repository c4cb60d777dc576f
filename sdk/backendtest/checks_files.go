package backendtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// entry is one entry of a tree that the suite makes or reads.
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
		c.own(w.WriteHeader(h))
		_, err := io.WriteString(w, e.content)
		c.own(err)
	}
	c.own(w.Close())
	return b.Bytes()
}

// untar reads a tar into entries, by name.
func (c *C) untar(data []byte) (out []entry) {
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		c.ok("reading the tar", err)
		b, err := io.ReadAll(r)
		c.ok("reading the tar", err)
		if name := path.Clean(h.Name); name != "." {
			out = append(out, entry{name, string(b), h.Linkname, h.Mode & 0o777, h.Typeflag})
		}
	}
}

// tree is what every backend has to carry: names, modes, links, empty directories. Directories are before their files.
var tree = []entry{
	folder("dir", 0o755), file("dir/plain", "plain\n", 0o644),
	file("dir/program", "#!/bin/sh\necho ran\n", 0o755), file("dir/private", "p\n", 0o600),
	folder("empty", 0o755), folder("closed", 0o700), file("closed/in", "in\n", 0o644),
	symlink("link", "dir/plain"), symlink("dangling", "nowhere/at/all"),
	file("grüße 日本.txt", "unicode\n", 0o644), file("with space and 'quote'", "odd\n", 0o644),
	file("empty-file", "", 0o644), file("-dash", "d\n", 0o644), file(".hidden", "h\n", 0o644),
}

// grow makes tree inside the sandbox, below t, with a shell alone.
func (b *box) grow() {
	s := "umask 0; mkdir t && cd t"
	for _, e := range tree {
		to := "'./" + strings.ReplaceAll(e.name, "'", `'\''`) + "'"
		switch e.typ {
		case tar.TypeDir:
			s += fmt.Sprintf(" && mkdir -m %o %s", e.mode, to)
		case tar.TypeSymlink:
			s += fmt.Sprintf(" && ln -s '%s' %s", e.link, to)
		default:
			s += fmt.Sprintf(" && printf '%%s' '%s' > %s && chmod %o %[2]s", e.content, to, e.mode)
		}
	}
	b.must(s)
}

// describeTree prints a tree in the form of treeText, inside the sandbox.
const describeTree = `
find . -mindepth 1 | LC_ALL=C sort | while IFS= read -r p; do
  n=${p#./}
  if [ -h "$p" ]; then printf 'l 777 %s -> %s\n' "$n" "$(readlink "$p")"
  elif [ -d "$p" ]; then printf 'd %s %s\n' "$(stat -c %a "$p")" "$n"
  else printf 'f %s %s = %s\n' "$(stat -c %a "$p")" "$n" "$(sha256sum < "$p")"; fi
done`

// treeText is what describeTree prints for the entries.
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
			fmt.Fprintf(&b, "f %o %s = %s  -\n", e.mode, name, digest(e.content))
		}
	}
	return b.String()
}

// put, get and remove work on a name in the workspace, or a path.

func (b *box) put(name string, f sdk.Format, data []byte) {
	b.ok(fmt.Sprintf("put %s at %s", f, name), b.tryPut(name, f, data))
}

func (b *box) tryPut(name string, f sdk.Format, data []byte) error {
	return b.Put(b.ctx, b.at(name), f, bytes.NewReader(data))
}

func (b *box) get(name string, f sdk.Format) []byte {
	var buf bytes.Buffer
	b.ok(fmt.Sprintf("get %s of %s", f, name), b.Get(b.ctx, b.at(name), f, &buf))
	return buf.Bytes()
}

// tryGet fetches to nowhere what has to be refused.
func (b *box) tryGet(name string, f sdk.Format) error { return b.Get(b.ctx, b.at(name), f, io.Discard) }

func (b *box) remove(name string, recursive bool) {
	b.ok("removing "+name, b.Remove(b.ctx, b.at(name), recursive))
}

// wantFile ends the check unless a tar holds a file.
func (c *C) wantFile(data []byte, name, content string) {
	got := c.untar(data)
	if !slices.ContainsFunc(got, func(e entry) bool { return e.name == name && e.content == content }) {
		c.Fatalf("%s is missing in %+v", name, got)
	}
}

func putChecks() []Check {
	// hostile proves that a tar is refused, or at least does no harm outside its place.
	hostile := func(name, what string, entries ...entry) Check {
		return row("put/hostile-"+name, "a tar with "+what+" writes nothing outside its place",
			"open files through os.Root, and refuse what leads out", used(func(b *box) {
				const look = "cat other/file victim; ls -A . other"
				b.must("mkdir place other && echo untouched > other/file && echo untouched > victim")
				before := b.must(look)
				err := b.tryPut("place", sdk.FormatTar, b.tar(entries...))
				b.eq("what lies outside of its place", b.must(look), before)
				b.wantReason(err, "the tar", sdk.ReasonConfig, sdk.ReasonDenied, sdk.ReasonUnsupported)
			}), needTar)
	}
	// fails proves that a put has an error.
	fails := func(what string, err error, b *box) {
		if err == nil {
			b.Fatalf("%s was accepted", what)
		}
	}
	return needing([]Need{needCap(sdk.CapPut)},
		row("put/file", "a file that is put has exactly its bytes", "write what comes, to its end", used(func(b *box) {
			data := noise(3 << 20)
			b.put("file", sdk.FormatFile, data)
			b.eq("the sum", strings.Fields(b.must("sha256sum < file") + " -")[0], digest(data))
		}), needFile),
		row("put/file-replaces", "a file that is put replaces what was there",
			"truncate, or rename over it", used(func(b *box) {
				b.must("echo a much longer content than before > file")
				b.put("file", sdk.FormatFile, []byte("new\n"))
				b.prints("new\n", "cat file")
			}), needFile),
		row("put/file-mode", "a file that is put has the permissions of the one it replaces, a new one 0644",
			"set the mode of what is written beside it before renaming, whatever the umask is", used(func(b *box) {
				b.must("for m in 755 600 664 444; do echo x > f$m; chmod $m f$m; done")
				for _, m := range []string{"755", "600", "664", "444", "new"} {
					b.put("f"+m, sdk.FormatFile, []byte("new\n"))
				}
				b.prints("755\n600\n664\n444\n644\nnew\n", "stat -c %a f755 f600 f664 f444 fnew; cat f444")
			}), needFile),
		row("put/file-empty", "an empty file can be put", "a stream without data is an empty file", used(func(b *box) {
			b.put("file", sdk.FormatFile, nil)
			b.must("test -f file && test ! -s file")
		}), needFile),
		row("put/file-cut", "a put that breaks off is an error, and leaves no half of a file in place of a whole one",
			"write beside it and rename; treat only the stream's good end as the end", used(func(b *box) {
				b.must("echo whole > file")
				cut := io.MultiReader(bytes.NewReader(noise(1<<20)), brokenReader{})
				fails("a file that breaks off", b.Put(b.ctx, b.at("file"), sdk.FormatFile, cut), b)
				b.eventually(soon, "the file is whole", func() (bool, string) {
					got := b.must("cat file | head -c 100")
					return got == "whole\n", quote(got)
				})
			}), needFile),
		row("put/tree", "a tree that is put has its modes, symbolic links, empty directories and names",
			"take modes and links from the headers; set the modes of directories last", used(func(b *box) {
				b.put("in/to", sdk.FormatTar, b.tar(tree...))
				b.prints(treeText(tree), "cd in/to && "+describeTree)
				b.prints("ran\n", "in/to/dir/program")
			}), needTar),
		row("put/merges", "a tree that is put is merged into what is there",
			"remove nothing that the tar does not hold", used(func(b *box) {
				b.must("mkdir -p t/dir && echo old > t/dir/old && echo old > t/dir/both")
				b.put("t", sdk.FormatTar, b.tar(
					folder("dir", 0o755), file("dir/both", "new\n", 0o644), file("dir/new", "new\n", 0o644)))
				b.prints("old\nnew\nnew\n", "cat t/dir/old t/dir/both t/dir/new")
			}), needTar),
		hostile("dotdot", "a name that begins with ..", file("../victim", "owned\n", 0o644)),
		hostile("dotdot-inside", "a name with .. inside",
			folder("a", 0o755), file("a/../../other/file", "owned\n", 0o644)),
		hostile("symlink", "a file below a symbolic link that leads out",
			symlink("out", "../other"), file("out/file", "owned\n", 0o644)),
		hostile("symlink-absolute", "a file below a symbolic link to /",
			symlink("root", "/"), file("root/tmp/hutch-owned", "owned\n", 0o644)),
		hostile("hardlink", "a hard link to a file outside",
			entry{name: "hard", link: "../victim", mode: 0o644, typ: tar.TypeLink}, file("hard", "owned\n", 0o644)),
		row("put/cut-tar", "a tar that ends in the middle is an error",
			"treat an unexpected end as a failure", used(func(b *box) {
				whole := b.tar(file("big", string(noise(100_000)), 0o644))
				fails("half a tar", b.tryPut("t", sdk.FormatTar, whole[:50_000]), b)
			}), needTar),
		row("put/not-tar", "bytes that are no tar are an error, and the backend lives",
			"refuse what cannot be read", used(func(b *box) {
				fails("what is no tar", b.tryPut("t", sdk.FormatTar, noise(100_000)), b)
				b.must("true")
			}), needTar),
		row("put/unclaimed-format", "a format that is not claimed is refused", "reason unsupported", used(func(b *box) {
			for _, f := range []sdk.Format{sdk.FormatTar, sdk.FormatFile, sdk.FormatBundle, "floppy"} {
				if !slices.Contains(b.facts.Formats, f) {
					b.wantReason(b.tryPut("x", f, []byte("x")), "the format "+string(f),
						sdk.ReasonUnsupported, sdk.ReasonConfig)
				}
			}
		})),
		row("put/relative", "a path that is not absolute is refused", "reason config", used(func(b *box) {
			err := b.Put(b.ctx, "relative/file", sdk.FormatFile, strings.NewReader("x"))
			b.wantReason(err, "a relative path", sdk.ReasonConfig)
		}), needFile),
		row("put/destroyed", "putting into a destroyed sandbox is refused as not found", "reason not_found", func(c *C) {
			c.wantReason(c.destroyed().tryPut("x", sdk.FormatFile, []byte("x")), "a put", sdk.ReasonNotFound)
		}, needFile),
	)
}

// brokenReader fails as a connection would.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the suite breaks off here") }

func getChecks() []Check {
	return needing([]Need{needCap(sdk.CapGet)},
		row("get/file", "a file that is fetched has exactly its bytes",
			"send what is there, to its end", used(func(b *box) {
				data := noise(3 << 20)
				b.must("cat > file", stdin(string(data)))
				b.sameBytes("the file", b.get("file", sdk.FormatFile), data)
			}), needFile),
		row("get/file-10mib", "10 MiB can be fetched", "send pieces of at most 256 KiB", used(func(b *box) {
			b.must("head -c 10485760 /dev/zero > file")
			b.sameBytes("the file", b.get("file", sdk.FormatFile), make([]byte, tenMiB))
		}), needFile),
		row("get/file-size", "the size of a file is said before its first byte, holes included",
			"sdk.Progress(ctx)(sdk.FetchingFile, 0, size) once the file is open", used(func(b *box) {
				b.must("printf x > file && dd if=/dev/null of=file bs=1 seek=3000000 2>/dev/null")
				var said, got bytes.Buffer
				ctx := sdk.WithProgress(b.ctx, func(_ string, _, total int64) {
					if got.Len() == 0 {
						fmt.Fprintln(&said, total)
					}
				})
				if err := b.Get(ctx, b.at("file"), sdk.FormatFile, &got); err != nil || got.Len() != 3000000 {
					b.Fatalf("%d bytes arrived: %v", got.Len(), err)
				}
				b.eq("what was said before the first byte", said.String(), "3000000\n")
			}), needFile),
		row("get/file-empty", "an empty file is fetched as one",
			"a stream without data is an empty file", used(func(b *box) {
				b.must(": > file")
				b.sameBytes("the file", b.get("file", sdk.FormatFile), nil)
			}), needFile),
		row("get/missing", "what does not exist is said to be not found", "reason not_found", used(func(b *box) {
			for _, f := range b.facts.Formats {
				if f != sdk.FormatBundle {
					b.wantReason(b.tryGet("no/such", f), "fetching what does not exist as "+string(f), sdk.ReasonNotFound)
				}
			}
		})),
		row("get/directory-as-file", "a directory cannot be fetched as a file",
			"look at what is there first", used(func(b *box) {
				b.wantReason(b.tryGet(b.Ready().Workspace, sdk.FormatFile), "fetching a directory as a file",
					sdk.ReasonConfig, sdk.ReasonUnsupported, sdk.ReasonNotFound)
			}), needFile),
		row("get/file-link", "a symbolic link to a file outside the sandbox is not followed when it is fetched as a file",
			"open with O_NOFOLLOW below the sandbox's root, as sdk/inside does", used(func(b *box) {
				outside := filepath.Join(b.dir, "outside")
				b.write(outside, "secret of the host\n", 0o644)
				b.must("", argv("/bin/ln", "-s", outside, "link"))
				var got bytes.Buffer
				if err := b.Get(b.ctx, b.at("link"), sdk.FormatFile, &got); err == nil || got.Len() > 0 {
					b.Fatalf("it gave %s (%v)", quote(got.String()), err)
				}
			}), needFile),
		row("get/tree", "a tree that is fetched has its modes, symbolic links, empty directories and names",
			"write a header for each entry; names are relative", used(func(b *box) {
				b.grow()
				b.eq("the tree", treeText(b.untar(b.get("t", sdk.FormatTar))), treeText(tree))
			}), needTar),
		row("get/symlinks", "symbolic links are fetched as links and never followed",
			"use lstat; a sandbox may link to anything", used(func(b *box) {
				b.must("mkdir t && ln -s /etc/passwd t/passwd && ln -s / t/root && ln -s loop t/loop")
				for _, e := range b.untar(b.get("t", sdk.FormatTar)) {
					if e.typ != tar.TypeSymlink {
						b.Fatalf("%s came as type %q with %d bytes", e.name, e.typ, len(e.content))
					}
				}
			}), needTar),
		row("get/special", "a FIFO in a tree does not hold the fetching up",
			"open nothing but regular files", used(func(b *box) {
				b.must("mkdir t && mkfifo t/fifo && echo x > t/file")
				b.wantFile(b.get("t", sdk.FormatTar), "file", "x\n")
			}), needTar),
		row("get/output", "what a command leaves in the output directory can be fetched",
			"fill in Ready.Output, and let Get reach it", used(func(b *box) {
				b.must("mkdir -p \"$OUT/sub\" && echo result > \"$OUT/sub/r.txt\"", env("OUT", b.output()))
				b.wantFile(b.get(b.output(), sdk.FormatTar), "sub/r.txt", "result\n")
			}), needTar),
		row("get/while-running", "files can be fetched while a command runs",
			"do not hold a lock while a command runs", used(func(b *box) {
				r := b.begin("echo x > file; echo ready; exec sleep 300")
				b.eq("the file", string(b.get("file", sdk.FormatFile)), "x\n")
				r.cancel()
			}), needFile),
		row("get/round-trip", "a tree that is put, and fetched again, is the same",
			"see put/tree and get/tree", used(func(b *box) {
				b.put("rt", sdk.FormatTar, b.tar(tree...))
				b.eq("the tree", treeText(b.untar(b.get("rt", sdk.FormatTar))), treeText(tree))
			}), needTar, needCap(sdk.CapPut)),
		row("get/destroyed", "fetching from a destroyed sandbox is refused as not found", "reason not_found", func(c *C) {
			c.wantReason(c.destroyed().tryGet("x", sdk.FormatFile), "a get", sdk.ReasonNotFound)
		}, needFile),
		row("get/bundle", "a workspace that is a git repository can be fetched as a bundle",
			"git bundle create - --all", used(func(b *box) {
				if b.sh("command -v git").Code != 0 {
					b.skipf("there is no git in the sandbox, with which a repository could be made")
				}
				b.must("git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one")
				got := b.get("r", sdk.FormatBundle)
				if !bytes.HasPrefix(got, []byte("# v")) || !bytes.Contains(got, []byte("git bundle")) {
					b.Fatalf("it begins with %s", quote(string(got[:min(len(got), 40)])))
				}
			}), needFormat(sdk.FormatBundle)),
	)
}

// output is the output directory; without one the check does not apply.
func (b *box) output() string {
	if b.Ready().Output == "" {
		b.skipf("needs an output directory")
	}
	return b.Ready().Output
}

// changes are what the backend reports, as "KIND PATH" in its order.
func (b *box) changes() (out []string) {
	changes, err := b.Changes(b.ctx)
	b.ok("changes", err)
	for _, ch := range changes {
		out = append(out, string(ch.Kind)+" "+strings.TrimSuffix(ch.Path, "/"))
	}
	return out
}

// wantChanges ends the check unless these are the changes, in any order.
func (b *box) wantChanges(want ...string) {
	got := b.changes()
	slices.Sort(got)
	slices.Sort(want)
	b.eq("the changes", strings.Join(got, ", "), strings.Join(want, ", "))
}

func changesChecks() []Check {
	some := func(c *C, at string) {
		for name, content := range map[string]string{"a.txt": "a\n", "dir/b.txt": "b\n", "dir/c.txt": "c\n", "z.txt": "z\n"} {
			c.write(filepath.Join(at, name), content, 0o644)
		}
	}
	// after runs a script in a workspace made from some files.
	after := func(c *C, script string) *box {
		src := c.hostDir("source")
		some(c, src)
		b := c.box(withSource(src, sdk.WorkspacePrivate))
		b.must(script)
		return b
	}
	// Checks of one change share a workspace, in which each has a directory.
	shared := []string{"added", "modified", "modified-same-size", "deleted", "mode", "type"}
	one := func(name, what, script, at string, kind sdk.ChangeKind) Check {
		return row("changes/"+name, what, "compare the workspace with what it was made from", func(c *C) {
			b := c.usedFor("changes", func(r *sdk.CreateRequest) {
				r.Workspace = sdk.Workspace{Source: r.StateDir + "-source", Mode: sdk.WorkspacePrivate}
				for _, name := range shared {
					some(c, filepath.Join(r.Workspace.Source, name))
				}
			})
			b.must("cd " + name + "; " + script)
			got := slices.DeleteFunc(b.changes(), func(change string) bool {
				_, p, _ := strings.Cut(change, " ")
				dir, _, _ := strings.Cut(p, "/")
				return dir != name && slices.Contains(shared, dir)
			})
			c.eq("the changes", strings.Join(got, ", "), string(kind)+" "+path.Join(name, at))
		})
	}
	return needing([]Need{needCap(sdk.CapChanges), needPrivate},
		row("changes/none", "a workspace that was only read has no changes",
			"compare contents, not times of access", func(c *C) { after(c, "cat a.txt dir/*; ls -lR").wantChanges() }),
		one("added", "a new file is an addition", "echo n > dir/new", "dir/new", sdk.ChangeAdded),
		one("modified", "a file with another content is a modification",
			"echo more >> a.txt", "a.txt", sdk.ChangeModified),
		one("modified-same-size", "a file with another content of the same size is a modification",
			"printf 'A\\n' > a.txt", "a.txt", sdk.ChangeModified),
		one("deleted", "a file that is gone is a deletion", "rm dir/b.txt", "dir/b.txt", sdk.ChangeDeleted),
		one("mode", "a file with another mode is a change of mode", "chmod 755 a.txt", "a.txt", sdk.ChangeMode),
		one("type", "a file in whose place something else stands is a change of type",
			"rm a.txt && ln -s z.txt a.txt", "a.txt", sdk.ChangeType),
		row("changes/order", "changes come in the order of their paths", "sort them", func(c *C) {
			b := after(c, "echo 1 > z.txt; echo 1 > a.txt; echo 1 > dir/b.txt; rm dir/c.txt; echo 1 > m; echo 1 > B")
			c.eq("the changes", strings.Join(b.changes(), ", "),
				"added B, modified a.txt, modified dir/b.txt, deleted dir/c.txt, added m, modified z.txt")
		}),
		row("changes/input-output", "input and output directories are no changes of the workspace",
			"leave them out", func(c *C) {
				in := c.hostDir("in")
				c.write(filepath.Join(in, "f"), "f\n", 0o644)
				b := c.box(withSource(c.hostDir("source"), sdk.WorkspacePrivate), withInput(in))
				b.must(`if [ -n "$OUT" ]; then echo x > "$OUT/x"; fi`, env("OUT", b.Ready().Output))
				b.wantChanges()
			}),
		row("changes/names", "names of any bytes are reported as they are", "do not quote paths", func(c *C) {
			after(c, "printf x > 'grüße'; printf x > 'new\nline'; printf x > 'a \"quoted\" \\ name'").
				wantChanges("added a \"quoted\" \\ name", "added grüße", "added new\nline")
		}),
	)
}

func removeChecks() []Check {
	return needing([]Need{needCap(sdk.CapRemove)},
		row("remove/file", "a file that is removed is gone, and its neighbours are not",
			"remove what the path names, as a command of the sandbox sees it", used(func(b *box) {
				b.must("mkdir d && echo x > d/a && echo x > d/b && mkfifo d/fifo && chmod 0 d/a")
				b.remove("d/a", false)
				b.remove("d/fifo", false)
				b.prints("b\n", "ls -A d")
			})),
		row("remove/source", "a file of the workspace's source is gone for commands and there for the host",
			"remove it inside the sandbox, where the overlay or the copy is", func(c *C) {
				src := c.hostDir("source")
				c.write(path.Join(src, "file"), "x\n", 0o644)
				c.write(path.Join(src, "dir/deep/file"), "x\n", 0o600)
				c.write(path.Join(src, "kept"), "x\n", 0o644)
				before := c.hostTree(src)
				b := c.box(withSource(src, sdk.WorkspacePrivate))
				b.remove("file", false)
				b.remove("dir", true)
				b.prints("kept\n", others)
				b.must("mkdir dir && test -z \"$(ls -A dir)\"")
				c.eq("the host's directory", c.hostTree(src), before)
			}, needPrivate),
		row("remove/tree", "a tree is removed with all that is in it, also where modes forbid it",
			"give the owner the permissions that are missing, then remove", used(func(b *box) {
				b.must(`mkdir -p t/closed/deep t/empty && echo x > t/closed/deep/file && echo x > t/file && ln -s / t/root &&
chmod 500 t/closed/deep && chmod 0 t/closed && chmod 500 t/empty`)
				b.remove("t", true)
				b.must("test ! -e t")
			})),
		row("remove/directory", "a directory is removed only when all that is in it is asked for, an empty one too",
			"reason config unless recursive", used(func(b *box) {
				b.must("mkdir -p full empty && echo x > full/file")
				for _, d := range []string{"full", "empty"} {
					err := b.Remove(b.ctx, b.at(d), false)
					b.wantReason(err, "removing a directory without recursive", sdk.ReasonConfig)
				}
				b.must("test -f full/file && test -d empty")
			})),
		row("remove/link", "a symbolic link is removed and not what it points to",
			"use lstat; never resolve the last name", used(func(b *box) {
				b.must("mkdir d && echo x > d/file && ln -s d dirlink && ln -s d/file filelink && ln -s nowhere dangling")
				b.remove("filelink", false)
				b.remove("dirlink", true)
				b.remove("dangling", false)
				b.prints("x\n", "find . -name '*link' -o -name dangling; cat d/file")
			})),
		row("remove/out", "no link leads a removal out of the sandbox",
			"resolve the path inside the sandbox's root, as os.Root does", used(func(b *box) {
				victim := b.hostDir("victim")
				b.write(path.Join(victim, "file"), "x\n", 0o644)
				const up = "../../../../../../../../../.."
				b.must(`ln -s "$V" abs && ln -s `+up+`"$V" up`, env("V", victim))
				for _, name := range []string{"abs/file", "up/file", up + victim + "/file"} {
					if err := b.Remove(b.ctx, b.at(name), true); err == nil {
						b.Fatalf("removing %s, which is not there for a command, succeeded", name)
					}
				}
				b.eq("the file outside", b.read(path.Join(victim, "file")), "x\n")
			}), needIsolation),
		row("remove/missing", "what does not exist is said to be not found", "reason not_found", used(func(b *box) {
			b.must("echo x > file")
			for _, recursive := range []bool{false, true} {
				for _, name := range []string{"nothing", "no/such", "file/below"} {
					b.wantReason(b.Remove(b.ctx, b.at(name), recursive), "removing "+name, sdk.ReasonNotFound)
				}
			}
		})),
		row("remove/own", "the directories that the sandbox is made of cannot be removed, nor is what is in them",
			"refuse the root, workspace, input, output and what holds them; reason config", used(func(b *box) {
				r := b.Ready()
				b.must("echo x > file")
				own := []string{"/", r.Workspace, r.Workspace + "/", path.Dir(r.Workspace), r.Workspace + "/d/..", r.Output}
				for _, p := range own {
					if p != "" {
						b.wantReason(b.Remove(b.ctx, p, true), "removing "+p, sdk.ReasonConfig)
					}
				}
				b.must("test -f file")
			})),
		row("remove/relative", "a path that is not absolute is refused", "reason config", used(func(b *box) {
			b.wantReason(b.Remove(b.ctx, "relative/file", true), "a relative path", sdk.ReasonConfig)
		})),
		row("remove/destroyed", "removing from a destroyed sandbox is refused as not found",
			"reason not_found", func(c *C) {
				b := c.destroyed()
				c.wantReason(b.Remove(c.ctx, b.at("x"), false), "a removal", sdk.ReasonNotFound)
			}),
	)
}
