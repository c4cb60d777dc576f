package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"go.yaml.in/yaml/v3"
)

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
		PortForwards: []portForward{{GuestIP: "0.0.0.0", GuestIPMustBeZero: false, GuestPortRange: [2]int{1, 65535}, Proto: "any", Ignore: true}},
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
