package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

func createChecks() []Check {
	return []Check{
		{ID: "create/ready", Proves: "a sandbox that is ready has a workspace at the absolute path it names", Fix: "fill in Ready.Workspace with the path as commands see it",
			run: func(c *C) {
				b := c.used()
				w := b.Ready().Workspace
				if !strings.HasPrefix(w, "/") {
					c.Fatalf("the workspace is at %q", w)
				}
				b.must("test -d \"$1\" && test -d .", argv("/bin/sh", "-c", `test -d "$1" && test -d .`, "sh", w))
			}},
		{ID: "create/order", Proves: "allocated comes before ready, ready is the last event, and nothing follows it", Fix: "call Allocated before anything exists outside the process",
			run: func(c *C) {
				events := c.rawCreate(c.request())
				allocated, ready := slices.Index(events, "allocated"), slices.Index(events, "ready")
				if allocated < 0 || ready < allocated || ready != len(events)-1 {
					c.Fatalf("the events were %v", events)
				}
			}},
		{ID: "create/handle", Proves: "the handle carries the id that the host chose, and at most 64 KiB of JSON", Fix: "put into the handle what finds the sandbox, and no more",
			run: func(c *C) {
				h := c.used().Handle()
				if len(h.Data) > 64<<10 || len(h.Data) > 0 && !json.Valid(h.Data) {
					c.Fatalf("the data of the handle: %d bytes, %s", len(h.Data), quote(string(h.Data)))
				}
			}},
		{ID: "create/allocated-first", Needs: []Need{needLocal}, Proves: "when Allocated is called nothing exists yet outside the backend's process and the state directory", Fix: "call Allocated first, and make things when it has returned: until then nobody could find them again",
			run: func(c *C) {
				req := c.request()
				var there string
				req.Allocated = func(sdk.Handle) error {
					if gone, what := c.isGone(req.ID); !gone {
						there = what
					}
					return nil
				}
				c.boxOn(c.shared(), req)
				if there != "" {
					c.Fatalf("before the host had the handle: %s", there)
				}
			}},
		{ID: "create/handle-refused", Proves: "when the host cannot keep the handle, nothing is made", Fix: "stop when Allocated returns an error, and undo",
			run: func(c *C) {
				req := c.request()
				req.Allocated = func(sdk.Handle) error { return errors.New("the disk is full") }
				if _, err := c.create(c.shared(), req); err == nil {
					c.Fatalf("the sandbox was made all the same")
				}
				c.nothingLeft(req.ID)
			}},
		{ID: "create/idempotent", Proves: "creating with the same id and spec again gives the same sandbox", Fix: "look for the id before making anything",
			run: func(c *C) {
				req := c.request()
				first := c.boxOn(c.shared(), req)
				first.must("echo kept > file")
				again := c.boxOn(c.shared(), req)
				c.eq("the file in the second sandbox of the same id", again.must("cat file"), "kept\n")
			}},
		{ID: "create/idempotent-parallel", Proves: "two creations with one id at the same time make one sandbox", Fix: "lock by id",
			run: func(c *C) {
				req := c.request()
				var wg sync.WaitGroup
				errs := make([]error, 4)
				for i := range errs {
					wg.Go(func() { _, errs[i] = c.create(c.shared(), req) })
				}
				wg.Wait()
				for _, err := range errs {
					if err != nil {
						c.Fatalf("%v", err)
					}
				}
				c.listed(req, 1)
			}},
		{ID: "create/separate", Proves: "two sandboxes share no workspace", Fix: "give each id directories of its own",
			run: func(c *C) {
				a, b := c.used(), c.used()
				a.must("echo mine > mine")
				if o := b.sh("test ! -e mine"); o.Code != 0 {
					c.Fatalf("a file of one sandbox is in the other")
				}
			}},
		{ID: "create/parallel", Proves: "ten sandboxes of the same source can be made at once, and each has the writes of its own commands", Fix: "lock nothing for longer than needed",
			run: func(c *C) {
				var wg sync.WaitGroup
				boxes, errs := make([]box, 10), make([]error, 10)
				for i := range boxes {
					req := c.request()
					if req.Workspace.Mode == sdk.WorkspacePrivate {
						req.Workspace.Source = c.hostDir("source")
					}
					wg.Go(func() {
						boxes[i] = box{c: c, on: c.shared(), req: req}
						boxes[i].Sandbox, errs[i] = c.create(boxes[i].on, req)
					})
				}
				wg.Wait()
				for _, err := range errs {
					if err != nil {
						c.Fatalf("%v", err)
					}
				}
				if boxes[0].req.Workspace.Source == "" {
					return
				}
				for i := range boxes {
					boxes[i].must(fmt.Sprintf("test ! -e number && echo %d > number", i))
				}
				for i := range boxes {
					c.eq("the file of one sandbox", boxes[i].must("cat number"), fmt.Sprintf("%d\n", i))
				}
			}},
		{ID: "create/cancelled-after-allocated", Proves: "a creation that is cancelled after allocated leaves nothing", Fix: "end with the context, and undo what was made",
			run: func(c *C) {
				for range 5 {
					req := c.request()
					ctx, cancel := context.WithCancel(c.ctx)
					req.Allocated = func(sdk.Handle) error { cancel(); return nil }
					c.createCancelled(ctx, req, false)
					cancel()
				}
			}},
		{ID: "create/cancelled-early", Proves: "a creation that is cancelled at any early moment leaves nothing", Fix: "end with the context, and undo what was made",
			run: func(c *C) {
				for i := range 5 {
					req := c.request()
					ctx, cancel := context.WithTimeout(c.ctx, time.Duration(i*i)*600*time.Microsecond)
					c.createCancelled(ctx, req, true)
					cancel()
				}
			}},
		{ID: "create/bad-id", Proves: "an invalid id is refused, before it becomes part of a path", Fix: "take 1 to 64 of a-z, 0-9 and - only",
			run: func(c *C) {
				for _, id := range []string{"", "..", "../up", "a/b", "UPPER", "sp ace", "nul\x00", strings.Repeat("x", 65), "über"} {
					req := c.request()
					req.ID = strings.ToValidUTF8(id, "")
					_, err := c.create(c.shared(), req)
					c.wantReason(err, "creating with the id "+quote(id), sdk.ReasonConfig)
				}
			}},
		{ID: "create/source-missing", Needs: []Need{needAnyWorkspace}, Proves: "a workspace whose source is not there is refused with its name, and leaves nothing", Fix: "look at the source first; the failure names it",
			run: func(c *C) {
				req := c.request()
				req.Workspace.Source = filepath.Join(c.dir, "no-such-directory")
				_, err := c.create(c.shared(), req)
				e := c.wantReason(err, "a source that is not there", sdk.ReasonConfig, sdk.ReasonNotFound)
				if !strings.Contains(e.Error(), "no-such-directory") {
					c.Fatalf("the failure does not name it: %v", err)
				}
				c.nothingLeft(req.ID)
			}},
		{ID: "create/source-file", Needs: []Need{needAnyWorkspace}, Proves: "a workspace whose source is a file is refused", Fix: "look at what the source is",
			run: func(c *C) {
				c.write(filepath.Join(c.dir, "file"), "x", 0o644)
				_, err := c.create(c.shared(), c.request(func(r *sdk.CreateRequest) { r.Workspace.Source = filepath.Join(c.dir, "file") }))
				c.wantReason(err, "a source that is a file", sdk.ReasonConfig)
			}},
		{ID: "create/unclaimed-workspace", Proves: "a workspace mode that is not claimed is refused, and so is one that nobody knows", Fix: "refuse with reason unsupported or config; never take another mode instead",
			run: func(c *C) {
				modes := []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly, "cubist"}
				dir := c.hostDir("source")
				for _, m := range modes {
					if slices.Contains(c.facts.Workspaces, m) {
						continue
					}
					_, err := c.create(c.shared(), c.request(withSource(dir, m)))
					c.wantReason(err, "the workspace mode "+string(m), sdk.ReasonUnsupported, sdk.ReasonConfig)
				}
			}},
		{ID: "create/unclaimed-network", Proves: "a network mode that is not claimed is refused, and so is one that nobody knows", Fix: "refuse with reason unsupported or config; never take another mode instead",
			run: func(c *C) {
				for _, m := range []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull, "telepathy"} {
					if slices.Contains(c.facts.Networks, m) {
						continue
					}
					_, err := c.create(c.shared(), c.request(func(r *sdk.CreateRequest) { r.Network = m }))
					c.wantReason(err, "the network mode "+string(m), sdk.ReasonUnsupported, sdk.ReasonConfig)
				}
			}},
		{ID: "create/progress", Proves: "each progress event says what is done, and never more than all of it", Fix: "step must not be empty; done <= total unless total is 0",
			run: func(c *C) {
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
			}},
		{ID: "create/holds", Proves: "a sandbox says for each limit that was asked for by what it is held", Fix: "fill in Ready.Holds",
			run: func(c *C) {
				l := c.someLimits()
				held := map[sdk.Limit]bool{}
				for _, h := range c.usedFor("limits", withLimits(l)).Ready().Holds {
					held[h.Limit] = h.HeldBy != "" && h.Value != ""
				}
				for _, a := range asked(l) {
					if !held[a] {
						c.Fatalf("nothing is said about %s", a)
					}
				}
			}},
		{ID: "create/failure-is-typed", Proves: "a creation that cannot be gives a failure with a reason, in one lower-case line", Fix: "return an sdk.Error",
			run: func(c *C) {
				_, err := c.create(c.shared(), c.request(func(r *sdk.CreateRequest) { r.Network = "telepathy" }))
				e := c.wantReason(err, "the network mode telepathy", sdk.ReasonUnsupported, sdk.ReasonConfig)
				if e.Summary == "" || strings.Contains(e.Summary, "\n") {
					c.Fatalf("the summary is %q", e.Summary)
				}
			}},
		{ID: "create/again-after-destroy", Proves: "an id can be used again after its sandbox was destroyed, and the new one is empty", Fix: "forget everything in Destroy",
			run: func(c *C) {
				req := c.request()
				b := c.boxOn(c.shared(), req)
				b.must("echo old > old")
				c.destroy(b)
				if o := c.boxOn(c.shared(), req).sh("test ! -e old"); o.Code != 0 {
					c.Fatalf("a file of the old sandbox is in the new one")
				}
			}},
	}
}

