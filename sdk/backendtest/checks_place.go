package backendtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// hostTree describes a directory of the host: names, modes, links, contents, times.
func (c *C) hostTree(dir string) string {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%s %s", fi.Mode(), rel)
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			fmt.Fprintf(&b, " %d %s %s", len(data), hex.EncodeToString(sum[:8]), fi.ModTime())
		case fi.Mode().Type() == fs.ModeSymlink:
			to, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %s", to)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		c.Fatalf("%v", err)
	}
	return b.String()
}

// project makes a host directory that looks like somebody's work.
func (c *C) project(name string) string {
	dir := c.hostDir(name)
	c.write(filepath.Join(dir, "main.py"), "print('hello')\n", 0o644)
	c.write(filepath.Join(dir, "bin/tool"), "#!/bin/sh\necho tool\n", 0o755)
	c.write(filepath.Join(dir, "secret"), "secret\n", 0o600)
	c.write(filepath.Join(dir, ".git/config"), "[core]\n", 0o644)
	c.write(filepath.Join(dir, "dir/deep/er/file"), "deep\n", 0o644)
	c.hostDir(name + "/empty")
	if err := os.Symlink("dir/deep", filepath.Join(dir, "link")); err != nil {
		c.Fatalf("%v", err)
	}
	return dir
}

// otherGroup is a group that the user may give files to, besides the first one.
func (c *C) otherGroup() int {
	if os.Geteuid() == 0 {
		return 4242
	}
	groups, err := os.Getgroups()
	if err != nil {
		c.Fatalf("%v", err)
	}
	i := slices.IndexFunc(groups, func(gid int) bool { return gid != os.Getegid() })
	if i < 0 {
		c.skipf("needs a user with a second group")
	}
	return groups[i]
}

// vandal is what untrusted code does to a workspace.
const vandal = `echo more >> main.py; rm -rf dir; chmod 777 bin/tool secret; mkdir new; echo n > new/file; rm link; ln -s /etc link; mv .git got; : > empty/file; echo x > .hidden; rmdir nothing 2>/dev/null; true`

