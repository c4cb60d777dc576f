package limaout

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLog(t *testing.T) {
	const said = `{"level":"info","msg":"Starting","time":"2026-11-21T02:12:12Z"}
Terminal is not available

{"level":"fatal","msg":"instance ` + "`x`" + ` does not exist","time":"2026-11-21T02:12:12Z"}
exit status 1`
	var got []string
	for _, step := range []int{1, 7, len(said)} { // it does not matter in which pieces it comes
		got = nil
		l := &Log{Tell: func(level, msg string) { got = append(got, level+": "+msg) }}
		for rest := []byte(said); len(rest) > 0; {
			n := min(step, len(rest))
			if _, err := l.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		l.End()
		want := []string{"info: Starting", ": Terminal is not available", "fatal: instance `x` does not exist", ": exit status 1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in pieces of %d, -want +got:\n%s", step, diff)
		}
		if l.Fatal != "instance `x` does not exist" || l.Last != "exit status 1" {
			t.Errorf("fatal %q, last %q", l.Fatal, l.Last)
		}
	}
}

func TestParseList(t *testing.T) {
	const two = `{"name":"a","hostname":"lima-a","status":"Running","sshConfigFile":"/l/a/ssh.config","memory":2147483648,"config":{"mounts":[{"location":"/x","mountPoint":"/exchange","writable":true,"9p":{"cache":"mmap"}}],"user":{"name":"u","uid":1002}},"new":{}}
{"name":"b","status":"Broken","errors":["host agent is not running"]}
`
	all, err := ParseList(strings.NewReader(two))
	if err != nil || len(all) != 2 {
		t.Fatalf("%v %v", all, err)
	}
	a, b := all[0], all[1]
	if a.Hostname != "lima-a" || a.Status != StatusRunning || a.Memory != 2<<30 || len(a.Config.Mounts) != 1 || !a.Config.Mounts[0].Writable || a.Config.User.Name != "u" {
		t.Errorf("%+v", a)
	}
	if b.Status != "Broken" || len(b.Errors) != 1 {
		t.Errorf("%+v", b)
	}
	if all, err := ParseList(strings.NewReader("")); err != nil || len(all) != 0 {
		t.Errorf("of nothing: %v %v", all, err)
	}
	if _, err := ParseList(strings.NewReader(`{"name":"a"}` + "\ntime=...\n")); err == nil {
		t.Errorf("what is no JSON was taken")
	}
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte(`{"level":"fatal","msg":"x"}` + "\n"))
	f.Add([]byte(`{"name":"a","config":{"mounts":[{}]}}`))
	f.Add(bytes.Repeat([]byte("x"), 70<<10))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines := 0
		l := &Log{Tell: func(string, string) { lines++ }}
		if n, err := l.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		l.End()
		if lines > bytes.Count(b, []byte("\n"))+1+len(b)/maxLogLine {
			t.Errorf("%d lines", lines)
		}
		_, _ = ParseList(bytes.NewReader(b)) // it must come back
	})
}
