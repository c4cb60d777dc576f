package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

func execChecks() []Check {
	code := func(n int) Check {
		return Check{ID: fmt.Sprintf("exec/exit-%d", n), Proves: fmt.Sprintf("a command that exits with %d is reported as exited with %[1]d", n), Fix: "a code that is not zero is a result and no error",
			run: func(c *C) { c.wantExit(c.used().sh(fmt.Sprintf("exit %d", n)), n) }}
	}
	return []Check{
		code(0), code(1), code(7), code(126), code(127), code(255),
		{ID: "exec/not-found", Proves: "a command that is not found has code 127 and is said not to have started", Fix: "look the program up before starting it, and set NotStarted",
			run: func(c *C) {
				b := c.used()
				for _, name := range []string{"no-such-program-here", "/no/such/program", "./no-such-program"} {
					o := b.exec(b.command("", argv(name)))
					if o.Code != 127 || !o.NotStarted {
						c.Fatalf("%s: %s", name, o.how())
					}
				}
			}},
		{ID: "exec/not-executable", Proves: "a file that is not executable has code 126 and is said not to have started", Fix: "tell EACCES from ENOENT",
			run: func(c *C) {
				b := c.used()
				b.must("echo 'echo hello' > script && chmod 644 script")
				o := b.exec(b.command("", argv("./script")))
				if o.Code != 126 || !o.NotStarted {
					c.Fatalf("%s", o.how())
				}
			}},
		{ID: "exec/directory", Proves: "a directory as command has code 126 and is said not to have started", Fix: "tell EACCES from ENOENT",
			run: func(c *C) {
				b := c.used()
				o := b.exec(b.command("", argv("/")))
				if o.Code != 126 || !o.NotStarted {
					c.Fatalf("%s", o.how())
				}
			}},
		{ID: "exec/empty-argv", Proves: "no command at all is refused, and the backend lives", Fix: "refuse with reason config",
			run: func(c *C) {
				b := c.used()
				_, err := b.tryExec(b.command("", argv()))
				c.wantReason(err, "an empty argv", sdk.ReasonConfig)
				b.must("true")
			}},
		{ID: "exec/looked-up", Proves: "a command without a slash is looked up in the PATH it is given", Fix: "use the PATH of the command's environment, not the backend's",
			run: func(c *C) {
				b := c.used()
				dir := strings.TrimSpace(b.must(`mkdir bin && printf '#!/bin/sh\necho found\n' > bin/only-here && chmod 755 bin/only-here && cd bin && pwd`))
				o := b.exec(b.command("", argv("only-here"), env(map[string]string{"PATH": dir + ":" + searchPath})))
				c.eq("what the program in PATH printed", o.stdout, "found\n")
			}},
		{ID: "exec/signaled", Proves: "a command that dies by SIGKILL of its own is reported as signaled, with the signal and 137", Fix: "read the wait status; cause signaled, code 128+n",
			run: func(c *C) { c.wantSignal(c.used().sh("kill -KILL $$"), "SIGKILL", 137) }},
		{ID: "exec/signaled-term", Proves: "a command that dies by SIGTERM of its own is reported as signaled, with the signal and 143", Fix: "read the wait status; cause signaled, code 128+n",
			run: func(c *C) { c.wantSignal(c.used().sh("kill -TERM $$"), "SIGTERM", 143) }},
		{ID: "exec/signal-delivered", Proves: "a signal that the host sends reaches the command", Fix: "read Command.Signals and pass them on",
			run: func(c *C) {
				r := c.used().begin(`trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.05; done`)
				if err := r.Signal(10); err != nil {
					c.Fatalf("%v", err)
				}
				o := r.end(2 * soon)
				c.wantExit(o, 9)
				r.await("got it")
			}},
		{ID: "exec/signal-kills", Proves: "a signal that the host sends and the command does not handle is what it dies of", Fix: "do not turn a signal of the host into a cancellation",
			run: func(c *C) {
				b := c.used()
				r := b.begin(`echo ready; exec sleep 300`)
				if err := r.Signal(15); err != nil {
					c.Fatalf("%v", err)
				}
				c.wantSignal(r.end(2*soon), "SIGTERM", 143)
			}},
		{ID: "exec/events", Proves: "the events are opened, started and exited, each once and in this order", Fix: "send started once the command runs, and exited as the last word",
			run: func(c *C) {
				b := c.used()
				events := c.rawExec(b, &pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: &pb.ExecStart{
					SandboxId: b.ID(), Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte("exit 3")}, Env: [][]byte{[]byte("PATH=" + searchPath)}, Dir: []byte(b.Ready().Workspace),
				}}})
				got := strings.Join(events, " ")
				if got != "started exited EOF" && got != "opened started exited EOF" {
					c.Fatalf("the events were %s", got)
				}
			}},
		{ID: "exec/usage-wall", Proves: "the time that a command took is told", Fix: "fill in Usage.Wall",
			run: func(c *C) {
				began := time.Now()
				o := c.used().sh("sleep 0.3")
				if max := time.Since(began); o.Usage.Wall < 250*time.Millisecond || o.Usage.Wall > max {
					c.Fatalf("sleep 0.3 is said to have taken %s, of at most %s", o.Usage.Wall, max)
				}
			}},
		{ID: "exec/usage-honest", Proves: "what a command is said to have used is not negative, and not more processor time than there was", Fix: "leave zero what is not known",
			run: func(c *C) {
				u := c.used().sh("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").Usage
				if u.User < 0 || u.Sys < 0 || u.PeakMemory < 0 || u.PIDs < 0 || u.User+u.Sys > 64*u.Wall+time.Second {
					c.Fatalf("%+v", u)
				}
			}},
		{ID: "exec/usage-known", Needs: []Need{needLocal}, Proves: "processor time and memory that a command used are reported", Fix: "fill in Usage.User, Usage.Sys and Usage.PeakMemory from wait4, or from the counters of a cgroup",
			run: func(c *C) {
				if u := c.used().sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").Usage; u.User+u.Sys < 10*time.Millisecond || u.PeakMemory < 1<<10 {
					c.Fatalf("of a loop that takes a good part of a second it says %s of processor time and %d bytes of memory", u.User+u.Sys, u.PeakMemory)
				}
			}},
		{ID: "exec/persists", Proves: "what one command writes to the workspace the next one sees", Fix: "give all commands of a sandbox the same workspace",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir -p a/b && echo one > a/b/file")
				c.eq("the file", b.must("cat a/b/file"), "one\n")
			}},
		{ID: "exec/parallel-50", Proves: "50 commands run at once in one sandbox, each with its own output and code", Fix: "share nothing between commands",
			run: func(c *C) {
				b := c.used()
				var wg sync.WaitGroup
				bad := make([]string, 50)
				for i := range bad {
					wg.Go(func() {
						o, err := b.tryExec(b.command(fmt.Sprintf("cat; echo err%d >&2; exit %d", i, i), stdin(fmt.Sprintf("in%d", i))))
						switch {
						case err != nil:
							bad[i] = err.Error()
						case o.Code != i || o.stdout != fmt.Sprintf("in%d", i) || o.stderr != fmt.Sprintf("err%d\n", i):
							bad[i] = fmt.Sprintf("%s, stdout %s", o.how(), quote(o.stdout))
						}
					})
				}
				wg.Wait()
				for i, s := range bad {
					if s != "" {
						c.Fatalf("command %d: %s", i, s)
					}
				}
			}},
		{ID: "exec/at-once", Proves: "commands of one sandbox run at the same time and not one after the other", Fix: "do not hold a lock while a command runs",
			run: func(c *C) {
				b := c.used()
				r := b.begin("echo ready; cat; exit 0", func(cmd *client.Command) { in, end := blocked(); cmd.Stdin = in; c.later(end) })
				began := time.Now()
				b.must("true")
				if took := time.Since(began); took > soon {
					c.Fatalf("beside another command it took %s", took)
				}
				r.Stop(sdk.CauseCancelled)
				r.end(2 * soon)
			}},
		{ID: "exec/unknown-sandbox", Proves: "a command for a sandbox that does not exist is refused as not found", Fix: "reason not_found",
			run: func(c *C) {
				i := c.shared()
				events := c.rawExecOn(i, &pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: &pb.ExecStart{SandboxId: c.short + "-nobody", Argv: [][]byte{[]byte("true")}}}})
				if got := strings.Join(events, " "); got != "not_found" {
					c.Fatalf("got %s", got)
				}
			}},
		{ID: "exec/destroyed-sandbox", Proves: "a command for a sandbox that was destroyed is refused as not found", Fix: "forget the sandbox in Destroy",
			run: func(c *C) {
				b := c.destroyed()
				_, err := b.tryExec(b.command("true"))
				c.wantReason(err, "a command in a destroyed sandbox", sdk.ReasonNotFound)
			}},
	}
}

