package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// soon bounds what must not block; it is long because machines are slow.
const soon = time.Minute

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestExec(t *testing.T) {
	c := serve(t, &processes{})
	sb := create(t, c, "one")
	big := strings.Repeat("0123456789abcde\x00", 10<<16) // 10 MiB: more than a pipe holds, with NULs
	tests := map[string]struct {
		cmd       client.Command
		stdin     io.Reader
		code      int
		cause     sdk.Cause
		out, errs string
	}{
		"code and both streams":        {cmd: client.Command{Argv: sh("echo out; echo err >&2; exit 7")}, code: 7, cause: sdk.CauseExited, out: "out\n", errs: "err\n"},
		"every byte both ways":         {cmd: client.Command{Argv: sh("cat")}, stdin: strings.NewReader(big), cause: sdk.CauseExited, out: big},
		"stdin that nobody reads":      {cmd: client.Command{Argv: sh("exit 0")}, stdin: strings.NewReader(big), cause: sdk.CauseExited},
		"stdin is empty without one":   {cmd: client.Command{Argv: sh("wc -c")}, cause: sdk.CauseExited, out: "0\n"},
		"stdin ends":                   {cmd: client.Command{Argv: sh("wc -c")}, stdin: strings.NewReader("abc"), cause: sdk.CauseExited, out: "3\n"},
		"an empty stdin ends":          {cmd: client.Command{Argv: sh("wc -c")}, stdin: strings.NewReader(""), cause: sdk.CauseExited, out: "0\n"},
		"a signal of its own":          {cmd: client.Command{Argv: sh("kill -TERM $$")}, code: 143, cause: sdk.CauseSignaled},
		"not found":                    {cmd: client.Command{Argv: []string{"/no/such/program"}}, code: 127, cause: sdk.CauseExited},
		"timeout":                      {cmd: client.Command{Argv: sh("echo before; sleep 60"), Timeout: 2 * time.Second}, code: 137, cause: sdk.CauseTimeout, out: "before\n"},
		"arguments may hold any bytes": {cmd: client.Command{Argv: []string{"/bin/sh", "-c", `printf %s "$1$V"`, "x", "\xff\xfe"}, Env: map[string]string{"V": "\xfd=y"}}, cause: sdk.CauseExited, out: "\xff\xfe\xfd=y"},
		"SIGPIPE kills as usual":       {cmd: client.Command{Argv: sh("kill -PIPE $$; echo alive")}, code: 141, cause: sdk.CauseSignaled},
		"stdout can be opened again":   {cmd: client.Command{Argv: sh("echo x > /dev/stdout; echo y > /dev/stderr")}, cause: sdk.CauseExited, out: "x\n", errs: "y\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			cmd := tt.cmd
			cmd.Stdin, cmd.Stdout, cmd.Stderr = tt.stdin, &out, &errs
			exit, err := sb.Exec(context.Background(), &cmd)
			if err != nil {
				t.Fatal(err)
			}
			if exit.Code != tt.code || exit.Cause != tt.cause {
				t.Errorf("got code %d and cause %s, want %d and %s (%+v)", exit.Code, exit.Cause, tt.code, tt.cause, exit)
			}
			if out.String() != tt.out {
				t.Errorf("stdout has %d bytes %.40q, want %d bytes %.40q", out.Len(), out.String(), len(tt.out), tt.out)
			}
			if errs.String() != tt.errs {
				t.Errorf("stderr is %.100q, want %q", errs.String(), tt.errs)
			}
		})
	}
}

// A process that outlives the command and keeps its output open must not hold up
// the end, and what was written before the end must all be there.
func TestTheEndIsNotTheEndOfFile(t *testing.T) {
	tests := map[string]string{
		"holds the pipe":            "echo done; setsid sleep 1000 & echo $! >&2",
		"goes on writing for ever":  "echo done; setsid sh -c 'while :; do echo more; done' & echo $! >&2",
		"leaves a full pipe behind": "echo done; head -c 200000 /dev/zero; setsid sleep 1000 & echo $! >&2",
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			c := serve(t, &processes{})
			sb := create(t, c, "one")
			var out, errs bytes.Buffer
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			defer cancel()
			exit, err := sb.Exec(ctx, &client.Command{Argv: sh(script), Stdout: &out, Stderr: &errs})
			killPrinted(t, errs.String())
			if err != nil || exit.Cause != sdk.CauseExited {
				t.Fatalf("got %+v and %v, want a normal end", exit, err)
			}
			if !strings.HasPrefix(out.String(), "done\n") {
				t.Errorf("stdout begins with %.20q", out.String())
			}
			if name == "leaves a full pipe behind" && out.Len() != 200005 {
				t.Errorf("stdout has %d bytes, want 200005", out.Len())
			}
		})
	}
}

