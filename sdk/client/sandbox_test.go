package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

func TestCreateIsIdempotent(t *testing.T) {
	var made atomic.Int32
	p := &processes{}
	p.create = func(_ context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
		made.Add(1)
		return &box{p: p}, req.Allocated(sdk.Handle{ID: req.ID, Data: json.RawMessage(`{"place":7}`)})
	}
	c := serve(t, p)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			var handles []sdk.Handle
			sb, err := c.Create(context.Background(), &sdk.CreateRequest{ID: "one", StateDir: dir,
				Allocated: func(h sdk.Handle) error { handles = append(handles, h); return nil }})
			if err != nil {
				t.Error(err)
				return
			}
			want := sdk.Handle{ID: "one", Data: json.RawMessage(`{"place":7}`)}
			if diff := cmp.Diff([]sdk.Handle{want}, handles); diff != "" {
				t.Errorf("allocated; -want +got:\n%s", diff)
			}
			want.StateDir = dir
			if diff := cmp.Diff(want, sb.Handle()); diff != "" {
				t.Errorf("handle; -want +got:\n%s", diff)
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("the backend made %d sandboxes", n)
	}
	_, err := c.Create(context.Background(), &sdk.CreateRequest{ID: "one", StateDir: dir, Spec: sdk.Spec{Network: sdk.NetworkFull}})
	if sdk.ReasonOf(err) != sdk.ReasonConfig {
		t.Errorf("another spec for the same id: %v", err)
	}
}

