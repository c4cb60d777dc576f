package backendtest

import (
	"path"

	"github.com/hutch-run/hutch/sdk"
)

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
