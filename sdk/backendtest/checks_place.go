package backendtest

import (
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
	c.own(filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
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
			data := c.read(p)
			fmt.Fprintf(&b, " %d %s %s", len(data), digest(data)[:16], fi.ModTime())
		case fi.Mode().Type() == fs.ModeSymlink:
			to, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %s", to)
		}
		b.WriteByte('\n')
		return nil
	}))
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
	c.own(os.Symlink("dir/deep", filepath.Join(dir, "link")))
	return dir
}

// otherGroup is a group that the user may give files to, besides the first one.
func (c *C) otherGroup() int {
	if os.Geteuid() == 0 {
		return 4242
	}
	groups, err := os.Getgroups()
	c.own(err)
	i := slices.IndexFunc(groups, func(gid int) bool { return gid != os.Getegid() })
	if i < 0 {
		c.skipf("needs a user with a second group")
	}
	return groups[i]
}

// vandal is what untrusted code does to a workspace.
const vandal = `echo more >> main.py; rm -rf dir; chmod 777 bin/tool secret; mkdir new; echo n > new/file
rm link; ln -s /etc link; mv .git got; : > empty/file; echo x > .hidden; rmdir nothing 2>/dev/null; true`

func workspaceChecks() []Check {
	shared, readonly := needWorkspace(sdk.WorkspaceShared), needWorkspace(sdk.WorkspaceReadOnly)
	// of is a check of a sandbox whose workspace has the mode, and a project as its source.
	of := func(mode sdk.WorkspaceMode, run func(b *box, dir string)) func(*C) {
		return func(c *C) {
			dir := c.project("project")
			run(c.box(withSource(dir, mode)), dir)
		}
	}
	// untouched proves that the host's directory is as it was, after the sandbox is gone too.
	untouched := func(mode sdk.WorkspaceMode, script string) func(*C) {
		return func(c *C) {
			dir := c.project("project")
			before := c.hostTree(dir)
			b := c.box(withSource(dir, mode), withInput(c.project("input")))
			during := c.hostTree(dir)
			b.sh(script)
			b.destroy()
			if after := c.hostTree(dir); during != before || after != before {
				c.Fatalf("the host's directory was\n%sit became\n%sand after the end\n%s", before, during, after)
			}
		}
	}
	sees := func(mode sdk.WorkspaceMode) func(*C) {
		return of(mode, func(b *box, _ string) {
			b.prints("print('hello')\nsecret\ndeep\n[core]\ntool\ndir/deep\n755\n600\n",
				"cat main.py secret link/er/file .git/config; bin/tool; readlink link; stat -c %a bin/tool secret; ls -A empty")
		})
	}
	return []Check{
		row("workspace/empty", "without a source the workspace is an empty directory that can be written to",
			"make one that lives and dies with the sandbox", boxed(func(b *box) {
				b.prints("", others+" || true")
				b.must("echo x > file && mkdir dir && rm -r file dir")
			})),
		row("workspace/private-sees", "the command sees the directory: names, contents, modes and links",
			"the workspace shows what its source holds", sees(sdk.WorkspacePrivate), needPrivate),
		row("workspace/private-host-unchanged",
			"whatever the command does to a private workspace, the host's directory stays as it was, before, during and after",
			"copy it, or lay an overlay over it; make no mount points inside it",
			untouched(sdk.WorkspacePrivate, vandal), needPrivate),
		row("workspace/private-writes", "writes to a private workspace are seen by the next command",
			"one overlay or copy for the life of the sandbox", of(sdk.WorkspacePrivate, func(b *box, _ string) {
				b.must(vandal)
				b.prints("print('hello')\nmore\nn\n/etc\n", "cat main.py new/file; test ! -e dir && readlink link")
			}), needPrivate),
		row("workspace/private-two", "two sandboxes of the same source do not see each other's writes",
			"one overlay or copy for each sandbox", of(sdk.WorkspacePrivate, func(a *box, dir string) {
				b := a.box(withSource(dir, sdk.WorkspacePrivate))
				a.must("echo mine > main.py; rm secret")
				b.prints("print('hello')\nsecret\n", "cat main.py secret")
			}), needPrivate),
		row("workspace/odd-source",
			"a source whose path has spaces, quotes, commas, colons, backslashes and letters of other languages works",
			"escape what goes into mount options and command lines, or pass descriptors", func(c *C) {
				names := []string{"with space", `quote's "and" more`, "comma,colon:equals=", `back\slash\040`, "grüße 日本",
					"new\nline", "$HOME;`id`*?", "-dash"}
				sees := func(at string) (bool, string) {
					req := c.request()
					req.Workspace.Source = c.project(at)
					sb, err := c.create(c.ctx, c.shared(), req)
					if err != nil {
						return false, err.Error()
					}
					o := (&box{Sandbox: sb, C: c, on: c.shared(), req: req}).sh("cat main.py")
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
			}, needAnyWorkspace),
		row("workspace/read-only-source", "a source without write permission gives a private workspace all the same",
			"do not write into the source", func(c *C) {
				dir := c.project("project")
				c.later(func() { os.Chmod(dir, 0o755) })
				c.own(os.Chmod(dir, 0o555))
				c.box(withSource(dir, sdk.WorkspacePrivate)).prints("print('hello')\n", "cat main.py")
			}, needPrivate),
		row("workspace/shared-sees", "the command sees the directory: names, contents, modes and links",
			"the workspace shows what its source holds", sees(sdk.WorkspaceShared), shared),
		row("workspace/shared-writes", "writes to a shared workspace land in the host's directory at once",
			"bind the directory itself", of(sdk.WorkspaceShared, func(b *box, dir string) {
				b.must("echo from inside > inside.txt; rm secret; chmod 755 main.py")
				b.eq("the file on the host", b.read(filepath.Join(dir, "inside.txt")), "from inside\n")
				if _, err := os.Stat(filepath.Join(dir, "secret")); err == nil {
					b.Fatalf("a file that was removed inside is still on the host")
				}
				b.write(filepath.Join(dir, "outside.txt"), "from outside\n", 0o644)
				b.prints("from outside\n", "cat outside.txt")
			}), shared),
		row("workspace/shared-no-litter",
			"a shared workspace gets nothing but what the command writes: no mount points, no stub files, no changed modes",
			"put input and output elsewhere", untouched(sdk.WorkspaceShared, "cat main.py; ls -lR"), shared),
		row("workspace/shared-survives", "destroying a sandbox leaves a shared directory alone",
			"never remove what lies behind a mount", untouched(sdk.WorkspaceShared, "true"), shared),
		row("workspace/readonly-sees", "the command sees the directory: names, contents, modes and links",
			"the workspace shows what its source holds", sees(sdk.WorkspaceReadOnly), readonly),
		row("workspace/readonly-holds", "a read-only workspace cannot be changed in any way",
			"mount it read-only", of(sdk.WorkspaceReadOnly, func(b *box, dir string) {
				before := b.hostTree(dir)
				b.fail([]string{"echo x > new", "echo x >> main.py", "rm main.py", "chmod 777 main.py", "mkdir d",
					"mv main.py other", "ln -s a b", "touch main.py"})
				b.eq("the host's directory", b.hostTree(dir), before)
			}), readonly),
		row("workspace/readonly-host-unchanged",
			"a read-only workspace leaves the host's directory as it was, before, during and after",
			"make no mount points inside it", untouched(sdk.WorkspaceReadOnly, vandal), readonly),
		row("workspace/own-input-output",
			"a project's own input and output directories are seen and belong to the workspace: input and output of the "+
				"sandbox lie elsewhere",
			"with a workspace source, show input and output outside of the workspace: see package guestpath", func(c *C) {
				dir, req := c.project("project"), c.request(withInput(c.project("input")))
				c.write(filepath.Join(dir, "input/in.txt"), "project's\n", 0o644)
				c.write(filepath.Join(dir, "output/out.txt"), "project's\n", 0o644)
				req.Workspace.Source = dir
				b := c.boxOn(c.shared(), req)
				for what, p := range map[string]string{"Ready.Input": b.Ready().Input, "Ready.Output": b.Ready().Output} {
					if p == b.Ready().Workspace || strings.HasPrefix(p, b.at("")) {
						c.Fatalf("%s is %q, below the workspace %q", what, p, b.Ready().Workspace)
					}
				}
				b.prints("input:\nin.txt\n\noutput:\nout.txt\nproject's\nproject's\n",
					"ls -A input output; cat input/in.txt output/out.txt")
				if req.Workspace.Mode == sdk.WorkspaceReadOnly {
					return
				}
				b.must("echo changed > input/in.txt; rm output/out.txt; echo new > output/new.txt")
				if req.Workspace.Mode == sdk.WorkspacePrivate && c.facts.Has(sdk.CapChanges) {
					b.wantChanges("modified input/in.txt", "added output/new.txt", "deleted output/out.txt")
				}
			}, needAnyWorkspace),
		// L2
		row("workspace/other-group",
			"in a private workspace files of the user's other groups, and what lies below setgid directories, can be "+
				"changed, renamed, deleted and made",
			"an overlay in a user namespace cannot copy up what belongs to a group that is not mapped: map it, or see "+
				"overlay.CopyUnmapped",
			func(c *C) {
				gid := c.otherGroup()
				dir := c.project("project")
				for _, name := range []string{"group/a", "group/b", "group/sub/c", "group/sub/d", "plain/x", "plain/y"} {
					mode := os.FileMode(0o644)
					if strings.HasPrefix(name, "group") {
						mode = 0o664
					}
					c.write(filepath.Join(dir, name), name+"\n", mode)
					c.own(os.Chown(filepath.Join(dir, name), -1, gid))
				}
				for _, name := range []string{"group", "group/sub"} {
					p := filepath.Join(dir, name)
					c.own(errors.Join(os.Chown(p, -1, gid), os.Chmod(p, os.ModeSetgid|0o775)))
				}
				before := c.hostTree(dir)
				b := c.box(withSource(dir, sdk.WorkspacePrivate))
				b.prints("group/a\ngroup/b\ngroup/sub/c\nplain/x\ngroup:\na\nb\nsub\n\nplain:\nx\ny\n",
					"cat group/a group/b group/sub/c plain/x && ls group plain")
				b.must(`echo more >> group/a && rm group/b && mv group/sub/c group/sub/c2 && mkdir group/dir &&
echo new > group/dir/new && echo more >> plain/x && mv plain/y plain/z && chmod 600 group/sub/d`)
				b.prints("group/a\nmore\ngroup/sub/c\nnew\nplain/x\nmore\nplain/y\n"+
					"group:\na\ndir\nsub\n\ngroup/sub:\nc2\nd\n\nplain:\nx\nz\n",
					"cat group/a group/sub/c2 group/dir/new plain/x plain/z; ls group group/sub plain")
				b.wantChanges("modified group/a", "deleted group/b", "added group/dir", "added group/dir/new",
					"deleted group/sub/c", "added group/sub/c2", "mode group/sub/d", "modified plain/x", "deleted plain/y",
					"added plain/z")
				c.eq("the host's directory", c.hostTree(dir), before)
			}, needPrivate, needCap(sdk.CapChanges)),
		row("workspace/output", "the output directory, where there is one, can be written to and is empty at first",
			"make it with the sandbox", boxed(func(b *box) {
				b.must(`test -z "$(ls -A "$OUT")" && mkdir "$OUT/d" && echo x > "$OUT/d/f"`, env("OUT", b.output()))
			})),
	}
}

func inputChecks() []Check {
	// with is a check of a sandbox whose input is a project, and of the variable IN that names it.
	with := func(run func(b *box, dir string, in opt)) func(*C) {
		return func(c *C) {
			dir := c.project("input")
			b := c.box(withInput(dir))
			if b.Ready().Input == "" {
				c.Fatalf("Ready.Input is empty although there is an input")
			}
			run(b, dir, env("IN", b.Ready().Input))
		}
	}
	// mounted is a check of a mount, or that it is refused.
	mounted := func(ro bool, run func(b *box, dir string)) func(*C) {
		return func(c *C) {
			dir := c.project("cache")
			req := c.request(withMount(dir, ro))
			sb, err := c.create(c.ctx, c.shared(), req)
			if err != nil {
				c.wantReason(err, "a mount", sdk.ReasonUnsupported)
				return
			}
			run(&box{Sandbox: sb, C: c, on: c.shared(), req: req}, dir)
		}
	}
	return []Check{
		row("input/sees", "the command sees the input files, programs and links",
			"show the input directory at Ready.Input", with(func(b *box, _ string, in opt) {
				b.prints("print('hello')\ndeep\ntool\n", `cd "$IN" && cat main.py link/er/file && bin/tool`, in)
			})),
		row("input/none", "a sandbox without input says so",
			"leave Ready.Input empty", used(func(b *box) { b.eq("Ready.Input", b.Ready().Input, "") })),
		row("input/host-unchanged", "whatever the command tries with its input, the host's files stay as they were",
			"mount it read-only, or copy it", with(func(b *box, dir string, in opt) {
				before := b.hostTree(dir)
				b.sh(`cd "$IN" && `+vandal, in)
				b.destroy()
				b.eq("the host's directory", b.hostTree(dir), before)
			})),
		row("input/read-only", "the command cannot write to its input",
			"mount it read-only", with(func(b *box, _ string, in opt) {
				b.fail([]string{`echo x > "$IN/new"`, `echo x >> "$IN/main.py"`, `rm "$IN/main.py"`, `mkdir "$IN/d"`,
					`mv "$IN/main.py" "$IN/other"`}, in)
			}), needIsolation),
		row("input/missing", "an input that is not there is refused", "look at it before making anything", func(c *C) {
			req := c.request(withInput(filepath.Join(c.dir, "no-such-input")))
			c.refused("an input that is not there", req, sdk.ReasonConfig, sdk.ReasonNotFound)
			c.nothingLeft(req.ID)
		}),
		row("mount/honest", "a further mount is either there, with the mode that was asked for, or refused",
			"refuse with reason unsupported what cannot be mounted", mounted(true, func(b *box, dir string) {
				before := b.hostTree(dir)
				b.prints("print('hello')\n", "cat /hutch-mounted/main.py")
				b.fail([]string{"echo x > /hutch-mounted/new"})
				b.eq("the host's directory", b.hostTree(dir), before)
			})),
		row("mount/writable", "what a command writes to a writable mount lands on the host, or the mount is refused",
			"refuse with reason unsupported what cannot be written to", mounted(false, func(b *box, dir string) {
				b.must("echo new > /hutch-mounted/new && rm /hutch-mounted/main.py")
				b.eq("what the command wrote", b.read(filepath.Join(dir, "new")), "new\n")
				if _, err := os.Lstat(filepath.Join(dir, "main.py")); !errors.Is(err, fs.ErrNotExist) {
					b.Fatalf("a file that the command removed is still on the host: %v", err)
				}
			})),
		row("mount/observed",
			"the end of an observed command says which files it opened that not every sandbox has, and which it wrote",
			"report them in Exit.Files; a path that the sandbox does not have counts where the host has it",
			mounted(false, func(b *box, _ string) {
				o := b.sh("cat main.py; cat /hutch-mounted/main.py /no-such-file; echo new > /hutch-mounted/new",
					func(c *command) { c.Observe = true })
				b.eq("the files of the command", fmt.Sprint(slices.DeleteFunc(o.Files,
					func(f sdk.FileUse) bool { return !f.Found })),
					fmt.Sprint([]sdk.FileUse{{Path: "/hutch-mounted/main.py", Found: true},
						{Path: "/hutch-mounted/new", Found: true, Write: true}}))
			}), needCap(sdk.CapObserve)),
		row("mount/missing", "a mount whose source is not there is refused",
			"look at it before making anything", func(c *C) {
				c.refused("a mount whose source is not there", c.request(withMount(filepath.Join(c.dir, "nope"), true)),
					sdk.ReasonConfig, sdk.ReasonNotFound, sdk.ReasonUnsupported)
			}),
	}
}
