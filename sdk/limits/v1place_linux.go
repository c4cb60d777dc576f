package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// v1Place is one directory in each hierarchy of cgroup v1 that is of use. Controllers that are mounted together share
// one.
type v1Place struct {
	sys  system
	at   map[string]v1Base // by controller
	swap bool              // this machine swaps
}

// v1Base is where groups are made in one hierarchy.
type v1Base struct {
	dir  string
	home string // the cgroup to which a thread of ours goes back after it has forked a child into a group
	park bool   // home has to be made first
}

// The controllers of interest. cpuacct and the freezer hold no limit. The one counts; the other keeps a group from
// forking while it is killed, and is only used where the pids controller cannot do that: it freezes also a thread of a
// host that happens to be inside to fork a child, and when that thread was about to take part in a garbage collection,
// the whole host waits for it, be it the very one that would thaw the group.
var v1Controllers = []string{"memory", "pids", "cpu", "cpuacct", "freezer"}

// v1Delegated is the directory which an administrator gives to a user, beside the cgroup the user is in.
const v1Delegated = "hutch"

func (sys system) v1Fix(mounts []mount) string {
	var dirs []string
	pids := slices.ContainsFunc(mounts, func(m mount) bool { return m.controllers["pids"] })
	for _, c := range v1Controllers {
		if c == "freezer" && pids {
			continue
		}
		for _, m := range mounts {
			if m.controllers[c] && !slices.Contains(dirs, m.dir+"/"+v1Delegated) {
				dirs = append(dirs, m.dir+"/"+v1Delegated)
				break
			}
		}
	}
	list := strings.Join(dirs, " ")
	return fmt.Sprintf("sudo mkdir -p %s && sudo chown -R %d %s", list, sys.euid, list)
}

// findV1 finds, in each hierarchy, the cgroup this process is in, so that limits above it keep holding, or else the
// directory delegated by name.
func (sys system) findV1(mounts []mount, own map[string]string) (*v1Place, refusal) {
	p := &v1Place{sys: sys, at: make(map[string]v1Base), swap: sys.swapOn()}
	var seen, mounted bool
	var first error // of the controllers in their order, the one that matters most
	for _, c := range v1Controllers {
		for _, m := range mounts {
			if !m.controllers[c] {
				continue
			}
			mounted = mounted || c == "memory" || c == "pids" || c == "cpu"
			b, err := sys.tryV1(m, own[c])
			if err != nil {
				if first == nil {
					first = err
				}
				continue
			}
			p.at[c], seen = b, true
			break
		}
	}
	if !mounted {
		return nil, refusal{}
	}
	why := refusal{"cgroup v1 is not delegated to this user", sys.v1Fix(mounts)}
	if !seen || len(p.limits()) == 0 {
		if first != nil {
			why.reason += ": " + first.Error()
		}
		return nil, why
	}
	_, pids := p.at["pids"]
	_, freezer := p.at["freezer"]
	switch {
	case pids:
		delete(p.at, "freezer")
	case !freezer:
		return nil, refusal{"neither the pids nor the freezer controller of cgroup v1 may be written, so a group that forks could not be killed", why.fix}
	}
	return p, why
}

func (sys system) tryV1(m mount, own string) (v1Base, error) {
	dir, ok := sys.dirOf(m, own)
	if ok {
		if err := sys.writable(dir, dir+"/tasks"); err == nil {
			return v1Base{dir: dir, home: dir}, nil
		}
	}
	given := strings.TrimSuffix(sys.root+m.dir, "/") + "/" + v1Delegated
	err := sys.writable(given, given+"/tasks")
	if err != nil {
		return v1Base{}, err
	}
	if ok && sys.writable(dir+"/tasks") == nil {
		return v1Base{dir: given, home: dir}, nil
	}
	return v1Base{dir: given, home: given + "/" + leafName, park: true}, nil
}

func (p *v1Place) where() []string {
	var out []string
	for _, c := range v1Controllers {
		if b, ok := p.at[c]; ok && !slices.Contains(out, b.dir) {
			out = append(out, b.dir)
		}
	}
	return out
}

func (p *v1Place) limits() map[Limit]How {
	out := make(map[Limit]How)
	if p == nil {
		return out
	}
	for _, k := range []struct {
		controller, file string
		limit            Limit
	}{{"memory", "memory.limit_in_bytes", Memory}, {"pids", "pids.max", PIDs}, {"cpu", "cpu.cfs_quota_us", CPUs}} {
		b, ok := p.at[k.controller]
		if !ok || k.limit == CPUs && !exists(b.dir+"/cpu.shares") {
			continue
		}
		out[k.limit] = How{By: "cgroup v1 " + k.file, Scope: WholeGroup}
	}
	if h, ok := out[Memory]; ok {
		switch {
		case exists(p.at["memory"].dir + "/memory.memsw.usage_in_bytes"):
			h.By += " and memory.memsw.limit_in_bytes"
		case p.swap:
			// Swappiness 0 keeps a v1 group out of swap, whatever the rest of the machine does.
			h.By += " and memory.swappiness"
		}
		out[Memory] = h
	}
	return out
}

func (p *v1Place) make(id string, r Request) (cgroup, error) {
	g := &v1Group{}
	undo := func(err error) (cgroup, error) {
		ctx, cancel := context.WithTimeout(context.Background(), undoTime)
		defer cancel()
		err = errors.Join(err, g.remove(ctx))
		g.close()
		return nil, err
	}
	bases := make(map[string]bool)
	for _, c := range v1Controllers {
		b, ok := p.at[c]
		if !ok || bases[b.dir] {
			continue
		}
		bases[b.dir] = true
		if b.park {
			if err := p.sys.mkdir(b.home); err != nil && !errors.Is(err, os.ErrExist) {
				return undo(err)
			}
		}
		dir := b.dir + "/" + dirPrefix + id
		if err := p.sys.mkdir(dir); err != nil {
			return undo(err)
		}
		g.parts = append(g.parts, v1Part{dir: dir, home: b.home, tasks: -1, homeTasks: -1})
	}
	g.learn()
	if err := g.setUp(r, p.swap); err != nil {
		return undo(err)
	}
	return g, nil
}
