package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/gitguard"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/visible"
)

// Places in the holder's root. The sandbox's root is inRoot.
const (
	inRoot    = "/root"
	scratch   = "/scratch"     // a sized tmpfs: /tmp and /dev/shm, with a disk limit all that is written
	diskLayer = "/layer"       // the same on disk, when there is no disk limit
	stub      = "/stub"        // an empty lower layer
	project   = "/project"     // the host directory under the workspace
	copies    = "/copies"      // copies of those of its files that an overlay could not change
	initPath  = "/.hutch/init" // as the sandbox sees it
	emptyPath = "/.hutch/none" // likewise, an empty directory
)

// Paths as the sandbox sees them.
const (
	workspacePath = guestpath.Workspace
	homePath      = "/tmp"
)

// layout collects what makes up one sandbox's world.
type layout struct {
	setup wire.Setup
	fds   []int // descriptors that go with it; closed by close

	id     *identity
	spec   *sdk.Spec
	config *Config
	ready  sdk.Ready

	shift    func(fd int) error // maps the ids of a detached mount to the sandbox's
	volatile bool               // the layer need not survive a crash of the machine, nor this process
	upper    string             // the workspace's upper layer on the host; "" when it is in memory
	layer    string             // where what the sandbox writes lies in the holder's root: diskLayer or below scratch
}

// close closes the descriptors that the holder has been given.
func (l *layout) close() {
	for _, fd := range l.fds {
		unix.Close(fd)
	}
}

// newLayout plans the sandbox's world. owner holds the attributes of the
// workspace's source; bwrap is the layout's from now on.
func newLayout(ctx context.Context, s *sandbox, w *world, owner *syscall.Stat_t, bwrap int) (*layout, error) {
	l := &layout{id: w.ident, spec: &s.spec, config: configOf(&s.spec), fds: []int{bwrap}, volatile: !s.keep}
	l.setup.UID, l.setup.GID = w.ident.uid, w.ident.gid
	l.setup.Scratch = s.held.scratch
	l.setup.ScratchFiles = int64(limits.FilesOf(uint64(s.held.scratch)))
	l.layer = diskLayer
	if s.held.InMemory {
		l.layer = scratch + "/layer"
	}
	l.shift = func(fd int) error {
		ns, err := w.holder.UserNamespace()
		if err != nil {
			return err
		}
		return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP,
			Userns_fd: uint64(ns)})
	}
	l.system()
	l.devices()
	for _, part := range []func() error{
		func() error { return l.writable(s.dir, owner) },
		func() error { return l.workspace(ctx, s.dir, s.ahead != nil) },
		l.others,
	} {
		if err := part(); err != nil {
			l.close()
			return nil, err
		}
	}
	l.setup.Freeze = []string{inRoot}
	l.setup.Give = []string{inRoot, l.layer + "/upper"}
	return l, nil
}

// system adds what programs need of the host: /usr, and a minimal /etc.
func (l *layout) system() {
	l.tree("/usr", inRoot+"/usr", true)
	l.mount(wire.Mount{Kind: wire.Bind, Source: inRoot + "/usr", Target: "/usr"}) // for bwrap itself
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		st, err := os.Lstat("/" + name)
		switch {
		case err != nil:
		case st.Mode()&os.ModeSymlink != 0:
			if target, err := os.Readlink("/" + name); err == nil {
				l.symlink(target, inRoot+"/"+name)
				l.symlink(target, "/"+name)
			}
		case st.IsDir(): // a system from before the merge of /usr
			l.tree("/"+name, inRoot+"/"+name, true)
			l.mount(wire.Mount{Kind: wire.Bind, Source: inRoot + "/" + name, Target: "/" + name})
		}
	}
	for _, name := range []string{"proc", "run", "home"} {
		l.dir(inRoot+"/"+name, 0o755, false)
	}
	l.dir(inRoot+"/var", 0o755, false)
	l.symlink("/tmp", inRoot+"/var/tmp")
	l.etc()
	l.file(inRoot+initPath, 0o555, nil) // its content comes with the limits
	l.dir(inRoot+emptyPath, 0o755, false)
}

// show adds the files by which commands see their limits, and returns the options of bwrap that lay some of them over
// /proc.
func (l *layout) show(files []visible.File) (args []string) {
	for _, f := range files {
		at := inRoot + f.Path
		if strings.HasPrefix(f.Path, "/proc/") {
			at = inRoot + "/.hutch" + f.Path
			args = append(args, "--ro-bind", at, f.Path)
		}
		l.file(at, 0o444, f.Data)
	}
	// Allocators have a cache for each number that sched_getcpu may return.
	const possible = "/sys/devices/system/cpu/possible"
	l.copy(possible, inRoot+possible)
	return args
}

