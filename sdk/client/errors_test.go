package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// What a backend returns is what the host gets.
func TestErrorsSurviveTheWire(t *testing.T) {
	full := &sdk.Error{Reason: sdk.ReasonConfig, Summary: "no such image", Detail: "looked in 3 registries", Fix: "podman pull x",
		Path: "image", Limit: sdk.LimitMemory, Retryable: true}
	tests := map[string]struct {
		in   error
		want *sdk.Error
	}{
		"every field":            {full, full},
		"text around it":         {fmt.Errorf("making the machine: %w", sdk.Errorf(sdk.ReasonQuota, "no room")), &sdk.Error{Reason: sdk.ReasonQuota, Summary: "making the machine: no room"}},
		"an error of no type":    {errors.New("boom"), &sdk.Error{Reason: sdk.ReasonInternal, Summary: "boom"}},
		"a reason from nowhere":  {&sdk.Error{Reason: "weather", Summary: "rain"}, &sdk.Error{Reason: sdk.ReasonInternal, Summary: "rain"}},
		"bytes that are no text": {errors.New("bad \xff byte"), &sdk.Error{Reason: sdk.ReasonInternal, Summary: "bad \uFFFD byte"}},
	}
	for _, r := range []sdk.Reason{sdk.ReasonConfig, sdk.ReasonLimit, sdk.ReasonMissing, sdk.ReasonUnsupported, sdk.ReasonNotFound,
		sdk.ReasonDenied, sdk.ReasonQuota, sdk.ReasonUnavailable, sdk.ReasonInternal} {
		tests["reason "+string(r)] = struct {
			in   error
			want *sdk.Error
		}{&sdk.Error{Reason: r, Summary: "s"}, &sdk.Error{Reason: r, Summary: "s"}}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := serve(t, &processes{destroy: func(context.Context, sdk.Handle) error { return tt.in }})
			err := c.Destroy(context.Background(), sdk.Handle{ID: "x"})
			var got *sdk.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %T %v, want an *sdk.Error", err, err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(sdk.Error{}, "Err")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !errors.Is(err, &sdk.Error{Reason: tt.want.Reason}) {
				t.Error("errors.Is does not find the reason")
			}
			if strings.Contains(err.Error(), "rpc error") {
				t.Errorf("words of gRPC in %q", err)
			}
		})
	}
}

func TestAHugeErrorIsBounded(t *testing.T) {
	c := serve(t, &processes{destroy: func(context.Context, sdk.Handle) error {
		return &sdk.Error{Reason: sdk.ReasonDenied, Summary: "no", Detail: strings.Repeat("x", 10<<20)}
	}})
	err := c.Destroy(context.Background(), sdk.Handle{ID: "x"})
	if sdk.ReasonOf(err) != sdk.ReasonDenied || len(err.Error()) > 20<<10 {
		t.Errorf("got reason %s and %d bytes", sdk.ReasonOf(err), len(err.Error()))
	}
}

