package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

func createChecks() []Check {
	return []Check{
		row("create/ready", "a sandbox that is ready has a workspace at the absolute path it names",
			"fill in Ready.Workspace with the path as commands see it", used(func(b *box) {
				w := b.Ready().Workspace
				if !strings.HasPrefix(w, "/") {
					b.Fatalf("the workspace is at %q", w)
				}
				b.must("", shell(`test -d "$1" && test -d .`, w))
			})),
		row("create/order", "allocated comes before ready, ready is the last event, and nothing follows it",
			"call Allocated before anything exists outside the process", func(c *C) {
				events := c.rawCreate(c.request())
				allocated, ready := slices.Index(events, "allocated"), slices.Index(events, "ready")
				if allocated < 0 || ready < allocated || ready != len(events)-2 { // before EOF
					c.Fatalf("the events were %v", events)
				}
			}),
		row("create/handle", "the handle carries the id that the host chose, and at most 64 KiB of JSON",
			"put into the handle what finds the sandbox, and no more", used(func(b *box) {
				if h := b.Handle(); len(h.Data) > 64<<10 || len(h.Data) > 0 && !json.Valid(h.Data) {
					b.Fatalf("the data of the handle: %d bytes, %s", len(h.Data), quote(string(h.Data)))
				}
			})),
		row("create/allocated-first",
			"when Allocated is first called nothing exists yet outside the backend's process and the state directory",
			"call Allocated first, and make things when it has returned: until then nobody could find them again", func(c *C) {
				req := c.request()
				there, calls := "", 0
				req.Allocated = func(sdk.Handle) error {
					if calls++; calls == 1 { // later ones tell of what has changed
						there = c.left(req.ID)
					}
					return nil
				}
				c.boxOn(c.shared(), req)
				if there != "" {
					c.Fatalf("before the host had the handle: %s", there)
				}
			}, needLocal),
		row("create/handle-refused", "when the host cannot keep the handle, nothing is made",
			"stop when Allocated returns an error, and undo", func(c *C) {
				req := c.request()
				req.Allocated = func(sdk.Handle) error { return errors.New("the disk is full") }
				if _, err := c.create(c.ctx, c.shared(), req); err == nil {
					c.Fatalf("the sandbox was made all the same")
				}
				c.nothingLeft(req.ID)
			}),
		row("create/idempotent", "creating with the same id and spec again gives the same sandbox",
			"look for the id before making anything", func(c *C) {
				req := c.request()
				c.boxOn(c.shared(), req).must("echo kept > file")
				c.boxOn(c.shared(), req).prints("kept\n", "cat file")
			}),
		row("create/idempotent-parallel", "two creations with one id at the same time make one sandbox",
			"lock by id", func(c *C) {
				req := c.request()
				c.atOnce(4, func(int) error { _, err := c.create(c.ctx, c.shared(), req); return err })
				if n := len(c.listed(c.shared(), req.Owner, req.ID)); c.facts.Has(sdk.CapList) && n != 1 {
					c.Fatalf("the sandbox is listed %d times, want 1", n)
				}
			}),
		row("create/separate", "two sandboxes share no workspace", "give each id directories of its own", func(c *C) {
			a, b := c.used(), c.used()
			a.must("echo mine > mine")
			b.must("test ! -e mine")
		}),
		row("create/parallel",
			"ten sandboxes of the same source can be made at once, and each has the writes of its own commands",
			"lock nothing for longer than needed", func(c *C) {
				boxes := make([]*box, 10)
				for i := range boxes {
					req := c.request()
					if req.Workspace.Mode == sdk.WorkspacePrivate {
						req.Workspace.Source = c.hostDir("source")
					}
					boxes[i] = &box{C: c, on: c.shared(), req: req}
				}
				c.atOnce(len(boxes), func(i int) (err error) {
					boxes[i].Sandbox, err = c.create(c.ctx, boxes[i].on, boxes[i].req)
					return err
				})
				if boxes[0].req.Workspace.Source == "" {
					return
				}
				for i, b := range boxes {
					b.must(fmt.Sprintf("test ! -e number && echo %d > number", i))
				}
				for i, b := range boxes {
					b.prints(fmt.Sprintf("%d\n", i), "cat number")
				}
			}),
		row("create/cancelled-after-allocated", "a creation that is cancelled after allocated leaves nothing",
			"end with the context, and undo what was made", func(c *C) {
				for range 5 {
					req := c.request()
					ctx, cancel := context.WithCancel(c.ctx)
					req.Allocated = func(sdk.Handle) error { cancel(); return nil }
					c.createCancelled(ctx, req, false)
					cancel()
				}
			}),
		row("create/cancelled-early", "a creation that is cancelled at any early moment leaves nothing",
			"end with the context, and undo what was made", func(c *C) {
				for i := range 5 {
					ctx, cancel := context.WithTimeout(c.ctx, time.Duration(i*i)*600*time.Microsecond)
					c.createCancelled(ctx, c.request(), true)
					cancel()
				}
			}),
		row("create/bad-id", "an invalid id is refused, before it becomes part of a path",
			"take 1 to 64 of a-z, 0-9 and - only", func(c *C) {
				bad := []string{"", "..", "../up", "a/b", "UPPER", "sp ace", "nul\x00", strings.Repeat("x", 65), "über"}
				for _, id := range bad {
					req := c.request()
					req.ID = id
					c.refused("creating with the id "+quote(id), req, sdk.ReasonConfig)
				}
			}),
		row("create/source-missing", "a workspace whose source is not there is refused with its name, and leaves nothing",
			"look at the source first; the failure names it", func(c *C) {
				req := c.request()
				req.Workspace.Source = filepath.Join(c.dir, "no-such-directory")
				e := c.refused("a source that is not there", req, sdk.ReasonConfig, sdk.ReasonNotFound)
				if !strings.Contains(e.Error(), "no-such-directory") {
					c.Fatalf("the failure does not name it: %v", e)
				}
				c.nothingLeft(req.ID)
			}, needAnyWorkspace),
		row("create/source-file", "a workspace whose source is a file is refused",
			"look at what the source is", func(c *C) {
				req := c.request()
				req.Workspace.Source = filepath.Join(c.dir, "file")
				c.write(req.Workspace.Source, "x", 0o644)
				c.refused("a source that is a file", req, sdk.ReasonConfig)
			}, needAnyWorkspace),
		row("create/unclaimed-workspace",
			"a workspace mode that is not claimed is refused, and so is one that nobody knows",
			"refuse with reason unsupported or config; never take another mode instead", func(c *C) {
				for _, m := range []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly, "cubist"} {
					if !slices.Contains(c.facts.Workspaces, m) {
						c.refused("the workspace mode "+string(m), c.request(withSource(c.hostDir("source"), m)),
							sdk.ReasonUnsupported, sdk.ReasonConfig)
					}
				}
			}),
		row("create/unclaimed-network", "a network mode that is not claimed is refused, and so is one that nobody knows",
			"refuse with reason unsupported or config; never take another mode instead", func(c *C) {
				for _, m := range []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull, "telepathy"} {
					if !slices.Contains(c.facts.Networks, m) {
						c.refused("the network mode "+string(m), c.request(withNetwork(m)),
							sdk.ReasonUnsupported, sdk.ReasonConfig)
					}
				}
			}),
		row("create/progress", "each progress event says what is done, and never more than all of it",
			"step must not be empty; done <= total unless total is 0", func(c *C) {
				req := c.request()
				var bad string
				req.Progress = func(step string, done, total int64) {
					if step == "" || done < 0 || total < 0 || total > 0 && done > total {
						bad = quote(step)
					}
				}
				c.boxOn(c.shared(), req)
				if bad != "" {
					c.Fatalf("the step %s has impossible numbers, or no text", bad)
				}
			}),
		row("create/holds", "a sandbox says for each limit that was asked for by what it is held",
			"fill in Ready.Holds", func(c *C) {
				limits, names := c.someLimits()
				holds := c.usedFor("limits", withLimits(limits)).Ready().Holds
				for _, name := range names {
					if !slices.ContainsFunc(holds, func(h sdk.Hold) bool {
						return h.Limit == name && h.HeldBy != "" && h.Value != ""
					}) {
						c.Fatalf("nothing is said about %s: %+v", name, holds)
					}
				}
			}),
		row("create/failure-is-typed", "a creation that cannot be gives a failure with a reason, in one lower-case line",
			"return an sdk.Error", func(c *C) {
				e := c.refused("the network mode telepathy", c.request(withNetwork("telepathy")),
					sdk.ReasonUnsupported, sdk.ReasonConfig)
				if e.Summary == "" || strings.Contains(e.Summary, "\n") {
					c.Fatalf("the summary is %q", e.Summary)
				}
			}),
		row("create/again-after-destroy",
			"an id can be used again after its sandbox was destroyed, and the new one is empty",
			"forget everything in Destroy", func(c *C) {
				req := c.request()
				b := c.boxOn(c.shared(), req)
				b.must("echo old > old")
				b.destroy()
				c.boxOn(c.shared(), req).must("test ! -e old")
			}),
	}
}

