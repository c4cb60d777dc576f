package limits

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// delegate sets systemd's mark; tests need a file system that has user attributes.
func (k *fakeKernel) delegate(path string) {
	if err := unix.Setxattr(k.root+"/sys/fs/cgroup"+path, "user.delegate", []byte("1"), 0); err != nil {
		k.t.Skipf("no user attributes here: %v", err)
	}
}

const all = "cpu memory pids\n"

func TestFindingAPlaceInV2(t *testing.T) {
	const (
		user  = "/user.slice/user-1000.slice/user@1000.service"
		scope = user + "/app.slice/run-1.scope"
	)
	userTree := func(k *fakeKernel) {
		k.cgroup("/", all, all)
		k.cgroup("/user.slice", all, all)
		k.cgroup("/user.slice/user-1000.slice", all, all)
		k.cgroup(user, all, "memory pids\n")
		k.cgroup(user+"/app.slice", "memory pids\n", "memory pids\n")
		k.cgroup(scope, "memory pids\n", "", 100, 101)
		k.locked = []string{"", "/user.slice", "/user.slice/user-1000.slice"}
	}
	for name, c := range map[string]struct {
		own    string
		euid   int
		set    func(k *fakeKernel)
		where  string   // or ""
		limits []Limit  // held by a cgroup
		writes []string // by New
		reason string   // for cpus, when they are not held
	}{
		"root on a bare machine": {
			own: "/", set: func(k *fakeKernel) { k.cgroup("/", "cpuset cpu io memory pids\n", "", 1, 2, 3) },
			where: "", limits: []Limit{CPUs, Memory, PIDs},
			writes: []string{"/cgroup.subtree_control=+memory", "/cgroup.subtree_control=+cpu", "/cgroup.subtree_control=+pids"},
		},
		"root in a login session": {
			own: "/user.slice/user-0.slice/session-1.scope",
			set: func(k *fakeKernel) {
				k.cgroup("/", all, all)
				k.cgroup("/user.slice", all, all)
				k.cgroup("/user.slice/user-0.slice", all, "memory pids\n")
				k.cgroup("/user.slice/user-0.slice/session-1.scope", "memory pids\n", "", 100, 101)
			},
			where: "/user.slice/user-0.slice", limits: []Limit{CPUs, Memory, PIDs},
			writes: []string{"/user.slice/user-0.slice/cgroup.subtree_control=+cpu"},
		},
		"root in a container": {
			own: "/", set: func(k *fakeKernel) {
				k.cgroup("/", all, "", 1, 7)
				k.put("/sys/fs/cgroup/cgroup.type", "domain\n")
			},
			where: "", limits: []Limit{CPUs, Memory, PIDs},
			writes: []string{"/hutch-host/cgroup.procs=1", "/hutch-host/cgroup.procs=7",
				"/cgroup.subtree_control=+memory", "/cgroup.subtree_control=+cpu", "/cgroup.subtree_control=+pids"},
		},
		"a user in a terminal: the slice above is the user's and empty": {
			own: scope, euid: 1000, set: userTree,
			where: user, limits: []Limit{CPUs, Memory, PIDs},
			writes: []string{user + "/cgroup.subtree_control=+cpu"},
		},
		"a user whose scope was delegated by name": {
			own: scope, euid: 1000, set: func(k *fakeKernel) {
				userTree(k)
				k.cgroup(user+"/app.slice", all, all)
				k.cgroup(scope, all, "", 100, 101)
				k.delegate(scope)
			},
			where: scope, limits: []Limit{CPUs, Memory, PIDs},
			writes: []string{scope + "/hutch-host/cgroup.procs=100", scope + "/hutch-host/cgroup.procs=101",
				scope + "/cgroup.subtree_control=+memory", scope + "/cgroup.subtree_control=+cpu", scope + "/cgroup.subtree_control=+pids"},
		},
		"no cpu controller for users": {
			own: scope, euid: 1000, set: func(k *fakeKernel) {
				userTree(k)
				k.cgroup(user, "memory pids\n", "memory pids\n")
			},
			where: user + "/app.slice", limits: []Limit{Memory, PIDs}, reason: "lacks the controller",
		},
		"a user who logged in by ssh": {
			own: "/user.slice/user-1000.slice/session-3.scope", euid: 1000, set: func(k *fakeKernel) {
				userTree(k)
				k.cgroup("/user.slice/user-1000.slice/session-3.scope", all, "", 100)
				k.locked = append(k.locked, "/user.slice/user-1000.slice/session-3.scope")
			},
			reason: "not delegated to this user",
		},
		"threaded": {
			own: "/t", set: func(k *fakeKernel) {
				k.cgroup("/", all, all)
				k.cgroup("/t", all, "")
				k.put("/sys/fs/cgroup/t/cgroup.type", "threaded\n")
				k.locked = []string{""}
			},
			reason: "not delegated",
		},
		"no controllers at all, as on a hybrid machine": {
			own: "/", set: func(k *fakeKernel) { k.cgroup("/", "\n", "\n", 1) },
			reason: "none of the controllers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "root in a container" && os.Geteuid() != 0 {
				t.Skip("the files of the fake kernel are root's only where root runs the test")
			}
			k := newFakeKernel(t, c.own)
			c.set(k)
			s := k.system(c.euid).probe()
			var held []Limit
			for l, h := range s.Limits {
				if h.Scope == WholeGroup {
					held = append(held, l)
				}
			}
			slices.Sort(held)
			if diff := cmp.Diff(c.limits, held); diff != "" {
				t.Error(diff)
			}
			if c.reason != "" && !strings.Contains(s.Limits[CPUs].Reason, c.reason) {
				t.Errorf("cpus: %+v, want the reason %q", s.Limits[CPUs], c.reason)
			}
			if len(c.limits) == 0 {
				if s.Mechanism != Rlimit {
					t.Errorf("mechanism %s", s.Mechanism)
				}
				return
			}
			if want := []string{k.root + "/sys/fs/cgroup" + c.where}; s.Mechanism != CgroupV2 || !slices.Equal(s.Where, want) {
				t.Fatalf("%s in %v, want %v", s.Mechanism, s.Where, want)
			}
			if len(k.wrote) > 0 {
				t.Errorf("looking has written %v", k.wrote)
			}
			r := Request{Memory: 64 << 20, PIDs: 10}
			if slices.Contains(c.limits, CPUs) {
				r.CPUs = 0.5
			}
			g, err := s.New("x", r)
			if err != nil {
				t.Fatal(err)
			}
			defer g.cg.close()
			if diff := cmp.Diff(c.writes, k.wrote); diff != "" {
				t.Errorf("writes: %s", diff)
			}
			dir := "/sys/fs/cgroup" + c.where + "/hutch.x"
			want := map[string]string{"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "10"}
			if r.CPUs != 0 {
				want["cpu.max"] = "50000 100000"
			}
			for f, v := range want {
				if got := k.get(dir + "/" + f); got != v {
					t.Errorf("%s is %q, want %q", f, got, v)
				}
			}
			// A second group finds everything arranged.
			k.wrote = nil
			again, err := k.system(c.euid).probe().New("y", r)
			if err != nil {
				t.Fatal(err)
			}
			again.cg.close()
			if len(k.wrote) > 0 && c.own == c.where {
				t.Errorf("the second group writes %v", k.wrote)
			}
			if found, err := k.system(c.euid).list(""); err != nil || len(found) != 2 || found[0].ID != "x" || found[1].ID != "y" {
				t.Errorf("list: %v, %v", found, err)
			}
		})
	}
}

