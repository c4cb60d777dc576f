package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// BenchmarkExec is one command in a sandbox that is there already.
func BenchmarkExec(b *testing.B) {
	s := newSandbox(b, sdk.Spec{Workspace: sdk.Workspace{Source: b.TempDir(), Mode: sdk.WorkspacePrivate}})
	null := devNull(b)
	for b.Loop() {
		exit, err := s.Exec(b.Context(), &sdk.Command{Argv: []string{"/bin/true"}, Stdin: null, Stdout: null, Stderr: null})
		if err != nil || exit.Code != 0 {
			b.Fatalf("%+v %v", exit, err)
		}
	}
}

// BenchmarkSandbox is a sandbox made for one command and removed again.
func BenchmarkSandbox(b *testing.B) {
	dir := b.TempDir()
	null := devNull(b)
	for b.Loop() {
		req := request(b, sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
		s, err := create(b.Context(), req, newBackend().support(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Exec(b.Context(), &sdk.Command{Argv: []string{"/bin/true"}, Stdin: null, Stdout: null, Stderr: null}); err != nil {
			b.Fatal(err)
		}
		if err := s.close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBareBwrap is the floor: bwrap alone, with about the same mounts.
func BenchmarkBareBwrap(b *testing.B) {
	needBwrap(b)
	path, err := findBwrap()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	args := []string{"--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
		"--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache", "--bind", dir, "/workspace", "--chdir", "/workspace", "--", "/bin/true"}
	for b.Loop() {
		cmd := exec.Command(path, args...)
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func devNull(t testing.TB) *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
