package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/visible"
)

// Where things lie in the guest; see the package's documentation.
const (
	stateDir     = "/var/lib/hutch"
	runDir       = "/run/hutch"
	workspaceDir = guestpath.Workspace
	exchangeDir  = "/exchange"
)

// Input and output lie beside every workspace, also one without a project: it may be the clone of one.
var inputDir, outputDir = guestpath.Input(true), guestpath.Output(true)

// box is a sandbox in the guest.
type box struct {
	id string
	*server
}

func (b box) workspace() string     { return workspaceDir + "/" + b.id }
func (b box) state(n string) string { return filepath.Join(stateDir, b.id, n) }
func (b box) run(n string) string   { return filepath.Join(runDir, b.id, n) }

// lock takes the sandbox, alone or together with others, until the returned function is called.
func (b box) lock(how int) (unlock func(), err error) {
	f, err := os.OpenFile(b.state("lock"), os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, contract.Errorf(contract.ReasonNotFound, "there is no sandbox %s in the VM", b.id)
	}
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the sandbox %s: %w", b.id, err)
	}
	if _, err := os.Stat(b.state("lock")); err != nil { // it was removed while we waited
		f.Close()
		return nil, contract.Errorf(contract.ReasonNotFound, "there is no sandbox %s in the VM", b.id)
	}
	return func() { f.Close() }, nil
}

