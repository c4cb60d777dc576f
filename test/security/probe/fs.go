package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// writeAny drops the marker args[0] into every directory in args[1:]. What counts
// is what the host sees; a private /tmp takes the file and harms nobody.
func writeAny(args []string) verdict {
	var a attempts
	for _, dir := range args[1:] {
		a.try(dir, os.WriteFile(filepath.Join(dir, args[0]), []byte("marker\n"), 0o644))
	}
	return held("%v", a) // the host decides
}

// writeThroughSymlink makes a link in the workspace to the host file args[0] and writes through it.
func writeThroughSymlink(args []string) verdict {
	link := "probe-link"
	if err := os.Symlink(args[0], link); err != nil {
		return held("symlink: %v", err)
	}
	err := os.WriteFile(link, []byte("overwritten\n"), 0o644)
	_ = os.Remove(link)
	return held("write: %v", err) // the host decides
}

// procRoot looks for the host file args[0], which holds args[1], through every
// process's root, cwd and descriptors, and by climbing up.
func procRoot(args []string) verdict {
	path, secret := args[0], args[1]
	found := func(p string) bool {
		fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		buf := make([]byte, 4096)
		n, err := unix.Read(fd, buf)
		return err == nil && strings.Contains(string(buf[:n]), secret)
	}
	roots, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range roots {
		for _, way := range []string{"root", "cwd", "root/../..", "cwd/../../../../.."} {
			if p := proc + "/" + way + path; found(p) {
				return breached("%s", p)
			}
		}
		fds, _ := os.ReadDir(proc + "/fd")
		for _, fd := range fds {
			for _, up := range []string{"", strings.Repeat("/..", 12) + path} {
				if p := proc + "/fd/" + fd.Name() + up; found(p) {
					return breached("%s", p)
				}
			}
		}
	}
	if p := strings.Repeat("../", 40) + strings.TrimPrefix(path, "/"); found(p) {
		return breached("%s", p)
	}
	return held("%d processes searched", len(roots))
}

// hardlink links the host file args[0] into the workspace.
func hardlink(args []string) verdict {
	var a attempts
	for _, target := range []string{"probe-hardlink", "/tmp/probe-hardlink"} {
		err := os.Link(args[0], target)
		if err == nil {
			_ = os.Remove(target)
		}
		a.try(target, err)
	}
	return a.verdict()
}

// devices opens every device node that is not harmless, and makes its own.
func devices([]string) verdict {
	harmless := map[string]bool{
		"null": true, "zero": true, "full": true, "random": true, "urandom": true, "tty": true,
		"ptmx": true, "console": true, "stdin": true, "stdout": true, "stderr": true,
	}
	var a attempts
	_ = filepath.WalkDir("/dev", func(p string, e os.DirEntry, err error) error {
		// Opening a watchdog arms it, and the control run is on a real machine.
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), "watchdog") || harmless[e.Name()] ||
			strings.HasPrefix(p, "/dev/pts/") || strings.HasPrefix(p, "/dev/fd") {
			return nil
		}
		var st unix.Stat_t
		if unix.Lstat(p, &st) != nil || (st.Mode&unix.S_IFMT != unix.S_IFBLK && st.Mode&unix.S_IFMT != unix.S_IFCHR) {
			return nil
		}
		a.try("open "+p, tryOpen(p, unix.O_RDONLY))
		return nil
	})
	for _, dir := range []string{".", "/tmp", "/dev/shm"} {
		for _, dev := range []struct {
			kind         uint32
			major, minor uint32
		}{{unix.S_IFBLK, 254, 0}, {unix.S_IFBLK, 8, 0}, {unix.S_IFCHR, 1, 1}} {
			p := filepath.Join(dir, fmt.Sprintf("probe-dev-%d-%d", dev.major, dev.minor))
			err := unix.Mknod(p, dev.kind|0o666, int(unix.Mkdev(dev.major, dev.minor)))
			if err == nil {
				err = tryOpen(p, unix.O_RDONLY)
				if errors.Is(err, unix.ENXIO) { // no such device here, but the kernel would have let us
					err = nil
				}
				_ = os.Remove(p)
			}
			a.try("mknod "+p, err)
		}
	}
	return a.verdict()
}

