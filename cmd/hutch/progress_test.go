package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
)

// TestTable: the table has what runs, in the order in which it began, as many rows as there is room for, and nothing that
// acts on a terminal.
func TestTable(t *testing.T) {
	var l table
	began := time.Unix(0, 0)
	for i, name := range []string{"a", "evil\x1b[2J", "c", "d"} {
		l.begin(&runfile.Definition{Instance: name, Backends: []*runfile.Backend{{Name: "bwrap"}}}, began.Add(time.Duration(i)*time.Second))
	}
	l.step("a", "create", "")
	l.step("c", "dependencies: pip install", "")
	l.begin(&runfile.Definition{Instance: "a"}, began.Add(9*time.Second)) // again
	l.end("d")
	now := began.Add(10 * time.Second)
	for most, want := range map[int][]string{
		3: {`  evil\x1b[2J      9s            bwrap`, `  c                8s            bwrap  dependencies: pip install`, `  a                1s`},
		2: {`  evil\x1b[2J      9s            bwrap`, `  and 2 more`},
	} {
		if d := cmp.Diff(want, l.rows(now, most)); d != "" {
			t.Error(d)
		}
	}
	below := exec.Command("sleep", "60") // this process has it below itself
	if err := below.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = below.Process.Kill(), below.Wait() }()
	l.step("a", "", strconv.Itoa(os.Getpid()))
	if got := strings.Join(l.rows(now.Add(lookEvery), 9), "\n"); !regexp.MustCompile(`(?m)^  a +2s +[0-9.]+ [KM]iB$`).MatchString(got) {
		t.Errorf("no memory:\n%s", got)
	}
	s := &show{runs: 200, over: 50, failed: 1}
	if got := s.progressed(10 * time.Second); got != "50 of 200 runs ended, 1 failed, about 30s left" {
		t.Error(got)
	}
}

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
