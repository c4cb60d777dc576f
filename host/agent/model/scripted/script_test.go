package scripted

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/agent/model"
)

func TestParse(t *testing.T) {
	got, err := Parse("s.txtar", []byte(`Whatever stands before the first section is for the reader.
-- answer --
I look.

-- call read_file c1 --
{"path": "a b"}
-- call run --
{"command
-- expect --
one thing

another thing
-- not --
a third
-- system --
be kind
-- tools --
read_file run
-- thought --
hmm
-- usage --
input 12 output 4 cached 3
-- answer --
-- stop --
length
-- fault --
status 429
retry_after 1s
message no more for today
echo_key
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Answer{
		{Text: "I look.\n", Expect: Expect{Last: []string{"one thing", "another thing"}, Not: []string{"a third"},
			System: []string{"be kind"}, Tools: []string{"read_file", "run"}},
			Thought: "hmm", Usage: &model.Usage{InputTokens: 12, OutputTokens: 4, CachedTokens: 3},
			Calls: []Call{{ID: "c1", Name: "read_file", Arguments: json.RawMessage(`{"path": "a b"}`)}, {Name: "run",
				Arguments: json.RawMessage(`"{\"command"`)}}},
		{Stop: model.StopLength, Fault: Fault{Status: 429, RetryAfter: "1s", Message: "no more for today", EchoKey: true}},
	}
	if diff := cmp.Diff(want, got.Answers); diff != "" {
		t.Error(diff)
	}
}

func TestBadScripts(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"a.txtar", "", "it has no answers"},
		{"a.txtar", "-- expect --\nx\n", `the section "expect" stands before the first answer`},
		{"a.txtar", "-- answer --\n-- expects --\nx\n", `did you mean "expect"?`},
		{"a.txtar", "-- answer --\n-- what --\nx\n", "there are answer, call, expect"},
		{"a.txtar", "-- answer --\n-- call --\n{}\n", "write -- call NAME --"},
		{"a.txtar", "-- answer --\n-- usage --\ninput many\n", "write input N output N"},
		{"a.txtar", "-- answer --\n-- usage --\nmoney 3\n", `there is no count "money"`},
		{"a.txtar", "-- answer --\n-- usage --\ninput 1 cached 3\n", "more cached than input"},
		{"a.txtar", "-- answer --\n-- fault --\nexplode\n", `unknown field "explode"`},
		{"a.txtar", "-- answer --\n-- fault --\nstatus 200\n", "invalid status 200 of a fault"},
		{"a.txtar", "-- answer --\n-- fault --\ndelay soon\n", `delay: "soon" is not a duration`},
		{"a.txtar", "-- answer --\n-- fault --\nbig -1\n", "big is -1"},
		{"a.txtar", "-- answer --\n-- stop --\nnow\n", `there is no stop "now"`},
		{"a.json", `{"answers":[{"txt":"x"}]}`, `unknown field "txt"`},
		{"a.json", `{"answers":[]} {}`, "more after the end"},
		{"a.json", `{"answers":[{"calls":[{}]}]}`, "a call has no name"},
		{"a.json", `[`, "unexpected EOF"},
	} {
		if _, err := Parse(c.name, []byte(c.src)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, not %s", c.src, err, c.want)
		}
	}
}

// TestPage reads what the page shows.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/reference/scripted.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"txtar", "json"} {
		m := regexp.MustCompile("(?ms)^```" + kind + "\n(.*?)^```$").FindSubmatch(page)
		if m == nil {
			t.Fatalf("the page has no %s block", kind)
		}
		s, err := Parse("page."+kind, m[1])
		if err != nil || len(s.Answers) != 3 || len(s.Answers[0].Calls) != 1 || s.Answers[2].Fault.Status != 429 {
			t.Errorf("%s: %+v, %v", kind, s, err)
		}
	}
	for _, name := range append(faultNames(t), sections...) {
		if !strings.Contains(string(page), "`"+name) && !strings.Contains(string(page), ", `"+name) {
			t.Errorf("the page does not speak of %s", name)
		}
	}
}

// faultNames are those of the JSON form.
func faultNames(t *testing.T) []string {
	b, err := json.Marshal(Fault{Status: 1, Message: "x", Type: "x", RetryAfter: "x", EchoKey: true, Redirect: "x",
		Delay: "x", Hang: true, Stall: true, Reset: true, Cut: true,
		Garbage: true, HTML: true, Empty: true, ErrorInStream: true, Whole: true, NoUsage: true, NoIDs: true, NoDone: true,
		NoStop: true, SameIndex: true, Big: 1})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

func TestServeOnlyHere(t *testing.T) {
	s := &Script{Name: "s", Answers: []Answer{{Text: "x"}}}
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.com:80", "127.0.0.1"} {
		if v, err := Serve(addr, s, "", nil); err == nil {
			_ = v.Close()
			t.Errorf("%s is served", addr)
		}
	}
}

func TestReadBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.txtar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(model.MaxScript + 1); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Error(err)
	}
}

// FuzzParse takes any script: no panic, and what is taken is served without one in both protocols.
func FuzzParse(f *testing.F) {
	f.Add(true, []byte("-- answer --\nhello\n-- call a b --\n{\"x\":1}\n-- usage --\ninput 1 output 2\n-- fault --\nstatus 429\nretry_after 1s\n"))
	f.Add(false, []byte(`{"answers":[{"text":"é","calls":[{"name":"a","arguments":"{"}],"fault":{"big":10}}]}`))
	f.Fuzz(func(t *testing.T, txtar bool, src []byte) {
		name := "s.json"
		if txtar {
			name = "s.txtar"
		}
		s, err := Parse(name, src)
		if err != nil {
			return
		}
		for _, a := range s.Answers {
			if a.Fault.Big > 1<<16 {
				continue
			}
			for _, p := range []wire{openai{}, anthropic{}} {
				r := &reply{Answer: a, model: "m", id: "1"}
				r.prepare(&request{key: "key"})
				for _, e := range p.events(r) {
					if _, text := e.data.(string); text {
						continue
					}
					if _, err := json.Marshal(e.data); err != nil {
						t.Fatalf("%q: %v", src, err)
					}
				}
				if _, err := json.Marshal(p.whole(r)); err != nil {
					t.Fatalf("%q: %v", src, err)
				}
			}
		}
	})
}
