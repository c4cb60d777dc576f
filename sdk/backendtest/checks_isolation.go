package backendtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk"
)

// bootID names the boot of the kernel that a process runs on: two kernels never have the same.
const bootID = "/proc/sys/kernel/random/boot_id"

// canaries makes files that everybody on this host may read, in the directories where hosts keep what is private, and
// returns their paths. Each holds the secret.
func (c *C) canaries(secret string) (paths []string) {
	dirs := []string{c.dir, os.TempDir(), "/var/tmp"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, home)
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		f, err := os.CreateTemp(dir, ".hutch-canary-")
		if err != nil {
			continue // a directory that this user may not write to
		}
		c.later(func() { os.Remove(f.Name()) })
		_, err = f.WriteString(secret)
		f.Chmod(0o644)
		f.Close()
		if err != nil {
			c.Fatalf("the suite's own file: %v", err)
		}
		paths = append(paths, f.Name())
	}
	return paths
}

// isolationChecks look at what a backend claims (O1).
func isolationChecks() []Check {
	needs := []Need{needIsolation}
	return []Check{
		{ID: "isolation/kernel", Needs: []Need{needOwnKernel}, Proves: "a backend that claims vm or remote-vm runs commands on another kernel than the host's", Fix: "boot a machine, or claim container or namespace",
			run: func(c *C) {
				host, err := os.ReadFile(bootID)
				if err != nil {
					c.skipf("this host does not tell its boot ID: %v", err)
				}
				if o := c.used().sh("cat " + bootID); o.Code != 0 || o.stdout == string(host) {
					c.Fatalf("the boot ID in the sandbox is %s (%s), and the host's is %s", quote(o.stdout), o.how(), quote(string(host)))
				}
			}},
		{ID: "isolation/namespaces", Needs: []Need{needSharedKernel}, Proves: "on the host's kernel commands have a PID and a mount namespace of their own", Fix: "unshare them: CLONE_NEWPID, CLONE_NEWNS",
			run: func(c *C) {
				b := c.used()
				for _, ns := range []string{"pid", "mnt"} {
					host, err := os.Readlink("/proc/self/ns/" + ns)
					if err != nil {
						c.skipf("this host has no namespaces: %v", err)
					}
					if got := strings.TrimSpace(b.must("readlink /proc/self/ns/" + ns)); got == "" || got == host {
						c.Fatalf("the %s namespace in the sandbox is %s, and the host's is %s", ns, quote(got), host)
					}
				}
			}},
		{ID: "isolation/host-files", Needs: needs, Proves: "commands cannot read or change files of the host, by any path", Fix: "give the sandbox a root of its own, with what it needs mounted there, and a /proc of its own",
			run: func(c *C) {
				secret := "secret of " + c.marker
				paths := c.canaries(secret)
				b := c.used()
				o := b.exec(b.command("", argv(slices.Concat([]string{"/bin/sh", "-c", `for p; do
  for r in "" "$PWD/../../../../../../../.." /proc/1/root /proc/self/root /proc/1/cwd/../../../../../../.. /proc/self/cwd/../../../../../../..; do
    cat "$r$p" 2>/dev/null && echo " at $r$p"
    echo owned 2>/dev/null > "$r$p"
  done
done; true`, "sh"}, paths)...)))
				if strings.Contains(o.stdout, secret) {
					c.Fatalf("a command read a file of the host: %s", quote(o.stdout))
				}
				for _, p := range paths {
					if got := c.read(p); got != secret {
						c.Fatalf("a command changed %s of the host to %s", p, quote(got))
					}
				}
			}},
		{ID: "isolation/host-processes", Needs: needs, Proves: "commands see no process of the host", Fix: "mount a /proc of the sandbox's own PID namespace",
			run: func(c *C) {
				mark := "hutch-canary-" + c.short + "-process"
				host := exec.Command("/bin/sh", "-c", "read line", mark) // ends with its stdin
				in, err := host.StdinPipe()
				if err == nil {
					err = host.Start()
				}
				if err != nil {
					c.Fatalf("the suite's own process: %v", err)
				}
				c.later(func() { in.Close(); host.Wait() })
				if seen := c.used().must(`for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' < $f; echo; done 2>/dev/null`); strings.Contains(seen, mark) {
					c.Fatalf("a process of the host is listed in /proc")
				}
			}},
		{ID: "isolation/links", Needs: append(slices.Clone(needs), needCap(sdk.CapGet), needCap(sdk.CapPut), needFormat(sdk.FormatFile)),
			Proves: "Get, Put and Remove follow no link that a command made to a file or a directory of the host", Fix: "resolve paths inside the sandbox's root, as os.Root and sdk/inside do",
			run: func(c *C) {
				secret := "secret of " + c.marker
				dir := c.hostDir("outside")
				c.write(filepath.Join(dir, "file"), secret, 0o666)
				before := c.hostTree(dir)
				for _, mode := range []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared} {
					if !slices.Contains(c.facts.Workspaces, mode) {
						continue
					}
					b := c.box(withSource(c.hostDir("source-"+string(mode)), mode))
					w := b.Ready().Workspace
					b.must(`ln -s "$1/file" file; ln -s "$1" dir; ln -s / root`, argv("/bin/sh", "-c", `ln -s "$1/file" file; ln -s "$1" dir; ln -s / root`, "sh", dir))
					for _, p := range []string{w + "/file", w + "/dir/file", w + "/root" + dir + "/file"} {
						var got bytes.Buffer
						_ = b.Get(c.ctx, p, sdk.FormatFile, &got) // refused, or a path inside the sandbox
						if strings.Contains(got.String(), secret) {
							c.Fatalf("Get of %s, in a %s workspace, gave a file of the host", p, mode)
						}
						_ = b.Put(c.ctx, p, sdk.FormatFile, strings.NewReader("owned"))
						if c.facts.Has(sdk.CapRemove) && p != w+"/file" {
							_ = b.Remove(c.ctx, p, true)
						}
						if after := c.hostTree(dir); after != before {
							c.Fatalf("Put and Remove at %s, in a %s workspace, changed the host's directory from\n%sto\n%s", p, mode, before, after)
						}
					}
				}
			}},
	}
}