// etc adds a minimal /etc: what the dynamic linker, the C library and TLS need.
func (l *layout) etc() {
	etc := inRoot + "/etc/"
	uid := l.config.UID
	l.file(etc+"passwd", 0o444,
		fmt.Appendf(nil, "sandbox:x:%d:%d::%s:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n", uid, uid, homePath))
	l.file(etc+"group", 0o444, fmt.Appendf(nil, "sandbox:x:%d:\nnogroup:x:65534:\n", uid))
	l.file(etc+"hosts", 0o444, []byte("127.0.0.1 localhost\n::1 localhost\n127.0.0.1 hutch\n"))
	l.file(etc+"nsswitch.conf", 0o444, []byte("passwd: files\ngroup: files\nhosts: files dns\n"))
	for _, name := range []string{"ld.so.cache", "localtime", "ssl/openssl.cnf", "mime.types"} {
		l.copy("/etc/"+name, etc+name)
	}
	l.copy("/etc/ld.so.cache", "/etc/ld.so.cache") // for bwrap itself
	if hasNetwork(l.spec) {
		l.file(etc+"resolv.conf", 0o444, []byte("nameserver "+netns.Resolver+"\n"))
	}
	for _, name := range []string{"alternatives", "ssl/certs", "ca-certificates", "pki/tls", "pki/ca-trust"} {
		if st, err := os.Stat("/etc/" + name); err == nil && st.IsDir() {
			l.tree("/etc/"+name, etc+name, true)
		}
	}
}

// devices adds /dev: the harmless nodes, terminals and shared memory of its own.
func (l *layout) devices() {
	dev := inRoot + "/dev/"
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		l.setup.Trees = append(l.setup.Trees, wire.Tree{Path: "/dev/" + name, At: dev + name, Devices: true})
	}
	for name, target := range map[string]string{"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2",
		"fd":     "/proc/self/fd", "ptmx": "pts/ptmx"} {
		l.symlink(target, dev+name)
	}
	l.dir(dev+"pts", 0o755, false)
	l.mount(wire.Mount{Kind: wire.Devpts, Target: dev + "pts"})
}

// writable adds what the sandbox may write besides a shared workspace: /tmp and
// /dev/shm on a sized tmpfs, the workspace's upper layer and the output.
func (l *layout) writable(dir string, owner *syscall.Stat_t) error {
	// Made by the holder after the scratch file system is there.
	l.dir(scratch+"/tmp", 0o1777, true)
	l.dir(scratch+"/shm", 0o1777, true)
	l.bind(scratch+"/tmp", inRoot+"/tmp", false)
	l.bind(scratch+"/shm", inRoot+"/dev/shm", false)

	mode := uint32(0o755)
	if l.spec.Workspace.Source != "" {
		mode = owner.Mode & 0o1777
	}
	if l.layer != diskLayer {
		l.dir(l.layer+"/upper", mode, true)
		l.dir(l.layer+"/work", 0o755, true)
		l.dir(l.layer+"/output", 0o755, true)
		return nil
	}
	layer := filepath.Join(dir, "layer")
	if err := makeLayer(layer, modeOf(mode), l.id, owner); err != nil {
		return err
	}
	l.upper = filepath.Join(layer, "upper")
	return l.ownLayer(layer, diskLayer)
}

// workspace adds the workspace, the input and the output. Ahead says that the workspace is shown when it is first used.
func (l *layout) workspace(ctx context.Context, dir string, ahead bool) error {
	at := inRoot + workspacePath
	ws := &l.spec.Workspace
	if ws.Source != "" {
		if err := l.own(ws.Source, project, ws.Mode != sdk.WorkspaceShared); err != nil {
			return err
		}
	}
	l.dir(at, 0o755, true)
	switch {
	case ws.Source == "":
		l.bind(l.layer+"/upper", at, false)
	case ws.Mode == sdk.WorkspaceShared:
		l.bind(project, at, false)
		parts, err := gitguard.Parts(ws.Source, l.config.Git)
		if err != nil {
			return sdk.Errorf(sdk.ReasonConfig, "%w", err).WithFix("use workspace mode private")
		}
		for _, p := range parts {
			l.bind(path.Join(project, p.Path), path.Join(at, p.Path), p.ReadOnly)
		}
	case ws.Mode == sdk.WorkspaceReadOnly:
		// Not a bind, whose mount would show the path of the project on the host. An overlay needs two lower layers.
		l.dir(stub, 0o755, true)
		l.mount(wire.Mount{Kind: wire.Overlay, Target: at, ReadOnly: true,
			Data: "lowerdir=" + stub + ":" + project + ",userxattr"})
	default:
		frozen, err := l.frozenMounts(dir)
		if err != nil {
			return err
		}
		lower, err := l.lower(ctx, dir)
		if err != nil {
			return err
		}
		if ahead && len(l.ready.Notes) > 0 {
			return sdk.Errorf(sdk.ReasonUnsupported, "a workspace that needs copies is not made ahead of its use")
		}
		if l.setup.Late = ahead; !ahead {
			l.mount(overlayOf(l.layer, frozen+lower, l.volatile))
		}
	}
	l.ready.Workspace = workspacePath
	var err error
	if l.ready.Layers, err = layersOn(ws, dir, l.upper); err != nil {
		return err
	}
	l.ready.Output = guestpath.Output(ws.Source != "")
	l.bind(l.layer+"/output", inRoot+l.ready.Output, false)
	if l.spec.Input != "" {
		if err := isThere("input", l.spec.Input); err != nil {
			return err
		}
		l.ready.Input = guestpath.Input(ws.Source != "")
		if err := l.readable(l.spec.Input, "/input"); err != nil {
			return err
		}
		l.bind("/input", inRoot+l.ready.Input, true)
	}
	return nil
}

