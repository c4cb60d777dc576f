package guest

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/visible"
)

// mount makes the command's view: of what belongs to sandboxes only its own, and nothing by which a program of the VM's
// user could be asked to do what the command may not. shown lie over what describes the machine.
func (o *order) mount(shown []visible.File) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	state := stateDir + "/" + o.ID + "/"
	own := []struct {
		from, at string
		wanted   bool
		readOnly bool
		fd       int
	}{
		{workspaceDir + "/" + o.ID, workspaceDir + "/" + o.ID, true, false, -1},
		{exchangeDir + "/" + o.ID, exchangeDir + "/" + o.ID, o.Exchange, false, -1},
		{state + "input", inputDir, o.Input, true, -1},
		{state + "output", outputDir, true, false, -1},
		{state + "tmp", "/tmp", true, false, -1},
		{state + "vartmp", "/var/tmp", true, false, -1},
		{state + "home", o.Home, true, false, -1},
	}
	for i := range own {
		m := &own[i]
		if !m.wanted {
			continue
		}
		fd, err := unix.Open(m.from, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", m.from, err)
		}
		defer unix.Close(fd)
		m.fd = fd
	}
	// While /proc is still the guest's: it leads to these descriptors.
	for _, dir := range []string{workspaceDir, exchangeDir} {
		if err := tmpfs(dir, "mode=755,size=64k"); err != nil {
			return err
		}
		if err := os.Mkdir(dir+"/"+o.ID, 0o755); err != nil {
			return err
		}
	}
	for _, m := range own {
		if m.fd < 0 {
			continue
		}
		if err := bind(m.fd, m.at); err != nil {
			return err
		}
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
		if m.readOnly {
			flags |= unix.MS_RDONLY
		}
		if err := unix.Mount("", m.at, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			return fmt.Errorf("take rights from %s: %w", m.at, err)
		}
	}
	for _, dir := range []string{"/dev/shm", stateDir, runDir, "/run/user", "/run/dbus", "/mnt/lima-cidata"} {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		options := "mode=0,size=4k"
		if dir == "/dev/shm" {
			options = "mode=1777,size=50%"
		}
		if err := tmpfs(dir, options); err != nil {
			return err
		}
	}
	for _, dir := range []string{workspaceDir, exchangeDir} { // their other directories are nobody's
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("take rights from %s: %w", dir, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return show(shown)
}

// show mounts files over those of the machine. They are written to a tmpfs that has no other name afterwards. The
// cgroup is shown by the kernel.
func show(files []visible.File) error {
	const at = "/tmp"
	if err := tmpfs(at, "mode=755,size=16m"); err != nil {
		return err
	}
	for i, f := range files {
		if strings.HasPrefix(f.Path, visible.CgroupDir) {
			continue
		}
		source := fmt.Sprintf("%s/%d", at, i)
		if err := os.WriteFile(source, f.Data, 0o444); err != nil {
			return err
		}
		if err := readOnly(source, f.Path); err != nil {
			return err
		}
	}
	return unix.Unmount(at, unix.MNT_DETACH)
}

// readOnly mounts a file at another place. A place that the machine lacks shows nothing of it.
func readOnly(source, at string) error {
	err := unix.Mount(source, at, "", unix.MS_BIND, "")
	if err == unix.ENOENT {
		return nil
	}
	if err == nil {
		err = unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	if err != nil {
		return fmt.Errorf("show the limits at %s: %w", at, err)
	}
	return nil
}

func tmpfs(at, options string) error {
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", at, err)
	}
	return nil
}

// raiseLoopback gives a network namespace the one interface that leads nowhere.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	return nil
}
