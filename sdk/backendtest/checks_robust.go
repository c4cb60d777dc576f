package backendtest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// greased adds to messages a field that no version of the contract has.
func greased[M proto.Message](m M, more ...proto.Message) M {
	field := protowire.AppendBytes(protowire.AppendTag(nil, 15_000, protowire.BytesType), []byte("from a future host"))
	for _, m := range append(more, m) {
		m.ProtoReflect().SetUnknown(field)
	}
	return m
}

const service = "/hutch.backend.v1.Backend/"

// missing reports whether a call was refused because the backend does not have it.
func missing(err error) bool {
	r := reasonOf(err)
	return err != nil && (r == "unsupported" || r == "Unimplemented")
}

// optionalCall is a call for which there is a capability.
type optionalCall struct {
	cap  sdk.Capability
	name string
	call func(c *C, rpc pb.BackendClient, id string) error
}

// optionalCalls are made of a sandbox, or of an ID that none has.
var optionalCalls = []optionalCall{
	{sdk.CapInspect, "inspect", func(c *C, rpc pb.BackendClient, id string) error {
		_, err := rpc.Inspect(c.ctx, &pb.InspectRequest{SandboxId: id})
		return err
	}},
	{sdk.CapList, "list", func(c *C, rpc pb.BackendClient, id string) error {
		_, err := rpc.List(c.ctx, &pb.ListRequest{Owner: id})
		return err
	}},
	{sdk.CapRemove, "remove", func(c *C, rpc pb.BackendClient, id string) error {
		_, err := rpc.Remove(c.ctx, &pb.RemoveRequest{SandboxId: id, Path: []byte("/workspace/x")})
		return err
	}},
	{sdk.CapReset, "reset", func(c *C, rpc pb.BackendClient, id string) error {
		_, err := rpc.Reset(c.ctx, &pb.ResetRequest{SandboxId: id})
		return err
	}},
	{sdk.CapStop, "stop", func(c *C, rpc pb.BackendClient, id string) error {
		_, err := rpc.Stop(c.ctx, &pb.StopRequest{SandboxId: id})
		return err
	}},
	{sdk.CapStop, "start", func(c *C, rpc pb.BackendClient, id string) error {
		s, err := rpc.Start(c.ctx, &pb.StartRequest{SandboxId: id})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}},
	{sdk.CapChanges, "changes", func(c *C, rpc pb.BackendClient, id string) error {
		s, err := rpc.Changes(c.ctx, &pb.ChangesRequest{SandboxId: id})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}},
}

// attachCall and planCall are answered by the SDK for every backend, whatever it claims.
var attachCall = optionalCall{
	sdk.CapAttach, "attach", func(c *C, rpc pb.BackendClient, id string) error {
		_, err := rpc.Attach(c.ctx, &pb.AttachRequest{Handle: &pb.Handle{SandboxId: id}})
		return err
	},
}

var planCall = optionalCall{
	sdk.CapPlan, "plan", func(c *C, rpc pb.BackendClient, _ string) error {
		_, err := rpc.Plan(c.ctx, &pb.PlanRequest{Spec: c.rawStart(c.request()).Spec})
		return err
	},
}

var forkCall = optionalCall{
	sdk.CapFork, "create from another sandbox", func(c *C, rpc pb.BackendClient, id string) error {
		start := c.rawStart(c.request())
		start.From = &pb.Handle{SandboxId: id}
		s, err := rpc.Create(c.ctx)
		if err == nil {
			err = s.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: start}})
		}
		if err == nil {
			_, err = s.Recv()
		}
		return err
	},
}

