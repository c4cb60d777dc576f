package backendtest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// grease is a field that no version of the contract has.
var grease = func() []byte {
	b := protowire.AppendTag(nil, 15_000, protowire.BytesType)
	return protowire.AppendBytes(b, []byte("from a host of the future"))
}()

const service = "/hutch.backend.v1.Backend/"

func robustChecks() []Check {
	unclaimed := func(c *C, cap sdk.Capability, call string, err error) {
		if c.facts.Has(cap) {
			return
		}
		if r := reasonOf(err); err == nil || r != "unsupported" && r != "Unimplemented" {
			c.Fatalf("%s, which is not claimed, gave %v", call, err)
		}
	}
	return []Check{
		{ID: "robust/unknown-fields", Proves: "fields of a future host are ignored in every message", Fix: "decode with a protobuf library",
			run: func(c *C) {
				i := c.shared()
				req := c.request()
				start := c.rawStart(req)
				d := &pb.DescribeRequest{}
				d.ProtoReflect().SetUnknown(grease)
				if _, err := i.rpc.Describe(c.ctx, d); err != nil {
					c.Fatalf("describe: %v", err)
				}
				start.ProtoReflect().SetUnknown(grease)
				start.Spec.ProtoReflect().SetUnknown(grease)
				start.Spec.Limits.ProtoReflect().SetUnknown(grease)
				stream, err := i.rpc.Create(c.ctx)
				if err != nil {
					c.Fatalf("%v", err)
				}
				c.later(func() { i.Destroy(context.Background(), sdk.Handle{ID: req.ID}) })
				if err := stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: start}}); err != nil {
					c.Fatalf("%v", err)
				}
				var ready *pb.Ready
				for ready == nil {
					ev, err := stream.Recv()
					if err != nil {
						c.Fatalf("create: %v", err)
					}
					if ev.GetAllocated() != nil {
						stored := &pb.CreateRequest{Request: &pb.CreateRequest_Stored{Stored: &pb.HandleStored{}}}
						stored.ProtoReflect().SetUnknown(grease)
						stream.Send(stored)
					}
					ready = ev.GetReady()
				}
				es := &pb.ExecStart{SandboxId: req.ID, Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte("exit 0")}, Dir: []byte(ready.GetWorkspace())}
				es.ProtoReflect().SetUnknown(grease)
				if got := strings.Join(c.rawExecOn(i, &pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: es}}), " "); !strings.HasSuffix(got, "started exited EOF") {
					c.Fatalf("exec: %s", got)
				}
			}},
		{ID: "robust/unknown-requests", Proves: "a request of no known kind during a command is ignored", Fix: "ignore a oneof that is not set",
			run: func(c *C) {
				b := c.used()
				odd := &pb.ExecRequest{}
				odd.ProtoReflect().SetUnknown(grease)
				got := strings.Join(c.rawExecOn(b.on, &pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: &pb.ExecStart{
					SandboxId: b.ID(), Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte("sleep 0.2")}, Env: [][]byte{[]byte("PATH=" + searchPath)}, Dir: []byte(b.Ready().Workspace)}}}, odd), " ")
				if !strings.HasSuffix(got, "started exited EOF") {
					c.Fatalf("got %s", got)
				}
			}},
		{ID: "robust/exec-without-start", Proves: "a command that does not begin with its start is refused", Fix: "reason config",
			run: func(c *C) {
				if got := strings.Join(c.rawExecOn(c.shared(), &pb.ExecRequest{Request: &pb.ExecRequest_Signal{Signal: 9}}), " "); got != "config" {
					c.Fatalf("got %s", got)
				}
				c.describe()
			}},
		{ID: "robust/create-without-start", Proves: "a creation that does not begin with its start is refused", Fix: "reason config",
			run: func(c *C) {
				stream, err := c.shared().rpc.Create(c.ctx)
				if err != nil {
					c.Fatalf("%v", err)
				}
				stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Stored{Stored: &pb.HandleStored{}}})
				if _, err := stream.Recv(); reasonOf(err) != "config" {
					c.Fatalf("got %v", err)
				}
			}},
		{ID: "robust/put-without-header", Needs: []Need{needCap(sdk.CapPut)}, Proves: "a put that does not begin with its header is refused", Fix: "reason config",
			run: func(c *C) {
				stream, err := c.shared().rpc.Put(c.ctx)
				if err != nil {
					c.Fatalf("%v", err)
				}
				stream.Send(&pb.PutRequest{Request: &pb.PutRequest_Data{Data: []byte("x")}})
				if _, err := stream.CloseAndRecv(); reasonOf(err) != "config" {
					c.Fatalf("got %v", err)
				}
			}},
		{ID: "robust/unknown-call", Proves: "a call of a future host is refused as unimplemented, and the backend lives", Fix: "let gRPC answer",
			run: func(c *C) {
				err := c.shared().Conn().Invoke(c.ctx, service+"Teleport", &emptypb.Empty{}, &emptypb.Empty{})
				if r := reasonOf(err); r != "Unimplemented" {
					c.Fatalf("got %v", err)
				}
				c.describe()
			}},
		{ID: "robust/garbage", Proves: "bytes that are no message are refused, and the backend lives", Fix: "decode with a protobuf library",
			run: func(c *C) {
				if err := c.shared().Conn().Invoke(c.ctx, service+"Plan", &emptypb.Empty{}, &emptypb.Empty{}, grpc.ForceCodec(rawCodec{})); err == nil {
					c.Fatalf("they were accepted")
				}
				c.describe()
			}},
		{ID: "robust/unclaimed-calls", Proves: "a call whose capability is not claimed is refused as unsupported", Fix: "reason unsupported, or gRPC's own unimplemented",
			run: func(c *C) {
				b := c.used()
				i := b.on
				_, err := i.rpc.Inspect(c.ctx, &pb.InspectRequest{SandboxId: b.ID()})
				unclaimed(c, sdk.CapInspect, "inspect", err)
				_, err = i.rpc.List(c.ctx, &pb.ListRequest{})
				unclaimed(c, sdk.CapList, "list", err)
				if !c.facts.Has(sdk.CapRemove) {
					_, err = i.rpc.Remove(c.ctx, &pb.RemoveRequest{SandboxId: b.ID(), Path: []byte(b.Ready().Workspace + "/x")})
					unclaimed(c, sdk.CapRemove, "remove", err)
				}
				if !c.facts.Has(sdk.CapReset) {
					_, err = i.rpc.Reset(c.ctx, &pb.ResetRequest{SandboxId: b.ID()})
					unclaimed(c, sdk.CapReset, "reset", err)
				}
				if !c.facts.Has(sdk.CapStop) {
					_, err = i.rpc.Stop(c.ctx, &pb.StopRequest{SandboxId: b.ID()})
					unclaimed(c, sdk.CapStop, "stop", err)
					start, err := i.rpc.Start(c.ctx, &pb.StartRequest{SandboxId: b.ID()})
					if err == nil {
						_, err = start.Recv()
					}
					unclaimed(c, sdk.CapStop, "start", err)
				}
				if !c.facts.Has(sdk.CapFork) {
					start := c.rawStart(c.request())
					start.From = &pb.Handle{SandboxId: b.ID()}
					create, err := i.rpc.Create(c.ctx)
					if err == nil {
						err = create.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: start}})
					}
					if err == nil {
						_, err = create.Recv()
					}
					unclaimed(c, sdk.CapFork, "create from another sandbox", err)
				}
				if changes, err := i.rpc.Changes(c.ctx, &pb.ChangesRequest{SandboxId: b.ID()}); err == nil && !c.facts.Has(sdk.CapChanges) {
					_, err = changes.Recv()
					unclaimed(c, sdk.CapChanges, "changes", err)
				}
			}},
		{ID: "robust/claimed-calls", Proves: "every call whose capability is claimed exists", Fix: "claim what you implement; the SDK does it for you",
			run: func(c *C) {
				i := c.shared()
				nobody := c.short + "-nobody"
				calls := map[sdk.Capability]func() error{
					sdk.CapInspect: func() error {
						_, err := i.rpc.Inspect(c.ctx, &pb.InspectRequest{SandboxId: nobody})
						return err
					},
					sdk.CapRemove: func() error {
						_, err := i.rpc.Remove(c.ctx, &pb.RemoveRequest{SandboxId: nobody, Path: []byte("/workspace/x")})
						return err
					},
					sdk.CapReset: func() error {
						_, err := i.rpc.Reset(c.ctx, &pb.ResetRequest{SandboxId: nobody})
						return err
					},
					sdk.CapStop: func() error {
						_, err := i.rpc.Stop(c.ctx, &pb.StopRequest{SandboxId: nobody})
						return err
					},
					sdk.CapAttach: func() error {
						_, err := i.rpc.Attach(c.ctx, &pb.AttachRequest{Handle: &pb.Handle{SandboxId: nobody}})
						return err
					},
					sdk.CapList: func() error { _, err := i.rpc.List(c.ctx, &pb.ListRequest{Owner: nobody}); return err },
					sdk.CapPlan: func() error {
						_, err := i.rpc.Plan(c.ctx, &pb.PlanRequest{Spec: c.rawStart(c.request()).Spec})
						return err
					},
				}
				for cap, call := range calls {
					if err := call(); c.facts.Has(cap) && err != nil && (reasonOf(err) == "unsupported" || reasonOf(err) == "Unimplemented") {
						c.Fatalf("%s is claimed and gave %v", cap, err)
					}
				}
			}},
		{ID: "robust/big-message", Proves: "a message of 8 MiB is taken or refused, and the backend lives", Fix: "raise gRPC's limit of 4 MiB for what it receives",
			run: func(c *C) {
				b := c.used()
				o := b.exec(b.command("", argv("/bin/sh", "-c", "echo $#", "sh"), env(map[string]string{"BIG": strings.Repeat("x", 120_000)})))
				c.eq("stdout", o.stdout, "0\n")
				big := make([][]byte, 80) // E2BIG for the kernel, and beyond the 4 MiB that gRPC takes by itself
				for n := range big {
					big[n] = []byte(strings.Repeat("x", 100_000))
				}
				events := c.rawExecOn(b.on, &pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: &pb.ExecStart{SandboxId: b.ID(), Argv: append([][]byte{[]byte("/bin/true")}, big...), Dir: []byte(b.Ready().Workspace)}}})
				if strings.Contains(strings.Join(events, " "), "ResourceExhausted") {
					c.Fatalf("gRPC refused it: %v", events)
				}
				b.must("true")
			}},
		{ID: "robust/many-calls", Proves: "200 calls at once are all answered", Fix: "do not bound what can be bounded by the host",
			run: func(c *C) {
				i := c.shared()
				errs := make([]error, 200)
				var wg sync.WaitGroup
				for n := range errs {
					wg.Go(func() { errs[n] = i.Destroy(c.ctx, sdk.Handle{ID: c.short + "-never-was"}) })
				}
				wg.Wait()
				for _, err := range errs {
					if err != nil {
						c.Fatalf("%v", err)
					}
				}
			}},
		{ID: "robust/foreign-handle", Proves: "a handle with data of another backend, or none that can be read, does no harm", Fix: "refuse what cannot be read; never remove what a handle names without looking whether it is yours",
			run: func(c *C) {
				victim := c.project("victim")
				for _, d := range []string{"workspace", "output", "input", "tmp", "home", "upper", "work", "state", "rootfs", "merged"} {
					c.hostDir("victim/" + d)
				}
				before := c.hostTree(victim)
				for _, data := range []string{`{"dir":"` + victim + `","path":"` + victim + `","state_dir":"` + victim + `","workspace":"` + victim + `"}`, `17`, `"text"`, `[]`, `{"pid":1}`} {
					err := c.shared().Destroy(c.ctx, sdk.Handle{ID: c.short + "-foreign", Data: []byte(data)})
					if err != nil {
						c.wantReason(err, "destroying by the handle "+data, sdk.ReasonConfig, sdk.ReasonNotFound, sdk.ReasonInternal)
					}
				}
				c.eq("the directory that it named", c.hostTree(victim), before)
				c.describe()
			}},
	}
}

