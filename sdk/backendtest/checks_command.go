package backendtest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

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
		{ID: "env/nothing-else", Proves: "a command has the variables it was given, and besides them at most HOME, PATH, TERM and LANG", Fix: "start from an empty environment, not from the backend's",
			run: func(c *C) {
				// The suite's own process is the plugin's at one door, and its parent at the other.
				os.Setenv("HUTCH_BACKENDTEST_CANARY", "it leaks")
				defer os.Unsetenv("HUTCH_BACKENDTEST_CANARY")
				given := map[string]string{"ONLY": "this", markerName: c.marker}
				for name, v := range c.environ(c.used(), given) {
					if _, ok := given[name]; !ok && !slices.Contains([]string{"HOME", "PATH", "TERM", "LANG"}, name) {
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
		{ID: "process/descriptors", Proves: "a command has its three streams and no descriptor of the backend", Fix: "set close-on-exec on everything",
			run: func(c *C) {
				// ls itself opens the directory; a shell keeps none of its own when it replaces itself.
				got := strings.Fields(c.used().must("exec ls /proc/self/fd", stdin("x")))
				slices.Sort(got)
				if len(got) != 4 || !slices.Equal(got[:3], []string{"0", "1", "2"}) {
					c.Fatalf("the descriptors are %v; want 0, 1, 2 and the one of ls", got)
				}
			}},
		{ID: "process/signals", Proves: "a command ignores and blocks no signal from the start", Fix: "catch SIGPIPE in the backend instead of ignoring it: what is ignored is inherited",
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
