package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/registry"
)

// backend implements [sdk.Backend].
type backend struct {
	limactl func() (*limactl, error) // found once

	sandboxes registry.Registry[*sandbox]

	mu       sync.Mutex
	machines map[string]*machine
}

func newBackend() *backend {
	return &backend{limactl: sync.OnceValues(findLimactl), machines: map[string]*machine{}}
}

// Describe implements [sdk.Backend].
func (b *backend) Describe() sdk.Description {
	return sdk.Description{
		Name:       "lima",
		Version:    version,
		Summary:    "virtual machines kept by Lima: a kernel of its own, one VM for many sandboxes or one for each",
		Isolation:  sdk.IsolationVM,
		Config:     Config{},
		Limits:     []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory, sdk.LimitCPUs, sdk.LimitPIDs, sdk.LimitFiles},
		Workspaces: []sdk.WorkspaceMode{sdk.WorkspacePrivate},
		Networks:   []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull},
		Formats:    []sdk.Format{sdk.FormatTar, sdk.FormatFile},
		Sandbox:    (*sandbox)(nil),
		TTY:        true,

		Environment: limaEnvironment,
	}
}

// machine returns the VM of that name.
func (b *backend) machine(name string) (*machine, error) {
	l, err := b.limactl()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.machines[name]
	if m == nil {
		m = newMachine(name, l)
		b.machines[name] = m
	}
	return m, nil
}

// machineName is the name of the VM that a sandbox is in.
func machineName(c *Config, id string) string {
	if !c.Dedicated {
		return c.Instance
	}
	sum := sha256.Sum256([]byte(id)) // a name of Lima is short
	return c.Instance + "-" + hex.EncodeToString(sum[:5])
}

// Plan implements [sdk.Planner].
func (b *backend) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	p := &sdk.Plan{}
	l, err := b.limactl()
	var facts *guestFacts
	cfg := configOf(spec)
	if err == nil {
		m := newMachine(cfg.Instance, l)
		facts = m.guest()
		if _, serr := os.Stat(filepath.Join(m.home, m.name, "lima.yaml")); serr == nil && !cfg.Dedicated {
			err = m.fits(&plan{cfg: cfg, exchange: exchangeOf{guest: guestExchange}})
		}
	}
	if facts != nil && cfg.Dedicated {
		facts.Size = wire.Machine{} // of another VM
	}
	held := planLimits(spec.Limits, cfg, facts)
	p.Holds, p.Notes = held.Holds, held.Notes()
	refuse := func(err error) {
		if err != nil {
			p.Diagnostics = append(p.Diagnostics, sdk.DiagnosticOf(err))
		}
	}
	refuse(err)
	if _, err := findGuestProgram(); err != nil {
		refuse(err)
	}
	if err := unsupported(spec); err != nil {
		refuse(err)
	}
	p.Notes = append(p.Notes,
		"in the VM the workspace is at /workspace/ID, where ID is that of the sandbox, and input and output are at /input "+
			"and /output")
	if spec.Network == sdk.NetworkFull {
		p.Notes = append(p.Notes, "network is full: commands reach whatever the VM reaches, through this machine")
	}
	return p, nil
}

// guest reads what the guest said of itself last; nil when it never did.
func (r records) guest() *guestFacts {
	f := &guestFacts{}
	if r.read(filepath.Join(r.dir, "guest.json"), f) != nil {
		return nil
	}
	return f
}

// unsupported refuses what no VM of this backend can do.
func unsupported(spec *sdk.Spec) error {
	switch spec.Workspace.Mode {
	case "", sdk.WorkspacePrivate:
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "a workspace in a VM is a copy of its own, so its mode cannot be %q",
			spec.Workspace.Mode).WithFix("take the mode private, and hutch diff and hutch apply")
	}
	switch spec.Network {
	case "", sdk.NetworkNone, sdk.NetworkFull:
	default:
		return sdk.Errorf(sdk.ReasonUnsupported, "there is no network %q in a VM", spec.Network)
	}
	if len(spec.Mounts) > 0 {
		return sdk.Errorf(sdk.ReasonUnsupported,
			"a VM sees no directory of the host but the one for exchange, so nothing can be mounted at %s",
			spec.Mounts[0].Target).
			WithFix("leave dependencies out of the run, and have provision install them in the VM")
	}
	return nil
}

// Create implements [sdk.Backend].
func (b *backend) Create(ctx context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	return b.sandboxes.Once(ctx, req.ID, func() (*sandbox, error) {
		s, err := b.prepare(req)
		if err != nil {
			return nil, err
		}
		h, err := s.handle()
		if err != nil {
			return nil, err
		}
		if err := req.Allocated(h); err != nil {
			return nil, err
		}
		s.say = req.Progress
		if err := s.make(ctx); err != nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
			defer cancel()
			return nil, errors.Join(err, s.close(after))
		}
		return s, nil
	})
}

// prepare decides what a sandbox will be; nothing exists of it yet.
func (b *backend) prepare(req *sdk.CreateRequest) (*sandbox, error) {
	if err := unsupported(&req.Spec); err != nil {
		return nil, err
	}
	cfg := configOf(&req.Spec)
	for what, dir := range map[string]string{"workspace": req.Workspace.Source, "input": req.Input} {
		if err := sdk.NeedDirectory(what, dir); err != nil {
			return nil, err
		}
	}
	m, err := b.machine(machineName(cfg, req.ID))
	if err != nil {
		return nil, err
	}
	rec := boxRecord{
		ID: req.ID, Owner: req.Owner, StateDir: req.StateDir, Dedicated: cfg.Dedicated, Stop: cfg.StopWhenIdle,
		Spec: req.Spec,
	}
	rec.Spec.Config = cfg
	return &sandbox{machine: m, cfg: cfg, rec: rec}, nil
}

