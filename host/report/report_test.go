package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/sdk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// hostile is what a program may write: sequences for terminals, XML that ends its element, workflow commands, Markdown.
const hostile = "\x1b]0;x\x07\x1b[2J\x1b]52;c;AAAA\x07\r\n::error::forged\n</system-out><evil/>]]>\n```\n| a | <img src=x>\n\u202egnp.exe \x9b \xff \x00 \ufffe\n"

// results are runs that ended in every way.
func results() []*result.Result {
	at := &diag.Range{File: "ci,1:.hcl", Start: diag.Pos{Line: 3, Column: 5}, End: diag.Pos{Line: 3, Column: 9}}
	base := func(name string) *result.Result {
		return &result.Result{
			ID: "261121-034512-c3k7q2", Name: name, File: "ci.hcl", Dir: "/runs/x", Backend: result.Backend{Name: "bwrap", Version: "0.1.0", Isolation: "namespace"},
			Command: []string{"python3", "main.py"}, Workdir: "/workspace", Network: result.Network{Mode: sdk.NetworkNone}, Workspace: result.Workspace{Mode: "private"},
			Usage: result.Usage{Wall: result.Seconds(1234567 * time.Microsecond)}, Source: &diag.Range{File: "ci.hcl", Start: diag.Pos{Line: 9, Column: 1}, End: diag.Pos{Line: 9, Column: 12}},
			Started: time.Date(2026, 11, 21, 3, 45, 12, 0, time.UTC),
			Limits:  []result.Limit{{Limit: sdk.LimitTimeout, Asked: true, Value: "2s", HeldBy: "SIGTERM, SIGKILL"}, {Limit: sdk.LimitMemory, Asked: true, Value: "64MiB", HeldBy: "cgroup v2 memory.max"}},
		}
	}
	ended := func(r *result.Result, cause sdk.Cause, code int, own bool) *result.Result {
		r.Cause = cause
		if own {
			r.ExitCode = &code
		}
		r.Seal(code)
		return r
	}
	mem := int64(12 << 20)
	good := base("good")
	good.Usage.PeakMemory = &mem
	good.Outputs = []outputs.Output{{Path: "a.json", Size: 1024}, {Path: "b", Size: 512}}
	good.Changes = []result.Change{{Path: "a", Kind: "added"}, {Path: "b", Kind: "modified"}, {Path: "c", Kind: "added"}}
	good.Stdout = result.Stream{Text: "hello\n", Bytes: 6}

	bad := base("bad\x1b[2J\nname")
	bad.Network.Missed = true
	bad.Stdout = result.Stream{Text: hostile, Bytes: int64(len(hostile)), Dropped: 2048}
	bad.Skipped = []outputs.Skipped{{Path: "evil\x1b[31m", Reason: "symlink", Detail: "a symbolic link"}}
	bad.Evidence = "wait status: \x1b[2J"

	expect := base(`test["3.12"]`)
	expect.Expected = true
	expect.ExpectFailures = []result.ExpectFailure{{What: "stdout.contains[0]", Want: "\"a\x1b[2J%\"", Got: "\"b\"", At: at}, {What: "exit_code", Want: "0", Got: "3"}}

	timeout := base("slow")
	timeout.Signal, timeout.Evidence = "SIGTERM", "the timer of 2s"
	timeout.Stdout = result.Stream{Bytes: 3 << 20, Dropped: 1 << 20, Lost: "write log /runs/x/stdout.log: no space left on device"}
	oom := base("greedy")
	oom.Signal, oom.Evidence = "SIGKILL", "memory.events oom_kill 1"
	segv := base("crash")
	segv.Signal = "SIGSEGV"
	missing := base("missing")
	missing.NotStarted = true
	refused := base("refused")
	refused.Backend = result.Backend{}
	refused.Error = &result.Failure{Phase: "plan", Summary: `backend "bwrap" is not able to run it`, Diagnostics: diag.Diagnostics{
		{Severity: diag.Error, Summary: "it cannot hold memory = 64MiB here: no cgroup", Fix: "delegate one", Range: at},
	}}
	image := base("image") // what the diagnostic says is said already
	image.Error = &result.Failure{Phase: "create", Summary: `backend "podman": create: there is no image x`, Fix: "pull it", Diagnostics: diag.Diagnostics{
		{Severity: diag.Error, Summary: "there is no image x", Context: `backend "podman" of run "image"`, Range: at},
	}}
	pip := base("deps")
	pip.Error = &result.Failure{Phase: "dependencies", Summary: "pip could not install nope (exit code 1)", Detail: "ERROR: no matching\x1b[31m distribution\nline two\n", Fix: "check the names"}
	leak := base("leak")
	leak.Leaks, leak.Kept = []string{"sandbox x: the far end sleeps"}, true
	fetch := base("fetch")
	fetch.Network = result.Network{Mode: sdk.NetworkFiltered, Allow: []string{"*.example.org:443", "db.corp:5432"}, Deny: []string{"upload.example.org"}, Traffic: []sdk.Traffic{
		{Name: "api.example.org", Port: 443, Allowed: true, Rule: "*.example.org:443", Connections: 2, Sent: 812, Received: 40 << 20, Secrets: []string{"TOKEN"}},
		{Name: "db.corp", Port: 5432, Allowed: true, Rule: "db.corp:5432", Reason: "connect: connection refused", Connections: 1},
		{Name: "api.example.org", Allowed: true, Rule: "*.example.org:443", Connections: 1},
		{Name: "packages.example.net", Connections: 3},
		{Name: "upload.example.org", Port: 443, Rule: "upload.example.org", Reason: `upload.example.org:443 is denied by "upload.example.org" in network.deny`, Connections: 1},
		{Name: "10.0.0.7", Port: 22, Reason: "10.0.0.7:22 is not in network.allow", Connections: 1},
	}, TrafficMore: 7}
	fetch.Sandbox = &result.Sandbox{ID: "x", Name: "web"}
	exfiltrate := base("exfiltrate")
	exfiltrate.Network = result.Network{Mode: sdk.NetworkFiltered, Allow: []string{}, Traffic: []sdk.Traffic{{Name: hostile, Port: 53, Reason: hostile, Connections: 1}, {Name: hostile, Connections: 2}}}
	for i := range 30 {
		exfiltrate.Network.Traffic = append(exfiltrate.Network.Traffic, sdk.Traffic{Name: fmt.Sprintf("n%02d.evil.example", i), Port: 443, Connections: 1})
	}
	flaky := base("flaky")
	flaky.Attempts, flaky.Flaky = []*result.Result{ended(base("flaky"), sdk.CauseExited, 1, true), ended(base("flaky"), sdk.CauseBackend, 0, false)}, true
	flaky.Attempts[0].Stderr = result.Stream{Text: hostile}
	broken := base("broken")
	broken.Attempts = []*result.Result{ended(base("broken"), sdk.CauseTimeout, 143, false)}
	return []*result.Result{
		ended(flaky, sdk.CauseExited, 0, true),
		ended(broken, sdk.CauseExited, 2, true),
		ended(fetch, sdk.CauseExited, 0, true),
		ended(exfiltrate, sdk.CauseExited, 6, true),
		ended(good, sdk.CauseExited, 0, true),
		ended(bad, sdk.CauseExited, 3, true),
		ended(expect, sdk.CauseExited, 0, true),
		ended(timeout, sdk.CauseTimeout, 143, false),
		ended(oom, sdk.CauseOOM, 137, false),
		ended(segv, sdk.CauseSignaled, 139, false),
		ended(missing, sdk.CauseSetupFailed, 127, false),
		ended(refused, sdk.CauseSetupFailed, 0, false),
		ended(image, sdk.CauseSetupFailed, 0, false),
		ended(pip, sdk.CauseSetupFailed, 0, false),
		ended(leak, sdk.CauseExited, 0, true),
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

// harmless fails for anything that acts on a terminal, colours of our own excepted.
func harmless(t *testing.T, b []byte) {
	t.Helper()
	s := strings.NewReplacer("\x1b[1m", "", "\x1b[2m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[m", "").Replace(string(b))
	if i := strings.IndexFunc(s, func(r rune) bool {
		return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x202e || r == '\ufffd'
	}); i >= 0 {
		t.Errorf("%q acts on a terminal", s[i:min(len(s), i+20)])
	}
}

func TestSummary(t *testing.T) {
	for name, style := range map[string]Style{"summary.txt": {}, "verbose.txt": {Verbose: true}, "colour.txt": {Color: true}} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			for _, r := range results() {
				if err := Summary(&b, r, style); err != nil {
					t.Fatal(err)
				}
			}
			if name != "colour.txt" {
				harmless(t, b.Bytes())
			}
			golden(t, name, b.Bytes())
		})
	}
}

