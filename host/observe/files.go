package observe

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
)

// files reads which files the run named. What a run that succeeded did not find, it did not need.
func (n *Needs) files(d *runfile.Definition, r *result.Result) {
	if !r.Observed {
		n.note("backend %s does not record files", r.Backend.Name)
		return
	}
	n.asked = map[string]string{}
	n.Mounts = nil
	for _, m := range d.Mounts {
		used := false
		for _, f := range r.Files {
			if !f.Found || !within(f.Path, m.Target) {
				continue
			}
			used = true
			if f.Write && m.Mode != runfile.MountWritable && !r.OK {
				m.Mode = runfile.MountWritable
				n.asked[m.Target] = "written, and read-only in the observed run"
			}
		}
		if used {
			n.Mounts = append(n.Mounts, m)
		} else {
			n.note("the mount %q was not used", m.Target)
		}
	}
	home, _ := os.UserHomeDir()
	var vain []string
	for _, f := range r.Files {
		if f.Found {
			continue
		}
		dir := place(f.Path, home)
		i := slices.IndexFunc(n.Mounts, func(m runfile.Mount) bool { return m.Target == dir })
		switch {
		case r.OK:
			vain = append(vain, fmt.Sprintf("%q", f.Path))
		case dir == "":
			n.Files = append(n.Files, f.Path)
			n.note("asked for in vain: %q; a mount shows directories, ro_bind of the backend bwrap shows files", f.Path)
		case i < 0:
			n.Mounts = append(n.Mounts, runfile.Mount{Target: dir, Source: dir, Mode: runfile.MountReadOnly})
			n.asked[dir] = "asked for in vain"
			i = len(n.Mounts) - 1
			fallthrough
		default:
			if f.Write {
				n.Mounts[i].Mode = runfile.MountWritable
				n.asked[dir] = "asked for in vain, to write"
			}
		}
	}
	if more := len(vain) - mostVain; more > 0 {
		vain = append(vain[:mostVain], fmt.Sprintf("%d more", more))
	}
	if len(vain) > 0 {
		n.note("asked for in vain, and not needed: %s", strings.Join(vain, ", "))
	}
}

// mostVain bounds the paths in one note.
const mostVain = 10

// Missing are the directories that a failed run asked for in vain, as mounts that are read-only.
func (n Needs) Missing(d *runfile.Definition) (out []runfile.Mount) {
	for _, m := range n.Mounts {
		same := func(x runfile.Mount) bool { return x.Target == m.Target }
		if !slices.ContainsFunc(d.Mounts, same) {
			m.Mode = runfile.MountReadOnly
			out = append(out, m)
		}
	}
	return out
}

// place returns the directory to mount so that a command finds name and what belongs to it: the first one on the way
// there in which not everybody keeps something. It is "" for a file beside such directories.
func place(name, home string) string {
	for i := 1; ; i++ {
		next := strings.IndexByte(name[i:], '/')
		dir := name
		if next >= 0 {
			i += next
			dir = name[:i]
		}
		if !crowded(dir, home) {
			if st, err := os.Stat(dir); err != nil || !st.IsDir() {
				return ""
			}
			return dir
		}
		if next < 0 {
			return ""
		}
	}
}

// crowded says whether things lie in dir that have nothing to do with each other.
func crowded(dir, home string) bool {
	if path.Dir(dir) == "/home" || within(home, dir) || dir == "/root" {
		return true
	}
	for _, h := range []string{home, "/root"} {
		if rest, ok := strings.CutPrefix(dir, h+"/"); ok && h != "" {
			return slices.Contains(crowdedAtHome, rest)
		}
	}
	return slices.Contains(crowdedDirs, dir)
}

var (
	crowdedDirs = []string{"/etc", "/home", "/media", "/mnt", "/opt", "/srv", "/var", "/var/cache", "/var/lib", "/var/log",
		"/var/opt", "/var/spool", "/var/www"}
	crowdedAtHome = []string{".config", ".cache", ".local", ".local/share", ".local/state", ".local/lib", ".local/bin"}
)

// within says whether name is dir or lies below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