func TestStop(t *testing.T) {
	limit, cancelLimit := context.WithCancelCause(context.Background())
	user, cancelUser := context.WithCancel(context.Background())
	tests := map[string]struct {
		ctx   context.Context
		stop  func(*client.Exec)
		cause sdk.Cause
	}{
		"by Stop":                {context.Background(), func(e *client.Exec) { e.Stop(sdk.CauseCancelled); e.Stop(sdk.CauseOutput) }, sdk.CauseCancelled},
		"by Stop for output":     {context.Background(), func(e *client.Exec) { e.Stop(sdk.CauseOutput) }, sdk.CauseOutput},
		"by the context":         {user, func(*client.Exec) { cancelUser() }, sdk.CauseCancelled},
		"by the context's limit": {limit, func(*client.Exec) { cancelLimit(fmt.Errorf("too much: %w", sdk.ErrOutputLimit)) }, sdk.CauseOutput},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := serve(t, &processes{})
			sb := create(t, c, "one")
			e, err := sb.Start(tt.ctx, &client.Command{Argv: sh("sleep 1000")})
			if err != nil {
				t.Fatal(err)
			}
			<-e.Started()
			tt.stop(e)
			exit, err := e.Wait()
			if err != nil || exit.Cause != tt.cause {
				t.Errorf("got %+v and %v, want cause %s", exit, err, tt.cause)
			}
		})
	}
}

func TestAWriterThatFailsIsABrokenPipe(t *testing.T) {
	c := serve(t, &processes{})
	sb := create(t, c, "one")
	bad := errors.New("no more")
	exit, err := sb.Exec(context.Background(), &client.Command{Argv: sh("while :; do echo y; done"), Stdout: writer(func(p []byte) (int, error) { return 0, bad })})
	if !errors.Is(err, bad) {
		t.Errorf("got error %v, want the writer's", err)
	}
	if exit == nil || exit.Cause != sdk.CauseSignaled || exit.Code != 141 {
		t.Errorf("got %+v, want the end by SIGPIPE", exit)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestSignalsAndSizesReachTheCommand(t *testing.T) {
	got := make(chan string, 8)
	p := &processes{exec: func(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
		got <- fmt.Sprint("tty ", *c.TTY)
		c.Started()
		got <- fmt.Sprint("size ", <-c.Resizes)
		got <- fmt.Sprint("signal ", <-c.Signals)
		<-ctx.Done()
		_, open := <-c.Signals
		got <- fmt.Sprint("open ", open)
		return &sdk.Exit{}, nil
	}}
	c := serve(t, p)
	sb := create(t, c, "one")
	e, err := sb.Start(context.Background(), &client.Command{Argv: []string{"x"}, TTY: &sdk.WindowSize{Rows: 24, Cols: 80}, Stdout: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	<-e.Started()
	if err := errors.Join(e.Resize(sdk.WindowSize{Rows: 50, Cols: 132}), e.Signal(2)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tty {24 80}", "size {50 132}", "signal 2"} {
		if g := <-got; g != want {
			t.Errorf("got %q, want %q", g, want)
		}
	}
	e.Stop(sdk.CauseCancelled)
	if g := <-got; g != "open false" {
		t.Errorf("got %q: the channel of signals must end with the context", g)
	}
	if _, err := e.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := e.Signal(9); err != nil {
		t.Errorf("a signal after the end: %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	c := serve(t, &processes{})
	sb := create(t, c, "one")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			var out bytes.Buffer
			exit, err := sb.Exec(context.Background(), &client.Command{Argv: sh(fmt.Sprintf("echo %d; exit %d", i, i)), Stdout: &out})
			if err != nil || exit.Code != i || out.String() != fmt.Sprintf("%d\n", i) {
				t.Errorf("%d: got %+v, %v, %q", i, exit, err, out.String())
			}
		})
	}
	wg.Wait()
}

func TestNoPipeIsLeft(t *testing.T) {
	dir := t.TempDir()
	c, err := client.InProcess(&processes{}, client.Options{PipeDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sb := create(t, c, "one")
	for _, argv := range [][]string{sh("cat"), {""}} {
		_, _ = sb.Exec(context.Background(), &client.Command{Argv: argv, Stdin: strings.NewReader("x"), Stdout: io.Discard, Stderr: io.Discard})
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A backend that does not hear that the time is up is given up.
func TestOverdue(t *testing.T) {
	release := make(chan struct{})
	p := &processes{exec: func(context.Context, *sdk.Command) (*sdk.Exit, error) {
		<-release
		return &sdk.Exit{}, nil
	}}
	overdue := make(chan error, 1)
	c, err := client.InProcess(p, client.Options{PipeDir: t.TempDir(), Slack: 50 * time.Millisecond, Overdue: func(err error) { overdue <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer close(release)
	sb := create(t, c, "one")
	_, err = sb.Exec(context.Background(), &client.Command{Argv: []string{"x"}, Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond})
	want := "the backend did not end the command within 100ms after its timeout of 50ms"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if err := <-overdue; err == nil || err.Error() != want {
		t.Errorf("Overdue got %v", err)
	}
}

func TestExecOnACancelledContext(t *testing.T) {
	c := serve(t, &processes{})
	sb := create(t, c, "one")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := sb.Exec(ctx, &client.Command{Argv: sh("true")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
