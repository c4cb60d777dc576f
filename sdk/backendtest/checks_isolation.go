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
		f.Close()
		c.later(func() { os.Remove(f.Name()) })
		c.write(f.Name(), secret, 0o644)
		paths = append(paths, f.Name())
	}
	return paths
}

// isolationChecks look at what a backend claims (O1).
func isolationChecks() []Check {
	return []Check{
		row("isolation/kernel", "a backend that claims vm or remote-vm runs commands on another kernel than the host's",
			"boot a machine, or claim container or namespace", used(func(b *box) {
				host, err := os.ReadFile(bootID)
				if err != nil {
					b.skipf("this host does not tell its boot ID: %v", err)
				}
				if o := b.sh("cat " + bootID); o.Code != 0 || o.stdout == string(host) {
					b.Fatalf("the boot ID in the sandbox is %s (%s), and the host's is %s",
						quote(o.stdout), o.how(), quote(string(host)))
				}
			}), needOwnKernel),
		row("isolation/namespaces", "on the host's kernel commands have a PID and a mount namespace of their own",
			"unshare them: CLONE_NEWPID, CLONE_NEWNS", used(func(b *box) {
				for _, ns := range []string{"pid", "mnt"} {
					host, err := os.Readlink("/proc/self/ns/" + ns)
					if err != nil {
						b.skipf("this host has no namespaces: %v", err)
					}
					if got := strings.TrimSpace(b.must("readlink /proc/self/ns/" + ns)); got == "" || got == host {
						b.Fatalf("the %s namespace in the sandbox is %s, and the host's is %s", ns, quote(got), host)
					}
				}
			}), needSharedKernel),
		row("isolation/host-files", "commands cannot read or change files of the host, by any path",
			"give the sandbox a root of its own, with what it needs mounted there, and a /proc of its own", used(func(b *box) {
				secret := "secret of " + b.marker
				paths := b.canaries(secret)
				o := b.sh("", shell(`up=../../../../../../..
for p; do
  for r in "" "$PWD/$up" /proc/1/root /proc/self/root /proc/1/cwd/$up /proc/self/cwd/$up; do
    cat "$r$p" 2>/dev/null && echo " at $r$p"
    echo owned 2>/dev/null > "$r$p"
  done
done; true`, paths...))
				if strings.Contains(o.stdout, secret) {
					b.Fatalf("a command read a file of the host: %s", quote(o.stdout))
				}
				for _, p := range paths {
					b.eq(p+" of the host", b.read(p), secret)
				}
			}), needIsolation),
		row("isolation/host-processes", "commands see no process of the host",
			"mount a /proc of the sandbox's own PID namespace", used(func(b *box) {
				mark := "hutch-canary-" + b.short + "-process"
				host := exec.Command("/bin/sh", "-c", "read line", mark) // ends with its stdin
				in, err := host.StdinPipe()
				b.own(err)
				b.own(host.Start())
				b.later(func() { in.Close(); host.Wait() })
				list := `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' < $f; echo; done 2>/dev/null`
				if strings.Contains(b.must(list), mark) {
					b.Fatalf("a process of the host is listed in /proc")
				}
			}), needIsolation),
		row("isolation/links",
			"Get, Put and Remove follow no link that a command made to a file or a directory of the host",
			"resolve paths inside the sandbox's root, as os.Root and sdk/inside do", func(c *C) {
				secret := "secret of " + c.marker
				dir := c.hostDir("outside")
				c.write(filepath.Join(dir, "file"), secret, 0o666)
				before := c.hostTree(dir)
				for _, mode := range []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared} {
					if !slices.Contains(c.facts.Workspaces, mode) {
						continue
					}
					b := c.box(withSource(c.hostDir("source-"+string(mode)), mode))
					b.must("", shell(`ln -s "$1/file" file; ln -s "$1" dir; ln -s / root`, dir))
					for _, name := range []string{"file", "dir/file", "root" + dir + "/file"} {
						var got bytes.Buffer
						_ = b.Get(c.ctx, b.at(name), sdk.FormatFile, &got) // refused, or a path inside the sandbox
						if strings.Contains(got.String(), secret) {
							c.Fatalf("Get of %s, in a %s workspace, gave a file of the host", name, mode)
						}
						_ = b.tryPut(name, sdk.FormatFile, []byte("owned"))
						if c.facts.Has(sdk.CapRemove) && name != "file" {
							_ = b.Remove(c.ctx, b.at(name), true)
						}
						c.eq("the host's directory after Put and Remove at "+name+" in a "+string(mode)+" workspace",
							c.hostTree(dir), before)
					}
				}
			}, needIsolation, needCap(sdk.CapGet), needCap(sdk.CapPut), needFile),
	}
}