func TestANewGroupThatFailsIsRemoved(t *testing.T) {
	k := newFakeKernel(t, "/")
	k.cgroup("/", all, all)
	k.put("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
	sys := k.system(0)
	sys.mkdir = func(dir string) error { return os.Mkdir(dir, 0o755) } // without files, as if the controllers were gone
	if _, err := sys.probe().New("x", Request{Memory: 64 << 20}); err == nil {
		t.Fatal("a group without a memory limit is taken for one with it")
	}
	if exists(k.root + "/sys/fs/cgroup/hutch.x") {
		t.Error("the group is left behind")
	}
}

func TestSwapThatCannotBeLimitedIsRefused(t *testing.T) {
	k := newFakeKernel(t, "/")
	k.cgroup("/", all, all)
	k.put("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
	sys := k.system(0)
	sys.mkdir = func(dir string) error {
		err := k.mkdir(dir)
		os.Remove(dir + "/memory.swap.max")
		return err
	}
	_, err := sys.probe().New("x", Request{Memory: 64 << 20})
	if err == nil || !strings.Contains(err.Error(), "swapoff -a") {
		t.Errorf("%v, want a refusal with its fix", err)
	}
}

func TestStatsOfV2(t *testing.T) {
	k := newFakeKernel(t, "/")
	for f, content := range map[string]string{
		"memory.peak":   "1048576\n",
		"memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
		"pids.peak":     "9\n", "pids.events": "max 4\n",
	} {
		k.put("/sys/fs/cgroup/g/"+f, content)
	}
	got, err := (&v2Group{dir: k.root + "/sys/fs/cgroup/g"}).stats()
	want := Stats{MemoryPeak: 1 << 20, OOMKills: 2, PIDsPeak: 9, PIDsHits: 4}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := (&v2Group{dir: k.root + "/nowhere"}).stats(); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
	// An old kernel without peak files, and without the memory controller.
	k.put("/sys/fs/cgroup/old/pids.events", "max 3\n")
	got, err = (&v2Group{dir: k.root + "/sys/fs/cgroup/old"}).stats()
	if diff := cmp.Diff(Stats{PIDsHits: 3}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// realV2 makes a group in the machine's own unified hierarchy. On a hybrid machine it has no controllers, but a child
// can be born in it, it can be killed as a whole, and it says when it is empty, which is most of what a group does.
func realV2(t *testing.T) *v2Group {
	t.Helper()
	sys := thisSystem()
	mounts, err := sys.mounts()
	if err != nil {
		t.Fatal(err)
	}
	own, err := sys.ownCgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		dir, ok := sys.dirOf(m, own[""])
		if !m.v2 || !ok {
			continue
		}
		if err := writable(dir, dir+"/cgroup.procs"); err != nil {
			t.Skip(err)
		}
		seq++
		g := &v2Group{dir: fmt.Sprintf("%s/hutch.test-v2-%d-%d", dir, os.Getpid(), seq)}
		if err := os.Mkdir(g.dir, 0o755); err != nil {
			t.Skip(err)
		}
		if err := g.open(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			g.close()
			if err := g.remove(deadline(t)); err != nil {
				t.Error(err)
			}
			if exists(g.dir) {
				t.Error("the group is left behind")
			}
		})
		return g
	}
	t.Skip("no cgroup v2 here")
	return nil
}

func TestRealV2GroupStartsAndKills(t *testing.T) {
	g := realV2(t)
	cmd := payload("wait", "")
	if err := g.start(cmd); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.pids(); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("pids %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	added := payload("wait", "")
	if err := added.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.add(added.Process.Pid); err != nil {
		t.Error(err)
	}
	if pids, err := g.pids(); err != nil || len(pids) != 2 {
		t.Errorf("pids %v, %v; want two", pids, err)
	}
	if err := g.kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	added.Wait()
	if st, err := g.stats(); err != nil {
		t.Errorf("%+v, %v", st, err)
	}
	if err := g.kill(deadline(t)); err != nil {
		t.Errorf("kill of an empty group: %v", err)
	}
}

func TestRealV2KillBeatsAForkBomb(t *testing.T) {
	for name, kill := range map[string]func(g *v2Group) error{
		"in one step": func(g *v2Group) error { return g.kill(deadline(t)) },
		"one by one":  func(g *v2Group) error { return g.killEach(deadline(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			g := realV2(t)
			cmd := exec.Command("/bin/sh", "-c", finiteBomb)
			if err := g.start(cmd); err != nil {
				t.Fatal(err)
			}
			for {
				if pids, err := g.pids(); err != nil || len(pids) > 50 {
					break
				}
			}
			if err := kill(g); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			if pids, err := g.pids(); err != nil || len(pids) != 0 {
				t.Errorf("%d processes, %v; want none", len(pids), err)
			}
		})
	}
}

func TestParsingMounts(t *testing.T) {
	got := parseMounts(`22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 /docker/abc /with\040blank\134 rw - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
broken line
50 31 0:44 / /x rw
`)
	type m struct {
		dir, root string
		v2        bool
		n         int
	}
	var show []m
	for _, x := range got {
		delete(x.controllers, "rw")
		show = append(show, m{x.dir, x.root, x.v2, len(x.controllers)})
	}
	want := []m{{"/sys/fs/cgroup/cpu,cpuacct", "/", false, 2}, {`/with blank\`, "/docker/abc", false, 1}, {"/sys/fs/cgroup/unified", "/", true, 0}}
	if !slices.Equal(want, show) {
		t.Errorf("%+v, want %+v", show, want)
	}
	k := newFakeKernel(t, "/")
	k.put("/m/in/x", "")
	for own, want := range map[string]string{"/docker/abc/in": "/m/in", "/docker/abcdef": "", "/other": "", "/docker/abc/../..": ""} {
		dir, ok := k.system(0).dirOf(mount{dir: "/m", root: "/docker/abc"}, own)
		if ok != (want != "") || ok && dir != k.root+want {
			t.Errorf("%s: %s %v, want %q", own, dir, ok, want)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n")
	f.Add("33 31 0:30 /a /b\\040\\134 rw - cgroup cgroup rw,memory\n")
	f.Add("1 2 - cgroup\n - - cgroup2 x y\n\\4")
	f.Fuzz(func(t *testing.T, data string) {
		for _, m := range parseMounts(data) {
			if m.dir == "" || m.v2 != (m.controllers == nil) {
				t.Errorf("%+v from %q", m, data)
			}
			thisSystem().dirOf(m, "/x")
		}
	})
}

func TestPlanAndErrors(t *testing.T) {
	k := newFakeKernel(t, "/")
	s := k.system(1000).probe() // no cgroup at all
	plan := s.Plan(Request{Memory: 1 << 30, CPUs: 1.5, PIDs: 10, Files: 64, FileSize: 1 << 20})
	var got []string
	for _, h := range plan {
		got = append(got, fmt.Sprintf("%s %v: %s (%s)", h.Limit, h.Asked, h.By, h.Scope))
	}
	want := []string{
		"memory 1.073741824e+09:  ()", "cpus 1.5:  ()", "pids 10: rlimit NPROC (user)",
		"files 64: rlimit NOFILE (process)", "file_size 1.048576e+06: rlimit FSIZE (process)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := s.New("x", Request{CPUs: 1}); err == nil || !strings.Contains(err.Error(), "cpus limit cannot be held here") {
		t.Errorf("cpus without a cgroup: %v", err)
	}
	g, err := s.New("x", Request{PIDs: 10, Files: 64})
	if err != nil {
		t.Fatal(err)
	}
	rl := g.Rlimits()
	if rl.NProc == nil || *rl.NProc != 10 || *rl.NoFile != 64 || *rl.Core != NoCore || rl.FSize != nil {
		t.Errorf("rlimits %+v", rl)
	}
	if g.Handle() != nil || !errors.Is(g.Kill(t.Context()), ErrNoCgroup) || g.Destroy(t.Context()) != nil {
		t.Error("a group without cgroups pretends to have one")
	}
	for _, r := range []Request{{Memory: 1000}, {CPUs: -1}, {CPUs: 0.001}, {PIDs: 1 << 40}} {
		if r.Check() == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
	for _, id := range []string{"", ".", "../x", "a/b", "-x", "a b", strings.Repeat("x", 200), "a\n"} {
		if _, err := s.New(id, Request{}); err == nil {
			t.Errorf("id %q is accepted", id)
		}
	}
}
