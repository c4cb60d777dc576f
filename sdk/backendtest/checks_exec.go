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
	"time"

	"google.golang.org/grpc/status"

	"github.com/hutch-run/hutch/sdk"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

func execChecks() []Check {
	code := func(n int) Check {
		return row(fmt.Sprintf("exec/exit-%d", n),
			fmt.Sprintf("a command that exits with %d is reported as exited with %[1]d", n),
			"a code that is not zero is a result and no error", runs(fmt.Sprintf("exit %d", n), exits(n)))
	}
	const loop = "i=0; while [ $i -lt %d ]; do i=$((i+1)); done"
	return []Check{
		code(0), code(1), code(7), code(126), code(127), code(255),
		row("exec/not-found", "a command that is not found has code 127 and is said not to have started",
			"look the program up before starting it, and set NotStarted", used(func(b *box) {
				for _, name := range []string{"no-such-program-here", "/no/such/program", "./no-such-program"} {
					b.sh("", argv(name), notStarted(127))
				}
			})),
		row("exec/not-executable", "a file that is not executable has code 126 and is said not to have started",
			"tell EACCES from ENOENT", used(func(b *box) {
				b.must("echo 'echo hello' > script && chmod 644 script")
				b.sh("", argv("./script"), notStarted(126))
			})),
		row("exec/directory", "a directory as command has code 126 and is said not to have started",
			"tell EACCES from ENOENT", runs("", argv("/"), notStarted(126))),
		row("exec/empty-argv", "no command at all is refused, and the backend lives",
			"refuse with reason config", used(func(b *box) {
				_, err := b.try("", argv())
				b.wantReason(err, "an empty argv", sdk.ReasonConfig)
				b.must("true")
			})),
		row("exec/looked-up", "a command without a slash is looked up in the PATH it is given",
			"use the PATH of the command's environment, not the backend's", used(func(b *box) {
				at := strings.TrimSpace(b.must(`mkdir bin && printf '#!/bin/sh\necho found\n' > bin/only-here &&
chmod 755 bin/only-here && cd bin && pwd`))
				b.sh("", argv("only-here"), env("PATH", at+":"+searchPath), printed("found\n"))
			})),
		row("exec/signaled", "a command that dies by SIGKILL of its own is reported as signaled, with the signal and 137",
			"read the wait status; cause signaled, code 128+n", runs("kill -KILL $$", signaled("SIGKILL", 137))),
		row("exec/signaled-term",
			"a command that dies by SIGTERM of its own is reported as signaled, with the signal and 143",
			"read the wait status; cause signaled, code 128+n", runs("kill -TERM $$", signaled("SIGTERM", 143))),
		row("exec/signal-delivered", "a signal that the host sends reaches the command",
			"read Command.Signals and pass them on", used(func(b *box) {
				r := b.begin(`trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.05; done`)
				b.ok("the signal", r.Signal(10))
				b.wantExit(r.end(2*soon), 9)
				r.await("got it")
			})),
		row("exec/signal-kills", "a signal that the host sends and the command does not handle is what it dies of",
			"do not turn a signal of the host into a cancellation", used(func(b *box) {
				r := b.sleeping()
				b.ok("the signal", r.Signal(15))
				b.wantSignal(r.end(2*soon), "SIGTERM", 143)
			})),
		row("exec/events", "the events are opened, started and exited, each once and in this order",
			"send started once the command runs, and exited as the last word", used(func(b *box) {
				if got := b.rawExec(b.raw("exit 3")); got != "started exited EOF" && got != "opened started exited EOF" {
					b.Fatalf("the events were %s", got)
				}
			})),
		row("exec/usage-wall", "the time that a command took is reported",
			"fill in Usage.Wall", runs("sleep 0.3", want(func(b *box, o *out) {
				if o.Usage.Wall < 250*time.Millisecond || o.Usage.Wall > o.took {
					b.Fatalf("sleep 0.3 is said to have taken %s, of at most %s", o.Usage.Wall, o.took)
				}
			}))),
		row("exec/usage-honest",
			"what a command is said to have used is not negative, and not more processor time than there was",
			"leave zero what is not known", runs(fmt.Sprintf(loop, 20_000), want(func(b *box, o *out) {
				u := o.Usage
				if u.User < 0 || u.Sys < 0 || u.PeakMemory < 0 || u.PIDs < 0 || u.User+u.Sys > 64*u.Wall+time.Second {
					b.Fatalf("%+v", u)
				}
			}))),
		row("exec/usage-known", "processor time and memory that a command used are reported",
			"fill in Usage.User, Usage.Sys and Usage.PeakMemory from wait4, or from the counters of a cgroup",
			runs(fmt.Sprintf(loop, 200_000), want(func(b *box, o *out) {
				if u := o.Usage; u.User+u.Sys < 10*time.Millisecond || u.PeakMemory < 1<<10 {
					b.Fatalf("of a loop that takes a good part of a second it says %s of processor time and %d bytes of memory",
						u.User+u.Sys, u.PeakMemory)
				}
			})), needLocal),
		row("exec/persists", "what one command writes to the workspace the next one sees",
			"give all commands of a sandbox the same workspace", used(func(b *box) {
				b.must("mkdir -p a/b && echo one > a/b/file")
				b.prints("one\n", "cat a/b/file")
			})),
		row("exec/parallel-50", "50 commands run at once in one sandbox, each with its own output and code",
			"share nothing between commands", used(func(b *box) {
				b.atOnce(50, func(i int) error {
					text := fmt.Sprintf("in%d", i)
					o, err := b.try(fmt.Sprintf("cat; echo err%d >&2; exit %d", i, i), stdin(text))
					if err == nil && (o.Code != i || o.stdout != text || o.stderr != fmt.Sprintf("err%d\n", i)) {
						err = fmt.Errorf("%s, stdout %s", o.how(), quote(o.stdout))
					}
					return err
				})
			})),
		row("exec/at-once", "commands of one sandbox run at the same time and not one after the other",
			"do not hold a lock while a command runs", used(func(b *box) {
				r := b.begin("echo ready; cat; exit 0", b.openStdin())
				b.sh("true", exits(0), within(soon))
				r.cancel()
			})),
		row("exec/unknown-sandbox", "a command for a sandbox that does not exist is refused as not found",
			"reason not_found", func(c *C) {
				c.eq("the answer", c.rawExecOn(c.shared(), rawStart(&pb.ExecStart{
					SandboxId: c.short + "-nobody", Argv: [][]byte{[]byte("true")},
				})), "not_found")
			}),
		row("exec/destroyed-sandbox", "a command for a sandbox that was destroyed is refused as not found",
			"forget the sandbox in Destroy", func(c *C) {
				_, err := c.destroyed().try("true")
				c.wantReason(err, "a command in a destroyed sandbox", sdk.ReasonNotFound)
			}),
	}
}

