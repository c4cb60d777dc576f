package remote

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/yamux"

	"github.com/hutch-run/hutch/sdk/contract"
)

// request is what the far end of these tests understands: a command, or a word to say again.
type request struct {
	Exec *Exec
	Echo string
}

// connect returns a client of a far end that runs commands as they are.
func connect(t *testing.T) *Client {
	t.Helper()
	near, far := net.Pipe()
	session, err := yamux.Server(far, Config())
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	var calls sync.WaitGroup
	go func() {
		for {
			var req request
			call, stream, rest, err := Accept(session, &req, func() bool { return req.Exec != nil })
			switch {
			case err != nil:
				session.Close()
				over <- err
				return
			case call != nil:
				calls.Go(func() { call.End(run(call, req.Exec)) })
			default:
				_, _ = io.Copy(stream, io.MultiReader(strings.NewReader(req.Echo), rest))
				stream.Close()
			}
		}
	}()
	client, err := NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		<-over
		calls.Wait() // the end of the connection is the end of its commands
	})
	return client
}

func run(c *Call, e *Exec) *Exit {
	cmd := exec.Command(string(e.Argv[0]))
	for _, a := range e.Argv[1:] {
		cmd.Args = append(cmd.Args, string(a))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: e.TTY != nil}
	if err := c.Start(cmd, e.TTY, -1, -1); err != nil {
		return &Exit{Err: contract.Errorf(contract.ReasonInternal, "%w", err)}
	}
	c.Started()
	go c.Obey(func(ctl Control) {
		pid := cmd.Process.Pid
		if ctl.Group {
			pid = -pid
		}
		_ = syscall.Kill(pid, syscall.Signal(ctl.Signal))
	}, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	c.Wait(cmd)
	return &Exit{Status: uint32(cmd.ProcessState.Sys().(syscall.WaitStatus))}
}

// buffer is where output goes; a test may read it while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) Close() error { return nil }

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// broken takes one write, and fails then.
type broken struct{ wrote chan struct{} }

func (b broken) Write(p []byte) (int, error) {
	select {
	case <-b.wrote:
		return 0, syscall.EPIPE
	default:
		close(b.wrote)
		return len(p), nil
	}
}

func (broken) Close() error { return nil }

func shell(script string) request {
	return request{Exec: &Exec{Argv: [][]byte{[]byte("sh"), []byte("-c"), []byte(script)}}}
}

func start(t *testing.T, c *Client, req request, in io.ReadCloser, out, errs io.WriteCloser) *Command {
	t.Helper()
	cmd, err := c.Start(req, in, out, errs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cmd.Close)
	return cmd
}

// end waits for the end of a command and returns its wait status.
func end(t *testing.T, cmd *Command) syscall.WaitStatus {
	t.Helper()
	exit, err := cmd.Wait()
	if err != nil || exit.Err != nil {
		t.Fatalf("%+v, %v", exit, err)
	}
	cmd.Drain(t.Context())
	return syscall.WaitStatus(exit.Status)
}

func TestCommand(t *testing.T) {
	c := connect(t)
	var out, errs buffer
	cmd := start(t, c, shell("cat; echo e >&2; exit 7"), io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20))), &out, &errs)
	if ws := end(t, cmd); ws.ExitStatus() != 7 || len(out.String()) != 1<<20 || errs.String() != "e\n" || !cmd.Executed() {
		t.Errorf("status %#x, %d bytes, %q, executed %v", ws, len(out.String()), errs.String(), cmd.Executed())
	}
	if ws := end(t, start(t, c, shell("! read line"), nil, &out, &errs)); ws != 0 {
		t.Errorf("without an input: status %#x", ws)
	}
	exit, err := start(t, c, request{Exec: &Exec{Argv: [][]byte{[]byte("/no/such")}}}, nil, &out, &errs).Wait()
	if err != nil || exit.Err == nil {
		t.Errorf("no program: %+v, %v", exit, err)
	}
	s, err := c.Open(request{Echo: "again"})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if b, err := io.ReadAll(s); string(b) != "again" || err != nil {
		t.Errorf("what is no command: %q, %v", b, err)
	}
	if _, err := c.Open(request{Echo: strings.Repeat("x", maxLine)}); !errors.Is(err, &contract.Error{Reason: contract.ReasonConfig}) {
		t.Errorf("a request that is too long: %v", err)
	}
}

func TestSignals(t *testing.T) {
	c := connect(t)
	for name, tc := range map[string]struct {
		script string
		send   func(*Command)
		want   syscall.WaitStatus
	}{
		"one":   {"trap 'exit 3' USR1; echo ready; while :; do sleep 0.01; done", func(c *Command) { _ = c.Signal(syscall.SIGUSR1) }, 3 << 8},
		"group": {"sh -c 'echo ready; exec sleep 1000'; exit 5", func(c *Command) { _ = c.SignalGroup(syscall.SIGTERM) }, syscall.WaitStatus(syscall.SIGTERM)},
		"kill":  {"trap '' TERM; echo ready; while :; do sleep 0.01; done", func(c *Command) { _ = c.Kill() }, syscall.WaitStatus(syscall.SIGKILL)},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			var errs buffer
			cmd := start(t, c, shell(tc.script), nil, w, &errs)
			if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
				t.Fatal(err)
			}
			tc.send(cmd)
			if ws := end(t, cmd); ws != tc.want {
				t.Errorf("status %#x, want %#x", ws, tc.want)
			}
		})
	}
}

// TestShut lets go of a stream that nobody reads: who prints to it gets SIGPIPE, and the other stream stays.
func TestShut(t *testing.T) {
	var errs buffer
	cmd := start(t, connect(t), shell("(while echo x; do :; done) 2>/dev/null; echo still >&2"), nil, broken{make(chan struct{})}, &errs)
	if ws := end(t, cmd); ws != 0 || errs.String() != "still\n" {
		t.Errorf("status %#x, %q", ws, errs.String())
	}
}

