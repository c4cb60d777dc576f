package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/network/netns"
)

// Check implements [sdk.Backend]. What cannot work because of an earlier finding is not tried.
func (b *backend) Check(ctx context.Context) ([]sdk.Finding, error) {
	var out []sdk.Finding
	add := func(f sdk.Finding) bool {
		out = append(out, f)
		return f.Status != sdk.SeverityError
	}
	p, err := b.podman()
	if err != nil {
		return []sdk.Finding{sdk.Failed("podman", err)}, nil
	}
	if !add(p.checkVersion(ctx)) {
		return out, nil
	}
	info, err := p.info(ctx)
	if err != nil {
		return append(out, sdk.Failed("podman info", err)), nil
	}
	ok := add(p.checkUsers(info))
	out = append(out, checkStorage(info))
	out = append(out, b.checkLimits()...)
	if _, err := findAgent(); err != nil {
		ok = add(sdk.Failed("agent", err)) && ok
	}
	if !ok {
		return out, nil
	}
	return append(out, b.checkContainer(ctx, p)...), nil
}

// info is the part of podman info that matters here.
type info struct {
	Host struct {
		CgroupVersion, CgroupManager string
		OCIRuntime                   struct{ Name, Path string }
		Security                     struct{ SeccompEnabled bool }
		IDMappings                   struct {
			UIDMap []struct{ Size int }
		}
	}
	Store struct {
		GraphDriverName, GraphRoot string
		GraphOptions               map[string]any
	}
}

func (p *podman) info(ctx context.Context) (*info, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := p.call(ctx, "info", "--format=json")
	if err != nil {
		return nil, err
	}
	i := &info{}
	return i, json.Unmarshal(out, i)
}

func (p *podman) checkVersion(ctx context.Context) sdk.Finding {
	f := sdk.Finding{Name: "podman", Status: sdk.SeverityOK}
	text, major, minor, err := p.versionOf(ctx)
	if err != nil {
		return sdk.Failed(f.Name, err)
	}
	f.Detail = text + " at " + p.path
	if major < 4 || major == 4 && minor < 3 {
		f.Status, f.Detail = sdk.SeverityError,
			f.Detail+" is too old: overlay volumes with a layer of one's own and --userns=keep-id:uid= came with 4.3"
		f.Fix = "install podman 4.3 or newer"
	}
	return f
}

// checkUsers looks whether a rootless container can have users of its own.
func (p *podman) checkUsers(i *info) sdk.Finding {
	f := sdk.Finding{Name: "users", Status: sdk.SeverityOK,
		Detail: "rootful: commands run as the owner of the project, without capabilities and without a user namespace"}
	if !p.rootless {
		f.Status = sdk.SeverityWarning
		f.Fix = "run hutch as an ordinary user for a user namespace between commands and the host"
		return f
	}
	total := 0
	for _, m := range i.Host.IDMappings.UIDMap {
		total += m.Size
	}
	f.Detail = fmt.Sprintf("rootless: %d users in a user namespace of their own", total)
	if total <= 1 {
		f.Status = sdk.SeverityWarning
		f.Detail = "rootless with one user only: images with files of several users cannot be unpacked"
		f.Fix = fmt.Sprintf("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s, apt-get install "+
			"uidmap, podman system migrate", os.Getenv("USER"))
	}
	return f
}

func checkStorage(i *info) sdk.Finding {
	f := sdk.Finding{Name: "storage", Status: sdk.SeverityOK, Detail: i.Store.GraphDriverName + " at " + i.Store.GraphRoot}
	switch program, _ := i.Store.GraphOptions["overlay.mount_program"]; {
	case program != nil:
		f.Status = sdk.SeverityWarning
		f.Detail += ", overlays by a program in user space: private workspaces are copies of the project"
		f.Fix = "take mount_program out of storage.conf; Linux 5.13 and newer need none"
	case i.Store.GraphDriverName == "vfs":
		f.Status = sdk.SeverityWarning
		f.Detail += ": every container copies its image"
		f.Fix = `set driver = "overlay" in storage.conf, and podman system reset`
	}
	return f
}