// rawCreate creates a sandbox and returns the names of the events, and of the error.
func (c *C) rawCreate(req *sdk.CreateRequest) (events []string) {
	i := c.shared()
	c.later(func() { i.Destroy(context.Background(), sdk.Handle{ID: req.ID}) })
	stream, err := i.rpc.Create(c.ctx)
	c.ok("create", err)
	c.ok("create", stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: c.rawStart(req)}}))
	for {
		ev, err := stream.Recv()
		if err != nil {
			return append(events, reasonOf(err))
		}
		switch ev.GetEvent().(type) {
		case *pb.CreateEvent_Progress:
			events = append(events, "progress")
		case *pb.CreateEvent_Allocated:
			events = append(events, "allocated")
			stream.Send(stored)
		case *pb.CreateEvent_Ready:
			events = append(events, "ready")
		default:
			events = append(events, "an event of no kind")
		}
	}
}

// stored answers that the host has the handle.
var stored = &pb.CreateRequest{Request: &pb.CreateRequest_Stored{Stored: &pb.HandleStored{}}}

// rawStart is the start message of a request without limits or mounts.
func (c *C) rawStart(req *sdk.CreateRequest) *pb.CreateStart {
	return &pb.CreateStart{SandboxId: req.ID, Owner: req.Owner, StateDir: []byte(req.StateDir), Keep: req.Keep,
		Spec: &pb.Spec{
			ConfigJson: c.config, Network: string(req.Network), Input: []byte(req.Input), Limits: &pb.Limits{},
			Workspace: &pb.Workspace{Source: []byte(req.Workspace.Source), Mode: string(req.Workspace.Mode)},
		}}
}

