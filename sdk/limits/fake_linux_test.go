package limits

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeKernel is a directory that behaves like a machine's cgroup v2 file system as far as this package looks at it: new
// cgroups have files, processes are in one cgroup at a time, controllers are passed on by subtree_control, and a cgroup
// that passes controllers on holds no process.
type fakeKernel struct {
	t      *testing.T
	root   string
	locked []string // directories that may not be written
	wrote  []string // all that was written to files that do something
}

// newFakeKernel makes a machine whose unified hierarchy is at /sys/fs/cgroup, with this process in the cgroup own.
func newFakeKernel(t *testing.T, own string) *fakeKernel {
	k := &fakeKernel{t: t, root: t.TempDir()}
	k.put("/proc/self/mountinfo", "25 24 0:23 / /proc rw - proc proc rw\n31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n")
	k.put("/proc/self/cgroup", "0::"+own+"\n")
	k.put("/proc/swaps", "Filename Type Size Used Priority\n")
	return k
}

func (k *fakeKernel) put(path, content string) {
	k.t.Helper()
	p := k.root + path
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *fakeKernel) get(path string) string {
	data, err := os.ReadFile(k.root + path)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(data)
}

// cgroup makes one, with what it has and passes on, and the processes in it.
func (k *fakeKernel) cgroup(path, controllers, passesOn string, pids ...int) {
	dir := "/sys/fs/cgroup" + strings.TrimSuffix(path, "/")
	k.put(dir+"/cgroup.controllers", controllers)
	k.put(dir+"/cgroup.subtree_control", passesOn)
	var procs strings.Builder
	for _, p := range pids {
		procs.WriteString(strconv.Itoa(p) + "\n")
	}
	k.put(dir+"/cgroup.procs", procs.String())
	if path != "/" {
		k.put(dir+"/cgroup.type", "domain\n")
	}
}

func (k *fakeKernel) system(euid int) system {
	return system{root: k.root, euid: euid, mkdir: k.mkdir, write: k.write, writable: k.writable}
}

func (k *fakeKernel) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	up, err := os.ReadFile(filepath.Dir(dir) + "/cgroup.subtree_control")
	if err != nil {
		return err
	}
	files := map[string]string{"cgroup.procs": "", "cgroup.type": "domain\n", "cgroup.controllers": string(up), "cgroup.subtree_control": "", "cgroup.events": "populated 0\nfrozen 0\n"}
	for c := range strings.FieldsSeq(string(up)) {
		for _, f := range map[string][]string{"memory": {"memory.max", "memory.swap.max"}, "cpu": {"cpu.max"}, "pids": {"pids.max"}}[c] {
			files[f] = ""
		}
	}
	for f, content := range files {
		if err := os.WriteFile(dir+"/"+f, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (k *fakeKernel) write(path, value string) error {
	k.wrote = append(k.wrote, strings.TrimPrefix(path, k.root+"/sys/fs/cgroup")+"="+value)
	dir := filepath.Dir(path)
	switch filepath.Base(path) {
	case "cgroup.procs":
		err := filepath.Walk(k.root+"/sys/fs/cgroup", func(p string, st os.FileInfo, err error) error {
			if err != nil || st.Name() != "cgroup.procs" {
				return err
			}
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			left := slices.DeleteFunc(strings.Fields(string(data)), func(s string) bool { return s == value })
			if p == path {
				left = append(left, value)
			}
			return os.WriteFile(p, []byte(strings.Join(left, "\n")+"\n"), 0o644)
		})
		return err
	case "cgroup.subtree_control":
		pids, err := readPIDs(dir + "/cgroup.procs")
		if err != nil {
			return err
		}
		if len(pids) > 0 && exists(dir+"/cgroup.type") {
			return unix.EBUSY
		}
		have, _ := os.ReadFile(dir + "/cgroup.controllers")
		if !slices.Contains(strings.Fields(string(have)), value[1:]) {
			return unix.ENOENT
		}
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(" " + value[1:])
		return err
	}
	return errors.New("unexpected write to " + path)
}

func (k *fakeKernel) writable(paths ...string) error {
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return unix.ENOENT
		}
		for _, l := range k.locked {
			if l := k.root + "/sys/fs/cgroup" + l; p == l || !st.IsDir() && filepath.Dir(p) == l {
				return unix.EACCES
			}
		}
	}
	return nil
}
