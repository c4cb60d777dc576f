package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

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

// TestGetTellsHowFarItIs: progress arrives in order, and only where it is asked for.
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
		t.Errorf("progress was %q", steps)
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