// createCancelled runs a creation under a context that ends, and looks for what is
// left of it. One that was ready before the end is destroyed and fine; so is one
// whose ready was on its way when the end came, when late says that this can be.
func (c *C) createCancelled(ctx context.Context, req *sdk.CreateRequest, late bool) {
	sb, err := c.create(ctx, c.shared(), req)
	switch {
	case err == nil:
		c.ok("destroying", sb.Destroy(c.ctx))
	case late && !c.leftWithin(time.Second, req.ID):
		c.ok("destroying", c.shared().Destroy(c.ctx, sdk.Handle{ID: req.ID}))
	}
	c.nothingLeft(req.ID)
}

// nothingLeft ends the check when something with this id can still be found.
func (c *C) nothingLeft(id string) {
	c.absent(3*soon, "nothing of sandbox "+id+" is left", func() string { return c.left(id) })
}

// left says what can be found of the sandbox with this id; "" when there is nothing.
func (c *C) left(id string) string {
	if left := c.traces(id); left != "" {
		return "there is " + left
	}
	if len(c.listed(c.shared(), "", id)) > 0 {
		return "it is listed"
	}
	return ""
}

// leftWithin reports whether all that has this id is gone in time.
func (c *C) leftWithin(d time.Duration, id string) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if c.left(id) == "" {
			return true
		}
	}
	return false
}

// listed returns the handles with this id that are listed for the owner, where lists are claimed.
func (c *C) listed(i *instance, owner, id string) []sdk.Handle {
	if !c.facts.Has(sdk.CapList) {
		return nil
	}
	all, err := i.List(c.ctx, owner)
	c.ok("list", err)
	return slices.DeleteFunc(all, func(h sdk.Handle) bool { return h.ID != id })
}

func (b *box) destroy() {
	b.ok("destroy", b.Destroy(b.ctx))
	b.noteEnd(b.ID(), true)
}
