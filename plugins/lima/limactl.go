package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hutch-run/hutch/plugins/lima/internal/limaout"
	"github.com/hutch-run/hutch/sdk"
)

// limactl is the program of that name.
type limactl struct {
	path string
	home string // LIMA_HOME, absolute
}

// limaEnvironment are the variables of the host that limactl, and the QEMU it starts, look at.
var limaEnvironment = []string{
	"LIMA_HOME", "LIMA_SSH_PORT_FORWARDER", "QEMU_SYSTEM_X86_64", "QEMU_SYSTEM_AARCH64", "QEMU_SYSTEM_ARM",
	"QEMU_SYSTEM_RISCV64",
	"QEMU_SYSTEM_PPC64", "QEMU_SYSTEM_S390X",
}

// inPath looks for a program in PATH.
func inPath(program, fix string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case errors.Is(err, exec.ErrNotFound): // which says the same
		return "", sdk.Errorf(sdk.ReasonMissing, "%s is not in PATH", program).WithFix("%s", fix)
	case err != nil:
		return "", sdk.Errorf(sdk.ReasonMissing, "find %s: %w", program, err).WithFix("%s", fix)
	}
	return path, nil
}

// findLimactl looks for limactl in PATH.
func findLimactl() (*limactl, error) {
	path, err := inPath("limactl", "install Lima 2.0 or newer: https://lima-vm.io/docs/installation/")
	if err != nil {
		return nil, err
	}
	home := os.Getenv("LIMA_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, sdk.Errorf(sdk.ReasonMissing, "this user has no home directory for Lima: %w",
				err).WithFix("set HOME or LIMA_HOME")
		}
		home = filepath.Join(user, ".lima")
	}
	if !filepath.IsAbs(home) {
		return nil, sdk.Errorf(sdk.ReasonConfig, "LIMA_HOME is %q and must be an absolute path", home)
	}
	return &limactl{path: path, home: home}, nil
}

// limaError is a limactl that failed.
type limaError struct {
	args  []string
	err   error
	fatal string // what it said last at level fatal, or its last line
}

func (e *limaError) Error() string {
	if e.fatal == "" {
		return fmt.Sprintf("limactl %s: %v", strings.Join(e.args, " "), e.err)
	}
	return fmt.Sprintf("limactl %s: %s", strings.Join(e.args, " "), e.fatal)
}

func (e *limaError) Unwrap() error { return e.err }

// stopTime is how long a limactl may take to end: it passes that on to its own children.
const stopTime = 10 * time.Second

