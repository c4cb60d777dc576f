package backendtest

import "github.com/hutch-run/hutch/sdk"

// forkChecks are about a sandbox that begins with what another one has written.
func forkChecks() []Check {
	// forked is a check of a sandbox on a project that was changed, and of its fork.
	forked := func(run func(parent, child *box)) func(*C) {
		return func(c *C) {
			private := withSource(c.project("project"), sdk.WorkspacePrivate)
			parent := c.box(private, keep)
			parent.must(`echo new > new; echo more >> main.py; rm -r dir; mkdir dir; echo only > dir/only; chmod 700 bin
ln -sfn new link; echo result > "$O/result"`, env("O", parent.Ready().Output))
			from := parent.Handle()
			child := c.box(private, keep, func(r *sdk.CreateRequest) { r.From = &from })
			if c.facts.Has(sdk.CapStop) {
				child.wakeUp()
			}
			run(parent, child)
		}
	}
	look := func(b *box) string {
		return b.must(`cat new link main.py "$O/result"; ls dir; stat -c %a bin`, env("O", b.Ready().Output))
	}
	return needing([]Need{needCap(sdk.CapFork), needAttach, needPrivate},
		row("fork/copies", "a fork has what its parent wrote, removed and replaced in workspace and output",
			"copy the layer with its marks, or start from a snapshot", forked(func(parent, child *box) {
				child.eq("what the fork has", look(child), look(parent))
				child.layersToo()
			})),
		row("fork/again", "a fork of a fork has what both wrote, and outlives both",
			"copy, or share, all layers of the one that is forked", forked(func(parent, child *box) {
				child.must("echo child >> new; rm dir/only; mkdir -p dir/sub; echo x > dir/sub/x; echo main > main.py")
				from := child.Handle()
				again := parent.box(withSource(parent.req.Workspace.Source, sdk.WorkspacePrivate), keep,
					func(r *sdk.CreateRequest) { r.From = &from })
				if parent.facts.Has(sdk.CapStop) {
					again.wakeUp()
				}
				again.must("echo again > again")
				child.destroy()
				parent.destroy()
				again.prints("again\nmain\nnew\nchild\nx\nsub\n", "cat again main.py new dir/sub/x; ls dir")
				again.layersToo()
			})),
		row("fork/apart",
			"parent and fork do not see what the other writes afterwards, also to a file that both have",
			"share no file that is written in place", forked(func(parent, child *box) {
				child.must("echo child >> new; rm dir/only")
				parent.must("echo parent >> main.py")
				parent.prints("new\nonly\n", "cat new; ls dir")
				child.prints("0\n", "grep -c parent main.py || true")
			})),
		row("fork/outlives", "a fork has its files when its parent is destroyed, for another process too",
			"a fork needs nothing that goes away with its parent", forked(func(parent, child *box) {
				parent.destroy()
				child.elsewhere().prints("new\nonly\n", "cat new dir/only")
			})),
	)
}
