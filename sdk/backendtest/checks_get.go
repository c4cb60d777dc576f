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
		{ID: "changes/names", Needs: needs, Proves: "names of any bytes are told as they are", Fix: "do not quote paths",
			run: func(c *C) {
				want(c, after(c, `printf x > 'grüße'; printf x > "new
line"; printf x > 'a "quoted" \ name'`), map[string]sdk.ChangeKind{"grüße": sdk.ChangeAdded, "new\nline": sdk.ChangeAdded, `a "quoted" \ name`: sdk.ChangeAdded})
			}},
	}
}
