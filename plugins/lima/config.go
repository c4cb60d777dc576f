package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-run/hutch/sdk"
)

// Config is the backend "lima" block of a run file.
type Config struct {
	Instance     string        `hutch:"instance" default:"hutch" doc:"Name of the VM, as limactl list shows it. It is made when there is none, started when it is stopped, and left running; sandboxes of other runs may be in it too. One that was not made by hutch is used as it is."`
	Dedicated    bool          `hutch:"dedicated" default:"false" doc:"Whether the sandbox has a VM of its own, which is made for it and deleted with it. Its name begins with that of instance."`
	StopWhenIdle bool          `hutch:"stop_when_idle" default:"false" doc:"Whether the VM is stopped when its last sandbox is removed. It keeps its disk, and starts again for the next one."`
	Image        string        `hutch:"image" doc:"Disk image to make the VM from: an absolute path, or a URL that Lima can download. By default Lima's own Debian 12, which is downloaded once."`
	Digest       string        `hutch:"image_digest" doc:"What the image's content must be, as \"sha256:…\" or \"sha512:…\"."`
	Kernel       string        `hutch:"kernel" doc:"Kernel to boot the image with, an absolute path or a URL. By default the image boots itself."`
	KernelArgs   string        `hutch:"kernel_args" doc:"Command line of that kernel, for example \"root=/dev/vda rw console=ttyS0\"."`
	Initrd       string        `hutch:"initrd" doc:"Initial ram disk that goes with the kernel, an absolute path or a URL."`
	CPUs         int           `hutch:"cpus" default:"2" doc:"Processors of the VM, 1 to 256. All its sandboxes share them; the run's own limit holds besides."`
	Memory       sdk.Bytes     `hutch:"memory" default:"4GiB" doc:"Memory of the VM, at least 512MiB."`
	Disk         sdk.Bytes     `hutch:"disk" default:"20GiB" doc:"Size of the VM's disk, at least 2GiB. It takes on the host what is written to it, and no more."`
	VMType       string        `hutch:"vm_type" doc:"How Lima runs the VM: qemu or vz. By default Lima decides."`
	MountType    string        `hutch:"mount_type" doc:"How the VM sees the one directory that it shares with the host: 9p, virtiofs or reverse-sshfs. By default Lima decides."`
	HostResolver bool          `hutch:"host_resolver" default:"true" doc:"Whether the VM resolves names by Lima's own resolver on the host. Without it, Lima's boot scripts install nothing that an image lacks for it."`
	Provision    []string      `hutch:"provision" doc:"Shell scripts that run as root at every boot of the VM, before any sandbox is in it. They are part of what the VM is made from."`
	StartTimeout time.Duration `hutch:"start_timeout" default:"10m" doc:"How long the VM may take to boot, 10s to 2h. Before a first boot Lima may download an image, which is no part of it."`
}

// The values of enumerated attributes; an empty one leaves the choice to Lima.
var (
	vmTypes    = []string{"", "qemu", "vz"}
	mountTypes = []string{"", "9p", "virtiofs", "reverse-sshfs"}
)

// Bounds of a VM.
const (
	maxCPUs   = 256
	minMemory = 512 << 20
	minDisk   = 2 << 30
)

// instanceName is what Lima takes for a name, shorter, because it becomes part of the path of a socket.
var instanceName = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

const maxInstanceName = 40

// Validate implements [sdk.Validator].
func (c *Config) Validate() (ds []sdk.Diagnostic) {
	bad := func(path, summary, detail string) {
		ds = append(ds, sdk.Diagnostic{Severity: sdk.SeverityError, Path: path, Summary: summary, Detail: detail})
	}
	oneOf := func(attribute, value string, allowed []string) {
		if !slices.Contains(allowed, value) {
			bad(attribute, attribute+" must be one of "+strings.Join(allowed[1:], ", "), "it is "+strconv.Quote(value))
		}
	}
	if len(c.Instance) > maxInstanceName || !instanceName.MatchString(c.Instance) {
		bad("instance", fmt.Sprintf("a VM's name is at most %d letters and digits, with single . _ - between them", maxInstanceName), "it is "+strconv.Quote(c.Instance))
	}
	for _, f := range []struct{ attribute, value string }{{"image", c.Image}, {"kernel", c.Kernel}, {"initrd", c.Initrd}} {
		if f.value != "" && !isLocation(f.value) {
			bad(f.attribute, f.attribute+" must be an absolute path or a URL that begins with https://", "it is "+strconv.Quote(f.value))
		}
	}
	if c.Digest != "" && !regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`).MatchString(c.Digest) {
		bad("image_digest", "a digest is sha256: or sha512: and its digits", "it is "+strconv.Quote(c.Digest))
	}
	if c.Image == "" {
		for _, f := range []struct{ attribute, value string }{{"image_digest", c.Digest}, {"kernel", c.Kernel}} {
			if f.value != "" {
				bad(f.attribute, f.attribute+" goes with an image, and there is none", "")
			}
		}
	}
	if c.Kernel == "" {
		for _, f := range []struct{ attribute, value string }{{"kernel_args", c.KernelArgs}, {"initrd", c.Initrd}} {
			if f.value != "" {
				bad(f.attribute, f.attribute+" goes with a kernel, and there is none", "")
			}
		}
	}
	if c.CPUs < 1 || c.CPUs > maxCPUs {
		bad("cpus", fmt.Sprintf("a VM has 1 to %d processors", maxCPUs), "it is "+strconv.Itoa(c.CPUs))
	}
	if c.Memory < minMemory {
		bad("memory", "a VM needs at least "+sdk.Bytes(minMemory).String()+" of memory", "it is "+c.Memory.String())
	}
	if c.Disk < minDisk {
		bad("disk", "a VM needs at least "+sdk.Bytes(minDisk).String()+" of disk", "it is "+c.Disk.String())
	}
	oneOf("vm_type", c.VMType, vmTypes)
	oneOf("mount_type", c.MountType, mountTypes)
	for i, script := range c.Provision {
		if strings.TrimSpace(script) == "" {
			bad(fmt.Sprintf("provision[%d]", i), "this script is empty", "")
		}
	}
	if c.StartTimeout < 10*time.Second || c.StartTimeout > 2*time.Hour {
		bad("start_timeout", "a start may take 10s to 2h", "it is "+c.StartTimeout.String())
	}
	return ds
}

// isLocation says whether s is a file, or something that Lima downloads.
func isLocation(s string) bool {
	return (path.IsAbs(s) || strings.HasPrefix(s, "https://")) && !strings.ContainsAny(s, "\x00\n")
}

// configOf returns the configuration of spec; a spec without one has the defaults.
func configOf(spec *sdk.Spec) *Config {
	if c, ok := spec.Config.(*Config); ok && c != nil {
		return c
	}
	return &Config{Instance: "hutch", CPUs: 2, Memory: 4 << 30, Disk: 20 << 30, HostResolver: true, StartTimeout: 10 * time.Minute}
}