// go-plugin's server would take the whole plugin down with the panic.
func TestAPanicIsAnError(t *testing.T) {
	p := &processes{
		destroy: func(context.Context, sdk.Handle) error { panic("destroy") },
		exec:    func(context.Context, *sdk.Command) (*sdk.Exit, error) { panic("exec") },
	}
	c, err := client.InProcess(p, client.Options{PipeDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	sb := create(t, c, "one")
	_, err = sb.Exec(context.Background(), &client.Command{Argv: sh("true")})
	if sdk.ReasonOf(err) != sdk.ReasonInternal || !strings.Contains(fmt.Sprint(err), "the backend panicked: exec") {
		t.Errorf("exec: %v", err)
	}
	if err := sb.Destroy(context.Background()); err == nil || !strings.Contains(err.Error(), "the backend panicked: destroy") {
		t.Errorf("destroy: %v", err)
	}
	p.create = func(context.Context, *sdk.CreateRequest) (sdk.Sandbox, error) { panic("create") }
	p.destroy = nil
	if _, err := c.Create(context.Background(), &sdk.CreateRequest{ID: "two", StateDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "the backend panicked: create") {
		t.Errorf("create: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestEveryCallHasADeadline(t *testing.T) {
	hang := make(chan struct{})
	p := &processes{destroy: func(context.Context, sdk.Handle) error { <-hang; return nil }}
	c, err := client.InProcess(p, client.Options{SlowTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer close(hang)
	err = c.Destroy(context.Background(), sdk.Handle{ID: "x"})
	if sdk.ReasonOf(err) != sdk.ReasonUnavailable || !strings.Contains(fmt.Sprint(err), "no answer within 50ms") {
		t.Errorf("got %v", err)
	}
}

// A copy may take as long as there is something to copy, but every step of it has an end, and the time that the caller
// takes is its own.
func TestEveryStepOfACopyHasADeadline(t *testing.T) {
	const step = time.Second
	hang := make(chan struct{})
	p := &processes{
		describe: func(d *sdk.Description) { d.Sandbox, d.Formats = (*stuck)(nil), []sdk.Format{sdk.FormatFile} },
		create:   func(context.Context, *sdk.CreateRequest) (sdk.Sandbox, error) { return &stuck{hang: hang}, nil },
	}
	c, err := client.InProcess(p, client.Options{SlowTimeout: step})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(hang)
		c.Close()
	})
	sb := create(t, c, "one")
	idle := slow(step * 5 / 4)
	for name, call := range map[string]func(ctx context.Context, path string) error{
		"put": func(ctx context.Context, path string) error {
			return sb.Put(ctx, path, sdk.FormatFile, io.MultiReader(strings.NewReader("x"), idle, strings.NewReader("y")))
		},
		"get": func(ctx context.Context, path string) error { return sb.Get(ctx, path, sdk.FormatFile, idle) },
	} {
		t.Run(name+" with a slow caller", func(t *testing.T) {
			t.Parallel()
			if err := call(t.Context(), "/good"); err != nil {
				t.Error(err)
			}
		})
		t.Run(name+" of a backend that hangs", func(t *testing.T) {
			t.Parallel()
			if err := call(t.Context(), "/stuck"); sdk.ReasonOf(err) != sdk.ReasonUnavailable || !strings.Contains(fmt.Sprint(err), "no answer within 1s") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// slow is a file that takes its time.
type slow time.Duration

func (s slow) Read([]byte) (int, error) {
	<-time.After(time.Duration(s))
	return 0, io.EOF
}

func (s slow) Write(p []byte) (int, error) {
	<-time.After(time.Duration(s))
	return len(p), nil
}

// stuck is a sandbox that never ends a copy at /stuck.
type stuck struct {
	box
	hang <-chan struct{}
}

func (s *stuck) Put(_ context.Context, path string, _ sdk.Format, r io.Reader) error {
	if path == "/stuck" {
		<-s.hang
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

func (s *stuck) Get(_ context.Context, path string, _ sdk.Format, w io.Writer) error {
	if _, err := w.Write([]byte("abc")); err != nil || path != "/stuck" {
		return err
	}
	<-s.hang
	return nil
}

func TestALostConnection(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	p := &processes{exec: func(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return &sdk.Exit{Cause: sdk.CauseOf(ctx)}, nil
	}}
	c := serve(t, p)
	sb := create(t, c, "one")
	e, err := sb.Start(context.Background(), &client.Command{Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	<-started
	c.Break()
	if _, err := e.Wait(); err == nil {
		t.Error("no error")
	}
	select {
	case cause := <-ended:
		if !errors.Is(cause, sdk.ErrCancelled) {
			t.Errorf("the command ended by %v", cause)
		}
	case <-time.After(soon):
		t.Error("the command goes on for nobody")
	}
	if _, err := c.Describe(context.Background()); err == nil {
		t.Error("a call over a closed connection was answered")
	}
}

func TestWrapNamesTheCall(t *testing.T) {
	c, err := client.InProcess(&processes{}, client.Options{Wrap: func(call string, err error) error { return fmt.Errorf("<%s> %w", call, err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Attach(context.Background(), sdk.Handle{ID: "x"})
	if !errors.Is(err, &sdk.Error{Reason: sdk.ReasonUnsupported}) || !strings.HasPrefix(err.Error(), "<attach> ") {
		t.Errorf("got %v", err)
	}
}

func TestAllocatedThatFailsEndsTheCreation(t *testing.T) {
	destroyed := make(chan sdk.Handle, 1)
	p := &processes{
		create: func(_ context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
			return nil, req.Allocated(sdk.Handle{Data: []byte(`{"n":1}`)})
		},
		destroy: func(_ context.Context, h sdk.Handle) error { destroyed <- h; return nil },
	}
	c := serve(t, p)
	full, dir := &fs.PathError{Op: "write", Path: "/state", Err: errors.New("no space left")}, t.TempDir()
	_, err := c.Create(context.Background(), &sdk.CreateRequest{ID: "one", StateDir: dir, Allocated: func(sdk.Handle) error { return full }})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want the error of Allocated", err)
	}
	if diff := cmp.Diff(sdk.Handle{ID: "one", Data: []byte(`{"n":1}`), StateDir: dir}, <-destroyed); diff != "" {
		t.Errorf("what was allocated must be destroyed; -want +got:\n%s", diff)
	}
}
