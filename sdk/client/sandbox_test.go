package client_test

import (
	"bytes"
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
	"testing/iotest"
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
			var told []sdk.Handle
			sb, err := c.Create(context.Background(), &sdk.CreateRequest{ID: "one", StateDir: dir,
				Allocated: func(h sdk.Handle) error { told = append(told, h); return nil }})
			if err != nil {
				t.Error(err)
				return
			}
			want := sdk.Handle{ID: "one", Data: json.RawMessage(`{"place":7}`)}
			if diff := cmp.Diff([]sdk.Handle{want}, told); diff != "" {
				t.Errorf("allocated; -want +got:\n%s", diff)
			}
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

// A creation that its caller ends while it keeps the handle goes no further: the backend is not told that the handle is
// stored, which could reach it before the end does.
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
		t.Errorf("the backend was told to go on %d times of 300", n)
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

// files is a sandbox that holds files in memory.
type files struct {
	box
	mu      sync.Mutex
	content map[string][]byte
	changes []sdk.Change
	resets  []bool
	removed []string
}

func (f *files) Put(_ context.Context, path string, _ sdk.Format, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content[path] = b
	return nil
}

func (f *files) Get(ctx context.Context, path string, _ sdk.Format, w io.Writer) error {
	tell := sdk.Progress(ctx)
	tell("packing \xff", 0, 0)
	f.mu.Lock()
	b, ok := f.content[path]
	f.mu.Unlock()
	if !ok {
		return sdk.Errorf(sdk.ReasonNotFound, "no file %s", path)
	}
	for c := range slices.Chunk(b, 1000) { // as a tar writer would
		if _, err := w.Write(c); err != nil {
			return err
		}
	}
	tell("fetching", int64(len(b)), int64(len(b)))
	return nil
}

func (f *files) Remove(_ context.Context, path string, recursive bool) error {
	if path == "/no" {
		return sdk.Errorf(sdk.ReasonNotFound, "there is no %s", path)
	}
	f.removed = append(f.removed, fmt.Sprintf("%q %t", path, recursive))
	return nil
}
func (f *files) Changes(context.Context) ([]sdk.Change, error) { return f.changes, nil }

func (f *files) Inspect(context.Context) (sdk.Status, error) {
	return sdk.Status{State: sdk.StateReady, Details: map[string]string{"image": "x\xffy"}}, nil
}

func (f *files) Reset(_ context.Context, hard bool) error {
	f.resets = append(f.resets, hard)
	return nil
}

func withFiles(t *testing.T) (*files, *client.Local, *client.Sandbox) {
	f := &files{content: map[string][]byte{}}
	p := &processes{
		describe: func(d *sdk.Description) { d.Sandbox, d.Formats = (*files)(nil), []sdk.Format{sdk.FormatTar} },
		create:   func(context.Context, *sdk.CreateRequest) (sdk.Sandbox, error) { return f, nil },
	}
	f.box.p = p
	c := serve(t, p)
	return f, c, create(t, c, "one")
}

func TestPutAndGet(t *testing.T) {
	_, _, sb := withFiles(t)
	ctx := context.Background()
	for _, n := range []int{0, 1, client.ChunkSize, client.ChunkSize + 1, 5<<20 + 3} {
		in := bytes.Repeat([]byte("abc\x00d"), n/5+1)[:n]
		path := fmt.Sprintf("/workspace/%d\xff", n)
		if err := sb.Put(ctx, path, sdk.FormatTar, iotest.HalfReader(bytes.NewReader(in))); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := sb.Get(ctx, path, sdk.FormatTar, &out); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in, out.Bytes()) {
			t.Errorf("%d bytes went in and %d others came out", n, out.Len())
		}
	}
	if err := sb.Get(ctx, "/nothing", sdk.FormatTar, io.Discard); sdk.ReasonOf(err) != sdk.ReasonNotFound {
		t.Errorf("get of nothing: %v", err)
	}
	if err := sb.Put(ctx, "/x", sdk.FormatBundle, strings.NewReader("")); sdk.ReasonOf(err) != sdk.ReasonUnsupported {
		t.Errorf("put of a format that it does not take: %v", err)
	}
}

