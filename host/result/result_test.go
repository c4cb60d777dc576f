package result

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// full is a result in which every field is set.
func full() *Result {
	at := &diag.Range{File: "ci.hcl", Start: diag.Pos{Line: 3, Column: 1, Byte: 20}, End: diag.Pos{Line: 3, Column: 9, Byte: 28}}
	user, sys, mem, pids, code := Seconds(1200*time.Millisecond), Seconds(30*time.Millisecond), int64(12<<20), int64(4), 3
	r := &Result{
		ID: "261121-034512-c3k7q2", Name: `test["3.12"]`, File: "ci.hcl",
		Backend: Backend{Name: "bwrap", Version: "0.1.0", Isolation: "namespace", Path: "/usr/libexec/hutch/hutch-backend-bwrap", SHA256: "ab"},
		Command: []string{"python3", "/workspace/input/main.py"}, Workdir: "/workspace",
		Cause: sdk.CauseExited, Evidence: "wait status: exit 3", ExitCode: &code, Signal: "SIGKILL", NotStarted: true,
		Expected: true, ExpectFailures: []ExpectFailure{{What: "exit_code", Want: "0", Got: "3", At: at}},
		Attempts: []*Result{{Schema: Schema, ID: "261121-034510-aaaaaa", Cause: sdk.CauseTimeout, TimedOut: true}}, Flaky: true,
		Stdout: Stream{Text: "hi\n", Bytes: 3000, Dropped: 1000, Truncated: true, Path: "stdout.log"}, Stderr: Stream{Path: "stderr.log"}, TTY: true,
		Usage:  Usage{Wall: Seconds(1234567 * time.Microsecond), User: &user, Sys: &sys, PeakMemory: &mem, PIDs: &pids},
		Limits: []Limit{{Limit: sdk.LimitMemory, Asked: true, Value: "64MiB", HeldBy: "cgroup v2 memory.max"}},
		Network: Network{Mode: sdk.NetworkFiltered, Allow: []string{"packages.example.org", "*.files.example.org:443"}, Deny: []string{"upload.files.example.org"}, TrafficMore: 3, Missed: true,
			Traffic: []sdk.Traffic{
				{Name: "upload.files.example.org", Port: 443, Rule: "upload.files.example.org", Reason: `upload.files.example.org:443 is denied by "upload.files.example.org" in network.deny`, Connections: 2},
				{Name: "packages.example.org", Port: 443, Allowed: true, Rule: "packages.example.org", Connections: 1, Sent: 812, Received: 40960, Secrets: []string{"TOKEN"}},
			}},
		Workspace:    Workspace{Source: "/home/u/p", Mode: "private", Path: "/workspace"},
		Dependencies: []Dependencies{{Language: "python", Installer: "pip 24.0", Packages: []string{"requests==2.32.3"}, Key: "ab"}},
		Outputs:      []outputs.Output{{Path: "a.json", Size: 2, SHA256: "cd", Mode: "0644"}},
		Skipped:      []outputs.Skipped{{Path: "l", Reason: "symlink", Detail: "a symbolic link"}}, SkippedMore: 1,
		Changes: []Change{{Path: "b", Kind: "modified", OldMode: "0644", NewMode: "0755", Size: 9}}, ChangesMore: 2, ChangesKnown: true,
		Notes: []string{"a note"}, Started: time.Date(2026, 11, 21, 3, 45, 12, 0, time.UTC), Ended: time.Date(2026, 11, 21, 3, 45, 14, 0, time.UTC),
		Dir: "/home/u/.local/share/hutch/runs/261121-034512-c3k7q2", Events: store.ChainRef{Path: "events.jsonl", Events: 10, Head: "ef"},
		Kept: true, Leaks: []string{"a cgroup"}, Source: at,
		Error: &Failure{Phase: "create", Summary: "no", Detail: "really", Fix: "do", Reason: sdk.ReasonMissing, Diagnostics: diag.Diagnostics{diag.Errorf("x")}},
	}
	r.Seal(3)
	return r
}

func TestGoldenAndBack(t *testing.T) {
	var b bytes.Buffer
	if err := full().Encode(&b); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "full.json")
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
	back, err := Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), back); diff != "" {
		t.Error(diff)
	}
	if _, err := Decode([]byte(`{"schema":"hutch.result/v2"}`)); err == nil {
		t.Error("another major version was read")
	}
	b.Reset()
	if err := full().EncodeLine(&b); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%v: not one line: %q", err, b.String())
	}
}

