package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

func TestRlimitsReachTheProgram(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	want := Rlimits{Core: n(0), NoFile: n(77), FSize: n(1 << 20)}
	arg, _ := json.Marshal(want)
	out, err := payload("limits", string(arg)).CombinedOutput()
	if err != nil || string(out) != "0\n77\n2048\nunlimited\n77\n" {
		t.Errorf("Apply: got %q, %v", out, err)
	}
	list, err := want.List()
	if diff := cmp.Diff([]microinit.Rlimit{{Resource: unix.RLIMIT_CORE}, {Resource: unix.RLIMIT_NOFILE, Value: 77}, {Resource: unix.RLIMIT_FSIZE, Value: 1 << 20}}, list); err != nil || diff != "" {
		t.Errorf("List: %v\n%s", err, diff)
	}
}

// asNobody makes cmd run as an ordinary user who can read and execute the test binary.
func asNobody(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		return cmd
	}
	// A test binary lies below directories that only its maker may enter; the descriptor needs no path.
	exe, err := os.Open(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exe.Close() })
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Path = "/proc/self/fd/3"
	cmd.Dir = "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	return cmd
}

func TestAnOrdinaryUserIsToldWhatToDo(t *testing.T) {
	out, err := asNobody(t, payload("probe", "")).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got struct {
		Mechanism Mechanism
		Limits    map[Limit]How
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Mechanism != Rlimit {
		t.Skipf("this user has %s", got.Mechanism)
	}
	if h := got.Limits[CPUs]; h.By != "" || h.Reason == "" || h.Fix == "" {
		t.Errorf("cpus: %+v; want no mechanism, a reason and a fix", h)
	}
	if h := got.Limits[Memory]; h.By != "" || h.Reason == "" || h.Fix == "" {
		t.Errorf("memory: %+v; want rlimit AS per process, and the fix that makes it better", h)
	}
	t.Logf("%s\nfix: %s", got.Limits[CPUs].Reason, got.Limits[CPUs].Fix)
}

// TestTheFixForV1Works follows the advice of the test above as root, and then holds limits as an ordinary user.
func TestTheFixForV1Works(t *testing.T) {
	s := needGroups(t)
	if s.Mechanism != CgroupV1 || os.Geteuid() != 0 {
		t.Skip("needs root and cgroup v1")
	}
	const uid = 65534
	mounts, err := thisSystem().mounts()
	if err != nil {
		t.Fatal(err)
	}
	user := thisSystem()
	user.euid = uid
	fix := strings.ReplaceAll(user.v1Fix(mounts), "sudo ", "")
	for d := range strings.FieldsSeq(fix) {
		if strings.HasPrefix(d, "/sys/fs/cgroup/") {
			if exists(d) {
				t.Skipf("%s is there already", d)
			}
			t.Cleanup(func() {
				if err := os.Remove(d); err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
			})
		}
	}
	if out, err := exec.Command("/bin/sh", "-c", fix).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", fix, err, out)
	}
	out, err := asNobody(t, payload("delegated", string(CgroupV1))).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "all well\n") {
		t.Fatalf("%v:\n%s", err, out)
	}
}

// TestADelegatedV2SubtreeIsUsed gives an ordinary user a part of the hierarchy, as systemd does.
func TestADelegatedV2SubtreeIsUsed(t *testing.T) {
	s := needGroups(t)
	if s.Mechanism != CgroupV2 || os.Geteuid() != 0 {
		t.Skip("needs root and cgroup v2")
	}
	place := s.place.(*v2Place)
	if err := place.arrange(); err != nil {
		t.Fatal(err)
	}
	for name, inner := range map[string]string{"an empty slice above the user's scope": "/scope", "one cgroup with the user's processes in it": ""} {
		t.Run(name, func(t *testing.T) {
			top := fmt.Sprintf("%s/hutch-test-user-%d", place.dir, os.Getpid())
			for _, d := range []string{top, top + inner} {
				if err := os.Mkdir(d, 0o755); err != nil && !os.IsExist(err) {
					t.Fatal(err)
				}
				for _, f := range []string{"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"} {
					if err := os.Chown(d+f, 65534, 65534); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Cleanup(func() {
				if err := removeTree(deadline(t), top); err != nil {
					t.Error(err)
				}
			})
			scope := &v2Group{dir: top + inner}
			if err := scope.open(); err != nil {
				t.Fatal(err)
			}
			defer scope.close()
			cmd := asNobody(t, payload("delegated", string(CgroupV2)))
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := scope.start(cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil || !strings.HasSuffix(out.String(), "all well\n") {
				t.Fatalf("%v:\n%s", err, out.String())
			}
		})
	}
}

// delegatedPayload holds limits as its user and panics where that does not work.
func delegatedPayload(want string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	s := Probe()
	if string(s.Mechanism) != want {
		panic(fmt.Sprint(s, s.Limits))
	}
	g, err := s.New(fmt.Sprintf("user-%d", os.Getpid()), Request{Memory: 32 << 20, CPUs: 1, PIDs: 20})
	must(err)
	for range 2 {
		cmd := payload("hog", "100")
		cmd.Path = "/proc/self/fd/3"
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "self")}
		must(g.Start(cmd))
		fmt.Println(cmd.Wait())
	}
	st, err := g.Stats()
	must(err)
	if st.OOMKills < 2 {
		panic(fmt.Sprintf("%+v", st))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(g.Destroy(ctx))
	fmt.Println("all well")
}
