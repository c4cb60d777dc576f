package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Open finds a group that another process made. A group that is not there is ErrGone. The limits and counters are the
// kernel's, so nothing is lost but Rlimits.
func Open(h Handle) (*Group, error) { return thisSystem().open(h) }

func (sys system) open(h Handle) (*Group, error) {
	if err := checkID(h.ID); err != nil {
		return nil, err
	}
	var dirs []string
	for _, d := range h.Dirs {
		// A handle comes from a file; it must not be able to have anything removed but a group with its own name.
		if !filepath.IsAbs(d) || filepath.Clean(d) != d || filepath.Base(d) != dirPrefix+h.ID {
			return nil, fmt.Errorf("group %s: %q is not the directory of this group", h.ID, d)
		}
		if !exists(d) {
			continue
		}
		if !sys.isCgroup(d) {
			return nil, fmt.Errorf("group %s: %s is not on a cgroup file system", h.ID, d)
		}
		dirs = append(dirs, d)
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("group %s: %w", h.ID, ErrGone)
	}
	g := &Group{id: h.ID, mech: h.Mechanism, dirs: dirs}
	switch h.Mechanism {
	case CgroupV2:
		v := &v2Group{dir: dirs[0]}
		if err := v.open(); err != nil {
			return nil, err
		}
		g.cg = v
	case CgroupV1:
		v := &v1Group{parts: dirs}
		v.learn()
		g.cg = v
	default:
		return nil, fmt.Errorf("group %s: unknown mechanism %q", h.ID, h.Mechanism)
	}
	return g, nil
}

func (sys system) isCgroup(dir string) bool {
	var st unix.Statfs_t
	if sys.root != "" {
		return true // a directory that tests made
	}
	return unix.Statfs(dir, &st) == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC)
}

// maxWalkDepth bounds the search for groups; systemd nests a user's scopes six deep.
const maxWalkDepth = 12

// List names the groups on this machine, visible to this process, whose id begins with prefix, in order of their ids.
func List(prefix string) ([]Handle, error) { return thisSystem().list(prefix) }

func (sys system) list(prefix string) ([]Handle, error) {
	mounts, err := sys.mounts()
	if err != nil {
		return nil, err
	}
	type key struct {
		id   string
		mech Mechanism
	}
	found := make(map[key][]string)
	done := make(map[string]bool)
	for _, m := range mounts {
		mech := CgroupV1
		if m.v2 {
			mech = CgroupV2
		} else if !slices.ContainsFunc(v1Controllers, func(c string) bool { return m.controllers[c] }) {
			continue
		}
		top := sys.root + m.dir
		if done[top] {
			continue
		}
		done[top] = true
		walkCgroups(top, 0, func(dir string) {
			if id, ok := strings.CutPrefix(filepath.Base(dir), dirPrefix+prefix); ok && checkID(prefix+id) == nil {
				k := key{prefix + id, mech}
				found[k] = append(found[k], dir)
			}
		})
	}
	var out []Handle
	for k, dirs := range found {
		out = append(out, Handle{ID: k.id, Mechanism: k.mech, Dirs: dirs})
	}
	slices.SortFunc(out, func(a, b Handle) int {
		return strings.Compare(a.ID+"\x00"+string(a.Mechanism), b.ID+"\x00"+string(b.Mechanism))
	})
	return out, nil
}

// walkCgroups visits the directories below dir. One that vanishes meanwhile is passed over. The link count of a cgroup
// says how many it holds, so that most, which hold none, need not be listed.
func walkCgroups(dir string, depth int, visit func(string)) {
	var st unix.Stat_t
	if depth > maxWalkDepth || unix.Lstat(dir, &st) != nil || st.Nlink == 2 {
		return
	}
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	ents, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		return
	}
	for _, e := range ents {
		if e.IsDir() {
			visit(dir + "/" + e.Name())
			walkCgroups(dir+"/"+e.Name(), depth+1, visit)
		}
	}
}

// Sweep destroys the groups whose id begins with prefix, which must not be empty, with all that runs in them, and
// returns their ids. A prefix that names one owner ends with a character that its ids do not hold, or "a1" would take
// "a10" along. One that cannot be destroyed does not keep it from the others.
func Sweep(ctx context.Context, prefix string) ([]string, error) {
	return thisSystem().sweep(ctx, prefix)
}

func (sys system) sweep(ctx context.Context, prefix string) ([]string, error) {
	if prefix == "" {
		return nil, errors.New("sweep groups: the prefix is empty, which would destroy everybody's")
	}
	all, err := sys.list(prefix)
	if err != nil {
		return nil, err
	}
	var done []string
	var errs []error
	for _, h := range all {
		g, err := sys.open(h)
		if err == nil {
			err = g.Destroy(ctx)
		}
		if err != nil && !errors.Is(err, ErrGone) {
			errs = append(errs, err)
			continue
		}
		done = append(done, h.ID)
	}
	return done, errors.Join(errs...)
}
