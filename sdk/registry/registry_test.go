package registry

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// TestOnce asks for one sandbox many times at once, and again after it failed and after it ended.
func TestOnce(t *testing.T) {
	var r Registry[*int]
	made, release := 0, make(chan struct{})
	fn := func() (*int, error) {
		made++
		<-release
		return &made, nil
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if s, err := r.Once(t.Context(), "a", fn); s != &made || err != nil {
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
	if _, err := r.Once(t.Context(), "b", func() (*int, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Errorf("a failure: %v", err)
	}
	if here, err := r.End(t.Context(), "b", func(*int) error { t.Error("what was never made is ended"); return nil }); here || err != nil {
		t.Errorf("%t, %v", here, err)
	}
	if here, err := r.End(t.Context(), "a", func(*int) error { return bad }); !here || !errors.Is(err, bad) {
		t.Errorf("an end that fails: %t, %v", here, err)
	}
	for _, want := range []bool{true, false} {
		if here, err := r.End(t.Context(), "a", func(*int) error { return nil }); here != want || err != nil {
			t.Errorf("%t, %v; want %t", here, err, want)
		}
	}
	if _, err := r.Once(t.Context(), "a", fn); made != 2 || err != nil {
		t.Errorf("made %d times, %v", made, err)
	}
}

// TestWaiting ends the patience of those who wait for a sandbox, and not that of who makes it.
func TestWaiting(t *testing.T) {
	var r Registry[string]
	begun, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := r.Once(context.WithoutCancel(t.Context()), "a", func() (string, error) {
			close(begun)
			<-release
			return "made", nil
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
	if s, err := r.Once(t.Context(), "a", nil); s != "made" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
}