func TestTerminal(t *testing.T) {
	req := shell("trap 'stty size; exit 4' WINCH; test -t 0 && test -t 1 && test -t 2 && stty size; while :; do sleep 0.01; done")
	req.Exec.TTY = &Size{Rows: 11, Cols: 77}
	in, _ := io.Pipe() // which never ends
	r, w := io.Pipe()
	cmd := start(t, connect(t), req, in, w, &buffer{})
	line := make([]byte, len("11 77\r\n"))
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "11 77\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	cmd.Resize(22, 88)
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "22 88\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	if ws := end(t, cmd); ws.ExitStatus() != 4 {
		t.Errorf("status %#x", ws)
	}
}

// TestBroken has an input that breaks, which the command must not take for its end, and a client that goes away.
func TestBroken(t *testing.T) {
	r, w := io.Pipe()
	var out buffer
	cmd := start(t, connect(t), shell("cat; echo ended"), r, &out, &buffer{})
	w.CloseWithError(syscall.EIO)
	if err := <-cmd.InputFailed(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the input broke with %v", err)
	}
	_ = cmd.Kill()
	if ws := end(t, cmd); ws.Signal() != syscall.SIGKILL || out.String() != "" {
		t.Errorf("status %#x, %q", ws, out.String())
	}
	c := connect(t)
	cmd = start(t, c, shell("sleep 1000"), nil, &out, &buffer{})
	<-func() <-chan struct{} {
		go func() { _, _ = cmd.Wait() }()
		return cmd.Started()
	}()
	c.Close()
	if _, err := c.Start(shell("true"), nil, &out, &buffer{}); err == nil || c.Alive() {
		t.Error("a connection that is over took a command")
	}
}

// TestAccept takes the streams of a command for no requests, whatever is in them, and ends a connection whose request
// cannot be read: what follows may be such a stream.
func TestAccept(t *testing.T) {
	near, far := net.Pipe()
	host, herr := yamux.Client(near, Config())
	guest, gerr := yamux.Server(far, Config())
	if err := errors.Join(herr, gerr); err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	defer guest.Close()
	for _, text := range []string{`{"Exec":{}}`, `{"Echo":"1"}`, `{"Echo":"2"}`, `{"Echo":"3"}`, `{"Echo":"x"}`, `{`} {
		s, err := host.OpenStream()
		if err == nil {
			_, err = io.WriteString(s, text+"\n")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var req request
	isCommand := func() bool { return req.Exec != nil }
	if call, _, _, err := Accept(guest, &req, isCommand); call == nil || err != nil {
		t.Fatalf("the command: %v", err)
	}
	req = request{}
	if call, stream, _, err := Accept(guest, &req, isCommand); call != nil || stream == nil || err != nil || req.Echo != "x" {
		t.Errorf("the next request: %+v, %v", req, err)
	}
	if _, _, _, err := Accept(guest, &req, isCommand); err == nil {
		t.Error("half a request was taken")
	}
}

func TestLines(t *testing.T) {
	var b bytes.Buffer
	want := Exec{Argv: [][]byte{[]byte("\xff\x00"), {}, []byte(strings.Repeat("x", 1<<20))}, Env: [][]byte{}, Dir: []byte("/")}
	if err := Send(&b, want); err != nil {
		t.Fatal(err)
	}
	b.WriteString("raw\ndata")
	l := NewLines(&b)
	var got Exec
	if err := l.Next(&got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%d arguments came back", len(got.Argv))
	}
	if rest, _ := io.ReadAll(l.Rest()); string(rest) != "raw\ndata" {
		t.Errorf("rest %q", rest)
	}
	if err := NewLines(strings.NewReader(`{"argv"`)).Next(&got); err != io.ErrUnexpectedEOF {
		t.Errorf("half a line: %v", err)
	}
	if err := NewLines(strings.NewReader("")).Next(&got); err != io.EOF {
		t.Errorf("no line: %v", err)
	}
}

// FuzzLines reads lines of either end; what was understood is said again in the same way.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"argv":["YQ=="],"tty":{"rows":1}}` + "\nrest"))
	f.Add([]byte(`{"signal":15,"group":true}` + "\n"))
	f.Add([]byte(`{"exit":{"status":9,"err":{"Reason":"config"}}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{&Exec{}, &Control{}, &Event{}} {
			if NewLines(bytes.NewReader(b)).Next(v) != nil {
				continue
			}
			var again bytes.Buffer
			if err := Send(&again, v); err != nil {
				t.Fatal(err)
			}
			twice := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := NewLines(&again).Next(twice); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v, twice); diff != "" {
				t.Errorf("-first +second:\n%s", diff)
			}
		}
	})
}

func TestNotStarted(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		want contract.Reason
	}{
		{syscall.ENOENT, 127, ""}, {syscall.EACCES, 126, ""}, {syscall.ENOEXEC, 126, ""}, {syscall.E2BIG, 126, ""}, {&os.PathError{Err: syscall.ETXTBSY}, 126, ""},
		{syscall.EAGAIN, 0, contract.ReasonQuota}, {syscall.ENOMEM, 0, contract.ReasonQuota}, {syscall.EIO, 0, contract.ReasonInternal},
	} {
		e := NotStarted(tc.err)
		if e.NotStarted != (tc.code != 0) || e.Code != tc.code || (e.Err == nil) != (tc.want == "") || e.Err != nil && e.Err.Reason != tc.want {
			t.Errorf("%v: %+v %v", tc.err, e, e.Err)
		}
	}
}
