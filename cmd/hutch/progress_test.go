package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/result"
)

// TestWatch: where there is no terminal, a line says from time to time how far many runs are.
func TestWatch(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	s := bareShow(&ui{err: w}, &runCmd{Output: "text"})
	s.runs = 200
	s.ended(&result.Result{OK: true})
	s.ended(&result.Result{})
	tick := make(chan time.Time)
	stop := s.watch(tick)
	tick <- time.Time{}
	line := make([]byte, 100)
	n, err := r.Read(line)
	if want := "hutch: 2 of 200 runs ended, 1 failed\n"; err != nil || string(line[:n]) != want {
		t.Errorf("%q, %v; want %q", line[:n], err, want)
	}
	stop()
	stop() // twice is fine
	var quiet bytes.Buffer
	s = bareShow(&ui{err: &quiet}, &runCmd{Output: "json"})
	s.watch(nil)()
	if quiet.Len() > 0 {
		t.Errorf("with JSON: %q", &quiet)
	}
}