func TestTotals(t *testing.T) {
	var b bytes.Buffer
	if err := Totals(&b, results(), Style{}); err != nil {
		t.Fatal(err)
	}
	harmless(t, b.Bytes())
	golden(t, "table.txt", b.Bytes())
}

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := JUnit(&b, results()); err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", b.Bytes())
	dec := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	dec.Strict = true
	cases, depth := 0, 0
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if depth++; tok.Name.Local == "evil" {
				t.Error("a program made an element")
			}
			if tok.Name.Local == "testcase" {
				cases++
			}
		case xml.EndElement:
			depth--
		}
	}
	if cases != len(results()) || depth != 0 {
		t.Errorf("%d cases, depth %d", cases, depth)
	}
}

func TestAnnotations(t *testing.T) {
	var b bytes.Buffer
	if err := Annotations(&b, results()); err != nil {
		t.Fatal(err)
	}
	golden(t, "annotations.txt", b.Bytes())
	harmless(t, b.Bytes())
	failed := 0
	for _, r := range results() {
		if !r.OK || r.Flaky || len(r.Network.Denied()) > 0 {
			failed++
		}
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != failed {
		t.Errorf("%d commands for %d runs", len(lines), failed)
	}
	command := regexp.MustCompile(`^::(error title=hutch%3A |warning title=hutch%3A (fetch|flaky),)[^:]*::[^:]`) // what follows is text, up to the end of the line
	for _, l := range lines {
		if !command.MatchString(l) {
			t.Errorf("not one command: %q", l)
		}
	}
}

func TestStepSummary(t *testing.T) {
	var b bytes.Buffer
	if err := StepSummary(&b, results()); err != nil {
		t.Fatal(err)
	}
	golden(t, "step.md", b.Bytes())
	harmless(t, b.Bytes())
	if strings.Contains(b.String(), "\n<img") || strings.Contains(b.String(), "| <img") && !strings.Contains(b.String(), "````") {
		t.Error("a program wrote markup")
	}
}

func TestXMLTextHoldsOnlyWhatXMLCan(t *testing.T) {
	for i := range rune(0x10000) {
		s := xmlText(string(i))
		for _, r := range s {
			if r < 0x20 && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff || r >= 0xd800 && r < 0xe000 {
				t.Fatalf("%U gives %q", i, s)
			}
		}
	}
}

func FuzzCell(f *testing.F) {
	f.Add("a|b`<c>\n")
	f.Fuzz(func(t *testing.T, s string) {
		c := cell(s)
		if strings.ContainsAny(c, "\n\r<>") {
			t.Errorf("%q", c)
		}
		plain := strings.ReplaceAll(strings.ReplaceAll(c, `\\`, ""), `\|`, "")
		if strings.Contains(plain, "|") {
			t.Errorf("%q ends its cell", c)
		}
	})
}

// The kernel says the same of a program that is not there and of one whose interpreter is not. A name without a slash
// was looked for in PATH, and mostly is not there.
func TestWhatWasNotFound(t *testing.T) {
	for name, want := range map[string]string{
		"prog":      `"prog" was not found in the sandbox`,
		"./prog":    `"./prog" or its interpreter was not found in the sandbox`,
		"/bin/prog": `"/bin/prog" or its interpreter was not found in the sandbox`,
	} {
		if got := Reason(&result.Result{NotStarted: true, Status: result.CodeNotFound, Command: []string{name}}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := Reason(&result.Result{NotStarted: true, Status: result.CodeNotExecutable, Command: []string{"./prog"}}); got != `"./prog" cannot be executed` {
		t.Error(got)
	}
}

// TestJUnitSchema holds the report to the schema of Jenkins' xUnit plugin: these attributes and children, and no others.
// But for the attempts of --retry, Ant's schema has them too.
func TestJUnitSchema(t *testing.T) {
	type element struct{ attributes, children string }
	attempt := element{"message type", "stackTrace system-out system-err"}
	schema := map[string]element{
		"testsuites":   {"name time tests failures errors", "testsuite"},
		"testsuite":    {"name tests failures errors skipped time timestamp file", "properties testcase"},
		"properties":   {"", "property"},
		"property":     {"name value", ""},
		"testcase":     {"name classname time", "error failure flakyFailure flakyError rerunFailure rerunError system-out system-err"},
		"flakyFailure": attempt, "flakyError": attempt, "rerunFailure": attempt, "rerunError": attempt, "stackTrace": {},
		"failure": {"message type", ""}, "error": {"message type", ""}, "system-out": {}, "system-err": {},
	}
	var b bytes.Buffer
	if err := JUnit(&b, results()); err != nil {
		t.Fatal(err)
	}
	var path []string
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if len(path) > 0 && !slices.Contains(strings.Fields(schema[path[len(path)-1]].children), e.Name.Local) {
				t.Fatalf("%s in %s", e.Name.Local, path)
			}
			path = append(path, e.Name.Local)
			for _, a := range e.Attr {
				if !slices.Contains(strings.Fields(schema[e.Name.Local].attributes), a.Name.Local) {
					t.Fatalf("attribute %s of %s", a.Name.Local, path)
				}
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
}

func TestFetched(t *testing.T) {
	r := &result.Result{ID: "261123-000000-aaaaaa", Name: "t", Started: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), Dependencies: []result.Dependencies{
		{Language: "javascript", Fetched: []result.Package{{Name: "@s/x", Version: "1.0.0", Digest: "sha512-AP8="}}},
		{Language: "python", Fetched: []result.Package{{Name: "a", Version: "1+b", Digest: "sha256-00"}, {Name: "evil\x1b[2J", Version: "2"}}},
	}}
	var text, bom strings.Builder
	if err := errors.Join(Fetched(&text, r), Materials(&bom, r)); err != nil {
		t.Fatal(err)
	}
	if want := "@s/x 1.0.0 sha512-AP8=\na 1+b sha256-00\nevil\\x1b[2J 2\n"; text.String() != want {
		t.Errorf("got %q, want %q", text.String(), want)
	}
	for _, want := range []string{`"bomFormat": "CycloneDX"`, `"purl": "pkg:npm/%40s/x@1.0.0"`, `"alg": "SHA-512"`, `"content": "00ff"`, `"purl": "pkg:pypi/a@1%2Bb"`, `"value": "sha256-00"`, `"timestamp": "2026-11-23T00:00:00Z"`} {
		if !strings.Contains(bom.String(), want) {
			t.Errorf("no %s in\n%s", want, bom.String())
		}
	}
}