func (c *C) wantSignal(o *out, name string, code int) {
	if o.Cause != sdk.CauseSignaled || o.Signal != name || o.Code != code {
		c.Fatalf("got %s; want cause \"signaled\", code %d, signal %s", o.how(), code, name)
	}
}

// rawExec sends one request and returns the names of the events, and of the error.
func (c *C) rawExec(b *box, first *pb.ExecRequest) []string { return c.rawExecOn(b.on, first) }

func (c *C) rawExecOn(i *instance, requests ...*pb.ExecRequest) (events []string) {
	ctx, cancel := context.WithTimeout(c.ctx, 2*soon)
	defer cancel()
	stream, err := i.rpc.Exec(ctx)
	if err != nil {
		c.Fatalf("%v", err)
	}
	for _, r := range requests {
		if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
			c.Fatalf("%v", err)
		}
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return append(events, lastEvent(err)...)
		}
		switch ev.GetEvent().(type) {
		case *pb.ExecEvent_Opened:
			events = append(events, "opened")
		case *pb.ExecEvent_Started:
			events = append(events, "started")
		case *pb.ExecEvent_Exited:
			events = append(events, "exited")
		default:
			events = append(events, "an event of no kind")
		}
	}
}

// lastEvent names the end of a stream.
func lastEvent(err error) []string {
	if errors.Is(err, io.EOF) {
		return []string{"EOF"}
	}
	return []string{reasonOf(err)}
}

// reasonOf is the reason of a failed raw call, or gRPC's code when it has none.
func reasonOf(err error) string {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if f, ok := d.(*pb.Failure); ok {
			return strings.ToLower(strings.TrimPrefix(f.GetReason().String(), "REASON_"))
		}
	}
	return st.Code().String()
}
