package registry

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// box is a sandbox that does nothing.
type box struct{ sdk.Sandbox }

// TestOnce asks for one sandbox many times at once, and again after it failed and after it ended.
func TestOnce(t *testing.T) {
	var r Registry[*box]
	it := new(box)
	made, release := 0, make(chan struct{})
	fn := func() (*box, error) {
		made++
		<-release
		return it, nil
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if s, err := r.Once(t.Context(), "a", fn); s != it || err != nil {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
	close(release)
	all.Wait()
	if made != 1 {
		t.Errorf("it was made %d times", made)
	}
	bad := errors.New("bad")
	if _, err := r.Once(t.Context(), "b", func() (*box, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Errorf("a failure: %v", err)
	}
	if here, err := r.End(t.Context(), "b", func(*box) error { t.Error("what was never made is ended"); return nil }); here || err != nil {
		t.Errorf("%t, %v", here, err)
	}
	if here, err := r.End(t.Context(), "a", func(*box) error { return bad }); !here || !errors.Is(err, bad) {
		t.Errorf("an end that fails: %t, %v", here, err)
	}
	for _, want := range []bool{true, false} {
		if here, err := r.End(t.Context(), "a", func(*box) error { return nil }); here != want || err != nil {
			t.Errorf("%t, %v; want %t", here, err, want)
		}
	}
	if _, err := r.Once(t.Context(), "a", fn); made != 2 || err != nil {
		t.Errorf("made %d times, %v", made, err)
	}
}

// TestWaiting ends the patience of those who wait for a sandbox, and not that of who makes it.
func TestWaiting(t *testing.T) {
	var r Registry[*box]
	it := new(box)
	begun, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := r.Once(context.WithoutCancel(t.Context()), "a", func() (*box, error) {
			close(begun)
			<-release
			return it, nil
		})
		done <- err
	}()
	<-begun
	gone := errors.New("no more patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := r.Once(ctx, "a", nil); !errors.Is(err, gone) {
		t.Errorf("to wait for it: %v", err)
	}
	if here, err := r.End(ctx, "a", nil); !here || !errors.Is(err, gone) {
		t.Errorf("to end it: %t, %v", here, err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s, err := r.Once(t.Context(), "a", nil); s != it || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}
