package replay

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func newStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{Home: filepath.Join(t.TempDir(), "home"), Version: "1.0"})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorded is a finished run of this definition; change may change its result.
func recorded(t *testing.T, s *store.Store, n store.NewRun, change func(*result.Result)) *store.Run {
	t.Helper()
	r, err := s.CreateRun(n)
	must(t, err)
	res := &result.Result{ID: r.ID(), Name: n.Name, Cause: "exited", Backend: result.Backend{Name: "fake"}}
	change(res)
	res.Seal(0)
	_, err = r.Finish(store.End{OK: true, Cause: "exited", Result: res})
	must(t, err)
	return r
}

func same(*result.Result) {}

// TestWhatIsNotRepeated is refused with the reason and, where there is one, the way out.
func TestWhatIsNotRepeated(t *testing.T) {
	s := newStore(t)
	def := map[string]any{"run": "x", "instance": "x", "command": []string{"true"}, "network": map[string]any{"mode": "none"}}
	with := func(more map[string]any) map[string]any {
		m := map[string]any{}
		for _, from := range []map[string]any{def, more} {
			for k, v := range from {
				m[k] = v
			}
		}
		return m
	}
	running, err := s.CreateRun(store.NewRun{Name: "x", Definition: def})
	must(t, err)
	defer running.Close()
	changed := recorded(t, s, store.NewRun{Name: "x", Definition: def}, same)
	chain := filepath.Join(changed.Dir(), "events.jsonl")
	text, err := os.ReadFile(chain)
	must(t, err)
	must(t, errors.Join(os.Chmod(chain, 0o600), os.WriteFile(chain, bytes.Replace(text, []byte(`"true"`), []byte(`"rm"`), 1), 0o600)))
	for name, c := range map[string]struct {
		run         *store.Run
		o           Options
		reason, fix string
	}{
		"a loop":       {recorded(t, s, store.NewRun{Kind: store.KindCycle, Name: "x", Definition: def}, same), Options{}, "it is a cycle", "--tree"},
		"goes on":      {running, Options{}, "still running", ""},
		"was changed":  {changed, Options{}, "its record cannot be read: events.jsonl", "hutch audit verify"},
		"no backend":   {recorded(t, s, store.NewRun{Name: "x", Definition: def}, func(r *result.Result) { r.Backend.Name = "" }), Options{}, "no backend", "--backend"},
		"in a sandbox": {recorded(t, s, store.NewRun{Name: "x", Definition: def}, func(r *result.Result) { r.Sandbox = &result.Sandbox{ID: "i", Name: "web"} }), Options{}, "persistent sandbox web", "hutch exec web"},
		"gone":         {recorded(t, s, store.NewRun{Name: "x", Definition: with(map[string]any{"workspace": map[string]any{"source": "/nonexistent/dir", "mode": "private"}})}, same), Options{Backend: "other"}, "not there any more", "put it back"},
		"shared":       {recorded(t, s, store.NewRun{Name: "x", Definition: with(map[string]any{"workspace": map[string]any{"source": t.TempDir(), "mode": "shared"}})}, same), Options{Backend: "other"}, "is shared", "--shared"},
		"writable":     {recorded(t, s, store.NewRun{Name: "x", Definition: with(map[string]any{"mounts": []any{map[string]any{"target": "/home/me", "source": "/srv/me", "mode": "writable"}}})}, same), Options{Backend: "other"}, "its mount /home/me is writable", "--shared"},
		"secret":       {recorded(t, s, store.NewRun{Name: "x", Definition: with(map[string]any{"stdin": "(sensitive)"})}, same), Options{Backend: "other"}, "lacks stdin", ""},
		"home":         {recorded(t, s, store.NewRun{Name: "x", Definition: with(map[string]any{"home": []any{map[string]any{"path": "a", "source": "/nonexistent/a"}}})}, same), Options{Backend: "other"}, "is gone", ""},
		"too much":     {recorded(t, s, store.NewRun{Name: "x", Definition: def}, same), Options{Backend: "other", Env: map[string]string{"A": "b"}}, "does not lack it", "leave it out"},
		// The record of a backend's block is the event of its plan, which this one has not.
		"no block": {recorded(t, s, store.NewRun{Name: "x", Definition: def}, same), Options{}, `lacks backend "fake"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Prepare(t.Context(), s, c.run.ID(), c.o)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.reason) || !strings.Contains(refused.Fix, c.fix) {
				t.Errorf("%v (%+v), want %q", err, refused, c.reason)
			}
		})
	}
	r, err := Prepare(t.Context(), s, recorded(t, s, store.NewRun{Name: "x", Definition: def}, same).ID(), Options{Backend: "other"})
	must(t, err)
	if r.Definition.Backends[0].Name != "other" || r.Definition.Parent == "" || r.hutch != "1.0" {
		t.Errorf("%+v", r.Definition)
	}
}

func TestFirstDifference(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct {
		a, b    string
		line    int
		was, is string
	}{
		{"", "", 0, "", ""},
		{"a\nb\n", "a\nb\n", 0, "", ""},
		{"a\nb", "a\nb", 0, "", ""},
		{"a\nb\n", "a\nc\n", 2, "b", "c"},
		{"a\n", "a\nb\n", 2, "(end)", "b"},
		{"a", "a\n", 1, "a (no newline)", "a"},
		{"\xff\n", "a\n", 1, "\ufffd", "a"},
		{long + "\na\n", long + "\na\n", 0, "", ""},
		{long + "\na\n", long + "\nb\n", 2, "a", "b"},
		{long, long[:100_000] + "y" + long, 1, strings.Repeat("x", 500) + "…", strings.Repeat("x", 500) + "…"},
	} {
		line, was, is, err := firstDifference(strings.NewReader(c.a), strings.NewReader(c.b))
		if err != nil || line != c.line || was != c.was && c.line > 0 && len(c.a) < 1000 || is != c.is && len(c.b) < 1000 {
			t.Errorf("%.20q %.20q: line %d, %q and %q, %v", c.a, c.b, line, was, is, err)
		}
	}
}

// TestWriteText: a report for a person, in which nobody else's text is more than text.
func TestWriteText(t *testing.T) {
	r := &Report{
		Schema: Schema, Run: "261121-000000-aaaaaa", Replay: "261121-000001-bbbbbb", Name: "evil\x1b[2J",
		Differences: []Difference{
			{What: "cause", Was: "exited", Is: "oom"},
			{What: "exit_code", Was: "0"},
			{What: "stdout", Line: 3, Was: "good", Is: "bad\x1b]0;title\x07"},
			{What: "output", Path: "a\nb.txt", Was: "3 B, sha256 0123", Is: "4 B, sha256 4567", Diff: "@@ -1 +1 @@\n-old\n+new\x1b[31m\n"},
			{What: "output", Path: "fresh", Is: "1 B, sha256 89ab"},
		},
		Circumstances: []Circumstance{{"backend", "bwrap 1", "podman 2"}, {"home .x", "", "read again from /x"}, {"limit memory", "1GiB, held by cgroup v2", "none"}},
		Workspace:     Workspace{Source: "/src", Mode: "private", Touched: []string{"a", "b\x1b"}, Count: 7},
	}
	for name, style := range map[string]Style{"report.txt": {}, "report-color.txt": {Color: true}} {
		var b bytes.Buffer
		must(t, r.WriteText(&b, style))
		if !style.Color && strings.ContainsAny(b.String(), "\x1b\x07") {
			t.Error("a control character comes through")
		}
		path := filepath.Join("testdata", name)
		if *update {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(path, b.Bytes(), 0o644))
			continue
		}
		want, err := os.ReadFile(path)
		must(t, err)
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("differs from %s (-want +got), -update accepts it:\n%s", path, diff)
		}
	}
}