var needAnyWorkspace = Need{"a workspace mode", func(f *facts) bool { return len(f.Workspaces) > 0 }}

// rawCreate creates a sandbox and returns the names of the events.
func (c *C) rawCreate(req *sdk.CreateRequest) (events []string) {
	i := c.shared()
	c.later(func() { i.Destroy(context.Background(), sdk.Handle{ID: req.ID}) })
	stream, err := i.rpc.Create(c.ctx)
	if err != nil {
		c.Fatalf("%v", err)
	}
	if err := stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: c.rawStart(req)}}); err != nil {
		c.Fatalf("%v", err)
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return events
			}
			return append(events, reasonOf(err))
		}
		switch ev.GetEvent().(type) {
		case *pb.CreateEvent_Progress:
			events = append(events, "progress")
		case *pb.CreateEvent_Allocated:
			events = append(events, "allocated")
			stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Stored{Stored: &pb.HandleStored{}}})
		case *pb.CreateEvent_Ready:
			events = append(events, "ready")
		default:
			events = append(events, "an event of no kind")
		}
	}
}

// rawStart is the start message of a request without limits or mounts.
func (c *C) rawStart(req *sdk.CreateRequest) *pb.CreateStart {
	return &pb.CreateStart{SandboxId: req.ID, Owner: req.Owner, StateDir: []byte(req.StateDir), Keep: req.Keep, Spec: &pb.Spec{
		ConfigJson: c.config, Network: string(req.Network), Input: []byte(req.Input), Limits: &pb.Limits{},
		Workspace: &pb.Workspace{Source: []byte(req.Workspace.Source), Mode: string(req.Workspace.Mode)},
	}}
}