func workspaceChecks() []Check {
	private := []Need{needWorkspace(sdk.WorkspacePrivate)}
	shared := []Need{needWorkspace(sdk.WorkspaceShared)}
	readonly := []Need{needWorkspace(sdk.WorkspaceReadOnly)}
	// untouched proves that the host's directory is as it was, after the sandbox is gone too.
	untouched := func(c *C, mode sdk.WorkspaceMode, script string) {
		dir := c.project("project")
		before := c.hostTree(dir)
		b := c.box(withSource(dir, mode), func(r *sdk.CreateRequest) { r.Input = c.project("input") })
		during := c.hostTree(dir)
		b.sh(script)
		c.destroy(b)
		if after := c.hostTree(dir); during != before || after != before {
			c.Fatalf("the host's directory was\n%sit became\n%sand after the end\n%s", before, during, after)
		}
	}
	sees := func(name string, mode sdk.WorkspaceMode, needs []Need) Check {
		return Check{ID: "workspace/" + name + "-sees", Needs: needs, Proves: "the command sees the directory: names, contents, modes and links", Fix: "the workspace shows what its source holds",
			run: func(c *C) {
				b := c.box(withSource(c.project("project"), mode))
				c.eq("the files", b.must("cat main.py secret link/er/file .git/config; bin/tool; readlink link; stat -c %a bin/tool secret; ls -A empty"),
					"print('hello')\nsecret\ndeep\n[core]\ntool\ndir/deep\n755\n600\n")
			}}
	}
	return []Check{
		{ID: "workspace/empty", Proves: "without a source the workspace is an empty directory that can be written to", Fix: "make one that lives and dies with the sandbox",
			run: func(c *C) {
				b := c.box()
				c.eq("ls -A", b.must("ls -A | grep -vxE 'input|output' || true"), "")
				b.must("echo x > file && mkdir dir && rm -r file dir")
			}},
		sees("private", sdk.WorkspacePrivate, private),
		{ID: "workspace/private-host-unchanged", Needs: private, Proves: "whatever the command does to a private workspace, the host's directory stays as it was, before, during and after", Fix: "copy it, or lay an overlay over it; make no mount points inside it",
			run: func(c *C) { untouched(c, sdk.WorkspacePrivate, vandal) }},
		{ID: "workspace/private-writes", Needs: private, Proves: "writes to a private workspace are seen by the next command", Fix: "one overlay or copy for the life of the sandbox",
			run: func(c *C) {
				b := c.box(withSource(c.project("project"), sdk.WorkspacePrivate))
				b.must(vandal)
				c.eq("the files", b.must("cat main.py new/file; test ! -e dir && readlink link"), "print('hello')\nmore\nn\n/etc\n")
			}},
		{ID: "workspace/private-two", Needs: private, Proves: "two sandboxes of the same source do not see each other's writes", Fix: "one overlay or copy for each sandbox",
			run: func(c *C) {
				dir := c.project("project")
				a, b := c.box(withSource(dir, sdk.WorkspacePrivate)), c.box(withSource(dir, sdk.WorkspacePrivate))
				a.must("echo mine > main.py; rm secret")
				c.eq("the files in the other", b.must("cat main.py secret"), "print('hello')\nsecret\n")
			}},
		{ID: "workspace/odd-source", Needs: []Need{needAnyWorkspace}, Proves: "a source whose path has spaces, quotes, commas, colons, backslashes and letters of other languages works", Fix: "escape what goes into mount options and command lines, or pass descriptors",
			run: func(c *C) {
				mode := c.request().Workspace.Mode
				names := []string{"with space", `quote's "and" more`, "comma,colon:equals=", `back\slash\040`, "grüße 日本", "new\nline", "$HOME;`id`*?", "-dash"}
				sees := func(at string) (bool, string) {
					dir := c.project(at)
					sb, err := c.create(c.shared(), c.request(withSource(dir, mode)))
					if err != nil {
						return false, err.Error()
					}
					o := (&box{Sandbox: sb, c: c, on: c.shared()}).sh("cat main.py")
					return o.stdout == "print('hello')\n", o.how() + ", stdout " + quote(o.stdout)
				}
				ok, all := sees("all/" + strings.Join(names, "/"))
				if ok {
					return
				}
				for i, name := range names { // which one is it
					if ok, seen := sees(fmt.Sprintf("o%d/%s", i, name)); !ok {
						c.Fatalf("main.py below %s: %s", quote(name), seen)
					}
				}
				c.Fatalf("main.py below all of %s: %s", quote(strings.Join(names, "/")), all)
			}},
		{ID: "workspace/read-only-source", Needs: private, Proves: "a source without write permission gives a private workspace all the same", Fix: "do not write into the source",
			run: func(c *C) {
				dir := c.project("project")
				c.later(func() { os.Chmod(dir, 0o755) })
				if err := os.Chmod(dir, 0o555); err != nil {
					c.Fatalf("%v", err)
				}
				b := c.box(withSource(dir, sdk.WorkspacePrivate))
				c.eq("main.py", b.must("cat main.py"), "print('hello')\n")
			}},
		sees("shared", sdk.WorkspaceShared, shared),
		{ID: "workspace/shared-writes", Needs: shared, Proves: "writes to a shared workspace land in the host's directory at once", Fix: "bind the directory itself",
			run: func(c *C) {
				dir := c.project("project")
				b := c.box(withSource(dir, sdk.WorkspaceShared))
				b.must("echo from inside > inside.txt; rm secret; chmod 755 main.py")
				c.eq("the file on the host", c.read(filepath.Join(dir, "inside.txt")), "from inside\n")
				if _, err := os.Stat(filepath.Join(dir, "secret")); err == nil {
					c.Fatalf("a file that was removed inside is still on the host")
				}
				c.write(filepath.Join(dir, "outside.txt"), "from outside\n", 0o644)
				c.eq("the file inside", b.must("cat outside.txt"), "from outside\n")
			}},
		{ID: "workspace/shared-no-litter", Needs: shared, Proves: "a shared workspace gets nothing but what the command writes: no mount points, no stub files, no changed modes", Fix: "put input and output elsewhere",
			run: func(c *C) { untouched(c, sdk.WorkspaceShared, "cat main.py; ls -lR") }},
		{ID: "workspace/shared-survives", Needs: shared, Proves: "destroying a sandbox leaves a shared directory alone", Fix: "never remove what lies behind a mount",
			run: func(c *C) { untouched(c, sdk.WorkspaceShared, "true") }},
		sees("readonly", sdk.WorkspaceReadOnly, readonly),
		{ID: "workspace/readonly-holds", Needs: readonly, Proves: "a read-only workspace cannot be changed in any way", Fix: "mount it read-only",
			run: func(c *C) {
				dir := c.project("project")
				before := c.hostTree(dir)
				b := c.box(withSource(dir, sdk.WorkspaceReadOnly))
				for _, s := range []string{"echo x > new", "echo x >> main.py", "rm main.py", "chmod 777 main.py", "mkdir d", "mv main.py other", "ln -s a b", "touch main.py"} {
					if o := b.sh(s); o.Code == 0 {
						c.Fatalf("%q succeeded", s)
					}
				}
				c.eq("the host's directory", c.hostTree(dir), before)
			}},
		{ID: "workspace/readonly-host-unchanged", Needs: readonly, Proves: "a read-only workspace leaves the host's directory as it was, before, during and after", Fix: "make no mount points inside it",
			run: func(c *C) { untouched(c, sdk.WorkspaceReadOnly, vandal) }},
		{ID: "workspace/own-input-output", Needs: []Need{needAnyWorkspace}, Proves: "a project's own input and output directories are seen and belong to the workspace: input and output of the sandbox lie elsewhere",
			Fix: "with a workspace source, show input and output outside of the workspace: see package guestpath",
			run: func(c *C) {
				mode := c.request().Workspace.Mode
				dir := c.project("project")
				c.write(filepath.Join(dir, "input/in.txt"), "project's\n", 0o644)
				c.write(filepath.Join(dir, "output/out.txt"), "project's\n", 0o644)
				b := c.box(withSource(dir, mode), func(r *sdk.CreateRequest) { r.Input = c.project("input") })
				for what, p := range map[string]string{"Ready.Input": b.Ready().Input, "Ready.Output": b.Ready().Output} {
					if p == b.Ready().Workspace || strings.HasPrefix(p, b.Ready().Workspace+"/") {
						c.Fatalf("%s is %q, below the workspace %q", what, p, b.Ready().Workspace)
					}
				}
				c.eq("the project's files", b.must("ls -A input output; cat input/in.txt output/out.txt"), "input:\nin.txt\n\noutput:\nout.txt\nproject's\nproject's\n")
				if mode == sdk.WorkspaceReadOnly {
					return
				}
				b.must("echo changed > input/in.txt; rm output/out.txt; echo new > output/new.txt")
				if mode != sdk.WorkspacePrivate || !c.facts.Has(sdk.CapChanges) {
					return
				}
				changes, err := b.Changes(c.ctx)
				if err != nil {
					c.Fatalf("Changes: %v", err)
				}
				var got []string
				for _, ch := range changes {
					got = append(got, string(ch.Kind)+" "+ch.Path)
				}
				c.eq("the changes", strings.Join(got, ", "), "modified input/in.txt, added output/new.txt, deleted output/out.txt")
			}},
		// L2
		{ID: "workspace/other-group", Needs: append([]Need{needCap(sdk.CapChanges)}, private...), Proves: "in a private workspace files of the user's other groups, and what lies below setgid directories, can be changed, renamed, deleted and made",
			Fix: "an overlay in a user namespace cannot copy up what belongs to a group that is not mapped: map it, or see overlay.CopyUnmapped",
			run: func(c *C) {
				gid := c.otherGroup()
				dir := c.project("project")
				for name, mode := range map[string]os.FileMode{"group/a": 0o664, "group/b": 0o664, "group/sub/c": 0o664, "group/sub/d": 0o664, "plain/x": 0o644, "plain/y": 0o644} {
					p := filepath.Join(dir, name)
					c.write(p, name+"\n", mode)
					if err := os.Chown(p, -1, gid); err != nil {
						c.Fatalf("%v", err)
					}
				}
				for _, name := range []string{"group", "group/sub"} {
					if err := errors.Join(os.Chown(filepath.Join(dir, name), -1, gid), os.Chmod(filepath.Join(dir, name), os.ModeSetgid|0o775)); err != nil {
						c.Fatalf("%v", err)
					}
				}
				before := c.hostTree(dir)
				b := c.box(withSource(dir, sdk.WorkspacePrivate))
				c.eq("the files", b.must("cat group/a group/b group/sub/c plain/x && ls group plain"), "group/a\ngroup/b\ngroup/sub/c\nplain/x\ngroup:\na\nb\nsub\n\nplain:\nx\ny\n")
				b.must("echo more >> group/a && rm group/b && mv group/sub/c group/sub/c2 && mkdir group/dir && echo new > group/dir/new && echo more >> plain/x && mv plain/y plain/z && chmod 600 group/sub/d")
				c.eq("the files afterwards", b.must("cat group/a group/sub/c2 group/dir/new plain/x plain/z; ls group group/sub plain"),
					"group/a\nmore\ngroup/sub/c\nnew\nplain/x\nmore\nplain/y\ngroup:\na\ndir\nsub\n\ngroup/sub:\nc2\nd\n\nplain:\nx\nz\n")
				changes, err := b.Changes(c.ctx)
				if err != nil {
					c.Fatalf("Changes: %v", err)
				}
				var got []string
				for _, ch := range changes {
					got = append(got, string(ch.Kind)+" "+strings.TrimSuffix(ch.Path, "/"))
				}
				c.eq("the changes", strings.Join(got, ", "), "modified group/a, deleted group/b, added group/dir, added group/dir/new, deleted group/sub/c, added group/sub/c2, mode group/sub/d, modified plain/x, deleted plain/y, added plain/z")
				c.eq("the host's directory", c.hostTree(dir), before)
			}},
		{ID: "workspace/output", Proves: "the output directory, where there is one, can be written to and is empty at first", Fix: "make it with the sandbox",
			run: func(c *C) {
				b := c.box()
				o := b.Ready().Output
				if o == "" {
					c.skipf("needs an output directory")
				}
				b.must(`test -z "$(ls -A "$OUT")" && mkdir "$OUT/d" && echo x > "$OUT/d/f"`, env(map[string]string{"OUT": o}))
			}},
	}
}