func TestCreateThatIsCancelledLeavesNothing(t *testing.T) {
	destroyed := make(chan string, 1)
	ctx, cancel := context.WithCancel(context.Background())
	p := &processes{destroy: func(_ context.Context, h sdk.Handle) error { destroyed <- h.ID; return nil }}
	p.create = func(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
		if err := req.Allocated(sdk.Handle{ID: req.ID}); err != nil {
			return nil, err
		}
		req.Progress("downloading", 1, 2)
		<-ctx.Done()
		return &box{p: p}, nil // as if it had not heard
	}
	c := serve(t, p)
	_, err := c.Create(ctx, &sdk.CreateRequest{ID: "one", StateDir: t.TempDir(), Progress: func(step string, done, total int64) {
		if step != "downloading" || done != 1 || total != 2 {
			t.Errorf("progress is %s %d/%d", step, done, total)
		}
		cancel()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if id := <-destroyed; id != "one" {
		t.Errorf("destroyed %q", id)
	}
}

// A creation that its caller ends while it keeps the handle goes no further: the backend does not learn that the handle
// is stored, which could reach it before the end does.
func TestCreateThatIsCancelledByAllocatedGoesNoFurther(t *testing.T) {
	var stored atomic.Int32
	p := &processes{}
	p.create = func(_ context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
		err := req.Allocated(sdk.Handle{ID: req.ID})
		if err == nil {
			stored.Add(1)
		}
		return &box{p: p}, err
	}
	c := serve(t, p)
	for i := range 300 {
		ctx, cancel := context.WithCancel(context.Background())
		_, err := c.Create(ctx, &sdk.CreateRequest{ID: fmt.Sprintf("n%d", i), StateDir: t.TempDir(),
			Allocated: func(sdk.Handle) error { cancel(); return nil }})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("creation %d: %v", i, err)
		}
	}
	if n := stored.Load(); n > 0 {
		t.Errorf("the backend was asked to go on %d times of 300", n)
	}
}

func TestCreateRefusesNonsense(t *testing.T) {
	c := serve(t, &processes{})
	for name, req := range map[string]*sdk.CreateRequest{
		"an id with a path":      {ID: "../x", StateDir: "/tmp"},
		"no id":                  {StateDir: "/tmp"},
		"a long id":              {ID: strings.Repeat("a", 65), StateDir: "/tmp"},
		"a relative directory":   {ID: "x", StateDir: "tmp"},
		"a block it cannot have": {ID: "x", StateDir: "/tmp", Spec: sdk.Spec{Config: make(chan int)}},
	} {
		if _, err := c.Create(context.Background(), req); sdk.ReasonOf(err) != sdk.ReasonConfig {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestDestroyEndsWhatRuns(t *testing.T) {
	var handles []string
	p := &processes{destroy: func(_ context.Context, h sdk.Handle) error { handles = append(handles, h.ID); return nil }}
	c := serve(t, p)
	sb := create(t, c, "one")
	e, err := sb.Start(context.Background(), &client.Command{Argv: sh("sleep 1000")})
	if err != nil {
		t.Fatal(err)
	}
	<-e.Started()
	for range 10 {
		if err := sb.Destroy(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	exit, err := e.Wait()
	if err != nil || exit.Cause != sdk.CauseCancelled {
		t.Errorf("got %+v and %v", exit, err)
	}
	if !slices.Contains(handles, "one") {
		t.Errorf("destroyed %v", handles)
	}
	if _, err := sb.Exec(context.Background(), &client.Command{Argv: sh("true")}); sdk.ReasonOf(err) != sdk.ReasonNotFound {
		t.Errorf("exec after destroy: %v", err)
	}
}

func TestDrainWaitsForCleanupAndKeepsWhatIsToBeKept(t *testing.T) {
	var mu sync.Mutex
	var events []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, s)
	}
	started := make(chan struct{})
	p := &processes{
		destroy: func(_ context.Context, h sdk.Handle) error { note("destroyed " + h.ID); return nil },
		exec: func(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
			close(started)
			<-ctx.Done()
			note("cleaned up after " + fmt.Sprint(context.Cause(ctx)))
			return &sdk.Exit{Cause: sdk.CauseOf(ctx)}, nil
		},
	}
	c := serve(t, p)
	sb := create(t, c, "one")
	if _, err := c.Create(context.Background(), &sdk.CreateRequest{ID: "kept", Keep: true, StateDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	e, err := sb.Start(context.Background(), &client.Command{Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	<-started
	if err := c.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := []string{"cleaned up after " + sdk.ErrCancelled.Error(), "destroyed one"}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if exit, err := e.Wait(); err != nil || exit.Cause != sdk.CauseCancelled {
		t.Errorf("got %+v and %v", exit, err)
	}
	if _, err := c.Describe(context.Background()); err == nil {
		t.Error("a call after drain was answered")
	}
}

func TestDrainEndsCallsWithoutASandbox(t *testing.T) {
	started := make(chan struct{})
	c := serve(t, &processes{check: func(ctx context.Context) error {
		close(started)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(soon):
			return errors.New("was not ended")
		}
	}})
	answer := make(chan error, 1)
	go func() {
		_, err := c.Check(context.Background())
		answer <- err
	}()
	<-started
	if err := c.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; sdk.ReasonOf(err) != sdk.ReasonUnavailable || err.Error() != sdk.ErrCancelled.Error() {
		t.Errorf("got %v", err)
	}
}

func TestDrainTellsWhatIsLeft(t *testing.T) {
	p := &processes{destroy: func(context.Context, sdk.Handle) error { return errors.New("device is busy") }}
	c, err := client.InProcess(p, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create(t, c, "one")
	if err := c.Drain(context.Background()); err == nil || !strings.Contains(err.Error(), "sandbox one: device is busy") {
		t.Errorf("got %v", err)
	}
}

// resting is a backend whose sandboxes can be stopped.
type resting struct{ processes }

type restingBox struct {
	*box
	stops int
	fails error // what Stop says
}

func (r *resting) Describe() sdk.Description {
	d := r.processes.Describe()
	d.Sandbox = (*restingBox)(nil)
	return d
}

func (b *restingBox) Stop(context.Context) error { b.stops++; return b.fails }

func (b *restingBox) Start(_ context.Context, progress func(string, int64, int64)) error {
	progress("waking \xff", 1, 3)
	return b.fails
}

// A stop ends what runs, and the sandbox is of use after it, whether it went well or not.
func TestStopAndWake(t *testing.T) {
	made := &restingBox{}
	r := &resting{}
	made.box = &box{p: &r.processes}
	r.create = func(context.Context, *sdk.CreateRequest) (sdk.Sandbox, error) { return made, nil }
	c := serve(t, r)
	ctx := context.Background()
	sb := create(t, c, "one")
	if facts, err := c.Describe(ctx); err != nil || !facts.Has(sdk.CapStop) {
		t.Errorf("capabilities %v %v", facts, err)
	}
	for _, made.fails = range []error{nil, sdk.Errorf(sdk.ReasonUnavailable, "not now")} {
		e, err := sb.Start(ctx, &client.Command{Argv: sh("sleep 300")})
		if err != nil {
			t.Fatal(err)
		}
		<-e.Started()
		if err := sb.Stop(ctx); sdk.ReasonOf(err) != sdk.ReasonOf(made.fails) {
			t.Errorf("stop: %v", err)
		}
		if exit, err := e.Wait(); err != nil || exit.Cause != sdk.CauseCancelled {
			t.Errorf("a stop must end what runs; got %+v and %v", exit, err)
		}
		var steps []string
		err = sb.Wake(ctx, func(step string, done, total int64) { steps = append(steps, fmt.Sprint(step, done, total)) })
		if sdk.ReasonOf(err) != sdk.ReasonOf(made.fails) || !slices.Equal(steps, []string{"waking \uFFFD1 3"}) {
			t.Errorf("wake: %v, progress %q", err, steps)
		}
		if exit, err := sb.Exec(ctx, &client.Command{Argv: sh("true")}); err != nil || exit.Code != 0 {
			t.Errorf("afterwards: %+v and %v", exit, err)
		}
	}
	if made.stops != 2 {
		t.Errorf("%d stops", made.stops)
	}
}

func TestUnknownSandboxes(t *testing.T) {
	c := serve(t, &processes{})
	ctx := context.Background()
	sb := create(t, c, "one")
	if err := sb.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	_, execErr := sb.Exec(ctx, &client.Command{Argv: sh("true")})
	_, changesErr := sb.Changes(ctx)
	_, inspectErr := sb.Inspect(ctx)
	for name, err := range map[string]error{
		"exec": execErr, "changes": changesErr, "inspect": inspectErr,
		"put": sb.Put(ctx, "/x", sdk.FormatTar, strings.NewReader("")), "get": sb.Get(ctx, "/x", sdk.FormatTar, io.Discard), "reset": sb.Reset(ctx, false),
		"stop": sb.Stop(ctx), "wake": sb.Wake(ctx, nil),
	} {
		if sdk.ReasonOf(err) != sdk.ReasonNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Destroy(ctx, sdk.Handle{ID: "never-was"}); err != nil {
		t.Errorf("destroy of what never was: %v", err)
	}
}

// finder is a backend whose sandboxes outlive it.
type finder struct {
	processes
	attached []sdk.Handle
}

func (f *finder) Attach(_ context.Context, h sdk.Handle) (sdk.Sandbox, error) {
	f.attached = append(f.attached, h)
	if h.ID == "gone" {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "sandbox %s is gone", h.ID)
	}
	return &box{p: &f.processes}, nil
}

func TestAttach(t *testing.T) {
	var destroyed []string
	f := &finder{}
	f.destroy = func(_ context.Context, h sdk.Handle) error {
		destroyed = append(destroyed, h.ID+string(h.Data))
		return nil
	}
	c, err := client.InProcess(f, client.Options{PipeDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	h := sdk.Handle{ID: "old", Data: json.RawMessage(`{"n":1}`)}
	for range 2 { // the second one needs no backend
		sb, err := c.Attach(ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := sb.Exec(ctx, &client.Command{Argv: sh("exit 5")}); err != nil || exit.Code != 5 {
			t.Errorf("got %+v and %v", exit, err)
		}
	}
	if diff := cmp.Diff([]sdk.Handle{h}, f.attached); diff != "" {
		t.Errorf("attached; -want +got:\n%s", diff)
	}
	if _, err := c.Attach(ctx, sdk.Handle{ID: "gone"}); sdk.ReasonOf(err) != sdk.ReasonNotFound {
		t.Errorf("got %v", err)
	}
	if _, err := c.Attach(ctx, sdk.Handle{ID: "../x"}); sdk.ReasonOf(err) != sdk.ReasonConfig {
		t.Errorf("got %v", err)
	}
	// Destroy by the id alone finds the handle; closing destroys nothing that was attached.
	if err := c.Destroy(ctx, sdk.Handle{ID: "old"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Attach(ctx, sdk.Handle{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(destroyed, []string{`old{"n":1}`}) {
		t.Errorf("destroyed %q", destroyed)
	}
}
