package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// vm is one instance, by its directory.
type vm struct{ name, home string }

func (i *vm) dir() string          { return filepath.Join(i.home, i.name) }
func (i *vm) file(n string) string { return filepath.Join(i.dir(), n) }

func (i *vm) exists() bool {
	_, err := os.Stat(i.file("lima.yaml"))
	return err == nil
}

// vmConfig is the part of an instance file that the stand-in heeds; all others of Lima are known by name.
type vmConfig struct {
	CPUs   int    `yaml:"cpus"`
	Memory string `yaml:"memory"`
	Disk   string `yaml:"disk"`
	Mounts []struct {
		Location   string `yaml:"location" json:"location"`
		MountPoint string `yaml:"mountPoint" json:"mountPoint"`
		Writable   bool   `yaml:"writable" json:"writable"`
	} `yaml:"mounts"`
	Provision []struct {
		Mode   string `yaml:"mode"`
		Script string `yaml:"script"`
	} `yaml:"provision"`
	PortForwards []portRule           `yaml:"portForwards"`
	Rest         map[string]yaml.Node `yaml:",inline"`
}

// known are the other attributes of Lima 2.2's instance files at their top level.
var known = strings.Fields(`base minimumLimaVersion vmType vmOpts os arch images cpuType additionalDisks mountTypesUnsupported mountType
	mountInotify ssh firmware audio video upgradePackages containerd guestInstallPrefix probes copyToHost message networks
	env param dns hostResolver propagateProxyEnv caCerts plain timezone nestedVirtualization user tpm osOpts`)

func (i *vm) config() (*vmConfig, error) {
	text, err := os.ReadFile(i.file("lima.yaml"))
	if err != nil {
		return nil, err
	}
	c := &vmConfig{}
	return c, yaml.Unmarshal(text, c)
}