func inputChecks() []Check {
	with := func(c *C, dir string) *box {
		b := c.box(func(r *sdk.CreateRequest) { r.Input = dir })
		if b.Ready().Input == "" {
			c.Fatalf("Ready.Input is empty although there is an input")
		}
		return b
	}
	in := func(b *box) map[string]string { return map[string]string{"IN": b.Ready().Input} }
	return []Check{
		{ID: "input/sees", Proves: "the command sees the input files, programs and links", Fix: "show the input directory at Ready.Input",
			run: func(c *C) {
				b := with(c, c.project("input"))
				c.eq("the files", b.must(`cd "$IN" && cat main.py link/er/file && bin/tool`, env(in(b))), "print('hello')\ndeep\ntool\n")
			}},
		{ID: "input/none", Proves: "a sandbox without input says so", Fix: "leave Ready.Input empty",
			run: func(c *C) { c.eq("Ready.Input", c.used().Ready().Input, "") }},
		{ID: "input/host-unchanged", Proves: "whatever the command tries with its input, the host's files stay as they were", Fix: "mount it read-only, or copy it",
			run: func(c *C) {
				dir := c.project("input")
				before := c.hostTree(dir)
				b := with(c, dir)
				b.sh(`cd "$IN" && `+vandal, env(in(b)))
				c.destroy(b)
				c.eq("the host's directory", c.hostTree(dir), before)
			}},
		{ID: "input/read-only", Needs: []Need{needIsolation}, Proves: "the command cannot write to its input", Fix: "mount it read-only",
			run: func(c *C) {
				b := with(c, c.project("input"))
				for _, s := range []string{`echo x > "$IN/new"`, `echo x >> "$IN/main.py"`, `rm "$IN/main.py"`, `mkdir "$IN/d"`, `mv "$IN/main.py" "$IN/other"`} {
					if o := b.sh(s, env(in(b))); o.Code == 0 {
						c.Fatalf("%s succeeded", s)
					}
				}
			}},
		{ID: "input/missing", Proves: "an input that is not there is refused", Fix: "look at it before making anything",
			run: func(c *C) {
				req := c.request(func(r *sdk.CreateRequest) { r.Input = filepath.Join(c.dir, "no-such-input") })
				_, err := c.create(c.shared(), req)
				c.wantReason(err, "an input that is not there", sdk.ReasonConfig, sdk.ReasonNotFound)
				c.nothingLeft(req.ID)
			}},
		{ID: "mount/honest", Proves: "a further mount is either there, with the mode that was asked for, or refused", Fix: "refuse with reason unsupported what cannot be mounted",
			run: func(c *C) {
				dir := c.project("cache")
				before := c.hostTree(dir)
				req := c.request(func(r *sdk.CreateRequest) {
					r.Mounts = []sdk.Mount{{Source: dir, Target: "/hutch-mounted", ReadOnly: true}}
				})
				sb, err := c.create(c.shared(), req)
				if err != nil {
					c.wantReason(err, "a mount", sdk.ReasonUnsupported)
					return
				}
				b := &box{Sandbox: sb, c: c, on: c.shared(), req: req}
				c.eq("the file", b.must("cat /hutch-mounted/main.py"), "print('hello')\n")
				if o := b.sh("echo x > /hutch-mounted/new"); o.Code == 0 {
					c.Fatalf("a mount that is read-only can be written to")
				}
				c.eq("the host's directory", c.hostTree(dir), before)
			}},
		{ID: "mount/writable", Proves: "what a command writes to a writable mount lands on the host, or the mount is refused", Fix: "refuse with reason unsupported what cannot be written to",
			run: func(c *C) {
				dir := c.project("cache")
				req := c.request(func(r *sdk.CreateRequest) {
					r.Mounts = []sdk.Mount{{Source: dir, Target: "/hutch-mounted"}}
				})
				sb, err := c.create(c.shared(), req)
				if err != nil {
					c.wantReason(err, "a writable mount", sdk.ReasonUnsupported)
					return
				}
				b := &box{Sandbox: sb, c: c, on: c.shared(), req: req}
				b.must("echo new > /hutch-mounted/new && rm /hutch-mounted/main.py")
				c.eq("what the command wrote", string(c.read(filepath.Join(dir, "new"))), "new\n")
				if _, err := os.Lstat(filepath.Join(dir, "main.py")); !errors.Is(err, fs.ErrNotExist) {
					c.Fatalf("a file that the command removed is still on the host: %v", err)
				}
			}},
		{ID: "mount/missing", Proves: "a mount whose source is not there is refused", Fix: "look at it before making anything",
			run: func(c *C) {
				_, err := c.create(c.shared(), c.request(func(r *sdk.CreateRequest) {
					r.Mounts = []sdk.Mount{{Source: filepath.Join(c.dir, "nope"), Target: "/hutch-mounted", ReadOnly: true}}
				}))
				c.wantReason(err, "a mount whose source is not there", sdk.ReasonConfig, sdk.ReasonNotFound, sdk.ReasonUnsupported)
			}},
	}
}