// TestGetTellsHowFarItIs: whoever wants to hear of it does, in order, and nobody else gets anything but the bytes.
func TestGetTellsHowFarItIs(t *testing.T) {
	f, _, sb := withFiles(t)
	f.content["/x"] = []byte("some bytes")
	var steps []string
	var out bytes.Buffer
	ctx := sdk.WithProgress(context.Background(), func(step string, done, total int64) { steps = append(steps, fmt.Sprint(step, " ", done, "/", total)) })
	if err := sb.Get(ctx, "/x", sdk.FormatTar, &out); err != nil || out.String() != "some bytes" {
		t.Errorf("it gave %q and %v", &out, err)
	}
	if !slices.Equal(steps, []string{"packing \uFFFD 0/0", "fetching 10/10"}) {
		t.Errorf("it told %q", steps)
	}
	sdk.Progress(context.Background())("to nobody", 1, 2)
}

// A source that fails half way must never look like a shorter file.
func TestAPutThatBreaksIsNoFile(t *testing.T) {
	f, _, sb := withFiles(t)
	bad := errors.New("disk on fire")
	err := sb.Put(context.Background(), "/half", sdk.FormatTar, io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(bad)))
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	if err := sb.Destroy(context.Background()); err != nil { // waits for the put on the other side
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.content["/half"]; ok {
		t.Errorf("a file of %d bytes came to be", len(b))
	}
}

func TestRemove(t *testing.T) {
	f, _, sb := withFiles(t)
	for _, err := range []error{sb.Remove(context.Background(), "/a\xff", false), sb.Remove(context.Background(), "/b", true)} {
		if err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{`"/a\xff" false`, `"/b" true`}, f.removed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var e *sdk.Error
	if err := sb.Remove(context.Background(), "/no", false); !errors.As(err, &e) || e.Reason != sdk.ReasonNotFound {
		t.Errorf("got %v", err)
	}
}

func TestChangesInspectReset(t *testing.T) {
	f, c, sb := withFiles(t)
	ctx := context.Background()
	for i := range 2500 {
		f.changes = append(f.changes, sdk.Change{Path: fmt.Sprintf("dir/%04d\xff", i), Kind: sdk.ChangeModified, OldMode: 0o644, NewMode: 0o755 | 1<<31, Size: int64(i) << 33})
	}
	got, err := sb.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f.changes, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	st, err := sb.Inspect(ctx)
	if err != nil || st.State != sdk.StateReady || st.Details["image"] != "x\uFFFDy" {
		t.Errorf("got %+v and %v", st, err)
	}
	e, err := sb.Start(ctx, &client.Command{Argv: sh("sleep 1000")})
	if err != nil {
		t.Fatal(err)
	}
	<-e.Started()
	if err := sb.Reset(ctx, true); err != nil {
		t.Fatal(err)
	}
	if exit, err := e.Wait(); err != nil || exit.Cause != sdk.CauseCancelled {
		t.Errorf("reset must end what runs; got %+v and %v", exit, err)
	}
	if exit, err := sb.Exec(ctx, &client.Command{Argv: sh("true")}); err != nil || exit.Code != 0 {
		t.Errorf("after a reset: %+v and %v", exit, err)
	}
	if !slices.Equal(f.resets, []bool{true}) {
		t.Errorf("resets %v", f.resets)
	}
	facts, err := c.Describe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := []sdk.Capability{sdk.CapPlan, sdk.CapInspect, sdk.CapPut, sdk.CapGet, sdk.CapRemove, sdk.CapChanges, sdk.CapReset}
	if diff := cmp.Diff(want, facts.Capabilities); diff != "" {
		t.Errorf("capabilities; -want +got:\n%s", diff)
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
			t.Errorf("wake: %v, told %q", err, steps)
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