// checkNetwork tries to filter the network of a container.
func (s *sandbox) checkNetwork(ctx context.Context) sdk.Finding {
	l, err := s.podman.filter(ctx, s.pid, nil)
	if err != nil {
		f := sdk.Failed("network", err)
		f.Status, f.Fix = sdk.SeverityWarning, cmp.Or(f.Fix, netns.Fix)
		return f
	}
	l.Close()
	return sdk.Finding{Name: "network", Status: sdk.SeverityOK, Detail: "none, filtered and full"}
}

// checkLimits says by what each limit is held.
func (b *backend) checkLimits() (out []sdk.Finding) {
	m := b.machine()
	for _, l := range []limits.Limit{limits.Memory, limits.CPUs, limits.PIDs} {
		how := m.limits[l]
		f := sdk.Finding{Name: "limit " + string(l), Status: sdk.SeverityOK, Detail: how.By}
		if how.By == "" || how.Scope != limits.WholeGroup {
			f.Status, f.Detail, f.Fix = sdk.SeverityWarning, "cannot be held: "+how.Reason, how.Fix
		}
		out = append(out, f)
	}
	f := sdk.Finding{Name: "limit disk", Status: sdk.SeverityOK, Detail: "a sized file system in memory"}
	if m.rootless {
		f.Status, f.Detail, f.Fix = sdk.SeverityWarning, "cannot be held without root",
			"run hutch as root, or use the backend bwrap"
	}
	return append(out, f)
}

// checkContainer makes a sandbox of an image that is on this machine, and looks at a command in it from the inside.
func (b *backend) checkContainer(ctx context.Context, p *podman) []sdk.Finding {
	const name = "container"
	image, err := p.someImage(ctx)
	if err != nil {
		return []sdk.Finding{sdk.Failed(name, err)}
	}
	if image == "" {
		return []sdk.Finding{{Name: name, Status: sdk.SeverityWarning, Detail: "not tried: no image is on this machine",
			Fix: "podman pull " + configOf(&sdk.Spec{}).image()}}
	}
	dir, err := sdk.MkdirTemp()
	if err != nil {
		return []sdk.Finding{sdk.Failed(name, err)}
	}
	defer os.RemoveAll(dir)
	project, stateDir := dir+"/project", dir+"/state"
	if err := errors.Join(os.Mkdir(project, 0o755), os.Mkdir(stateDir, 0o700)); err != nil {
		return []sdk.Finding{sdk.Failed(name, err)}
	}
	cfg := configOf(&sdk.Spec{})
	cfg.Image, cfg.Pull = image, "never"
	spec := &sdk.Spec{Config: cfg, Workspace: sdk.Workspace{Source: project, Mode: sdk.WorkspacePrivate},
		Network: sdk.NetworkNone}
	s, err := b.plan("check-"+strings.ToLower(rand.Text()), stateDir, spec, false, 0)
	if err == nil {
		if err = s.save(); err == nil {
			err = s.open(ctx)
		}
	}
	if s != nil {
		defer s.close(context.WithoutCancel(ctx))
	}
	if err != nil {
		return []sdk.Finding{sdk.Failed(name, err)}
	}
	out := []sdk.Finding{{Name: name, Status: sdk.SeverityOK,
		Detail: "one can be made, of " + image + ", and its agent answers"}}
	over := sdk.Finding{Name: "overlay", Status: sdk.SeverityOK, Detail: "a private workspace needs no copy: " + s.over}
	if s.over != overlayNative {
		over.Status, over.Fix = sdk.SeverityWarning,
			"Podman's own overlay volume needs Linux 5.13, and storage.conf without mount_program"
	}
	return append(out, over, checkGuards(s.pid), s.checkNetwork(ctx))
}

// checkGuards looks whether the guards that were asked for are really on a container's first process.
func checkGuards(pid int) sdk.Finding {
	f := sdk.Finding{Name: "guards", Status: sdk.SeverityOK,
		Detail: "no capability, no new privileges and Podman's system call filter"}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return sdk.Failed(f.Name, err)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
		"Seccomp:\t2"} {
		if !strings.Contains(string(status), "\n"+want+"\n") {
			f.Status, f.Detail = sdk.SeverityError, "a container's first process does not have "+strings.ReplaceAll(want, "\t",
				" ")
			f.Fix = "look into containers.conf for what takes it away"
		}
	}
	return f
}

// someImage names an image of this machine, or "".
func (p *podman) someImage(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := p.call(ctx, "images", "--quiet", "--no-trunc", "--filter=dangling=false")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "sha256:"), nil
}
