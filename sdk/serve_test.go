package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The test binary is a backend too, when SDK_TEST_SERVE says which.
func TestMain(m *testing.M) {
	switch os.Getenv("SDK_TEST_SERVE") {
	case "good":
		Serve(&small{})
	case "bad tag":
		Serve(&small{config: struct{ Image string }{}})
	case "bad name":
		Serve(&small{name: "../evil"})
	}
	os.Exit(m.Run())
}

type small struct {
	name   string
	config any
}

func (s *small) Describe() Description {
	d := Description{Name: "small", Version: "0.3.0", Summary: "a backend for tests", Isolation: IsolationNone, Config: s.config, Limits: []Limit{LimitTimeout}}
	if s.name != "" {
		d.Name = s.name
	}
	return d
}
func (*small) Check(context.Context) ([]Finding, error)                { return nil, nil }
func (*small) Create(context.Context, *CreateRequest) (Sandbox, error) { return nil, errors.New("no") }

// Destroy removes the file that the handle names.
func (*small) Destroy(_ context.Context, h Handle) error {
	var path string
	if err := json.Unmarshal(h.Data, &path); err != nil {
		return err
	}
	return os.Remove(path)
}

func runSelf(t *testing.T, mode string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "SDK_TEST_SERVE="+mode)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Started by a person, a backend says what it is and what to do.
func TestByHand(t *testing.T) {
	out, errs, code := runSelf(t, "good")
	if code != 2 || out != "" {
		t.Errorf("code %d, stdout %q", code, out)
	}
	for _, want := range []string{"hutch-backend-small 0.3.0: a backend for tests\n", "not started by hand", "hutch run --backend small -- COMMAND", "cleanup --state-dir DIR"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
	if _, _, code := runSelf(t, "good", "--help"); code != 0 {
		t.Errorf("--help has code %d", code)
	}
	if _, errs, code := runSelf(t, "good", "destory"); code != 2 || !strings.Contains(errs, `there is no command "destory"`) {
		t.Errorf("a wrong command has code %d and says %s", code, errs)
	}
	if out, _, code := runSelf(t, "good", "version"); code != 0 || out != fmt.Sprintf("hutch-backend-small 0.3.0 (sdk %s, protocol 1)\n", Version) {
		t.Errorf("version has code %d and says %s", code, out)
	}
}

func TestDescribeByHand(t *testing.T) {
	out, _, code := runSelf(t, "good", "describe")
	var got Facts
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("code %d, %v: %s", code, err, out)
	}
	want := Facts{Name: "small", Version: "0.3.0", SDKVersion: Version, Summary: "a backend for tests", Isolation: IsolationNone,
		Capabilities: []Capability{CapPlan}, Limits: []Limit{LimitTimeout}, Networks: []NetworkMode{NetworkNone}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestABackendThatCannotBeServedSaysWhy(t *testing.T) {
	for mode, want := range map[string]string{
		"bad tag":  "this backend cannot be served: configuration: struct { Image string }.Image has no hutch tag",
		"bad name": `this backend cannot be served: "../evil" is no name of a backend`,
	} {
		if _, errs, code := runSelf(t, mode); code != 1 || !strings.HasPrefix(errs, want) {
			t.Errorf("%s: code %d and %q, want 1 and %q", mode, code, errs, want)
		}
	}
}

func TestCleanupByHand(t *testing.T) {
	dir := t.TempDir()
	thing := filepath.Join(t.TempDir(), "thing")
	if err := os.WriteFile(thing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(thing)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, code := runSelf(t, "good", "cleanup", "--state-dir", dir); code != 0 || !strings.HasPrefix(out, "nothing to do") {
		t.Errorf("before there is a sandbox: code %d, %s", code, out)
	}
	if err := saveHandle(dir, Handle{ID: "one", Data: data}); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := runSelf(t, "good", "cleanup", "--state-dir", dir); code != 0 || out != "destroyed sandbox one\n" {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if _, err := os.Stat(thing); err == nil {
		t.Error("the sandbox is still there")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the state directory: %v %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, handleFile), []byte(`{"id":"../x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"cleanup"}, {"cleanup", "--state-dir", dir}, {"cleanup", "--state-dir", dir + "/none"}, {"cleanup", "--state-dir", dir, "more"}} {
		if _, errs, code := runSelf(t, "good", args...); code != 1 || errs == "" {
			t.Errorf("%v: code %d, %q", args, code, errs)
		}
	}
}

// A backend without a Planner holds what it said that it holds, and nothing else.
func TestPlanWithoutAPlanner(t *testing.T) {
	s, err := NewServer(&small{})
	if err != nil {
		t.Fatal(err)
	}
	got := s.declared(&Limits{Timeout: 90e9, Memory: 512 << 20, CPUs: 1.5})
	fix := "take the limit away, or use another backend"
	no := `backend "small" does not hold this limit`
	want := []Hold{
		{Limit: LimitTimeout, Value: "1m30s", HeldBy: "the backend"},
		{Limit: LimitMemory, Value: "512MiB", Reason: no, Fix: fix},
		{Limit: LimitCPUs, Value: "1.5", Reason: no, Fix: fix},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOnlyWhatIsOursIsRemoved(t *testing.T) {
	dirOf := func(mode os.FileMode, names ...string) string {
		t.Helper()
		dir := t.TempDir()
		for _, n := range names {
			var err error
			if n == "fifo" {
				err = unix.Mkfifo(filepath.Join(dir, n), 0o600)
			} else {
				err = os.WriteFile(filepath.Join(dir, n), nil, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, tt := range []struct {
		dir  string
		left string // "": the directory is gone
	}{
		{dirOf(0o700, "fifo"), ""},
		{dirOf(0o700), ""},
		{dirOf(0o700, "fifo", "file"), "file"},
		{dirOf(0o755, "fifo"), "fifo"},
	} {
		removePrivate(tt.dir)
		entries, err := os.ReadDir(tt.dir)
		switch {
		case tt.left == "" && err == nil:
			t.Errorf("%s is still there, with %v", tt.dir, entries)
		case tt.left != "" && (len(entries) != 1 || entries[0].Name() != tt.left):
			t.Errorf("left are %v and %v, want %s", entries, err, tt.left)
		}
	}
}