// call runs limactl and returns what it printed. Its log goes to tell line by line, if there is one.
func (l *limactl) call(ctx context.Context, tell func(level, msg string), args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, l.path, append([]string{"--tty=false", "--log-format=json"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the host agent that it starts outlives the caller's terminal
	cmd.Dir = "/"                                        // from elsewhere Lima would look for the same directory in the VM
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	var out bytes.Buffer
	cmd.Stdout = &out
	log := &limaout.Log{Tell: tell}
	cmd.Stderr = log
	err := cmd.Run()
	log.End()
	if err == nil {
		return out.Bytes(), nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	e := &limaError{args: args, err: err, fatal: log.Fatal}
	if e.fatal == "" {
		e.fatal = log.Last
	}
	if strings.Contains(e.fatal, "must not run as the root user") {
		return nil, sdk.Errorf(sdk.ReasonDenied, "limactl refuses to run as root: %w",
			e).WithFix("run hutch as an ordinary user")
	}
	return nil, e
}

// list asks for a VM by its name, or nil. limactl start must never be called for such a one: it would
// make one from its default template.
func (l *limactl) list(ctx context.Context, name string) (*limaout.Instance, error) {
	out, err := l.call(ctx, nil, "list", "--json", name)
	var e *limaError
	if errors.As(err, &e) && strings.Contains(e.fatal, "unmatched instances") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := limaout.ParseList(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Name == name {
			return i, nil
		}
	}
	return nil, nil
}

// template is the part of Lima's instance file that hutch writes. Everything that Lima would do by itself and that
// would open the VM to the host, or the host to the VM, is turned off by name.
type template struct {
	MinimumLimaVersion string        `yaml:"minimumLimaVersion"`
	Base               []string      `yaml:"base,omitempty"`
	VMType             string        `yaml:"vmType,omitempty"`
	CPUs               int           `yaml:"cpus"`
	Memory             string        `yaml:"memory"`
	Disk               string        `yaml:"disk"`
	Images             []image       `yaml:"images,omitempty"`
	Firmware           *firmware     `yaml:"firmware,omitempty"`
	MountType          string        `yaml:"mountType,omitempty"`
	Mounts             []mount       `yaml:"mounts"`
	PortForwards       []portForward `yaml:"portForwards"`
	SSH                sshOptions    `yaml:"ssh"`
	PropagateProxyEnv  bool          `yaml:"propagateProxyEnv"`
	HostResolver       enabled       `yaml:"hostResolver"`
	DNS                []string      `yaml:"dns,omitempty"`
	Containerd         containerd    `yaml:"containerd"`
	Video              display       `yaml:"video"`
	UpgradePackages    bool          `yaml:"upgradePackages"`
	Provision          []provision   `yaml:"provision,omitempty"`
}

type (
	image struct {
		Location string `yaml:"location"`
		Digest   string `yaml:"digest,omitempty"`
		Kernel   *file  `yaml:"kernel,omitempty"`
		Initrd   *file  `yaml:"initrd,omitempty"`
	}
	file struct {
		Location string `yaml:"location"`
		Cmdline  string `yaml:"cmdline,omitempty"`
	}
	firmware struct {
		LegacyBIOS bool `yaml:"legacyBIOS"`
	}
	mount struct {
		Location   string `yaml:"location"`
		MountPoint string `yaml:"mountPoint"`
		Writable   bool   `yaml:"writable"`
	}
	portForward struct {
		GuestIP           string `yaml:"guestIP"`
		GuestIPMustBeZero bool   `yaml:"guestIPMustBeZero"`
		GuestPortRange    [2]int `yaml:"guestPortRange,flow"`
		Proto             string `yaml:"proto"`
		Ignore            bool   `yaml:"ignore"`
	}
	sshOptions struct {
		LoadDotSSHPubKeys bool `yaml:"loadDotSSHPubKeys"`
		ForwardAgent      bool `yaml:"forwardAgent"`
		ForwardX11        bool `yaml:"forwardX11"`
	}
	enabled struct {
		Enabled bool `yaml:"enabled"`
	}
	containerd struct {
		System bool `yaml:"system"`
		User   bool `yaml:"user"`
	}
	display struct {
		Display string `yaml:"display"`
	}
	provision struct {
		Mode   string `yaml:"mode"`
		Script string `yaml:"script"`
	}
)

// guestExchange is where the VM sees the directory that it shares with the host.
const guestExchange = "/exchange"

// guestDNS is the name server of QEMU's user network, where Lima's own resolver is off.
const guestDNS = "192.168.5.3"

// render writes the instance file of a VM that sees the host directory exchange.host at exchange.guest.
func render(c *Config, exchange exchangeOf) ([]byte, error) {
	t := template{
		MinimumLimaVersion: "2.0.0",
		VMType:             c.VMType, CPUs: c.CPUs, Memory: mebibytes(int64(c.Memory)), Disk: mebibytes(int64(c.Disk)),
		MountType: c.MountType, Mounts: []mount{{Location: exchange.host, MountPoint: exchange.guest, Writable: true}},
		// Lima forwards every port that is not ignored to the host's loopback. Unless the last flag is there, the address
		// stands for itself and not for all of them.
		PortForwards: []portForward{{GuestIP: "0.0.0.0", GuestIPMustBeZero: false, GuestPortRange: [2]int{1, 65535},
			Proto: "any", Ignore: true}},
		HostResolver: enabled{c.HostResolver},
		Video:        display{"none"},
	}
	if !c.HostResolver {
		t.DNS = []string{guestDNS}
	}
	if c.Image == "" {
		t.Base = []string{"template:_images/debian-12"}
	} else {
		i := image{Location: c.Image, Digest: c.Digest}
		if c.Kernel != "" {
			i.Kernel = &file{Location: c.Kernel, Cmdline: c.KernelArgs}
			t.Firmware = &firmware{LegacyBIOS: true} // whose only work is to start that kernel
		}
		if c.Initrd != "" {
			i.Initrd = &file{Location: c.Initrd}
		}
		t.Images = []image{i}
	}
	for _, script := range c.Provision {
		t.Provision = append(t.Provision, provision{Mode: "system", Script: script})
	}
	var b bytes.Buffer
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	if err := out.Encode(t); err != nil {
		return nil, err
	}
	return b.Bytes(), out.Close()
}

// mebibytes is a size as Lima reads it.
func mebibytes(n int64) string { return fmt.Sprintf("%dMiB", (n+1<<20-1)>>20) }

// fingerprint distinguishes instance files.
func fingerprint(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
