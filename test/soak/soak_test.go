package main

import (
	"os"
	"testing"
	"time"

	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

// TestSoak is a short soak; `make soak` is the long one.
func TestSoak(t *testing.T) {
	e2e.Require(t, "bwrap")
	o := options{hutch: e2e.Hutch(), backend: "bwrap", runs: 60, sandboxes: 6, jobs: 4, seed: uint64(time.Now().UnixNano())}
	f, err := soak(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d\n%s", o.seed, table([]*figures{f}))
	for _, p := range f.problems() {
		t.Error(p)
	}
}
