package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run/deps"
	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/internal/pypitest"
	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/sdk/confined"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]string{"libexec/hutch/hutch-backend-podman": "plugins/podman", "libexec/hutch/hutch-podman-agent": "plugins/podman/agent",
		"libexec/hutch/hutch-backend-e2b": "plugins/e2b", "libexec/hutch/hutch-backend-landlock": "plugins/landlock", "libexec/hutch/hutch-agent": "cmd/hutch-agent"}))
}

func files(t *testing.T) []string { return found(t, "*.hcl", 7) }

// found are the examples of one kind, of which there are so many at least.
func found(t *testing.T, pattern string, least int) []string {
	t.Helper()
	all, err := filepath.Glob("../../examples/" + pattern)
	if err != nil || len(all) < least {
		t.Fatalf("found %d examples %s, %v", len(all), pattern, err)
	}
	return all
}

func TestExamplesAreValidAndFormatted(t *testing.T) {
	for _, path := range files(t) {
		for _, args := range [][]string{{"validate", path}, {"fmt", "--check", "--diff", path}} {
			if out, err := hutch(t, args...).CombinedOutput(); err != nil {
				t.Errorf("hutch %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	}
}

// TestExamplesDoWhatTheySay runs them as root, where we are root, and as an ordinary user without a cgroup: who reads
// the header of an example may be either.
func TestExamplesDoWhatTheySay(t *testing.T) {
	for user, uid := range e2e.Users() {
		t.Run(user, func(t *testing.T) {
			dir := "../../examples"
			if uid != os.Getuid() { // who may not be able to enter this tree
				dir = filepath.Join(e2e.Dir, "examples")
				if err := os.CopyFS(dir, os.DirFS("../../examples")); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range slices.Concat(files(t), found(t, "*.sh", 1)) {
				name, kind, _ := strings.Cut(filepath.Base(path), ".")
				t.Run(name, func(t *testing.T) {
					if path := filepath.Join(dir, filepath.Base(path)); kind == "sh" {
						script(t, uid, name, path)
					} else {
						example(t, uid, path)
					}
				})
			}
		})
	}
}

func example(t *testing.T, uid int, path string) {
	h, err := readHeader(path)
	if err != nil {
		t.Fatal(err)
	}
	h.prepare(t, uid, filepath.Dir(path))
	before := snapshot(t, filepath.Dir(path))
	cmd := hutchAs(t, uid, h.command, "-o", "json", path)
	cmd.Env = append(cmd.Env, h.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if h.command == "generate" {
		out = attempts(t, out)
	}
	runs := results(t, out)
	for _, e := range h.expects {
		if e.subject == "hutch" {
			if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != e.value {
				t.Errorf("hutch ended with %s, and the header says %s", got, e.value)
			}
			continue
		}
		r := runs[e.subject]
		if r == nil {
			t.Errorf("the header speaks of %s, which did not run", e.subject)
		} else if got, ok := e.holds(t, r); !ok {
			t.Errorf("%s: expected %s %q, got %s", e.subject, e.verb, e.value, got)
		}
	}
	for name := range runs {
		if !slices.ContainsFunc(h.expects, func(e expect) bool { return e.subject == name }) {
			t.Errorf("the header says nothing about the run %s", name)
		}
	}
	if d := snapshot(t, filepath.Dir(path)); d != before {
		t.Errorf("the example left something behind in examples/:\n%s\nbefore:\n%s", d, before)
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", out, &stderr)
	}
}

// attempts gives the results of the runs that a loop was made of.
func attempts(t *testing.T, story []byte) []byte {
	t.Helper()
	var s struct {
		Dir      string
		Attempts []struct{ Run string }
	}
	if err := json.Unmarshal(story, &s); err != nil {
		t.Fatalf("the story is not JSON: %v\n%s", err, story)
	}
	var all []byte
	for _, a := range s.Attempts {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(s.Dir), a.Run, "events.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
		var end struct {
			Data struct{ Result json.RawMessage }
		}
		if err := json.Unmarshal(lines[len(lines)-1], &end); err != nil {
			t.Fatal(err)
		}
		all = append(all, end.Data.Result...)
	}
	return all
}

// prepare makes sure of what an example needs, or skips it.
func (h *header) prepare(t *testing.T, uid int, dir string) {
	t.Helper()
	for _, n := range h.needs {
		if n == "e2b" { // the service itself costs money and needs an account
			h.env = append(h.env, e2btest.ForTest(t, e2btest.Options{}).Env()...)
			continue
		}
		need(t, n)
		if n == "podman" && uid != os.Getuid() {
			t.Skip("an ordinary user's Podman needs subordinate ids, which this one has not; plugins/podman is tested as one who has")
		}
		if n == "podman" && h.before != "" {
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, h.before))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", h.before, err, out)
			}
		}
	}
}

// script runs an example that is a script, with each of its backends.
func script(t *testing.T, uid int, name, path string) {
	all, err := readHeader(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(all.needs, []string{"backend"}) || len(all.backends) == 0 {
		t.Fatalf("%s needs a backend, and must name which ones", path)
	}
	for _, backend := range all.backends {
		t.Run(backend, func(t *testing.T) {
			h := *all
			h.needs = []string{backend}
			h.prepare(t, uid, filepath.Dir(path))
			before := snapshot(t, filepath.Dir(path))
			cmd := asUser(t, uid, path, backend)
			cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(e2e.Hutch())+":"+os.Getenv("PATH"))
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); cmd.ProcessState == nil {
				t.Fatal(err)
			}
			for _, e := range h.expects {
				got, ok := "", false
				switch {
				case e.subject == "hutch" && e.verb == "exit":
					got = strconv.Itoa(cmd.ProcessState.ExitCode())
					ok = got == e.value
				case e.subject == name && e.verb == "stdout":
					got, ok = "less", strings.Contains(stdout.String(), e.value)
				case e.subject == name && e.verb == "stderr":
					got, ok = "less", strings.Contains(stderr.String(), e.value)
				}
				if !ok {
					t.Errorf("%s: expected %s %q, got %s", e.subject, e.verb, e.value, got)
				}
			}
			if d := snapshot(t, filepath.Dir(path)); d != before {
				t.Errorf("the example left something behind in examples/:\n%s\nbefore:\n%s", d, before)
			}
			if t.Failed() {
				t.Logf("stdout:\n%s\nstderr:\n%s", &stdout, &stderr)
			}
		})
	}
}

// holds reports whether what is expected of a run is so, and what is so.
func (e expect) holds(t *testing.T, r *result.Result) (got string, ok bool) {
	t.Helper()
	var paths []string
	switch e.verb {
	case "exit":
		if r.ExitCode == nil {
			return "none", false
		}
		return strconv.Itoa(*r.ExitCode), strconv.Itoa(*r.ExitCode) == e.value
	case "cause":
		want, without, both := strings.Cut(e.value, ", with an rlimit ")
		for _, l := range r.Limits {
			if both && l.Asked && strings.HasPrefix(l.HeldBy, "rlimit") {
				want = without
			}
		}
		return string(r.Cause), string(r.Cause) == want
	case "stdout":
		return r.Stdout.Text, strings.Contains(r.Stdout.Text, e.value)
	case "stderr":
		return r.Stderr.Text, strings.Contains(r.Stderr.Text, e.value)
	case "output", "no output":
		for _, o := range r.Outputs {
			paths = append(paths, o.Path)
			if st, err := os.Stat(filepath.Join(r.Dir, "output", o.Path)); err != nil || st.Size() != o.Size {
				t.Errorf("output %s is not in the record as the result says: %v", o.Path, err)
			}
		}
		return strings.Join(paths, " "), slices.Contains(paths, e.value) == (e.verb == "output")
	case "change":
		for _, c := range r.Changes {
			paths = append(paths, c.Path)
		}
		return strings.Join(paths, " "), slices.Contains(paths, e.value)
	}
	return "", false
}

func need(t *testing.T, what string) {
	t.Helper()
	switch what {
	case "registry":
		ping := exec.Command("npm", "ping")
		ping.Env = os.Environ()
		for name, file := range deps.SettingsFrom("javascript", ping.Env).Bundles { // npm itself trusts fewer than hutch lets it
			ping.Env = append(ping.Env, name+"="+file)
		}
		if out, err := ping.CombinedOutput(); err != nil {
			e2e.Missing(t, what, "the npm registry does not answer: "+string(out))
		}
	case "landlock":
		if confined.Landlock() < confined.MinLandlock {
			e2e.Missing(t, what, "this kernel has no Landlock that is good enough")
		}
	case "kubernetes":
		t.Skip("needs a cluster: make test-kubernetes runs it there")
	case "podman":
		podmantest.Need(t)
	default:
		e2e.Require(t, what)
	}
}

func hutch(t *testing.T, args ...string) *exec.Cmd { return hutchAs(t, os.Getuid(), args...) }

// hutchAs is a call of hutch by a user.
func hutchAs(t *testing.T, uid int, args ...string) *exec.Cmd {
	t.Helper()
	return asUser(t, uid, e2e.Hutch(), args...)
}

// asUser is a program that a user runs, with a store of hutch of its own.
func asUser(t *testing.T, uid int, program string, args ...string) *exec.Cmd {
	t.Helper()
	home, err := os.MkdirTemp(e2e.Dir, "home-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+home)
	if uid != os.Getuid() {
		if err := os.Chown(home, uid, uid); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		cmd.Env = append(cmd.Env, "HOME="+home, "XDG_RUNTIME_DIR=", "TMPDIR=/tmp")
	}
	return cmd
}

func results(t *testing.T, out []byte) map[string]*result.Result {
	t.Helper()
	runs := map[string]*result.Result{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			return runs
		} else if err != nil {
			t.Fatalf("the output is not JSON: %v\n%s", err, out)
		}
		r, err := result.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		runs[r.Name] = r
	}
}

// snapshot lists everything in a directory with mode, size and time.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(info.Mode().String() + " " + strconv.FormatInt(info.Size(), 10) + " " + info.ModTime().String() + " " + path + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestNetworkOnALocalRegistry runs the part of examples/network.hcl that needs a package index.
func TestNetworkOnALocalRegistry(t *testing.T) {
	for _, tool := range []string{"bwrap", "pip3"} {
		e2e.Require(t, tool)
	}
	index := httptest.NewServer(pypitest.New(t, "greeting", "1.2", "def f(): return 'installed'\n"))
	defer index.Close()
	host := "host:" + strings.TrimPrefix(index.URL, "http://127.0.0.1:")
	src, err := os.ReadFile("../../examples/network.hcl")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(e2e.Dir, "registry.hcl") // which every user can read
	if err := os.WriteFile(file, src, 0o644); err != nil {
		t.Fatal(err)
	}
	for user, uid := range e2e.Users() {
		t.Run(user, func(t *testing.T) {
			out, err := hutchAs(t, uid, "run", file, "install", "--var", "registry="+host, "-o", "json").Output()
			var r result.Result
			if jerr := json.Unmarshal(out, &r); jerr != nil || err != nil {
				t.Fatalf("%v %v: %s", err, jerr, out)
			}
			if len(r.Outputs) != 1 || r.Outputs[0].Path != "greeting-1.2-py3-none-any.whl" {
				t.Errorf("outputs: %+v\n%s", r.Outputs, r.Stderr.Text)
			}
			if len(r.Network.Denied()) > 0 || len(r.Network.Traffic) == 0 || r.Network.Traffic[0].Rule != host || r.Network.Traffic[0].Received == 0 {
				t.Errorf("network: %+v", r.Network)
			}
		})
	}
}
