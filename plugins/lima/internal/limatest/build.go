package limatest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// build makes the guest's file system and goes into it: the programs of this machine, its own disk.
func (s *guestSpec) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	at := func(p string) string { return filepath.Join(s.Root, p) }
	for _, dir := range []string{"usr", "etc", "proc", "sys", "dev", "run", "tmp", "var", "home", "root", "mnt/lima-cidata", "workspace", "old", "input", "output"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		fi, err := os.Lstat("/" + name)
		switch {
		case err != nil:
		case fi.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink("/" + name)
			if err == nil {
				err = os.Symlink(to, at(name))
			}
			if err != nil {
				return err
			}
		default:
			if err := os.Mkdir(at(name), 0o755); err != nil {
				return err
			}
			if err := s.bind("/"+name, at(name), true); err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{"usr-local/bin", "usr-local/libexec", "home", "var/lib", "var/tmp", "workspace"} {
		if err := os.MkdirAll(filepath.Join(s.Disk, dir), 0o755); err != nil {
			return err
		}
	}
	home := filepath.Join(s.Disk, "home", s.User+".guest")
	uid, gid := s.UID, s.GID
	if s.UserSpace {
		uid, gid = 0, 0
	}
	sudo := filepath.Join(s.Disk, "usr-local/bin/sudo")
	if err := errors.Join(os.MkdirAll(home, 0o700), os.Chown(home, uid, gid), os.Chmod(filepath.Join(s.Disk, "var/tmp"), 0o1777), os.Chmod(at("tmp"), 0o1777),
		os.WriteFile(filepath.Join(home, ".profile"), []byte("# the VM's own\n"), 0o644), os.Chown(filepath.Join(home, ".profile"), uid, gid), os.WriteFile(sudo, nil, 0o755)); err != nil {
		return err
	}
	users := fmt.Sprintf("root:x:0:0:root:/root:/bin/bash\n%s:x:%d:%d::/home/%s.guest:/bin/bash\n", s.User, uid, gid, s.User)
	groups := fmt.Sprintf("root:x:0:\n%s:x:%d:\n", s.User, gid)
	for name, text := range map[string]string{"passwd": users, "group": groups} {
		if err := os.WriteFile(at("run/"+name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	type mount struct {
		from, at string
		readOnly bool
	}
	mounts := []mount{
		{"/usr", "usr", true}, {"/etc", "etc", true}, {filepath.Join(s.Disk, "usr-local"), "usr/local", false}, {s.Executable, "usr/local/bin/sudo", true},
		{at("run/passwd"), "etc/passwd", true}, {at("run/group"), "etc/group", true},
		{filepath.Join(s.Disk, "home"), "home", false}, {filepath.Join(s.Disk, "var"), "var", false}, {filepath.Join(s.Disk, "workspace"), "workspace", false},
		{"/sys", "sys", false},
	}
	for _, m := range s.Mounts {
		if err := os.MkdirAll(at(m[1]), 0o755); err != nil {
			return err
		}
		mounts = append(mounts, mount{m[0], m[1], false})
	}
	for _, m := range mounts {
		if err := s.bind(m.from, at(m.at), m.readOnly); err != nil {
			return err
		}
	}
	if err := s.devices(at("dev")); err != nil {
		return err
	}
	if err := unix.Mount("proc", at("proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if err := unix.PivotRoot(s.Root, at("old")); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host: %w", err)
	}
	return errors.Join(os.Remove("/old"), unix.Sethostname([]byte("lima-"+s.Name)), network())
}

// bind shows from at another place. Without true root what is read-only already cannot be said again.
func (s *guestSpec) bind(from, at string, readOnly bool) error {
	if err := unix.Mount(from, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	if readOnly && !s.UserSpace {
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", from, err)
		}
	}
	return nil
}

// devices makes /dev.
func (s *guestSpec) devices(dev string) error {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		p := filepath.Join(dev, name)
		if err := os.WriteFile(p, nil, 0o666); err != nil {
			return err
		}
		if err := s.bind("/dev/"+name, p, false); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", filepath.Join(dev, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("devpts: %w", err)
	}
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return nil
}

func containsLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) == strings.TrimSpace(line) {
			return true
		}
	}
	return false
}
