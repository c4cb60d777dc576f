package limatest

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
)

// vm is one instance, by its directory.
type vm struct{ name, home string }

func (i *vm) dir() string          { return filepath.Join(i.home, i.name) }
func (i *vm) file(n string) string { return filepath.Join(i.dir(), n) }

func (i *vm) exists() bool {
	_, err := os.Stat(i.file("lima.yaml"))
	return err == nil
}

// config is the part of an instance file that the stand-in heeds; all others of Lima are known by name.
type config struct {
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

func (i *vm) config() (*config, error) {
	text, err := os.ReadFile(i.file("lima.yaml"))
	if err != nil {
		return nil, err
	}
	c := &config{}
	return c, yaml.Unmarshal(text, c)
}

// create writes what limactl create leaves: an instance that has never run. Unknown attributes are warned of.
func (i *vm) create(c *command, text []byte) error {
	cfg := &config{}
	if err := yaml.Unmarshal(text, cfg); err != nil {
		return fmt.Errorf("failed to unmarshal YAML (%s): %w", i.name, err)
	}
	for name := range cfg.Rest {
		if !contains(known, name) {
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

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
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

// pid is the hostagent, 0 when there is none.
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
		cfg = &config{}
	}
	u := account()
	out := map[string]any{
		"name": i.name, "hostname": "lima-" + i.name, "status": i.status(), "dir": i.dir(), "vmType": "qemu", "arch": "x86_64", "cpus": cfg.CPUs,
		"memory": int64(4 << 30), "disk": int64(20 << 30), "sshLocalPort": i.port(), "sshConfigFile": i.file("ssh.config"), "sshAddress": "127.0.0.1",
		"protected": false, "limaVersion": Version, "HostOS": "linux", "HostArch": "x86_64", "LimaHome": i.home,
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
func (i *vm) boot(c *command, timeout time.Duration) error {
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
	removeAll(i.dir())
	return nil
}

// Faults say how the next boot of an instance goes wrong. They lie in LIMA_HOME/_faults/NAME.json.
type Faults struct {
	BootDelay time.Duration // before the guest's boot scripts are done
	Never     bool          // it never is ready
	Die       bool          // the hostagent dies while it boots
}

func (i *vm) faults() (f Faults) {
	if b, err := os.ReadFile(filepath.Join(i.home, "_faults", i.name+".json")); err == nil {
		_ = json.Unmarshal(b, &f)
	}
	return f
}