func robustChecks() []Check {
	refused := func(c *C, err error, want string) {
		if r := reasonOf(err); r != want {
			c.Fatalf("got %v, want %s", err, want)
		}
	}
	return []Check{
		row("robust/unknown-fields", "fields of a future host are ignored in every message",
			"decode with a protobuf library", func(c *C) {
				i, req := c.shared(), c.request()
				_, err := i.rpc.Describe(c.ctx, greased(&pb.DescribeRequest{}))
				c.ok("describe", err)
				start := c.rawStart(req)
				greased(start, start.Spec, start.Spec.Limits)
				stream, err := i.rpc.Create(c.ctx)
				c.ok("create", err)
				c.later(func() { i.Destroy(context.Background(), sdk.Handle{ID: req.ID}) })
				c.ok("create", stream.Send(&pb.CreateRequest{Request: &pb.CreateRequest_Start{Start: start}}))
				var ready *pb.Ready
				for ready == nil {
					ev, err := stream.Recv()
					c.ok("create", err)
					if ev.GetAllocated() != nil {
						stream.Send(greased(proto.Clone(stored).(*pb.CreateRequest)))
					}
					ready = ev.GetReady()
				}
				got := c.rawExecOn(i, rawStart(greased(&pb.ExecStart{
					SandboxId: req.ID, Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte("exit 0")},
					Dir: []byte(ready.GetWorkspace()),
				})))
				if !strings.HasSuffix(got, "started exited EOF") {
					c.Fatalf("exec: %s", got)
				}
			}),
		row("robust/unknown-requests", "a request of no known kind during a command is ignored",
			"ignore a oneof that is not set", used(func(b *box) {
				got := b.rawExec(b.raw("sleep 0.2"), greased(&pb.ExecRequest{}))
				if !strings.HasSuffix(got, "started exited EOF") {
					b.Fatalf("got %s", got)
				}
			})),
		row("robust/exec-without-start", "a command that does not begin with its start is refused",
			"reason config", func(c *C) {
				got := c.rawExecOn(c.shared(), &pb.ExecRequest{Request: &pb.ExecRequest_Signal{Signal: 9}})
				c.eq("the answer", got, "config")
				c.describe()
			}),
		row("robust/create-without-start", "a creation that does not begin with its start is refused",
			"reason config", func(c *C) {
				stream, err := c.shared().rpc.Create(c.ctx)
				c.ok("create", err)
				stream.Send(stored)
				_, err = stream.Recv()
				refused(c, err, "config")
			}),
		row("robust/put-without-header", "a put that does not begin with its header is refused",
			"reason config", func(c *C) {
				stream, err := c.shared().rpc.Put(c.ctx)
				c.ok("put", err)
				stream.Send(&pb.PutRequest{Request: &pb.PutRequest_Data{Data: []byte("x")}})
				_, err = stream.CloseAndRecv()
				refused(c, err, "config")
			}, needCap(sdk.CapPut)),
		row("robust/unknown-call", "a call of a future host is refused as unimplemented, and the backend lives",
			"let gRPC answer", func(c *C) {
				err := c.shared().Conn().Invoke(c.ctx, service+"Teleport", &emptypb.Empty{}, &emptypb.Empty{})
				refused(c, err, "Unimplemented")
				c.describe()
			}),
		row("robust/garbage", "bytes that are no message are refused, and the backend lives",
			"decode with a protobuf library", func(c *C) {
				if err := c.shared().Conn().Invoke(c.ctx, service+"Plan", &emptypb.Empty{}, &emptypb.Empty{},
					grpc.ForceCodec(rawCodec{})); err == nil {
					c.Fatalf("they were accepted")
				}
				c.describe()
			}),
		row("robust/unclaimed-calls", "a call whose capability is not claimed is refused as unsupported",
			"reason unsupported, or gRPC's own unimplemented", used(func(b *box) {
				for _, o := range append(optionalCalls, forkCall) {
					if b.facts.Has(o.cap) {
						continue
					}
					if err := o.call(b.C, b.on.rpc, b.ID()); !missing(err) {
						b.Fatalf("%s, which is not claimed, gave %v", o.name, err)
					}
				}
			})),
		row("robust/claimed-calls", "every call whose capability is claimed exists",
			"claim what you implement; the SDK does it for you", func(c *C) {
				for _, o := range append(optionalCalls, attachCall, planCall) {
					if !c.facts.Has(o.cap) {
						continue
					}
					if err := o.call(c, c.shared().rpc, c.short+"-nobody"); missing(err) {
						c.Fatalf("%s is claimed and gave %v", o.name, err)
					}
				}
			}),
		row("robust/big-message", "a message of 8 MiB is taken or refused, and the backend lives",
			"raise gRPC's limit of 4 MiB for what it receives", used(func(b *box) {
				b.sh("", shell("echo $#"), env("BIG", strings.Repeat("x", 120_000)), printed("0\n"))
				s := b.raw("")
				s.Argv = [][]byte{[]byte("/bin/true")}
				for range 80 { // E2BIG for the kernel, and beyond the 4 MiB that gRPC takes by itself
					s.Argv = append(s.Argv, []byte(strings.Repeat("x", 100_000)))
				}
				if events := b.rawExec(s); strings.Contains(events, "ResourceExhausted") {
					b.Fatalf("gRPC refused it: %v", events)
				}
				b.must("true")
			})),
		row("robust/many-calls", "200 calls at once are all answered",
			"do not bound what can be bounded by the host", func(c *C) {
				i := c.shared()
				c.atOnce(200, func(int) error { return i.Destroy(c.ctx, sdk.Handle{ID: c.short + "-never-was"}) })
			}),
		row("robust/foreign-handle", "a handle with data of another backend, or none that can be read, does no harm",
			"refuse what cannot be read; never remove what a handle names without looking whether it is yours", func(c *C) {
				victim := c.project("victim")
				for _, d := range strings.Fields("workspace output input tmp home upper work state rootfs merged") {
					c.hostDir("victim/" + d)
				}
				before := c.hostTree(victim)
				for _, data := range []string{
					strings.ReplaceAll(`{"dir":"V","path":"V","state_dir":"V","workspace":"V"}`, "V", victim),
					`17`, `"text"`, `[]`, `{"pid":1}`,
				} {
					err := c.shared().Destroy(c.ctx, sdk.Handle{ID: c.short + "-foreign", Data: []byte(data)})
					if err != nil {
						c.wantReason(err, "destroying by the handle "+data,
							sdk.ReasonConfig, sdk.ReasonNotFound, sdk.ReasonInternal)
					}
				}
				c.eq("the directory that it named", c.hostTree(victim), before)
				c.describe()
			}),
	}
}

