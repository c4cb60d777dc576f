package main

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/hostids"
)

func TestSandboxPrivateWorkspaceLeavesTheHostAlone(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{
		"a.txt": "hello\n", "sub/b.txt": "b\n", "sub/c.txt": "c\n", "tool": "#!/bin/sh\n", "empty/": "", "gone/x": "x", "gone/y/z": "z"})
	if err := os.Symlink("a.txt", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	before := picture(t, dir)
	s := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
	r := sh(t, s, `set -e
		stat -c %a .
		echo more >> a.txt; rm sub/b.txt; chmod 755 tool; ln -sf sub link; rm -r gone; mkdir gone; echo n > gone/n
		mkdir -p new/deep; echo f > new/deep/f; rmdir empty; echo x > empty
		mv sub/c.txt sub/d.txt
		echo result > /output/result`)
	if r.Code != 0 || r.out != "750\n" {
		t.Fatalf("%+v %q %q", r.Exit, r.out, r.err)
	}
	if after := picture(t, dir); after != before {
		t.Errorf("the host's directory changed:\n%s", cmp.Diff(before, after))
	}
	changes, err := s.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, string(c.Kind)+" "+c.Path)
	}
	want := []string{"modified a.txt", "type empty", "added gone/n", "deleted gone/x", "deleted gone/y", "deleted gone/y/z", "symlink link", "added new", "added new/deep",
		"added new/deep/f", "deleted sub/b.txt", "deleted sub/c.txt", "added sub/d.txt", "mode tool"}
	sort.Slice(got, func(i, j int) bool { return strings.Fields(got[i])[1] < strings.Fields(got[j])[1] })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	// The next command sees what the last one did, and no other sandbox does.
	if r := sh(t, s, "cat a.txt new/deep/f"); r.out != "hello\nmore\nf\n" {
		t.Errorf("the second command sees %q %q", r.out, r.err)
	}
	other := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
	if r := sh(t, other, "cat a.txt; ls new"); r.out != "hello\n" {
		t.Errorf("another sandbox sees %q", r.out)
	}
}

func TestSandboxSharedWorkspace(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n", "old": "old\n"})
	input := write(t, t.TempDir(), map[string]string{"main.py": "print(1)\n"})
	s := newSandbox(t, sdk.Spec{Input: input, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspaceShared}})
	if got := s.Ready(); got.Input != "/input" || got.Output != "/output" || got.Workspace != "/workspace" {
		t.Errorf("paths are %+v", got)
	}
	r := sh(t, s, `set -e; echo new > new; echo more >> a.txt; rm old; echo o > /output/o; cat /input/main.py; ! echo x > /input/main.py`)
	if r.Code != 0 || r.out != "print(1)\n" {
		t.Fatalf("%+v %q %q", r.Exit, r.out, r.err)
	}
	var names []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if d := cmp.Diff([]string{"a.txt", "new"}, names); d != "" {
		t.Errorf("the host's directory (-want +got):\n%s", d)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dir+"/new", &st); err != nil || int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
		t.Errorf("the new file belongs to %d:%d, not to %d:%d (%v)", st.Uid, st.Gid, os.Getuid(), os.Getgid(), err)
	}
	changes, err := s.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, string(c.Kind)+" "+c.Path)
	}
	if d := cmp.Diff([]string{"modified a.txt", "added new", "deleted old"}, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
}

func TestSandboxReadOnlyWorkspace(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "hello\n", "input": "the project's own\n"})
	before := picture(t, dir)
	s := newSandbox(t, sdk.Spec{Input: write(t, t.TempDir(), map[string]string{"x": "x\n"}), Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspaceReadOnly}})
	r := sh(t, s, `cat a.txt input /input/x; for p in a.txt new input /input/x /input/y; do (echo x > $p) 2>/dev/null && echo wrote $p; done; rm -f a.txt; mkdir d; echo o > /output/o && cat /output/o`)
	if r.out != "hello\nthe project's own\nx\no\n" {
		t.Errorf("got %q %q", r.out, r.err)
	}
	if after := picture(t, dir); after != before {
		t.Errorf("the host's directory changed:\n%s", cmp.Diff(before, after))
	}
}

func TestSandboxWithoutWorkspace(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	if r := sh(t, s, `pwd; ls; echo x > f; cat f; echo o > output/o; touch /tmp/t /dev/shm/s /var/tmp/v; ls /tmp`); r.out != "/workspace\noutput\nx\nt\nv\n" {
		t.Errorf("got %q %q", r.out, r.err)
	}
}

// A project of root's below a directory that only root may enter.
func TestRootsProjectBelowARootOnlyDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	top := t.TempDir()
	dir := filepath.Join(top, "locked", "project")
	write(t, dir, map[string]string{"secret.txt": "root's\n", "theirs.txt": "theirs\n", "mine/": ""})
	for p, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o700, dir: 0o700, dir + "/secret.txt": 0o600} {
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir+"/theirs.txt", 1234, 5678); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceReadOnly, sdk.WorkspaceShared} {
		t.Run(string(mode), func(t *testing.T) {
			s := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: mode}})
			r := sh(t, s, "cat secret.txt theirs.txt; stat -c '%U %a' secret.txt theirs.txt; grep -E '^(Uid|Groups)' /proc/self/status")
			want := "root's\ntheirs\nsandbox 600\nnobody 644\nUid:\t1000\t1000\t1000\t1000\nGroups:\t \n"
			if r.out != want {
				t.Errorf("got %q %q, want %q", r.out, r.err, want)
			}
			uid := hostUID(t, s)
			if uid < hostids.Base(0) || uid >= 1<<31 {
				t.Errorf("on the host the command runs as uid %d", uid)
			}
			if mode == sdk.WorkspacePrivate {
				// Files of other owners can be replaced and changed where modes allow it.
				if r := sh(t, s, "echo more >> secret.txt && chmod 640 secret.txt && rm -f theirs.txt && cat secret.txt"); r.out != "root's\nmore\n" {
					t.Errorf("got %q %q", r.out, r.err)
				}
			}
		})
	}
	for uid, name := range map[int]string{4321: "another user's", 70000: "a directory user's"} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, t.TempDir(), map[string]string{"f": "f\n"})
			for _, p := range []string{dir, dir + "/f"} {
				if err := os.Chown(p, uid, uid); err != nil {
					t.Fatal(err)
				}
			}
			s := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspaceShared}})
			if r := sh(t, s, "stat -c %U . f; echo more >> f; echo n > n"); r.out != "sandbox\nsandbox\n" || r.err != "" {
				t.Errorf("got %q %q", r.out, r.err)
			}
			var st syscall.Stat_t
			if err := syscall.Stat(dir+"/n", &st); err != nil || int(st.Uid) != uid || int(st.Gid) != uid {
				t.Errorf("the new file belongs to %d:%d (%v)", st.Uid, st.Gid, err)
			}
		})
	}
}

// hostUID returns the uid of a command of s as the host sees it.
func hostUID(t testing.TB, s *sandbox) int {
	t.Helper()
	seconds := marker(t)
	ctx, cancel := contextWithCause(t)
	uid := -1
	run(t, ctx, s, &sdk.Command{Argv: []string{"sleep", seconds}, Started: func() {
		go func() {
			defer cancel(sdk.ErrCancelled)
			for ctx.Err() == nil {
				for _, pid := range alive(t, seconds) {
					var st syscall.Stat_t
					if syscall.Stat("/proc/"+itoa(pid), &st) == nil {
						uid = int(st.Uid)
						return
					}
				}
			}
		}()
	}})
	return uid
}
