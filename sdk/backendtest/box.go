package backendtest

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// box is a sandbox that a check made. It has the methods of the check too.
type box struct {
	*client.Sandbox
	*C
	on  *instance
	req *sdk.CreateRequest
}

// used is a check that needs no more than a sandbox, and leaves it as it is: see [C.used].
func used(run func(*box)) func(*C) { return func(c *C) { run(c.used()) } }

// boxed is a check that changes or destroys its sandbox.
func boxed(run func(*box)) func(*C) { return func(c *C) { run(c.box()) } }

// kept is a check of a sandbox that is to outlive the process that made it.
func kept(run func(*box)) func(*C) { return func(c *C) { run(c.box(keep)) } }

// runs is a check that is one command. What is wanted of its end is among the options.
func runs(script string, opts ...opt) func(*C) {
	return used(func(b *box) { b.sh(script, opts...) })
}

// must is a check that is one command, which has to end well.
func must(script string, opts ...opt) func(*C) { return used(func(b *box) { b.must(script, opts...) }) }

// command is a command and what is wanted of its end.
type command struct {
	client.Command
	wants []func(*box, *out)
}

// opt changes a command, or wants something of its end.
type opt = func(*command)

// out is what a command printed and how it ended.
type out struct {
	*sdk.Exit
	stdout, stderr string
	took           time.Duration
}

// how describes the end of a command for a message.
func (o *out) how() string {
	s := fmt.Sprintf("cause %q, code %d", o.Cause, o.Code)
	if o.Signal != "" {
		s += ", signal " + o.Signal
	}
	if o.NotStarted {
		s += ", not started"
	}
	if o.Evidence != "" {
		s += fmt.Sprintf(" (evidence: %s)", o.Evidence)
	}
	if o.stderr != "" {
		s += fmt.Sprintf(", stderr %s", quote(o.stderr))
	}
	return s
}

// at is the path of a name in the workspace; one that is absolute stays as it is.
func (b *box) at(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return b.Ready().Workspace + "/" + name
}

// command returns what runs a script in the workspace.
func (b *box) command(script string, opts ...opt) *command {
	cmd := &command{Command: client.Command{
		Argv: []string{"/bin/sh", "-c", script}, Env: map[string]string{"PATH": searchPath, markerName: b.marker},
		Dir: b.Ready().Workspace, Grace: shortTerm,
	}}
	for _, f := range opts {
		f(cmd)
	}
	return cmd
}

// try runs a script, or what the options make of it, to its end.
func (b *box) try(script string, opts ...opt) (*out, error) {
	var stdout, stderr bytes.Buffer
	cmd := b.command(script, opts...)
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	began := time.Now()
	exit, err := b.Exec(b.ctx, &cmd.Command)
	if err != nil {
		return nil, err
	}
	o := &out{exit, stdout.String(), stderr.String(), time.Since(began)}
	for _, want := range cmd.wants {
		want(b, o)
	}
	return o, nil
}

// sh runs a script; an error of the backend ends the check.
func (b *box) sh(script string, opts ...opt) *out {
	o, err := b.try(script, opts...)
	if err != nil {
		b.Fatalf("running %s: %v", quoteArgv(b.command(script, opts...).Argv), err)
	}
	return o
}

// shPatiently runs a script that prints something and is then ended by its timeout, once more with a longer one where a
// busy machine did not get as far as the print.
func (b *box) shPatiently(script string, opts ...opt) *out {
	o := b.sh(script, append(opts, timeout(500*time.Millisecond))...)
	if o.stdout == "" {
		o = b.sh(script, append(opts, timeout(5*time.Second))...)
	}
	return o
}

// must runs a script that has to end well and returns what it printed.
func (b *box) must(script string, opts ...opt) string {
	o := b.sh(script, opts...)
	if o.Cause != sdk.CauseExited || o.Code != 0 {
		b.Fatalf("the script %s ended with %s", quote(script), o.how())
	}
	return o.stdout
}

// prints ends the check unless a script ends well and prints just this.
func (b *box) prints(want, script string, opts ...opt) {
	b.eq("what "+quote(script)+" printed", b.must(script, opts...), want)
}

// fail ends the check unless each script fails.
func (b *box) fail(scripts []string, opts ...opt) {
	for _, s := range scripts {
		if o := b.sh(s, opts...); o.Code == 0 {
			b.Fatalf("%q succeeded", s)
		}
	}
}

// running is a command that has been started and has said so on its stdout.
type running struct {
	*client.Exec
	*C
	out *lineBuffer
}

// begin starts a script and waits until it prints "ready". A timeout that a busy machine needed before that is made
// longer once.
func (b *box) begin(script string, opts ...opt) *running {
	r := &running{C: b.C, out: newLineBuffer()}
	cmd := b.command(script, opts...)
	cmd.Stdout = r.out
	e, err := b.Start(b.ctx, &cmd.Command)
	b.ok("starting "+quote(script), err)
	r.Exec = e
	b.later(func() { e.Stop(sdk.CauseCancelled) })
	if 0 < cmd.Timeout && cmd.Timeout < 2*soon {
		select {
		case <-r.out.has("ready"):
		case <-r.Done():
			return b.begin(script, append(opts, timeout(2*soon))...)
		}
	}
	r.await("ready")
	return r
}