// rawCodec sends bytes that are no message.
type rawCodec struct{}

func (rawCodec) Marshal(any) ([]byte, error) { return []byte{0xff, 0xff, 0xff, 0x07, 0x80}, nil }
func (rawCodec) Unmarshal([]byte, any) error { return nil }
func (rawCodec) Name() string                { return "proto" }

func deathChecks() []Check {
	// begin begins a sandbox with a beating heart on its own instance.
	begin := func(c *C) (*box, *running) {
		b := c.ownBox()
		return b, b.beating()
	}
	// destroyed destroys with a fresh plugin what a dead one has made.
	destroyed := func(b *box) {
		b.ok("destroying with a fresh plugin", b.fresh(StartOptions{}).Destroy(b.ctx, b.Handle()))
		b.noProcesses()
		b.stateEmpty()
	}
	return []Check{
		alone("death/host",
			"when the host dies without a word, everything is gone within 5 s: commands, sandboxes, the process itself",
			"the SDK hears it from the lifeline; let Exec and Create end with their contexts", func(c *C) {
				b, _ := begin(c)
				b.on.Abandon()
				c.absent(5*time.Second, "the process and all that it made are gone", func() string {
					if !gone(b.on) {
						return "the plugin lives"
					}
					return c.processes(c.marker) + c.traces(b.ID())
				})
				b.stateEmpty()
			}),
		alone("death/host-while-creating", "when the host dies while a sandbox is made, nothing of it is left",
			"undo what was made when the context ends", func(c *C) {
				i := c.fresh(StartOptions{})
				req := c.request()
				req.Allocated = func(sdk.Handle) error { i.Abandon(); return nil }
				c.create(c.ctx, i, req)
				c.isGone(i)
				c.nothingLeft(req.ID)
			}),
		alone("death/killed", "after SIGKILL of the plugin a fresh one destroys the sandbox, and no process of it is left",
			"keep in the handle what finds processes and mounts; give commands a parent-death signal or a namespace that dies",
			func(c *C) {
				b, r := begin(c)
				c.kill(b.on)
				r.ended(soon)
				destroyed(b)
				c.nothingLeft(b.ID())
			}, needProcess),
		alone("death/stopped",
			"a plugin that hangs is given up by its deadline, and killing it leaves nothing that a fresh one cannot destroy",
			"see death/killed", func(c *C) {
				b, _ := begin(c)
				syscall.Kill(b.on.PID(), syscall.SIGSTOP)
				c.eventually(soon, "the plugin is stopped", func() (bool, string) { return stopped(b.on.PID()) })
				ctx, cancel := context.WithTimeout(c.ctx, 500*time.Millisecond)
				defer cancel()
				if _, err := b.on.Describe(ctx); err == nil {
					c.Fatalf("it answered although it was stopped")
				}
				c.kill(b.on)
				destroyed(b)
			}, needProcess),
		alone("death/term", "SIGTERM ends the plugin, after it has cleaned up",
			"do in the handler what is done when the host is gone", func(c *C) {
				b, _ := begin(c)
				syscall.Kill(b.on.PID(), syscall.SIGTERM)
				c.isGone(b.on)
				c.noProcesses()
				b.stateEmpty()
			}, needProcess),
		alone("death/drained", "after Drain the process ends by itself",
			"exit when the answer to Drain is out", func(c *C) {
				b := c.ownBox()
				c.ok("drain", b.on.Drain(c.ctx))
				c.isGone(b.on)
			}, needProcess),
		row("death/two-processes", "two processes of the backend work side by side",
			"share nothing that is not locked between processes", func(c *C) {
				x, y := c.ownBox(), c.ownBox()
				x.must("echo x > file")
				y.must("echo y > file")
				x.prints("x\n", "cat file")
				c.halt(x.on)
				y.prints("y\n", "cat file")
			}, needProcess),
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
