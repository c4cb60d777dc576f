package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/plugins/bwrap/internal/microinit"
	"github.com/hutch-run/hutch/plugins/bwrap/internal/seccomp"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/overlay"
)

// sandbox is one holder process, and the directories and the cgroup around it.
type sandbox struct {
	id       string
	spec     sdk.Spec
	dir      string // on the host; the sandbox's own
	held     *held
	ready    sdk.Ready
	ident    *identity
	group    *limits.Group // nil when no limit needs one
	holder   *holder.Holder
	root     *os.File          // the sandbox's root directory, as the holder sees it
	upper    *os.File          // the workspace's upper layer
	snapshot *overlay.Snapshot // of a shared workspace before the first command

	notes []string  // gathered on the way to ready
	once  sync.Once // close
}

// handle is what a fresh process needs to remove a sandbox.
type handle struct {
	Dir    string `json:"dir"`
	Owner  string `json:"owner"`
	Cgroup string `json:"cgroup,omitempty"` // name of the cgroup, which may not exist yet
}

// create makes a sandbox. On an error nothing is left.
func create(ctx context.Context, req *sdk.CreateRequest, support *limits.Support) (_ *sandbox, err error) {
	s := &sandbox{id: req.ID, spec: req.Spec, dir: req.StateDir, held: planLimits(req.Limits, support)}
	if err := s.held.err(); err != nil {
		return nil, err
	}
	config := configOf(&req.Spec)
	bwrapPath, err := findBwrap(config.Bwrap)
	if err != nil {
		return nil, err
	}
	bwrap, err := unix.Open(bwrapPath, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", bwrapPath, err)
	}
	h := handle{Dir: req.StateDir, Owner: req.Owner}
	if s.held.inGroup() {
		h.Cgroup = "bwrap-" + req.ID + "." // ends with what no id holds, so that it is no prefix of another
	}
	if err := allocated(req, &h); err != nil {
		unix.Close(bwrap)
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()

	owner := &syscall.Stat_t{}
	if src := req.Workspace.Source; src != "" {
		if err := syscall.Stat(src, owner); err != nil {
			unix.Close(bwrap)
			return nil, sdk.Errorf(sdk.ReasonConfig, "look at the workspace %s: %w", src, err)
		}
		if owner.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			unix.Close(bwrap)
			return nil, sdk.Errorf(sdk.ReasonConfig, "the workspace %s is not a directory", src)
		}
	}
	if req.Workspace.Mode == sdk.WorkspaceShared && req.Workspace.Source != "" {
		if err := s.snap(ctx); err != nil {
			unix.Close(bwrap)
			return nil, err
		}
	}
	s.ident = newIdentity(int(owner.Uid), int(owner.Gid))
	s.holder, err = holder.Start(s.ident.Identity)
	if err != nil {
		unix.Close(bwrap)
		return nil, userNamespaceError(err)
	}
	if s.held.inGroup() {
		s.group, err = support.New(h.Cgroup, s.held.group)
		if err != nil {
			unix.Close(bwrap)
			return nil, fmt.Errorf("make a cgroup for %s: %w", req.ID, err)
		}
	}
	l, err := newLayout(&s.spec, s.ident, s.dir, bwrap, s.holder.UserNamespace)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := s.furnish(l, config); err != nil {
		return nil, err
	}
	return s, nil
}

// snap remembers what a shared workspace looks like.
func (s *sandbox) snap(ctx context.Context) error {
	root, err := os.OpenRoot(s.spec.Workspace.Source)
	if err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "open the workspace: %w", err)
	}
	defer root.Close()
	s.snapshot, err = overlay.Take(ctx, root, overlay.Options{})
	if errors.Is(err, overlay.ErrTooMany) {
		// A directory that large can be worked in all the same.
		s.snapshot, err = nil, nil
		s.notes = append(s.notes, "the shared workspace has too many entries to say afterwards what changed in it")
	}
	return err
}

// furnish adds to the layout what depends on limits and configuration, and has
// the holder make it all.
func (s *sandbox) furnish(l *layout, config *Config) error {
	image, err := microinit.Image(s.held.rlimits)
	if err != nil {
		return err
	}
	l.file(inRoot+initPath, 0o555, image)
	l.setup.Args = bwrapArgs(config.UID, s.spec.Network, masks())
	l.setup.Seccomp, err = seccomp.Filter()
	if err != nil {
		return err
	}
	dirs, err := s.holder.Setup(&l.setup, l.fds)
	if err != nil {
		return &sdk.Error{Reason: sdk.ReasonMissing, Summary: "the sandbox could not be made: " + err.Error(), Err: err,
			Fix: "run hutch doctor, which tries each part by itself"}
	}
	s.root, s.upper = dirs[0], dirs[1]
	s.ready = l.ready
	s.ready.Holds = s.held.holds
	s.ready.Notes = append(s.ready.Notes, s.notes...)
	if s.spec.Network == sdk.NetworkFull {
		s.ready.Notes = append(s.ready.Notes, networkNote)
	}
	return nil
}

// Ready implements [sdk.Sandbox].
func (s *sandbox) Ready() sdk.Ready { return s.ready }

// close ends all commands and removes everything. It may be called twice.
func (s *sandbox) close() (err error) {
	s.once.Do(func() {
		if s.holder != nil {
			s.holder.Close()
		}
		for _, f := range []*os.File{s.root, s.upper} {
			if f != nil {
				f.Close()
			}
		}
		if s.group != nil {
			err = s.group.Destroy(context.Background())
		}
		err = errors.Join(err, removeLayer(filepath.Join(s.dir, "layer")))
		if s.ident != nil {
			s.ident.Close()
		}
	})
	return err
}

func allocated(req *sdk.CreateRequest, h *handle) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return req.Allocated(sdk.Handle{ID: req.ID, Data: data})
}

// configOf returns the configuration of spec; a spec without one has the defaults.
func configOf(spec *sdk.Spec) *Config {
	if c, ok := spec.Config.(*Config); ok && c != nil {
		return c
	}
	return &Config{TmpSize: 1 << 30, UID: 1000}
}

// userNamespaceError explains why a holder cannot be started.
func userNamespaceError(err error) error {
	e := &sdk.Error{Reason: sdk.ReasonMissing, Summary: "this machine lets nobody make user namespaces: " + err.Error(), Err: err,
		Fix: "run hutch doctor"}
	switch {
	case restricted("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		e.Fix = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give hutch-backend-bwrap an AppArmor profile that allows userns"
	case restricted("/proc/sys/kernel/unprivileged_userns_clone", "0"):
		e.Fix = "sudo sysctl kernel.unprivileged_userns_clone=1"
	case restricted("/proc/sys/user/max_user_namespaces", "0"):
		e.Fix = "sudo sysctl user.max_user_namespaces=15000"
	}
	return e
}

// restricted says whether a sysctl has the value that gets in the way.
func restricted(path, value string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(b)) == value
}

// asError finds the typed error in err's chain.
func asError(err error) (*sdk.Error, bool) {
	var e *sdk.Error
	ok := errors.As(err, &e)
	return e, ok
}

// maskedFiles show the kernel's or other people's business and are covered.
var maskedFiles = []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger", "/proc/latency_stats"}

// masks lists those of them that this kernel has.
var masks = sync.OnceValue(func() (out []string) {
	for _, p := range maskedFiles {
		if _, err := os.Lstat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
})