// TestSchema holds the JSON Schema and the Go types together: every field is described, every description has a field,
// and what is required is what is always written.
func TestSchema(t *testing.T) {
	var doc map[string]any
	text, err := os.ReadFile("schema.json")
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	defs := doc["$defs"].(map[string]any)
	var check func(path string, typ reflect.Type, schema map[string]any)
	check = func(path string, typ reflect.Type, schema map[string]any) {
		if schema["$ref"] == "#" && typ == reflect.TypeFor[*Result]() {
			return
		}
		if ref, ok := schema["$ref"].(string); ok {
			schema = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Slice {
			if schema["type"] != "array" {
				t.Errorf("%s is a list, the schema says %v", path, schema["type"])
				return
			}
			if typ != reflect.TypeFor[diag.Diagnostics]() {
				check(path+"[]", typ.Elem(), schema["items"].(map[string]any))
			}
			return
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
			return
		}
		props, _ := schema["properties"].(map[string]any)
		var names, required []string
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			names = append(names, name)
			if !strings.Contains(opts, "omit") {
				required = append(required, name)
			}
			p, ok := props[name].(map[string]any)
			if !ok {
				t.Errorf("the schema lacks %s.%s", path, name)
				continue
			}
			check(path+"."+name, f.Type, p)
		}
		for name := range props {
			if !slices.Contains(names, name) {
				t.Errorf("the schema has %s.%s, the type has not", path, name)
			}
		}
		var said []string
		for _, r := range schema["required"].([]any) {
			said = append(said, r.(string))
		}
		slices.Sort(said)
		slices.Sort(required)
		if diff := cmp.Diff(required, said); diff != "" {
			t.Errorf("required of %s: %s", path, diff)
		}
	}
	check("result", reflect.TypeFor[Result](), doc)
}

func TestStatus(t *testing.T) {
	code := func(n int) *int { return &n }
	for name, tc := range map[string]struct {
		r    Result
		code int
		want int
	}{
		"ok":               {Result{Cause: sdk.CauseExited, ExitCode: code(0)}, 0, 0},
		"own code":         {Result{Cause: sdk.CauseExited, ExitCode: code(42)}, 42, 42},
		"signal":           {Result{Cause: sdk.CauseSignaled, Signal: "SIGSEGV"}, 139, 139},
		"timeout":          {Result{Cause: sdk.CauseTimeout, Signal: "SIGTERM"}, 143, 124},
		"timeout after 0":  {Result{Cause: sdk.CauseTimeout, ExitCode: code(0)}, 0, 124},
		"oom":              {Result{Cause: sdk.CauseOOM}, 137, 137},
		"oom, own code":    {Result{Cause: sdk.CauseOOM, ExitCode: code(1)}, 1, 137},
		"pids":             {Result{Cause: sdk.CausePIDs, ExitCode: code(2)}, 2, 2},
		"disk, code 0":     {Result{Cause: sdk.CauseDisk, ExitCode: code(0)}, 0, 1},
		"output":           {Result{Cause: sdk.CauseOutput}, 137, 137},
		"cancelled":        {Result{Cause: sdk.CauseCancelled}, 143, 130},
		"not found":        {Result{Cause: sdk.CauseSetupFailed, NotStarted: true}, 127, 127},
		"not executable":   {Result{Cause: sdk.CauseSetupFailed, NotStarted: true}, 126, 126},
		"not started":      {Result{Cause: sdk.CauseSetupFailed, NotStarted: true}, 0, 125},
		"setup":            {Result{Cause: sdk.CauseSetupFailed, Error: &Failure{}}, 0, 125},
		"backend":          {Result{Cause: sdk.CauseBackend, Error: &Failure{}}, 7, 125},
		"nothing known":    {Result{}, 0, 125},
		"expected":         {Result{Cause: sdk.CauseExited, ExitCode: code(3), Expected: true}, 3, 0},
		"expected timeout": {Result{Cause: sdk.CauseTimeout, Expected: true}, 137, 0},
		"not as expected":  {Result{Cause: sdk.CauseExited, ExitCode: code(0), Expected: true, ExpectFailures: []ExpectFailure{{}}}, 0, 1},
		"expected, broken": {Result{Cause: sdk.CauseBackend, Expected: true, Error: &Failure{}}, 0, 125},
	} {
		t.Run(name, func(t *testing.T) {
			tc.r.Seal(tc.code)
			if tc.r.Status != tc.want || tc.r.OK != (tc.want == 0) {
				t.Errorf("status %d, ok %v, want %d", tc.r.Status, tc.r.OK, tc.want)
			}
		})
	}
	if got := ExitCode(&Result{}, &Result{Status: 3}, &Result{Status: 124}); got != 3 {
		t.Errorf("of several runs: %d", got)
	}
}

func TestText(t *testing.T) {
	for _, tc := range []struct {
		in   string
		cut  bool
		want string
	}{
		{"plain", false, "plain"}, {"\xa4\xb8x", true, "x"}, {"\xa4\xb8x", false, "\ufffdx"}, {"a\xff\xfeb", false, "a\ufffdb"},
		{"\xf0\x9f", true, "\ufffd"}, {"", true, ""}, {"\x80\x80\x80\x80", true, "\ufffd"},
	} {
		if got := Text([]byte(tc.in), tc.cut); got != tc.want {
			t.Errorf("Text(%q, %v) = %q, want %q", tc.in, tc.cut, got, tc.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	b, err := json.Marshal(Seconds(1234567890 * time.Nanosecond))
	if err != nil || string(b) != "1.234568" {
		t.Errorf("%s %v", b, err)
	}
	var s Seconds
	for _, bad := range []string{`"x"`, `1e300`, `null1`} {
		if err := s.UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":"hutch.result/v1","usage":{"wall_seconds":1e9}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := r.Encode(&b); err != nil && r.Started.Year() < 10000 && r.Ended.Year() < 10000 {
			t.Fatal(err)
		}
	})
}