// rawCodec sends bytes that are no message.
type rawCodec struct{}

func (rawCodec) Marshal(any) ([]byte, error) { return []byte{0xff, 0xff, 0xff, 0x07, 0x80}, nil }
func (rawCodec) Unmarshal([]byte, any) error { return nil }
func (rawCodec) Name() string                { return "proto" }

func deathChecks() []Check {
	process := []Need{needProcess}
	// dies begins a sandbox with a beating heart on its own instance.
	begin := func(c *C, keep bool) (*instance, *box, *running) {
		i := c.fresh(StartOptions{})
		b := c.boxOn(i, c.request(func(r *sdk.CreateRequest) { r.Keep = keep }))
		return i, b, b.beating()
	}
	return []Check{
		{ID: "death/host", Alone: true, Proves: "when the host dies without a word, everything is gone within 5 s: commands, sandboxes, the process itself", Fix: "the SDK hears it from the lifeline; let Exec and Create end with their contexts",
			run: func(c *C) {
				i, b, _ := begin(c, false)
				began := time.Now()
				i.Abandon()
				c.eventually(5*time.Second, "the process and all that it made are gone", func() (bool, string) {
					if !gone(i) {
						return false, "the plugin lives"
					}
					if left := c.processes(c.marker); left != "" {
						return false, left
					}
					if left := c.traces(b.ID()); left != "" {
						return false, left
					}
					return true, ""
				})
				if took := time.Since(began); took > 5*time.Second {
					c.Fatalf("it took %s", took)
				}
				c.stateEmpty(b)
			}},
		{ID: "death/host-while-creating", Alone: true, Proves: "when the host dies while a sandbox is made, nothing of it is left", Fix: "undo what was made when the context ends",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				req := c.request()
				req.Allocated = func(sdk.Handle) error { i.Abandon(); return nil }
				c.create(i, req)
				c.eventually(soon, "the plugin is gone", func() (bool, string) { return gone(i), "it lives" })
				c.nothingLeft(req.ID)
			}},
		{ID: "death/killed", Needs: process, Alone: true, Proves: "after SIGKILL of the plugin a fresh one destroys the sandbox, and no process of it is left", Fix: "keep in the handle what finds processes and mounts; give commands a parent-death signal or a namespace that dies",
			run: func(c *C) {
				i, b, r := begin(c, false)
				c.kill(i)
				select {
				case <-r.Done():
				case <-time.After(soon):
					c.Fatalf("the call had not ended %s after the death of the plugin", soon)
				}
				if err := c.fresh(StartOptions{}).Destroy(c.ctx, b.Handle()); err != nil {
					c.Fatalf("destroying with a fresh plugin: %v", err)
				}
				c.noProcesses()
				c.nothingLeft(b.ID())
				c.stateEmpty(b)
			}},
		{ID: "death/stopped", Needs: process, Alone: true, Proves: "a plugin that hangs is given up by its deadline, and killing it leaves nothing that a fresh one cannot destroy", Fix: "see death/killed",
			run: func(c *C) {
				i, b, _ := begin(c, false)
				syscall.Kill(i.PID(), syscall.SIGSTOP)
				c.eventually(soon, "the plugin is stopped", func() (bool, string) { return stopped(i.PID()) })
				ctx, cancel := context.WithTimeout(c.ctx, 500*time.Millisecond)
				defer cancel()
				if _, err := i.Describe(ctx); err == nil {
					c.Fatalf("it answered although it was stopped")
				}
				c.kill(i)
				if err := c.fresh(StartOptions{}).Destroy(c.ctx, b.Handle()); err != nil {
					c.Fatalf("destroying with a fresh plugin: %v", err)
				}
				c.noProcesses()
				c.stateEmpty(b)
			}},
		{ID: "death/term", Needs: process, Alone: true, Proves: "SIGTERM ends the plugin, after it has cleaned up", Fix: "do in the handler what is done when the host is gone",
			run: func(c *C) {
				i, b, _ := begin(c, false)
				syscall.Kill(i.PID(), syscall.SIGTERM)
				c.eventually(soon, "the plugin has ended", func() (bool, string) { return gone(i), "it lives" })
				c.noProcesses()
				c.stateEmpty(b)
			}},
		{ID: "death/drained", Needs: process, Alone: true, Proves: "after Drain the process ends by itself", Fix: "exit when the answer to Drain is out",
			run: func(c *C) {
				i := c.fresh(StartOptions{})
				c.boxOn(i, c.request())
				if err := i.Drain(c.ctx); err != nil {
					c.Fatalf("%v", err)
				}
				c.eventually(soon, "the process has ended", func() (bool, string) { return gone(i), "it lives" })
			}},
		{ID: "death/two-processes", Needs: process, Proves: "two processes of the backend work side by side", Fix: "share nothing that is not locked between processes",
			run: func(c *C) {
				a, b := c.fresh(StartOptions{}), c.fresh(StartOptions{})
				x, y := c.boxOn(a, c.request()), c.boxOn(b, c.request())
				x.must("echo x > file")
				y.must("echo y > file")
				c.eq("the file of the one", x.must("cat file"), "x\n")
				if err := c.stop(a); err != nil {
					c.Fatalf("%v", err)
				}
				c.eq("the file of the other", y.must("cat file"), "y\n")
			}},
	}
}

// stopped reports whether every thread of a process has stopped: SIGSTOP takes a moment to reach them.
func stopped(pid int) (bool, string) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, task := range tasks {
		if s, err := procstat.Read(task); err == nil && s.State != 'T' { // an error: that thread has ended
			return false, "a thread runs on"
		}
	}
	return true, ""
}
