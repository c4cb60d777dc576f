package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

func TestSandboxHidesTheHost(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HUTCH_TEST_TOKEN", "token-in-the-environment")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := itoa(ln.Addr().(*net.TCPAddr).Port)
	project := write(t, t.TempDir(), map[string]string{"a-private-workspace/f": "f"}) + "/a-private-workspace"
	s := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: project, Mode: sdk.WorkspacePrivate}, Input: write(t, t.TempDir(), map[string]string{"x": "x"})})
	// Each script prints nothing when the sandbox holds.
	for name, script := range map[string]string{
		"files of the host":    "cat " + secret + " /etc/shadow /root/.bashrc /home/*/.ssh/* 2>/dev/null; ls /root /boot /mnt /media /srv /sys/class /sys/block /sys/kernel /sys/bus 2>/dev/null; ls -A /home; ls -A /run",
		"environment":          "env | grep HUTCH_TEST; for p in /proc/[0-9]*; do (tr '\\0' '\\n' < $p/environ) 2>/dev/null | grep TOKEN; done",
		"pid 1":                "cat /proc/1/environ 2>/dev/null; ls /proc/1/fd/ 2>/dev/null; ls /proc/1/root/ 2>/dev/null",
		"descriptors":          "for f in /proc/self/fd/*; do case $f in */[012]|*/3|*/255) ;; *) echo $f; esac; done",
		"processes":            "ls -d /proc/[0-9]* | grep -vE '/proc/(1|2|3|4|5)$'",
		"capabilities":         "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000",
		"no new privileges":    "grep -E '^NoNewPrivs:.1$' /proc/self/status >/dev/null || echo off",
		"system call filter":   "grep -E '^Seccomp:.2$' /proc/self/status >/dev/null || echo off",
		"read-only system":     "for d in / /usr /usr/bin /etc /dev /var /run /home /.hutch /proc/sys/kernel /input; do (echo x > $d/x) 2>/dev/null && echo wrote $d; done",
		"device nodes":         "mknod /tmp/n b 8 0 2>/dev/null && echo made; mknod /tmp/c c 1 3 2>/dev/null && echo made; mkfifo /tmp/p || echo no fifo",
		"sysctl":               "(echo core > /proc/sys/kernel/core_pattern) 2>/dev/null && echo wrote; (echo 1 > /proc/sysrq-trigger) 2>/dev/null && echo wrote; head -c1 /proc/kcore /proc/keys 2>/dev/null",
		"user namespaces":      "unshare -U true 2>/dev/null && echo made; unshare -Ur true 2>/dev/null && echo made",
		"mounts":               "mount -t tmpfs x /tmp 2>/dev/null && echo mounted; mount -o remount,rw /usr 2>/dev/null && echo remounted; umount /proc 2>/dev/null && echo unmounted",
		"setuid":               "cp /bin/true /tmp/t; chmod u+s /tmp/t 2>/dev/null && echo set; chmod g+s /tmp/t 2>/dev/null && echo set",
		"network":              "(exec 3<>/dev/tcp/127.0.0.1/" + port + ") 2>/dev/null && echo connected; ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | grep -v ' lo:'",
		"the workspace's path": "grep -rs a-private-workspace /proc/self/mountinfo /proc/self/mounts /etc",
		"core dumps":           "ulimit -c 0; grep -q '^Max core file size *1  *1 ' /proc/self/limits || cat /proc/self/limits",
		"supplementary groups": "test \"$(id -G | tr ' ' '\\n' | grep -vxE '1000|65534')\" = '' || id -G",
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"/bin/bash", "-c", script}})
			if out := strings.TrimSpace(r.out + r.err); out != "" {
				t.Errorf("got %q", out)
			}
		})
	}
}

func TestSandboxEnvironmentIsExact(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	r := run(t, t.Context(), s, &sdk.Command{Argv: []string{"env"}, Env: map[string]string{"A": "1", "EMPTY": "", "MULTI": "x\ny", "HOME": "/workspace"}})
	want := "A=1\nEMPTY=\nHOME=/workspace\nLANG=C.UTF-8\nMULTI=x\ny\nPATH=" + supervise.DefaultPath + "\n"
	if r.out != want {
		t.Errorf("got %q, want %q", r.out, want)
	}
}

// The list of processes shows the arguments of all of them to every user of the host.
func TestSandboxEnvironmentIsInNoArguments(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	secret := "secret-" + marker(t)
	if out := run(t, t.Context(), s, &sdk.Command{Argv: []string{"sh", "-c", "cat /proc/[0-9]*/cmdline; echo; echo $SECRET"}, Env: map[string]string{"SECRET": secret}}).out; strings.Count(out, secret) != 1 {
		t.Errorf("inside: %q", out)
	}

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ctx, cancel := context.WithCancel(t.Context())
	seconds, done := marker(t), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Exec(ctx, &sdk.Command{Argv: []string{"sleep", seconds}, Env: map[string]string{"SECRET": secret}, Stdin: null, Stdout: null, Stderr: null})
	}()
	for len(alive(t, seconds)) == 0 {
		select {
		case <-done:
			t.Fatal("the command ended at once")
		default:
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(lines) == 0 {
		t.Fatal("no processes", err)
	}
	for _, l := range lines {
		if b, err := os.ReadFile(l); err == nil && strings.Contains(string(b), secret) {
			t.Errorf("outside: %s is %q", l, b)
		}
	}
	cancel()
	<-done
}

func TestSandboxStreamsCanBeOpenedAgain(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	r := sh(t, s, "echo out > /dev/stdout; echo err > /dev/stderr; echo x | cat /dev/stdin")
	if r.out != "out\nx\n" || r.err != "err\n" {
		t.Errorf("got %q and %q", r.out, r.err)
	}
}
