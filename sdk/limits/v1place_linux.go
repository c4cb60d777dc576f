package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// v1Place is one directory in each hierarchy of cgroup v1 that is of use. Controllers that are mounted together share
// one.
type v1Place struct {
	sys  system
	at   map[string]string // where groups are made, by controller
	swap bool              // this machine swaps
}

// The controllers of interest. The freezer holds no limit: it keeps a group from forking while it is killed, and is only
// used where the pids controller cannot do that.
var v1Controllers = []string{"memory", "pids", "cpu", "freezer"}

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
	p := &v1Place{sys: sys, at: make(map[string]string), swap: sys.swapOn()}
	var seen, mounted bool
	var first error // of the controllers in their order, the one that matters most
	for _, c := range v1Controllers {
		for _, m := range mounts {
			if !m.controllers[c] {
				continue
			}
			mounted = mounted || c == "memory" || c == "pids" || c == "cpu"
			dir, err := sys.tryV1(m, own[c])
			if err != nil {
				if first == nil {
					first = err
				}
				continue
			}
			p.at[c], seen = dir, true
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
		return nil,
			refusal{"neither the pids nor the freezer controller of cgroup v1 may be written, so a group that forks could " +
				"not be killed", why.fix}
	}
	return p, why
}

func (sys system) tryV1(m mount, own string) (string, error) {
	if dir, ok := sys.dirOf(m, own); ok && sys.writable(dir) == nil {
		return dir, nil
	}
	given := strings.TrimSuffix(sys.root+m.dir, "/") + "/" + v1Delegated
	return given, sys.writable(given)
}

func (p *v1Place) where() []string {
	var out []string
	for _, c := range v1Controllers {
		if dir, ok := p.at[c]; ok && !slices.Contains(out, dir) {
			out = append(out, dir)
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
		dir, ok := p.at[k.controller]
		if !ok || k.limit == CPUs && !exists(dir+"/cpu.shares") {
			continue
		}
		out[k.limit] = How{By: "cgroup v1 " + k.file, Scope: WholeGroup}
	}
	if h, ok := out[Memory]; ok {
		switch {
		case exists(p.at["memory"] + "/memory.memsw.usage_in_bytes"):
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
		return nil, errors.Join(err, g.remove(ctx))
	}
	for _, base := range p.where() {
		dir := base + "/" + dirPrefix + id
		if err := p.sys.mkdir(dir); err != nil {
			return undo(err)
		}
		g.parts = append(g.parts, dir)
	}
	g.learn()
	if err := g.setUp(r, p.swap); err != nil {
		return undo(err)
	}
	return g, nil
}