// remount turns read-only mounts writable and drops the marker args[0] there.
func remount(args []string) verdict {
	var a attempts
	for _, dir := range []string{"/", "/usr", "/etc", "/workspace/input", "/input", "/proc/sys"} {
		err := unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, args[0]), []byte("marker\n"), 0o644)
			if err == nil {
				_ = os.Remove(filepath.Join(dir, args[0]))
			}
		}
		a.try("remount "+dir, err)
	}
	attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	a.try("mount_setattr /usr", unix.MountSetattr(unix.AT_FDCWD, "/usr", 0, &attr))
	return a.verdict()
}

// readSecret reads the files args[1:] and looks for args[0]; an empty secret
// means that reading the file at all is the breach.
func readSecret(args []string) verdict {
	var a attempts
	for _, p := range args[1:] {
		b, err := os.ReadFile(p)
		if err == nil && !strings.Contains(string(b), args[0]) {
			err = errors.New("readable, but not the host's")
		}
		a.try(p, err)
	}
	return a.verdict()
}

// litter makes, changes and deletes files all over the workspace.
func litter([]string) verdict {
	var a attempts
	a.try("write", os.WriteFile("litter", []byte("x"), 0o644))
	a.try("mkdir", os.MkdirAll("a/b/c", 0o755))
	a.try("chmod", os.Chmod("kept", 0o777))
	a.try("truncate", os.Truncate("kept", 0))
	a.try("remove", os.RemoveAll("dir"))
	return held("%v", a) // the host decides
}

// gitHooks plants code where the host's git would run it.
func gitHooks([]string) verdict {
	var a attempts
	hook := filepath.Join(".git", "hooks", "pre-commit")
	a.try(hook, os.WriteFile(hook, []byte("#!/bin/sh\ntouch /tmp/owned\n"), 0o755))
	f, err := os.OpenFile(filepath.Join(".git", "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("[core]\n\tfsmonitor = touch /tmp/owned\n")
		_ = f.Close()
	}
	a.try(".git/config", err)
	a.try("rename .git/hooks", os.Rename(filepath.Join(".git", "hooks"), filepath.Join(".git", "hooks-old")))
	return held("%v", a) // the host decides
}

func tryOpen(p string, flags int) error {
	fd, err := unix.Open(p, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// swapForever exchanges, below the directory args[0] of the workspace and until it is killed, what a tool on the host
// may look at with what leads to the host's directory args[1], or blocks the process that opens it.
func swapForever(args []string) verdict {
	dir, outside := args[0], args[1]
	in := func(name string) string { return filepath.Join(dir, name) }
	err := os.RemoveAll(dir) // of the project: what is recreated lies in the sandbox's own layer
	for _, d := range []string{"d", "deep/sub", "aside", "d2"} {
		err = errors.Join(err, os.MkdirAll(in(d), 0o755))
	}
	for _, f := range []string{"f", "d/f", "deep/sub/f", "pipe", "plain", "d2/f"} {
		err = errors.Join(err, os.WriteFile(in(f), []byte("inside\n"), 0o644))
	}
	err = errors.Join(err, unix.Mkfifo(in("aside/pipe"), 0o644), os.Link(in("d2/f"), in("aside/plain")),
		os.Mkdir(in("aside/d2"), 0o755),
		os.Symlink(outside, in("aside/d")), os.Symlink(outside+"/f", in("aside/f")),
		os.Symlink(outside+"/sub", in("aside/sub")))
	if err != nil {
		return held("prepare: %v", err)
	}
	pairs := [][2]string{{in("d"), in("aside/d")}, {in("f"), in("aside/f")}, {in("deep/sub"), in("aside/sub")},
		{in("pipe"), in("aside/pipe")},
		{in("plain"), in("aside/plain")}, {in("d2"), in("aside/d2")}}
	for n := 0; ; n++ {
		pair := pairs[n%len(pairs)]
		err := unix.Renameat2(unix.AT_FDCWD, pair[0], unix.AT_FDCWD, pair[1], unix.RENAME_EXCHANGE)
		if err != nil && n < len(pairs) {
			return held("exchange %v: %v", pair, err)
		}
		if n == len(pairs) {
			fmt.Println("swapping")
		}
	}
}
