package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
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
		{ID: "exec/usage-wall", Proves: "the time that a command took is reported", Fix: "fill in Usage.Wall",
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

func commandChecks() []Check {
	// args proves that arguments arrive as they are.
	args := func(name, what string, list ...string) Check {
		return Check{ID: "argv/" + name, Proves: "arguments arrive as they are: " + what, Fix: "pass the list on; let no shell see it",
			run: func(c *C) {
				b := c.used()
				script := `printf '%d:' $#; for a in "$@"; do printf '%s\001' "$a"; done`
				o := b.exec(b.command("", argv(append([]string{"/bin/sh", "-c", script, "sh"}, list...)...)))
				c.wantExit(o, 0)
				want := fmt.Sprintf("%d:", len(list))
				for _, a := range list {
					want += a + "\x01"
				}
				c.eq("what the command got", o.stdout, want)
			}}
	}
	return []Check{
		args("quotes", "quotes, dollars, backslashes", `it's`, `"quoted"`, `$HOME`, "`id`", `\n`, `$(id)`, `a;b|c&d>e`),
		args("newlines", "newlines, tabs, control characters", "a\nb", "\n", "\t", "a\rb", "\x1b[31m", "trailing\n"),
		args("globs", "what a shell would expand", "*", "?", "[a-z]*", "~", "{a,b}", "!1", "#", "/*"),
		args("empty", "empty arguments and spaces", "", " ", "a  b", "", " x ", ""),
		args("unicode", "letters of all languages, and bytes that are none", "grüße", "日本語", "🦔", "e\u0301", "\xff\xfe", "caf\xe9"),
		args("dashes", "what looks like an option", "-", "--", "-c", "--help", "-rf", "--=x"),
		args("long", "100,000 bytes in one argument", strings.Repeat("x", 100_000)),
		args("many", "2,000 arguments", slices.Repeat([]string{"arg"}, 2_000)...),
		{ID: "env/exact", Proves: "each variable arrives with exactly its value", Fix: "pass NAME=value on as it is",
			run: func(c *C) {
				b := c.used()
				given := map[string]string{
					"PATH": searchPath, "SIMPLE": "1", "EMPTY": "", "SPACES": "  a  b  ", "NEWLINE": "a\nb\n", "EQUALS": "a=b=c", "QUOTES": `'"$HOME\`,
					"UNICODE": "grüße 🦔", "BYTES": "\xff\xfe", "lower_case": "yes", "LONG": strings.Repeat("y", 60_000), "HOME": "/given/home", "LANG": "C", markerName: c.marker,
				}
				got := c.environ(b, given)
				for name, want := range given {
					if v, ok := got[name]; !ok || v != want {
						c.Fatalf("%s is %s (set: %v); want %s", name, quote(v), ok, quote(want))
					}
				}
			}},
		{ID: "env/nothing-else", Proves: "a command has the variables it was given, and besides them at most HOME, PATH, TERM and LANG, and TMPDIR where /tmp is the host's", Fix: "start from an empty environment, not from the backend's",
			run: func(c *C) {
				// The suite's own process is the plugin's at one door, and its parent at the other.
				os.Setenv("HUTCH_BACKENDTEST_CANARY", "it leaks")
				defer os.Unsetenv("HUTCH_BACKENDTEST_CANARY")
				given := map[string]string{"ONLY": "this", markerName: c.marker}
				known := []string{"HOME", "PATH", "TERM", "LANG"}
				if c.facts.Isolation == sdk.IsolationProcess {
					known = append(known, "TMPDIR")
				}
				for name, v := range c.environ(c.used(), given) {
					if _, ok := given[name]; !ok && !slices.Contains(known, name) {
						c.Fatalf("%s=%s is there, and was not given", name, quote(v))
					}
				}
			}},
		{ID: "env/path-and-home", Proves: "a command that was given no PATH and no HOME has one of each", Fix: "add them where missing",
			run: func(c *C) {
				got := c.environ(c.used(), map[string]string{"ONLY": "this", markerName: c.marker})
				if got["PATH"] == "" || !strings.HasPrefix(got["HOME"], "/") {
					c.Fatalf("PATH=%s HOME=%s", quote(got["PATH"]), quote(got["HOME"]))
				}
			}},
		{ID: "env/home-writable", Proves: "the HOME that a backend adds is a directory that the command may write to", Fix: "make a home directory in the sandbox",
			run: func(c *C) {
				b := c.used()
				b.must(`test -d "$HOME" && echo x > "$HOME/.file" && rm "$HOME/.file"`)
			}},
		{ID: "dir/given", Proves: "a command starts in the directory it was given", Fix: "use Command.Dir",
			run: func(c *C) {
				b := c.used()
				b.must("mkdir -p 'sub dir/ü'")
				dir := b.Ready().Workspace + "/sub dir/ü"
				c.eq("pwd", b.must("pwd -P", func(cmd *client.Command) { cmd.Dir = dir }), strings.TrimSuffix(b.must("cd 'sub dir/ü' && pwd -P"), "\n")+"\n")
			}},
		{ID: "dir/default", Proves: "a command that was given no directory starts in the workspace", Fix: "an empty Dir means the workspace",
			run: func(c *C) {
				b := c.used()
				b.must("echo here > marker")
				c.eq("the file", b.must("cat marker", func(cmd *client.Command) { cmd.Dir = "" }), "here\n")
			}},
		{ID: "dir/missing", Proves: "a command whose directory does not exist is not run anywhere else", Fix: "refuse it, or report that it was not started",
			run: func(c *C) {
				b := c.used()
				o, err := b.tryExec(b.command("echo ran", func(cmd *client.Command) { cmd.Dir = "/no/such/dir" }))
				if err != nil {
					c.wantReason(err, "a directory that does not exist", sdk.ReasonConfig, sdk.ReasonNotFound)
				} else if o.stdout != "" || !o.NotStarted {
					c.Fatalf("%s, stdout %s", o.how(), quote(o.stdout))
				}
			}},
		{ID: "dir/relative", Proves: "a directory that is not absolute is refused", Fix: "reason config",
			run: func(c *C) {
				b := c.used()
				_, err := b.tryExec(b.command("true", func(cmd *client.Command) { cmd.Dir = "relative" }))
				c.wantReason(err, "a relative directory", sdk.ReasonConfig)
			}},
		{ID: "user/unknown", Proves: "a user that does not exist is refused, and nothing runs as another one", Fix: "refuse it, or report that it was not started",
			run: func(c *C) {
				b := c.used()
				o, err := b.tryExec(b.command("echo ran", func(cmd *client.Command) { cmd.User = "no-such-user-here" }))
				if err != nil {
					c.wantReason(err, "a user that does not exist", sdk.ReasonConfig, sdk.ReasonNotFound, sdk.ReasonUnsupported, sdk.ReasonDenied)
				} else if o.stdout != "" || !o.NotStarted {
					c.Fatalf("%s, stdout %s", o.how(), quote(o.stdout))
				}
			}},
		{ID: "process/descriptors", Needs: []Need{needProc}, Proves: "a command has its three streams and no descriptor of the backend", Fix: "set close-on-exec on everything",
			run: func(c *C) {
				// ls itself opens the directory; a shell keeps none of its own when it replaces itself.
				got := strings.Fields(c.used().must("exec ls /proc/self/fd", stdin("x")))
				slices.Sort(got)
				if len(got) != 4 || !slices.Equal(got[:3], []string{"0", "1", "2"}) {
					c.Fatalf("the descriptors are %v; want 0, 1, 2 and the one of ls", got)
				}
			}},
		{ID: "process/signals", Needs: []Need{needProc}, Proves: "a command ignores and blocks no signal from the start", Fix: "catch SIGPIPE in the backend instead of ignoring it: what is ignored is inherited",
			run: func(c *C) {
				b := c.used()
				o := b.exec(b.command("", argv("grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status")))
				for line := range strings.Lines(o.stdout) {
					f := strings.Fields(line)
					if len(f) != 2 {
						continue
					}
					set, err := strconv.ParseUint(f[1], 16, 64)
					// Signals 32 and 33 are glibc's own: what it starts by posix_spawn, make's children for one, inherits
					// them ignored, and nobody can set them back by ordinary means.
					// A backend passes on what the suite itself was started with, below nohup for one.
					if set &^= 1<<31 | 1<<32 | inherited(f[0]); err != nil || set != 0 {
						c.Fatalf("%s", strings.TrimSpace(line))
					}
				}
				if strings.Count(o.stdout, "\n") != 2 {
					c.Fatalf("/proc/self/status says %s; %s", quote(o.stdout), o.how())
				}
			}},
	}
}

// inherited are the signals that this process itself was started with in a line of its status, such as "SigIgn:".
func inherited(line string) uint64 {
	if line == "SigIgn:" {
		return ignoredAtStart
	}
	return 0
}

// ignoredAtStart is read before any backend of this process could ignore a signal.
var ignoredAtStart = func() uint64 {
	status, _ := os.ReadFile("/proc/self/status")
	for l := range strings.Lines(string(status)) {
		if f := strings.Fields(l); len(f) == 2 && f[0] == "SigIgn:" {
			set, _ := strconv.ParseUint(f[1], 16, 64)
			return set
		}
	}
	return 0
}()

// environ returns the environment of a command that was given one.
func (c *C) environ(b *box, given map[string]string) map[string]string {
	cmd := b.command("", argv("/usr/bin/env", "-0"))
	cmd.Env = maps.Clone(given)
	o := b.exec(cmd)
	c.wantExit(o, 0)
	got := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimSuffix(o.stdout, "\x00"), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		if _, twice := got[name]; twice {
			c.Fatalf("%s is there twice", name)
		}
		got[name] = value
	}
	return got
}