// createCancelled runs a creation under a context that ends, and looks for what is
// left of it. One that was ready before the end is destroyed and fine; so is one
// whose ready was on its way when the end came, when late says that this can be.
func (c *C) createCancelled(ctx context.Context, req *sdk.CreateRequest, late bool) {
	outer := c.ctx
	c.ctx = ctx
	sb, err := c.create(c.shared(), req)
	c.ctx = outer
	if err == nil {
		if err := sb.Destroy(c.ctx); err != nil {
			c.Fatalf("destroying: %v", err)
		}
	} else if late && !c.leftWithin(time.Second, req.ID) {
		if err := c.shared().Destroy(c.ctx, sdk.Handle{ID: req.ID}); err != nil {
			c.Fatalf("destroying: %v", err)
		}
	}
	c.nothingLeft(req.ID)
}

// nothingLeft ends the check when something with this id can still be found.
func (c *C) nothingLeft(id string) {
	c.eventually(3*soon, "nothing of sandbox "+id+" is left", func() (bool, string) { return c.isGone(id) })
}

func (c *C) isGone(id string) (bool, string) {
	if left := c.traces(id); left != "" {
		return false, "there is " + left
	}
	if c.facts.Has(sdk.CapList) {
		all, err := c.shared().List(c.ctx, "")
		if err != nil {
			return false, err.Error()
		}
		for _, h := range all {
			if h.ID == id {
				return false, "it is listed"
			}
		}
	}
	return true, ""
}

// leftWithin reports whether all that has this id is gone in time.
func (c *C) leftWithin(d time.Duration, id string) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if ok, _ := c.isGone(id); ok {
			return true
		}
	}
	return false
}

// listed ends the check unless the sandbox is listed n times, where lists are claimed.
func (c *C) listed(req *sdk.CreateRequest, n int) {
	if !c.facts.Has(sdk.CapList) {
		return
	}
	all, err := c.shared().List(c.ctx, req.Owner)
	if err != nil {
		c.Fatalf("list: %v", err)
	}
	got := 0
	for _, h := range all {
		if h.ID == req.ID {
			got++
		}
	}
	if got != n {
		c.Fatalf("the sandbox is listed %d times, want %d", got, n)
	}
}

func (c *C) destroy(b *box) {
	if err := b.Destroy(c.ctx); err != nil {
		c.Fatalf("destroy: %v", err)
	}
	c.end(b.ID(), true)
}