// create makes the sandbox's directories and its cgroup. Making it again does nothing.
func (b box) create(_ context.Context, spec *wire.Sandbox) error {
	if err := os.MkdirAll(b.state(""), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(b.state("lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	unlock, err := b.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := b.spec(); err == nil {
		return nil
	}
	for _, dir := range []string{b.workspace(), b.state("output"), b.state("tmp"), b.state("vartmp"), b.state("input"),
		b.state("home-upper")} {
		if err := b.userDir(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{b.state("home"), b.state("home-work")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if _, err := b.surroundings(spec); err != nil {
		return err
	}
	return os.WriteFile(b.state("sandbox.json"), data, 0o600)
}

// userDir makes a directory that belongs to the user.
func (b box) userDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if filepath.Base(dir) == "home-upper" {
		mode = 0o700
	}
	return errors.Join(os.Lchown(dir, b.user.uid, b.user.gid), os.Chmod(dir, mode))
}

// spec reads what the sandbox is like.
func (b box) spec() (*wire.Sandbox, error) {
	data, err := os.ReadFile(b.state("sandbox.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, contract.Errorf(contract.ReasonNotFound, "there is no sandbox %s in the VM", b.id)
	}
	if err != nil {
		return nil, err
	}
	s := &wire.Sandbox{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("the record of the sandbox %s: %w", b.id, err)
	}
	return s, nil
}

// surroundings are what a reboot takes away: the cgroup and the overlay over the home. They are made where they are
// missing.
func (b box) surroundings(spec *wire.Sandbox) (*limits.Group, error) {
	if err := os.MkdirAll(b.run("commands"), 0o700); err != nil {
		return nil, err
	}
	if err := b.mountHome(); err != nil {
		return nil, err
	}
	if data, err := os.ReadFile(b.run("group.json")); err == nil {
		var h limits.Handle
		if err := json.Unmarshal(data, &h); err != nil {
			return nil, fmt.Errorf("the handle of the cgroup of %s: %w", b.id, err)
		}
		g, err := limits.Open(h)
		if err == nil || !errors.Is(err, limits.ErrGone) {
			return g, err
		}
	}
	if err := b.removeGroup(); err != nil { // of whose handle nothing is known any more
		return nil, err
	}
	g, err := b.limit.New(b.id, spec.Limits)
	if err != nil {
		return nil, contract.Errorf(contract.ReasonLimit, "%w", err)
	}
	if h := g.Handle(); h != nil {
		data, err := json.Marshal(h)
		if err == nil {
			err = os.WriteFile(b.run("group.json"), data, 0o600)
		}
		if err != nil {
			return nil, errors.Join(err, g.Destroy(context.Background()))
		}
	}
	return g, nil
}

// mountHome lays the sandbox's own layer over the home of the user, unless that is done.
func (b box) mountHome() error {
	var outer, inner unix.Stat_t
	if err := unix.Stat(b.state(""), &outer); err != nil {
		return err
	}
	if err := unix.Stat(b.state("home"), &inner); err != nil {
		return err
	}
	if outer.Dev != inner.Dev {
		return nil
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", b.user.home, b.state("home-upper"), b.state("home-work"))
	err := unix.Mount("overlay", b.state("home"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
	if err == unix.EPERM || err == unix.EINVAL { // in a user namespace
		err = unix.Mount("overlay", b.state("home"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options+",userxattr")
	}
	if err != nil {
		return fmt.Errorf("lay an overlay over %s: %w", b.user.home, err)
	}
	return nil
}

// open makes sure that commands can run, and keeps the sandbox from being reset or removed until unlock is called.
func (b box) open() (spec *wire.Sandbox, group *limits.Group, unlock func(), err error) {
	unlock, err = b.lock(unix.LOCK_SH)
	if err != nil {
		return nil, nil, nil, err
	}
	if spec, err = b.spec(); err == nil {
		_, err = os.Stat(b.run("commands"))
		if err == nil {
			group, err = b.surroundings(spec)
		} else { // after a reboot, which one of us shall mend
			unlock()
			if unlock, err = b.lock(unix.LOCK_EX); err != nil {
				return nil, nil, nil, err
			}
			group, err = b.surroundings(spec)
		}
	}
	if err != nil {
		unlock()
		return nil, nil, nil, err
	}
	return spec, group, unlock, nil
}

// inspect says how many commands run.
func (b box) inspect() (string, error) {
	if _, err := b.spec(); err != nil {
		return "", err
	}
	return strconv.Itoa(len(registered(b.run("commands")))), nil
}

// reset ends all commands, and empties the temporary directories; hard, also the workspace, the output and what was
// written to the home.
func (b box) reset(ctx context.Context, hard bool) error {
	unlock, err := b.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := b.spec(); err != nil {
		return err
	}
	if err := b.killAll(ctx); err != nil {
		return err
	}
	again := []string{b.state("tmp"), b.state("vartmp")}
	if hard {
		if err := b.unmountHome(); err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(b.state("home-work")), os.Mkdir(b.state("home-work"), 0o700)); err != nil {
			return err
		}
		again = append(again, b.workspace(), b.state("output"), b.state("home-upper"))
	}
	for _, dir := range again {
		if err := errors.Join(os.RemoveAll(dir), b.userDir(dir)); err != nil {
			return err
		}
	}
	return b.mountHome()
}

// destroy ends all commands and removes everything. A sandbox that is not there is success.
func (b box) destroy(ctx context.Context) error {
	unlock, err := b.lock(unix.LOCK_EX)
	var e *contract.Error
	if errors.As(err, &e) && e.Reason == contract.ReasonNotFound {
		return errors.Join(os.RemoveAll(b.state("")), os.RemoveAll(b.run("")), os.RemoveAll(b.workspace()))
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.killAll(ctx); err != nil {
		return err
	}
	if err := b.removeGroup(); err != nil {
		return err
	}
	if err := b.unmountHome(); err != nil {
		return err
	}
	// The lock goes with the rest, so that who waits for it sees that there is nothing any more.
	return errors.Join(os.RemoveAll(b.workspace()), os.RemoveAll(b.run("")), os.RemoveAll(b.state("")))
}

// removeGroup removes the cgroup of the sandbox, if there is one.
func (b box) removeGroup() error {
	all, err := limits.List(b.id)
	if err != nil {
		return err
	}
	for _, h := range all {
		if h.ID != b.id {
			continue // of a sandbox whose id begins with this one's
		}
		g, err := limits.Open(h)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), groupTime)
			err = g.Destroy(ctx)
			cancel()
		}
		if err != nil && !errors.Is(err, limits.ErrGone) {
			return fmt.Errorf("remove the cgroup of the sandbox %s: %w", b.id, err)
		}
	}
	return nil
}

// groupTime bounds the end of what is left in a cgroup.
const groupTime = time.Minute

func (b box) unmountHome() error {
	for {
		err := unix.Unmount(b.state("home"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err == unix.EINVAL || err == unix.ENOENT { // not mounted any more
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", b.state("home"), err)
		}
	}
}

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
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY,
			""); err != nil {
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
