package backendtest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// box is a sandbox that a check made.
type box struct {
	*client.Sandbox
	c   *C
	on  *instance
	req *sdk.CreateRequest
}

// out is what a command printed and how it ended.
type out struct {
	*sdk.Exit
	stdout, stderr string
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

// command returns what runs a script in the workspace.
func (b *box) command(script string, change ...func(*client.Command)) *client.Command {
	cmd := &client.Command{
		Argv: []string{"/bin/sh", "-c", script}, Env: map[string]string{"PATH": searchPath, markerName: b.c.marker},
		Dir: b.Ready().Workspace, Grace: shortTerm,
	}
	for _, f := range change {
		f(cmd)
	}
	return cmd
}

// exec runs a command to its end; an error of the backend ends the check.
func (b *box) exec(cmd *client.Command) *out {
	o, err := b.tryExec(cmd)
	if err != nil {
		b.c.Fatalf("running %s: %v", quoteArgv(cmd.Argv), err)
	}
	return o
}

func (b *box) tryExec(cmd *client.Command) (*out, error) {
	var stdout, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	exit, err := b.Exec(b.c.ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &out{exit, stdout.String(), stderr.String()}, nil
}

// sh runs a script.
func (b *box) sh(script string, change ...func(*client.Command)) *out {
	return b.exec(b.command(script, change...))
}

// shPatiently runs a script that prints something and is then ended by its timeout, once more with a longer one where a
// busy machine did not get as far as the print.
func (b *box) shPatiently(script string, change ...func(*client.Command)) *out {
	o := b.sh(script, append(change, timeout(500*time.Millisecond))...)
	if o.stdout == "" {
		o = b.sh(script, append(change, timeout(5*time.Second))...)
	}
	return o
}

// must runs a script that has to end well and returns what it printed.
func (b *box) must(script string, change ...func(*client.Command)) string {
	o := b.sh(script, change...)
	if o.Cause != sdk.CauseExited || o.Code != 0 {
		b.c.Fatalf("the script %s ended with %s", quote(script), o.how())
	}
	return o.stdout
}

// running is a command that has been started and has said so on its stdout.
type running struct {
	*client.Exec
	c   *C
	out *lineBuffer
}

// begin starts a script and waits until it prints "ready". A timeout that a busy machine needed before that is made
// longer once.
func (b *box) begin(script string, change ...func(*client.Command)) *running {
	r := &running{c: b.c, out: newLineBuffer()}
	cmd := b.command(script, change...)
	cmd.Stdout = r.out
	e, err := b.Start(b.c.ctx, cmd)
	if err != nil {
		b.c.Fatalf("starting %s: %v", quote(script), err)
	}
	r.Exec = e
	b.c.later(func() { e.Stop(sdk.CauseCancelled) })
	if 0 < cmd.Timeout && cmd.Timeout < 2*soon {
		select {
		case <-r.out.has("ready"):
		case <-r.Done():
			return b.begin(script, append(change, timeout(2*soon))...)
		}
	}
	r.await("ready")
	return r
}

// await waits for a text on stdout.
func (r *running) await(text string) {
	select {
	case <-r.out.has(text):
	case <-r.Done():
		if !strings.Contains(r.out.String(), text) {
			exit, err := r.Wait()
			r.c.Fatalf("the command ended before it printed %q: %+v %v; it printed %s", text, exit, err, quote(r.out.String()))
		}
	case <-time.After(soon * 2):
		r.c.Fatalf("the command printed %s and not %q within %s", quote(r.out.String()), text, soon*2)
	case <-r.c.ctx.Done():
		r.c.Fatalf("the check took too long")
	}
}

// end waits for the end, at most for so long.
func (r *running) end(within time.Duration) *out {
	select {
	case <-r.Done():
	case <-time.After(within):
		r.c.Fatalf("the command had not ended after %s", within)
	}
	exit, err := r.Wait()
	if err != nil {
		r.c.Fatalf("the command: %v", err)
	}
	return &out{exit, r.out.String(), ""}
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

func stdin(s string) func(*client.Command) {
	return func(c *client.Command) { c.Stdin = strings.NewReader(s) }
}

func timeout(d time.Duration) func(*client.Command) {
	return func(c *client.Command) { c.Timeout = d }
}

func env(more map[string]string) func(*client.Command) {
	return func(c *client.Command) { maps.Copy(c.Env, more) }
}

func argv(args ...string) func(*client.Command) {
	return func(c *client.Command) { c.Argv = args }
}

// blocked is a reader that gives nothing until it is closed.
func blocked() (io.Reader, func()) {
	r, w := io.Pipe()
	return r, func() { w.Close() }
}

// typing is a person at a keyboard.
type typing struct{ w *io.PipeWriter }

func newTyping() (io.Reader, *typing) {
	r, w := io.Pipe()
	return r, &typing{w}
}

func (t *typing) typ(s string) { go t.w.Write([]byte(s)) }

func (t *typing) stop() { t.w.Close() }
