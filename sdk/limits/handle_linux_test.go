package limits

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestHandleOpensTheGroupAgain(t *testing.T) {
	g := newGroup(t, Request{PIDs: 50, Memory: 128 << 20})
	cmd := payload("wait", "")
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(g.Handle())
	if err != nil {
		t.Fatal(err)
	}
	var h Handle
	if err := json.Unmarshal(text, &h); err != nil {
		t.Fatal(err)
	}
	again, err := Open(h)
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := again.PIDs(); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("pids %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	more := payload("wait", "")
	if err := again.Start(more); err != nil {
		t.Fatal(err)
	}
	if err := again.Destroy(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	more.Wait()
	if _, err := Open(h); !errors.Is(err, ErrGone) {
		t.Errorf("open after destroy: %v, want ErrGone", err)
	}
	if _, err := g.Stats(); !errors.Is(err, ErrGone) {
		t.Errorf("stats after destroy by somebody else: %v, want ErrGone", err)
	}
	if err := g.Start(payload("wait", "")); err == nil {
		t.Error("start in a group that is gone succeeds")
	}
	for range 2 {
		if err := g.Destroy(deadline(t)); err != nil {
			t.Errorf("destroy of what is gone: %v", err)
		}
	}
}

func TestOpenRefusesForeignDirectories(t *testing.T) {
	for _, dir := range []string{"/tmp", "hutch.x", "/sys/fs/cgroup", "/tmp/../hutch.x", "/sys/fs/cgroup/hutch.y"} {
		if _, err := Open(Handle{ID: "x", Mechanism: CgroupV1, Dirs: []string{dir}}); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%s: %v, want a refusal", dir, err)
		}
	}
	dir := t.TempDir() + "/hutch.x"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Handle{ID: "x", Mechanism: CgroupV1, Dirs: []string{dir}}); err == nil || !strings.Contains(err.Error(), "not on a cgroup") {
		t.Errorf("plain directory: %v", err)
	}
}

func TestSweep(t *testing.T) {
	s := needGroups(t)
	prefix := fmt.Sprintf("sweep-%d-", os.Getpid())
	var cmds []*exec.Cmd
	for i := range 3 {
		g, err := s.New(prefix+strconv.Itoa(i), Request{PIDs: 10})
		if err != nil {
			t.Fatal(err)
		}
		cmd := payload("wait", "")
		if err := g.Start(cmd); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	other := newGroup(t, Request{PIDs: 10})
	if _, err := Sweep(deadline(t), ""); err == nil {
		t.Error("an empty prefix is accepted")
	}
	got, err := Sweep(deadline(t), prefix)
	if want := []string{prefix + "0", prefix + "1", prefix + "2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("swept %v, %v; want %v", got, err, want)
	}
	for _, cmd := range cmds {
		cmd.Wait()
	}
	if left, err := List(prefix); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := other.Stats(); err != nil {
		t.Errorf("another group was swept too: %v", err)
	}
}

func TestNewRefusesTheSameIDTwiceAndKeepsTheFirst(t *testing.T) {
	g := newGroup(t, Request{PIDs: 10})
	if _, err := Probe().New(g.id, Request{PIDs: 10}); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v, want that it exists", err)
	}
	if _, err := g.Stats(); err != nil {
		t.Errorf("the first is damaged: %v", err)
	}
	if err := g.Start(exec.Command("/bin/true")); err != nil {
		t.Error(err)
	}
}

func TestTryLeavesNothing(t *testing.T) {
	s := needGroups(t)
	if err := s.Try(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if left, err := List(fmt.Sprintf("try-%d-", os.Getpid())); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestAdd(t *testing.T) {
	g := newGroup(t, Request{PIDs: 10})
	cmd := payload("wait", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.PIDs(); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("pids %v, %v", pids, err)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Error(err)
	}
	cmd.Wait()
}

// FuzzHandle sees to it that a handle opens, and so can have removed, nothing but a directory with its own name.
func FuzzHandle(f *testing.F) {
	for _, s := range []string{
		`{"id":"x","mechanism":"cgroup v2","dirs":["/m/hutch-x"]}`, `{"id":"x","mechanism":"cgroup v1","dirs":["/m/hutch-x/../../etc"]}`,
		`{"id":"../x","dirs":["/m/hutch-../x"]}`, `{"id":"x","dirs":["hutch-x"]}`, `null`,
	} {
		f.Add([]byte(s))
	}
	sys := system{root: f.TempDir()}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Handle
		if json.Unmarshal(data, &h) != nil {
			return
		}
		if _, err := sys.open(h); err == nil || errors.Is(err, ErrGone) {
			for _, d := range h.Dirs {
				if !strings.HasPrefix(d, "/") || !strings.HasSuffix(d, "/"+dirPrefix+h.ID) || strings.Contains(d, "/../") || strings.Contains(h.ID, "/") {
					t.Errorf("%+v", h)
				}
			}
		}
	})
}
