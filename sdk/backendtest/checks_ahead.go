package backendtest

import (
	"path/filepath"

	"github.com/hutch-run/hutch/sdk"
)

// aheadChecks are about a sandbox that is made before it is known when it is used.
func aheadChecks() []Check {
	made := func(r *sdk.CreateRequest) { r.Ahead = true }
	// started makes a sandbox ahead, and starts it after what happens meanwhile. Start may fail because the machine has
	// changed; then another one is made, as a host would do.
	started := func(c *C, meanwhile func(), change ...ask) *box {
		for range 50 {
			b := c.box(append(change, made)...)
			meanwhile()
			if b.Wake(b.ctx, nil) == nil {
				return b
			}
			b.destroy()
		}
		c.Fatalf("no sandbox of 50 that were made ahead could be started")
		return nil
	}
	return needing([]Need{needCap(sdk.CapAhead), needCap(sdk.CapStop), needPrivate},
		row("ahead/fresh", "a sandbox that was made ahead shows the workspace as it is when it is started",
			"look at the workspace's source in Start", func(c *C) {
				dir := c.project("project")
				b := started(c, func() {
					c.write(filepath.Join(dir, "later"), "new\n", 0o644)
					c.write(filepath.Join(dir, "main.py"), "changed\n", 0o644)
				}, withSource(dir, sdk.WorkspacePrivate))
				b.prints("new\nchanged\n", "cat later main.py")
				b.must("rm later; echo mine > mine")
				b.wantChanges("added mine", "deleted later")
			}),
		row("ahead/apart", "what one such sandbox writes is in no other one, and the first command is not special",
			"never use a sandbox again", func(c *C) {
				dir := c.project("project")
				for range 2 {
					b := started(c, func() {}, withSource(dir, sdk.WorkspacePrivate))
					b.prints("absent\n",
						`test -e trace -o -e /tmp/trace -o -e "$O/trace" || echo absent; touch trace /tmp/trace "$O/trace"`,
						env("O", b.Ready().Output))
					b.prints("trace\n", "ls trace")
					b.destroy()
				}
			}),
		row("ahead/empty", "a sandbox without a project can be made ahead",
			"Ahead is not only for projects", func(c *C) {
				b := started(c, func() {})
				b.prints("x\n", "echo x > new && cat new")
			}),
		row("ahead/unused", "a sandbox that was made ahead and is never used leaves nothing",
			"Destroy ends what waits for the first command", func(c *C) {
				c.box(withSource(c.project("project"), sdk.WorkspacePrivate), made).destroy()
			}),
	)
}