// overlayOf is the mount of a private workspace.
func overlayOf(layer, lower string, volatile bool) wire.Mount {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr", lower, layer, layer)
	if volatile {
		options += ",volatile"
	}
	return wire.Mount{Kind: wire.Overlay, Target: inRoot + workspacePath, Data: options}
}

// lower returns the lower layers of a private workspace: the project, and above it copies of what an ordinary user's
// overlay could not change. They are made each time, from what the project is now.
func (l *layout) lower(ctx context.Context, dir string) (string, error) {
	if l.id.Privileged {
		return project, nil
	}
	if err := removeBelow(dir, copiesDir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, "layer"), 0o755); err != nil {
		return "", err
	}
	copied, err := copyUnmapped(ctx, l.spec.Workspace.Source, dir)
	if err != nil || copied.Entries == 0 {
		return project, err
	}
	l.ready.Notes = append(l.ready.Notes, copied.Note())
	l.tree(filepath.Join(dir, copiesDir), copies, true)
	return copies + ":" + project, nil
}

// copyUnmapped makes the copies of lower.
func copyUnmapped(ctx context.Context, source, dir string) (overlay.Unmapped, error) {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	return overlay.CopyUnmapped(ctx, source, filepath.Join(dir, copiesDir), overlay.UnmappedOptions{
		Mapped: func(u, g uint32) bool { return u == uid && g == gid }})
}

// others adds the directories that the run or the user's configuration names.
func (l *layout) others() error {
	for i, m := range l.spec.Mounts {
		at := fmt.Sprintf("/mounts/%d", i)
		if reserved(path.Clean(m.Target)) || !path.IsAbs(m.Target) {
			return sdk.Errorf(sdk.ReasonConfig, "nothing can be mounted at %q: the sandbox makes it itself", m.Target)
		}
		err := isThere("mount", m.Source)
		if err != nil {
			return err
		}
		if m.ReadOnly {
			err = l.readable(m.Source, at)
		} else {
			err = l.own(m.Source, at, false)
		}
		if err != nil {
			return err
		}
		l.bind(at, inRoot+path.Clean(m.Target), m.ReadOnly)
	}
	for i, p := range l.config.ROBind {
		if _, err := os.Stat(p); err != nil {
			return &sdk.Error{Reason: sdk.ReasonConfig, Summary: "a path to bind is not there: " + err.Error(),
				Path: fmt.Sprintf("ro_bind[%d]", i), Err: err}
		}
		if err := l.visible(p, inRoot+p); err != nil {
			return err
		}
	}
	return nil
}

// isThere refuses a directory of the request that is missing.
func isThere(what, source string) error {
	if _, err := os.Stat(source); err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "the %s is not there: %w", what, err)
	}
	return nil
}

func (l *layout) tree(source, at string, readOnly bool) {
	l.setup.Trees = append(l.setup.Trees, wire.Tree{Path: source, At: at, ReadOnly: readOnly})
}

func (l *layout) mount(m wire.Mount) { l.setup.Mounts = append(l.setup.Mounts, m) }

func (l *layout) bind(source, target string, readOnly bool) {
	l.mount(wire.Mount{Kind: wire.Bind, Source: source, Target: target, ReadOnly: readOnly})
}

func (l *layout) dir(p string, mode uint32, own bool) {
	l.setup.Files = append(l.setup.Files, wire.File{Kind: wire.Dir, Path: p, Mode: mode, Own: own})
}

func (l *layout) file(p string, mode uint32, data []byte) {
	l.setup.Files = append(l.setup.Files, wire.File{Kind: wire.Regular, Path: p, Mode: mode, Data: data})
}

func (l *layout) symlink(target, p string) {
	l.setup.Files = append(l.setup.Files, wire.File{Kind: wire.Symlink, Path: p, Data: []byte(target)})
}

func (l *layout) copy(source, p string) {
	l.setup.Files = append(l.setup.Files, wire.File{Kind: wire.Copy, Path: p, Mode: 0o444, Data: []byte(source)})
}