// create writes what limactl create leaves: an instance that has never run. Unknown attributes are warned of.
func (i *vm) create(c *limactlCall, text []byte) error {
	cfg := &vmConfig{}
	if err := yaml.Unmarshal(text, cfg); err != nil {
		return fmt.Errorf("failed to unmarshal YAML (%s): %w", i.name, err)
	}
	for name := range cfg.Rest {
		if !slices.Contains(known, name) {
			c.log("warning", "Non-strict YAML detected; please check for typos: unknown field %q", name)
		}
	}
	for _, m := range cfg.Mounts {
		if _, err := os.Stat(m.Location); err != nil {
			return fmt.Errorf("field `mounts` refers to an inaccessible directory: %w", err)
		}
	}
	if err := os.MkdirAll(i.dir(), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(i.file("lima.yaml"), text, 0o644); err != nil {
		return err
	}
	return i.keys()
}

// keys makes the key of all instances, and the host key of this one.
func (i *vm) keys() error {
	for _, p := range []string{filepath.Join(i.home, "_config", "user"), i.file("host_key")} {
		if _, err := os.Stat(p); err == nil {
			continue
		}
		temp := fmt.Sprintf("%s.%d", p, os.Getpid())
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lima", "-f", temp).CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
		if err := errors.Join(os.Rename(temp+".pub", p+".pub"), os.Rename(temp, p)); err != nil {
			return err
		}
	}
	return nil
}

// note reads ha.pid: the process that is the instance's hostagent, and when that was started.
func (i *vm) note() string {
	b, _ := os.ReadFile(i.file("ha.pid"))
	return string(b)
}

// pid is the hostagent, or 0.
func (i *vm) pid() int {
	note := i.note()
	if note == "" || !alive(note) {
		return 0
	}
	pid, _ := strconv.Atoi(strings.Fields(note)[0])
	return pid
}

// status is what limactl list says: Running means that the processes exist, and no more.
func (i *vm) status() string {
	switch note := i.note(); {
	case note == "":
		return "Stopped"
	case alive(note):
		return "Running"
	}
	return "Broken"
}

func (i *vm) errors() []string {
	if i.status() != "Broken" {
		return nil
	}
	return []string{"host agent is not running: stale PID file `" + i.file("ha.pid") + "`"}
}

func (i *vm) port() int {
	b, _ := os.ReadFile(i.file("port"))
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// describe is the object of limactl list --json.
func (i *vm) describe() map[string]any {
	cfg, err := i.config()
	if err != nil {
		cfg = &vmConfig{}
	}
	u := account()
	out := map[string]any{
		"name": i.name, "hostname": "lima-" + i.name, "status": i.status(), "dir": i.dir(), "vmType": "qemu", "arch": "x86_64", "cpus": cfg.CPUs,
		"memory": int64(4 << 30), "disk": int64(20 << 30), "sshLocalPort": i.port(), "sshConfigFile": i.file("ssh.config"), "sshAddress": "127.0.0.1",
		"protected": false, "limaVersion": limaVersion, "HostOS": "linux", "HostArch": "x86_64", "LimaHome": i.home,
		"IdentityFile": filepath.Join(i.home, "_config", "user"),
		"config": map[string]any{
			"mounts": cfg.Mounts, "mountType": "9p",
			"user": map[string]any{"name": u.Username, "home": "/home/" + u.Username + ".guest", "shell": "/bin/bash", "uid": os.Getuid()},
		},
	}
	if arch == "arm64" {
		out["arch"] = "aarch64"
	}
	if pid := i.pid(); pid > 0 {
		out["hostAgentPID"], out["driverPID"] = pid, pid
	}
	if errs := i.errors(); errs != nil {
		out["errors"] = errs
	}
	return out
}

func account() *user.User {
	u, err := user.Current()
	if err != nil {
		return &user.User{Username: "user"}
	}
	return u
}

// boot starts the hostagent and waits for it to be ready. When it is not in time it goes on by itself.
func (i *vm) boot(c *limactlCall, timeout time.Duration) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	if err := os.WriteFile(i.file("port"), fmt.Append(nil, port), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(i.file("ssh.config"), []byte(i.sshConfig(port)), 0o600); err != nil {
		return err
	}
	c.log("info", "Starting the instance `%s` with internal VM driver `qemu`", i.name)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	log, err := os.OpenFile(i.file("ha.stderr.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(self), "limatest-machine"), i.home, i.name)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.Close()
	if err := os.WriteFile(i.file("ha.pid"), []byte(noteOf(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	c.log("info", "[hostagent] Starting QEMU (hint: to watch the boot progress, see `%s`)", i.file("serial*.log"))
	c.log("info", "SSH Local Port: %d", port)
	said := make(chan string, 16)
	go func() {
		defer close(said)
		for in := bufio.NewScanner(r); in.Scan(); {
			said <- in.Text()
		}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-said:
			switch {
			case !ok:
				tail, _ := os.ReadFile(i.file("ha.stderr.log"))
				return fmt.Errorf("host agent process has exited: %s", tail)
			case line == "READY":
				c.log("info", "READY. Run `limactl shell %s` to open the shell.", i.name)
				return nil
			}
			c.log("info", "[hostagent] %s", line)
		case <-timer.C:
			return fmt.Errorf("did not receive an event with the %q status", "running")
		}
	}
}

func (i *vm) sshConfig(port int) string {
	return fmt.Sprintf(`# This SSH config file can be passed to 'ssh -F'.
Host lima-%s
  IdentityFile "%s"
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  NoHostAuthenticationForLocalhost yes
  PreferredAuthentications publickey
  Compression no
  BatchMode yes
  IdentitiesOnly yes
  GSSAPIAuthentication no
  User %s
  ControlMaster auto
  ControlPath "%s"
  ControlPersist yes
  Hostname 127.0.0.1
  Port %d
`, i.name, filepath.Join(i.home, "_config", "user"), account().Username, i.file("ssh.sock"), port)
}

// halt ends the hostagent, and with that the guest.
func (i *vm) halt() error {
	if pid := i.pid(); pid > 0 {
		note := i.note()
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && err != syscall.ESRCH {
			return err
		}
		for end := time.Now().Add(30 * time.Second); alive(note); {
			if time.Now().After(end) {
				return fmt.Errorf("the hostagent %d does not end", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if err := os.Remove(i.file("ha.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// remove deletes the instance with its disk.
func (i *vm) remove() error {
	if err := removeDisk(i.dir()); err != nil {
		return err
	}
	removeOpened(i.dir())
	return nil
}

// bootFaults say how the next boot of an instance goes wrong. They lie in LIMA_HOME/_faults/NAME.json.
type bootFaults struct {
	BootDelay time.Duration // before the guest's boot scripts are done
	Never     bool          // it never is ready
	Die       bool          // the hostagent dies while it boots
}

func (i *vm) faults() (f bootFaults) {
	if b, err := os.ReadFile(filepath.Join(i.home, "_faults", i.name+".json")); err == nil {
		_ = json.Unmarshal(b, &f)
	}
	return f
}

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