// sleeping begins a command that does nothing for long.
func (b *box) sleeping() *running { return b.begin("echo ready; exec sleep 300") }

// await waits for a text on stdout.
func (r *running) await(text string) {
	select {
	case <-r.out.has(text):
	case <-r.Done():
		if !strings.Contains(r.out.String(), text) {
			exit, err := r.Wait()
			r.Fatalf("the command ended before it printed %q: %+v %v; it printed %s",
				text, exit, err, quote(r.out.String()))
		}
	case <-time.After(soon * 2):
		r.Fatalf("the command printed %s and not %q within %s", quote(r.out.String()), text, soon*2)
	case <-r.ctx.Done():
		r.Fatalf("the check took too long")
	}
}

// ended waits until the command has ended, at most for so long.
func (r *running) ended(within time.Duration) {
	select {
	case <-r.Done():
	case <-time.After(within):
		r.Fatalf("the command had not ended after %s", within)
	}
}

// end waits for the end, at most for so long, and returns it.
func (r *running) end(within time.Duration) *out {
	r.ended(within)
	exit, err := r.Wait()
	r.ok("the command", err)
	return &out{Exit: exit, stdout: r.out.String()}
}

// cancel stops the command as a host does, and waits for its end.
func (r *running) cancel() *out {
	r.Stop(sdk.CauseCancelled)
	return r.end(2 * soon)
}

// lineBuffer collects output and reports when a text has come.
type lineBuffer struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	waits map[string]chan struct{}
}

func newLineBuffer() *lineBuffer { return &lineBuffer{waits: map[string]chan struct{}{}} }

func (l *lineBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for text, ch := range l.waits {
		if strings.Contains(l.buf.String(), text) {
			close(ch)
			delete(l.waits, text)
		}
	}
	return len(p), nil
}

// has returns a channel that is closed once the text has come.
func (l *lineBuffer) has(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch, ok := l.waits[text]
	if !ok {
		ch = make(chan struct{})
		if strings.Contains(l.buf.String(), text) {
			close(ch)
		} else {
			l.waits[text] = ch
		}
	}
	return ch
}

func (l *lineBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// The options that change a command.

func stdin(s string) opt          { return func(c *command) { c.Stdin = strings.NewReader(s) } }
func from(r io.Reader) opt        { return func(c *command) { c.Stdin = r } }
func timeout(d time.Duration) opt { return func(c *command) { c.Timeout = d } }
func dir(d string) opt            { return func(c *command) { c.Dir = d } }
func argv(args ...string) opt     { return func(c *command) { c.Argv = args } }
func shell(s string, a ...string) opt {
	return argv(append([]string{"/bin/sh", "-c", s, "sh"}, a...)...)
}

// env sets variables, given as name, value, name, value.
func env(pairs ...string) opt {
	return func(c *command) {
		for i := 0; i < len(pairs); i += 2 {
			c.Env[pairs[i]] = pairs[i+1]
		}
	}
}

func tty(rows, cols uint16) opt {
	return func(c *command) {
		c.TTY = &sdk.WindowSize{Rows: rows, Cols: cols}
		c.Env["TERM"] = "xterm"
	}
}

// openStdin is an input that gives nothing until the check ends.
func (c *C) openStdin() opt {
	r, w := io.Pipe()
	c.later(func() { w.Close() })
	return from(r)
}

// The options that want something of the end.

func want(w func(*box, *out)) opt { return func(c *command) { c.wants = append(c.wants, w) } }

// exits wants that the command exits by itself with the code.
func exits(code int) opt { return want(func(b *box, o *out) { b.wantExit(o, code) }) }

// signaled wants that the command dies of a signal that the backend did not send.
func signaled(name string, code int) opt {
	return want(func(b *box, o *out) { b.wantSignal(o, name, code) })
}

// notStarted wants that the command was not started, as a shell would say it.
func notStarted(code int) opt {
	return want(func(b *box, o *out) {
		if o.Code != code || !o.NotStarted {
			b.Fatalf("%s", o.how())
		}
	})
}

func ends(cause sdk.Cause) opt {
	return want(func(b *box, o *out) {
		if o.Cause != cause {
			b.Fatalf("got %s; want cause %q", o.how(), cause)
		}
	})
}

// printed wants what the command printed.
func printed(stdout string) opt {
	return want(func(b *box, o *out) { b.eq("stdout of what ended with "+o.how(), o.stdout, stdout) })
}

// within wants that the command takes no longer.
func within(most time.Duration) opt {
	return want(func(b *box, o *out) {
		if o.took > most {
			b.Fatalf("it took %s", o.took)
		}
	})
}