// rawStart is the first request of a command.
func rawStart(s *pb.ExecStart) *pb.ExecRequest {
	return &pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: s}}
}

// raw is the start of a script, for requests that the client would not send.
func (b *box) raw(script string) *pb.ExecStart {
	return &pb.ExecStart{
		SandboxId: b.ID(), Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(script)},
		Env: [][]byte{[]byte("PATH=" + searchPath)}, Dir: []byte(b.Ready().Workspace), GraceNs: int64(shortTerm),
	}
}

// rawExec runs a command and returns the names of the events, and of the error.
func (b *box) rawExec(s *pb.ExecStart, more ...*pb.ExecRequest) string {
	return b.rawExecOn(b.on, append([]*pb.ExecRequest{rawStart(s)}, more...)...)
}

func (c *C) rawExecOn(i *instance, requests ...*pb.ExecRequest) string {
	ctx, cancel := context.WithTimeout(c.ctx, 2*soon)
	defer cancel()
	stream, err := i.rpc.Exec(ctx)
	c.ok("exec", err)
	for _, r := range requests {
		if err := stream.Send(r); !errors.Is(err, io.EOF) {
			c.ok("exec", err)
		}
	}
	var events []string
	for {
		ev, err := stream.Recv()
		if err != nil {
			return strings.Join(append(events, reasonOf(err)), " ")
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

// reasonOf is the reason of a failed raw call, gRPC's code when it has none, or EOF.
func reasonOf(err error) string {
	if errors.Is(err, io.EOF) {
		return "EOF"
	}
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
		want := fmt.Sprintf("%d:", len(list))
		for _, a := range list {
			want += a + "\x01"
		}
		count := `printf '%d:' $#; for a in "$@"; do printf '%s\001' "$a"; done`
		return row("argv/"+name, "arguments arrive as they are: "+what, "pass the list on; let no shell see it",
			runs("", shell(count, list...), exits(0), printed(want)))
	}
	// notRun proves that a command with something that does not exist is not run in another way.
	notRun := func(what string, change opt, reasons ...sdk.Reason) func(*C) {
		return used(func(b *box) {
			o, err := b.try("echo ran", change)
			if err != nil {
				b.wantReason(err, what, reasons...)
			} else if o.stdout != "" || !o.NotStarted {
				b.Fatalf("%s, stdout %s", o.how(), quote(o.stdout))
			}
		})
	}
	return []Check{
		args("quotes", "quotes, dollars, backslashes",
			`it's`, `"quoted"`, `$HOME`, "`id`", `\n`, `$(id)`, `a;b|c&d>e`),
		args("newlines", "newlines, tabs, control characters",
			"a\nb", "\n", "\t", "a\rb", "\x1b[31m", "trailing\n"),
		args("globs", "what a shell would expand", "*", "?", "[a-z]*", "~", "{a,b}", "!1", "#", "/*"),
		args("empty", "empty arguments and spaces", "", " ", "a  b", "", " x ", ""),
		args("unicode", "letters of all languages, and bytes that are none",
			"grüße", "日本語", "🦔", "e\u0301", "\xff\xfe", "caf\xe9"),
		args("dashes", "what looks like an option", "-", "--", "-c", "--help", "-rf", "--=x"),
		args("long", "100,000 bytes in one argument", strings.Repeat("x", 100_000)),
		args("many", "2,000 arguments", slices.Repeat([]string{"arg"}, 2_000)...),
		row("env/exact", "each variable arrives with exactly its value", "pass NAME=value on as it is", used(func(b *box) {
			given := map[string]string{
				"PATH": searchPath, "SIMPLE": "1", "EMPTY": "", "SPACES": "  a  b  ", "NEWLINE": "a\nb\n",
				"EQUALS": "a=b=c", "QUOTES": `'"$HOME\`, "UNICODE": "grüße 🦔", "BYTES": "\xff\xfe", "lower_case": "yes",
				"LONG": strings.Repeat("y", 60_000), "HOME": "/given/home", "LANG": "C", markerName: b.marker,
			}
			got := b.environ(given)
			for name, want := range given {
				if v, ok := got[name]; !ok || v != want {
					b.Fatalf("%s is %s (set: %v); want %s", name, quote(v), ok, quote(want))
				}
			}
		})),
		row("env/nothing-else",
			"a command has the variables it was given, and besides them at most HOME, PATH, TERM and LANG, and TMPDIR where "+
				"/tmp is the host's",
			"start from an empty environment, not from the backend's", used(func(b *box) {
				// The suite's own process is the plugin's at one door, and its parent at the other.
				os.Setenv("HUTCH_BACKENDTEST_CANARY", "it leaks")
				defer os.Unsetenv("HUTCH_BACKENDTEST_CANARY")
				known := []string{"ONLY", markerName, "HOME", "PATH", "TERM", "LANG"}
				if b.facts.Isolation == sdk.IsolationProcess {
					known = append(known, "TMPDIR")
				}
				for name, v := range b.environ(map[string]string{"ONLY": "this", markerName: b.marker}) {
					if !slices.Contains(known, name) {
						b.Fatalf("%s=%s is there, and was not given", name, quote(v))
					}
				}
			})),
		row("env/path-and-home", "a command that was given no PATH and no HOME has one of each",
			"add them where missing", used(func(b *box) {
				got := b.environ(map[string]string{"ONLY": "this", markerName: b.marker})
				if got["PATH"] == "" || !strings.HasPrefix(got["HOME"], "/") {
					b.Fatalf("PATH=%s HOME=%s", quote(got["PATH"]), quote(got["HOME"]))
				}
			})),
		row("env/home-writable", "the HOME that a backend adds is a directory that the command may write to",
			"make a home directory in the sandbox", must(`test -d "$HOME" && echo x > "$HOME/.file" && rm "$HOME/.file"`)),
		row("dir/given", "a command starts in the directory it was given", "use Command.Dir", used(func(b *box) {
			b.must("mkdir -p 'sub dir/ü'")
			want := strings.TrimSuffix(b.must("cd 'sub dir/ü' && pwd -P"), "\n") + "\n"
			b.prints(want, "pwd -P", dir(b.at("sub dir/ü")))
		})),
		row("dir/default", "a command that was given no directory starts in the workspace",
			"an empty Dir means the workspace", used(func(b *box) {
				b.must("echo here > marker")
				b.prints("here\n", "cat marker", dir(""))
			})),
		row("dir/missing", "a command whose directory does not exist is not run anywhere else",
			"refuse it, or report that it was not started", notRun("a directory that does not exist", dir("/no/such/dir"),
				sdk.ReasonConfig, sdk.ReasonNotFound)),
		row("dir/relative", "a directory that is not absolute is refused", "reason config", used(func(b *box) {
			_, err := b.try("true", dir("relative"))
			b.wantReason(err, "a relative directory", sdk.ReasonConfig)
		})),
		row("user/unknown", "a user that does not exist is refused, and nothing runs as another one",
			"refuse it, or report that it was not started",
			notRun("a user that does not exist", func(cmd *command) { cmd.User = "no-such-user-here" },
				sdk.ReasonConfig, sdk.ReasonNotFound, sdk.ReasonUnsupported, sdk.ReasonDenied)),
		row("process/descriptors", "a command has its three streams and no descriptor of the backend",
			"set close-on-exec on everything", used(func(b *box) {
				// ls itself opens the directory; a shell keeps none of its own when it replaces itself.
				got := strings.Fields(b.must("exec ls /proc/self/fd", stdin("x")))
				slices.Sort(got)
				if len(got) != 4 || !slices.Equal(got[:3], []string{"0", "1", "2"}) {
					b.Fatalf("the descriptors are %v; want 0, 1, 2 and the one of ls", got)
				}
			}), needProc),
		row("process/signals", "a command ignores and blocks no signal from the start",
			"catch SIGPIPE in the backend instead of ignoring it: what is ignored is inherited", used(func(b *box) {
				o := b.sh("", argv("cat", "/proc/self/status"), exits(0))
				for _, line := range []string{"SigIgn:", "SigBlk:"} {
					set, ok := signalSet(o.stdout, line)
					if line == "SigIgn:" { // a backend passes on what the suite was started with, below nohup for one
						set &^= ignoredAtStart
					}
					// Signals 32 and 33 are glibc's own: what it starts by posix_spawn, make's children for one, inherits
					// them ignored, and nobody can set them back by ordinary means.
					if set &^= 1<<31 | 1<<32; !ok || set != 0 {
						b.Fatalf("%s %x of /proc/self/status: %s", line, set, quote(o.stdout))
					}
				}
			}), needProc),
	}
}

// signalSet reads a line, such as "SigIgn:", of the status of a process.
func signalSet(status, name string) (set uint64, ok bool) {
	for l := range strings.Lines(status) {
		if f := strings.Fields(l); len(f) == 2 && f[0] == name {
			set, err := strconv.ParseUint(f[1], 16, 64)
			return set, err == nil
		}
	}
	return 0, false
}

// ignoredAtStart is read before any backend of this process could ignore a signal.
var ignoredAtStart = func() uint64 {
	status, _ := os.ReadFile("/proc/self/status")
	set, _ := signalSet(string(status), "SigIgn:")
	return set
}()

// environ returns the environment of a command that was given one.
func (b *box) environ(given map[string]string) map[string]string {
	o := b.sh("", argv("/usr/bin/env", "-0"), func(cmd *command) { cmd.Env = maps.Clone(given) }, exits(0))
	got := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimSuffix(o.stdout, "\x00"), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		if _, twice := got[name]; twice {
			b.Fatalf("%s is there twice", name)
		}
		got[name] = value
	}
	return got
}
