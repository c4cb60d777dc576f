package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
)

// TestProgressOnATerminal: what takes longer than a moment shows a bar, which the next state replaces and the end
// removes.
func TestProgressOnATerminal(t *testing.T) {
	painted := make(chan string, 10)
	u := &ui{errTTY: true, width: 80, err: writerFunc(func(p []byte) (int, error) {
		painted <- string(p)
		return len(p), nil
	})}
	next := func() string {
		t.Helper()
		select {
		case text := <-painted:
			return text
		case <-time.After(20 * time.Second):
			t.Fatal("nothing was shown")
			return ""
		}
	}
	tell := waking(u)
	tell(run.Progress{Name: "box", Step: "packing what comes back"})
	if got := next(); !strings.HasSuffix(got, "box: packing what comes back") {
		t.Errorf("it shows %q", got)
	}
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{0, 200, "[>                   ] 0%"}, {110, 200, "[===========>        ] 55%"}, {200, 200, "[====================] 100%"},
		{-1, 200, "[>                   ] 0%"}, {300, 200, "[====================] 100%"}, // a backend may say anything
	} {
		tell(run.Progress{Name: "box", Step: "fetching files", Done: c.done, Total: c.total})
		if got := next(); got != "\r\x1b[Kbox: fetching files "+c.want {
			t.Errorf("%d of %d shows %q", c.done, c.total, got)
		}
	}
	tell(run.Progress{Name: "box"})
	if got := next(); got != "\r\x1b[K" {
		t.Errorf("at the end it shows %q", got)
	}
}

// TestProgressWithoutATerminal: what takes long has a line for each step, and what does not has none.
func TestProgressWithoutATerminal(t *testing.T) {
	for name, of := range map[string]func(*ui) func(run.Progress){
		"of a sandbox":          waking,
		"of a loop of attempts": func(u *ui) func(run.Progress) { return newWatch(u, &generateCmd{}, &runfile.Generate{}).show.progress },
	} {
		t.Run(name, func(t *testing.T) { testProgressWithoutATerminal(t, of) })
	}
}

func testProgressWithoutATerminal(t *testing.T, of func(*ui) func(run.Progress)) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		u := &ui{err: &out}
		tell := of(u)
		step := func(text string, after time.Duration) {
			tell(run.Progress{Name: "box", Step: text})
			time.Sleep(after)
			synctest.Wait()
		}
		step("fetching files", plainPatience-time.Millisecond)
		step("", plainPatience)
		if out.Len() > 0 {
			t.Errorf("of what was quick it says %q", out.String())
		}
		step("making the VM", plainPatience-time.Millisecond)
		step("starting the VM", time.Millisecond)
		step("starting the VM", plainPatience)
		tell(run.Progress{Name: "box", Step: "fetching files", Done: 1, Total: 2})
		tell(run.Progress{Name: "box", Step: "fetching files", Done: 2, Total: 2})
		step("", plainPatience)
		if want := "hutch: box: starting the VM\nhutch: box: fetching files\n"; out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	})
}
