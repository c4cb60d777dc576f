package examples

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run/deps"
	"github.com/hutch-run/hutch/test/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

func files(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../examples/*.hcl")
	if err != nil || len(all) < 6 {
		t.Fatalf("found %d examples, %v", len(all), err)
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

func TestExamplesDoWhatTheySay(t *testing.T) {
	for _, path := range files(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".hcl"), func(t *testing.T) {
			h, err := readHeader(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range h.needs {
				need(t, n, path)
			}
			before := snapshot(t)
			cmd := hutch(t, "run", "-o", "json", path)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
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
			if d := snapshot(t); d != before {
				t.Errorf("the example left something behind in examples/:\n%s\nbefore:\n%s", d, before)
			}
			if t.Failed() {
				t.Logf("stdout:\n%s\nstderr:\n%s", out, &stderr)
			}
		})
	}
}

// holds tells whether what is expected of a run is so, and what is so.
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
		return string(r.Cause), string(r.Cause) == e.value
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

func need(t *testing.T, what, path string) {
	t.Helper()
	switch what {
	case "cgroup": // ask hutch itself what would hold a memory limit here
		out, err := hutch(t, "plan", "-o", "json", path).Output()
		if err != nil || !bytes.Contains(out, []byte(`"held_by":"cgroup`)) {
			e2e.Missing(t, what, "no cgroup is writable here")
		}
	case "registry":
		ping := exec.Command("npm", "ping")
		ping.Env = os.Environ()
		for name, file := range deps.SettingsFrom("javascript", ping.Env).Bundles { // npm itself trusts fewer than hutch lets it
			ping.Env = append(ping.Env, name+"="+file)
		}
		if out, err := ping.CombinedOutput(); err != nil {
			e2e.Missing(t, what, "the npm registry does not answer: "+string(out))
		}
	default:
		e2e.Require(t, what)
	}
}

func hutch(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e2e.Hutch(), args...)
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+home(t))
	return cmd
}

var homes = map[*testing.T]string{}

// home is one store for a test, so that its calls share caches and records.
func home(t *testing.T) string {
	if homes[t] == "" {
		homes[t] = t.TempDir()
		t.Cleanup(func() { delete(homes, t) })
	}
	return homes[t]
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

// snapshot lists everything in examples/ with mode, size and time.
func snapshot(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir("../../examples", func(path string, d os.DirEntry, err error) error {
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