// Attach implements [sdk.Attacher]. The VM is started by the first call that needs it, not by this one.
func (b *backend) Attach(ctx context.Context, h sdk.Handle) (sdk.Sandbox, error) {
	old, err := readHandle(h)
	if err != nil {
		return nil, err
	}
	return b.sandboxes.Once(ctx, h.ID, func() (*sandbox, error) {
		m, err := b.machine(old.Machine)
		if err != nil {
			return nil, err
		}
		rec, err := m.exists(h.ID)
		if err != nil {
			return nil, err
		}
		if rec == nil || rec.Ready == nil {
			return nil, sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s in the VM %s", h.ID, m.name)
		}
		if _, err := os.Stat(filepath.Join(m.home, m.name, "lima.yaml")); errors.Is(err, fs.ErrNotExist) {
			return nil, sdk.Errorf(sdk.ReasonNotFound, "the VM %s is gone, and the sandbox %s with it", m.name, h.ID)
		}
		return &sandbox{machine: m, cfg: configOf(&rec.Spec), rec: *rec, ready: *rec.Ready}, nil
	})
}

// Destroy implements [sdk.Backend].
func (b *backend) Destroy(ctx context.Context, h sdk.Handle) error {
	here, err := b.sandboxes.End(ctx, h.ID, func(s *sandbox) error { return s.close(ctx) })
	if here || err != nil {
		return err
	}
	if len(h.Data) == 0 {
		return nil
	}
	old, err := readHandle(h)
	if err != nil {
		return err
	}
	vm, err := b.machine(old.Machine)
	if err != nil {
		return err
	}
	rec, err := vm.exists(h.ID)
	if err != nil {
		return err
	}
	s := &sandbox{machine: vm, cfg: &Config{}}
	if rec == nil { // the VM was deleted by hand, and its records went with it
		if h.StateDir == "" {
			return nil
		}
		s.rec.ID, s.rec.StateDir = h.ID, h.StateDir
		return s.removeExchange(nil)
	}
	s.rec = *rec
	if rec.Ready != nil {
		s.ready = *rec.Ready
	}
	return s.close(ctx)
}

// List implements [sdk.Lister]. It asks no VM: the records lie on the host.
func (b *backend) List(_ context.Context, owner string) ([]sdk.Handle, error) {
	l, err := b.limactl()
	if err != nil {
		return nil, err
	}
	vms, err := os.ReadDir(filepath.Join(l.home, "_hutch"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []sdk.Handle
	for _, vm := range vms {
		m := newMachine(vm.Name(), l)
		ids, err := m.ids("sandboxes")
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			rec, err := m.exists(id)
			if err != nil {
				return nil, err
			}
			if rec == nil || owner != "" && rec.Owner != owner {
				continue
			}
			h, err := (&sandbox{machine: m, rec: *rec}).handle()
			if err != nil {
				return nil, err
			}
			out = append(out, h)
		}
	}
	return out, nil
}

// handle is what a fresh process needs to find a sandbox, or to remove it. The rest is in its record.
type handle struct {
	Machine string `json:"vm"`
}

func (s *sandbox) handle() (sdk.Handle, error) {
	data, err := json.Marshal(handle{s.machine.name})
	return sdk.Handle{ID: s.rec.ID, Data: data}, err
}

func readHandle(h sdk.Handle) (old handle, err error) {
	if len(h.Data) == 0 {
		return old, sdk.Errorf(sdk.ReasonNotFound, "there is no sandbox %s", h.ID)
	}
	if err := json.Unmarshal(h.Data, &old); err != nil || len(old.Machine) > maxInstanceName+20 ||
		!instanceName.MatchString(old.Machine) {
		return old, sdk.Errorf(sdk.ReasonConfig, "the handle of %s is not one of lima's: %w", h.ID,
			errors.Join(err, fmt.Errorf("%d bytes", len(h.Data))))
	}
	return old, nil
}

// Config is the backend "lima" block of a run file.
type Config struct {
	Instance     string        `hutch:"instance" default:"hutch" doc:"Name of the VM, as limactl list shows it. It is made if it does not exist, started when it is stopped, and left running; sandboxes of other runs may be in it too. One that was not made by hutch is used as it is."`
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
		bad("instance", fmt.Sprintf("a VM's name is at most %d letters and digits, with single . _ - between them",
			maxInstanceName), "it is "+strconv.Quote(c.Instance))
	}
	for _, f := range []struct{ attribute, value string }{{"image", c.Image}, {"kernel", c.Kernel}, {"initrd", c.Initrd}} {
		if f.value != "" && !isLocation(f.value) {
			bad(f.attribute, f.attribute+" must be an absolute path or a URL that begins with https://",
				"it is "+strconv.Quote(f.value))
		}
	}
	if c.Digest != "" && !regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`).MatchString(c.Digest) {
		bad("image_digest", "a digest is sha256: or sha512: and its digits", "it is "+strconv.Quote(c.Digest))
	}
	if c.Image == "" {
		for _, f := range []struct{ attribute, value string }{{"image_digest", c.Digest}, {"kernel", c.Kernel}} {
			if f.value != "" {
				bad(f.attribute, f.attribute+" needs an image", "")
			}
		}
	}
	if c.Kernel == "" {
		for _, f := range []struct{ attribute, value string }{{"kernel_args", c.KernelArgs}, {"initrd", c.Initrd}} {
			if f.value != "" {
				bad(f.attribute, f.attribute+" needs a kernel", "")
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

func configOf(spec *sdk.Spec) *Config { return sdk.ConfigOf[Config](spec) }
