package backendtest

import "github.com/hutch-run/hutch/sdk"

// forkChecks are about a sandbox that begins with what another one has written.
func forkChecks() []Check {
	needs := []Need{needCap(sdk.CapFork), needCap(sdk.CapAttach), needWorkspace(sdk.WorkspacePrivate)}
	// forked makes a sandbox on a project, changes it, and forks it.
	forked := func(c *C) (parent, child *box) {
		private := withSource(c.project("project"), sdk.WorkspacePrivate)
		kept := func(r *sdk.CreateRequest) { r.Keep = true }
		parent = c.box(private, kept)
		parent.must(`echo new > new; echo more >> main.py; rm -r dir; mkdir dir; echo only > dir/only; chmod 700 bin; ln -sfn new link; echo result > "$O/result"`,
			env(map[string]string{"O": parent.Ready().Output}))
		from := parent.Handle()
		child = c.box(private, kept, func(r *sdk.CreateRequest) { r.From = &from })
		if c.facts.Has(sdk.CapStop) {
			child.wakeUp()
		}
		return parent, child
	}
	look := func(b *box) string {
		return b.must(`cat new link main.py "$O/result"; ls dir; stat -c %a bin`, env(map[string]string{"O": b.Ready().Output}))
	}
	return []Check{
		{ID: "fork/copies", Needs: needs, Proves: "a fork has what its parent wrote, removed and replaced in workspace and output", Fix: "copy the layer with its marks, or start from a snapshot",
			run: func(c *C) {
				parent, child := forked(c)
				c.eq("the files of the fork", look(child), look(parent))
			}},
		{ID: "fork/apart", Needs: needs, Proves: "parent and fork do not see what the other writes afterwards, also to a file that both have", Fix: "share no file that is written in place",
			run: func(c *C) {
				parent, child := forked(c)
				child.must("echo child >> new; rm dir/only")
				parent.must("echo parent >> main.py")
				c.eq("a file that the fork wrote, in the parent", parent.must("cat new; ls dir"), "new\nonly\n")
				c.eq("a file that the parent wrote, in the fork", child.must("grep -c parent main.py || true"), "0\n")
			}},
		{ID: "fork/outlives", Needs: needs, Proves: "a fork has its files when its parent is destroyed, for another process too", Fix: "a fork needs nothing that goes away with its parent",
			run: func(c *C) {
				parent, child := forked(c)
				c.destroy(parent)
				sb, err := c.fresh(StartOptions{}).Attach(c.ctx, child.Handle())
				if err != nil {
					c.Fatalf("attach: %v", err)
				}
				other := &box{Sandbox: sb, c: c, req: child.req}
				c.eq("a file", other.must("cat new dir/only"), "new\nonly\n")
			}},
	}
}
