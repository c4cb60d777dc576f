package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// v2Place is a directory of the unified hierarchy below which groups can be made.
type v2Place struct {
	sys         system
	dir         string
	controllers []string // those of memory, cpu and pids that can be used in children of dir
	enable      []string // of these, those which dir does not pass on to its children yet
	move        bool     // the processes in dir have to go to a leaf first
}

// The controllers of interest, and the limits they hold.
var v2Controllers = []struct {
	name  string
	limit Limit
	file  string
}{{"memory", Memory, "memory.max"}, {"cpu", CPUs, "cpu.max"}, {"pids", PIDs, "pids.max"}}

// leafName is where a process moves itself to make its cgroup an inner node, which may hold no process ("no internal
// processes" in the kernel's documentation). Sweep does not take it for a group.
const leafName = "hutch-host"

const v2Fix = "systemd-run --user --scope -p Delegate=yes hutch run … " +
	"(where that lacks the cpu controller: sudo mkdir -p /etc/systemd/system/user@.service.d && " +
	"printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | sudo tee " +
	"/etc/systemd/system/user@.service.d/delegate.conf && " +
	"sudo systemctl daemon-reload, then log in again)"

// findV2 walks from the cgroup of this process to the top and takes the first directory that this process may use and
// that has all controllers, else the one that has most. A cgroup that was delegated by name comes first, so that the
// limits somebody put on it keep holding for what runs here; after it directories that need no process moved.
func (sys system) findV2(mounts []mount, own map[string]string) (*v2Place, refusal) {
	var m *mount
	for i := range mounts {
		if mounts[i].v2 {
			m = &mounts[i]
			break
		}
	}
	if m == nil {
		return nil, refusal{}
	}
	dir, ok := sys.dirOf(*m, own[""])
	if !ok {
		return nil, refusal{fmt.Sprintf("own cgroup %s is not visible below %s", own[""], m.dir), ""}
	}
	top := strings.TrimSuffix(sys.root+m.dir, "/")
	var found []*v2Place
	why := refusal{"cgroup v2 " + dir + " has none of the controllers memory, cpu and pids", ""}
	for d := dir; len(d) >= len(top); d = filepath.Dir(d) {
		p, err := sys.tryV2(d, d == dir, d == top)
		if err != nil {
			if d == dir || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
				why = refusal{"cgroup v2 is not delegated to this user: " + err.Error(), v2Fix}
			}
			continue
		}
		if len(p.controllers) > 0 {
			found = append(found, p)
		}
		if d == top {
			break
		}
	}
	if len(found) == 0 {
		return nil, why
	}
	slices.SortStableFunc(found, func(a, b *v2Place) int {
		if n := len(b.controllers) - len(a.controllers); n != 0 {
			return n
		}
		return a.rank() - b.rank()
	})
	return found[0], refusal{fix: v2Fix}
}

// rank orders places with as many controllers.
func (p *v2Place) rank() int {
	switch {
	case p.move && delegated(p.dir):
		return 0
	case !p.move:
		return 1
	}
	return 2
}

// tryV2 looks whether groups can be made below d.
func (sys system) tryV2(d string, isOwn, isTop bool) (*v2Place, error) {
	if err := sys.writable(d, d+"/cgroup.procs"); err != nil {
		return nil, err
	}
	// The type file exists everywhere but in the root of the whole machine; threaded subtrees hold no memory limit.
	kind, err := os.ReadFile(d + "/cgroup.type")
	realRoot := isTop && os.IsNotExist(err)
	if k := strings.TrimSpace(string(kind)); !realRoot && k != "domain" {
		return nil, fmt.Errorf("%s: cgroup type is %q and not domain", d, k)
	}
	p := &v2Place{sys: sys, dir: d}
	have, err := words(d + "/cgroup.controllers")
	if err != nil {
		return nil, err
	}
	on, err := words(d + "/cgroup.subtree_control")
	if err != nil {
		return nil, err
	}
	for _, c := range v2Controllers {
		if !slices.Contains(have, c.name) {
			continue
		}
		p.controllers = append(p.controllers, c.name)
		if !slices.Contains(on, c.name) {
			p.enable = append(p.enable, c.name)
		}
	}
	if len(p.enable) == 0 {
		return p, nil
	}
	if err := sys.writable(d + "/cgroup.subtree_control"); err != nil {
		return nil, err
	}
	if realRoot {
		return p, nil
	}
	procs, err := readPIDs(d + "/cgroup.procs")
	if err != nil {
		return nil, err
	}
	if len(procs) == 0 {
		return p, nil
	}
	if !isOwn || !(delegated(d) || sys.owns(d, isTop)) {
		return nil, fmt.Errorf("%s: holds processes of others, so its controllers %s cannot be passed on", d,
			strings.Join(p.enable, " "))
	}
	p.move = true
	return p, nil
}

// delegated reports systemd's mark of a unit with Delegate=yes.
func delegated(dir string) bool {
	var b [8]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, b[:]); err == nil && n == 1 && b[0] == '1' {
			return true
		}
	}
	return false
}

// owns reports whether the cgroup, with everybody in it, is this process's to rearrange: a user's own directory, or,
// for root, the top of what a container shows. The session of a root shell on a whole machine is not.
func (sys system) owns(dir string, isTop bool) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	return int(st.Uid) == sys.euid && (sys.euid != 0 || isTop)
}

func words(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	return strings.Fields(string(data)), err
}

func (p *v2Place) where() []string { return []string{p.dir} }

func (p *v2Place) limits() map[Limit]How {
	if p == nil {
		return nil
	}
	out := make(map[Limit]How)
	for _, c := range v2Controllers {
		if slices.Contains(p.controllers, c.name) {
			out[c.limit] = How{By: "cgroup v2 " + c.file, Scope: WholeGroup}
		}
	}
	return out
}

// arranging keeps two goroutines from rearranging a cgroup at once; two processes may, and each step allows for it.
var arranging sync.Mutex

// arrange makes p's directory pass its controllers on.
func (p *v2Place) arrange() error {
	arranging.Lock()
	defer arranging.Unlock()
	if p.move {
		leaf := p.dir + "/" + leafName
		if err := p.sys.mkdir(leaf); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		// A process that forks while it is moved may leave its child behind: look again until none is left.
		for tries := 0; ; tries++ {
			pids, err := readPIDs(p.dir + "/cgroup.procs")
			if err != nil {
				return err
			}
			if len(pids) == 0 {
				break
			}
			if tries == 100 {
				return fmt.Errorf("make room in %s: its %d processes fork faster than they can be moved", p.dir, len(pids))
			}
			for _, pid := range pids {
				err := p.sys.write(leaf+"/cgroup.procs", strconv.Itoa(pid))
				if err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("make room in %s: %w", p.dir, err)
				}
			}
		}
	}
	// One at a time: where one is refused, the message says which.
	for _, c := range p.enable {
		if err := p.sys.write(p.dir+"/cgroup.subtree_control", "+"+c); err != nil {
			return err
		}
	}
	p.enable, p.move = nil, false
	return nil
}

func (p *v2Place) make(id string, r Request) (cgroup, error) {
	if err := p.arrange(); err != nil {
		return nil, err
	}
	dir := p.dir + "/" + dirPrefix + id
	if err := p.sys.mkdir(dir); err != nil {
		return nil, err
	}
	g := &v2Group{dir: dir}
	if err := g.setUp(r, p.sys.swapOn()); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), undoTime)
		defer cancel()
		return nil, errors.Join(err, g.remove(ctx))
	}
	return g, nil
}
