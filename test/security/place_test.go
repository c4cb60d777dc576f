package security

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// place is where an attack is tried: a backend, or the bare machine, and the user who starts it.
type place struct {
	name     string // the column of the page
	backend  string // "" is the bare machine
	uid, gid int
	env      []string // what Podman needs besides

	open    map[string]bool // cases that the backend does not promise to hold
	sampled map[string]bool // cases whose limit is sampled: a burst between two samples gets through
	refuses string          // a mode of workspaces with a git repository that the backend refuses
}

// places are the columns of the page. Only root can be two users; an ordinary user has two columns and the control.
func places(t *testing.T) []place {
	t.Helper()
	e2e.Require(t, "bwrap")
	image := podmantest.Busybox(t)
	if uid := os.Getuid(); uid != 0 {
		return []place{
			{name: "bwrap user", backend: "bwrap", uid: uid, gid: os.Getgid()},
			{name: "podman user", backend: "podman", uid: uid, gid: os.Getgid(), env: ownPodman(image)},
			{name: "landlock user", backend: "landlock", uid: uid, gid: os.Getgid(), sampled: sampledByLandlock, refuses: "shared"},
			{name: "control user", uid: uid, gid: os.Getgid()},
		}
	}
	return []place{
		{name: "bwrap root", backend: "bwrap"},
		{name: "bwrap user", backend: "bwrap", uid: e2e.Ordinary, gid: e2e.Ordinary},
		{name: "podman root", backend: "podman", env: ownPodman(image)},
		rootless(t, image),
		{name: "landlock root", backend: "landlock", open: map[string]bool{"PRV-12": true}, sampled: sampledByLandlock, refuses: "shared"},
		{name: "landlock user", backend: "landlock", uid: e2e.Ordinary, gid: e2e.Ordinary, sampled: sampledByLandlock, refuses: "shared"},
		{name: "control root"},
		{name: "control user", uid: e2e.Ordinary, gid: e2e.Ordinary},
	}
}

// sampledByLandlock are limits of processes and of files that a command can pass within a few milliseconds.
var sampledByLandlock = map[string]bool{"RES-01": true, "RES-12": true, "RES-09": true}

// ownPodman is the environment in which the user of this process finds the image: it lies below the real home.
func ownPodman(image string) []string {
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(os.Getenv("HOME"), ".local", "share")
	}
	return []string{"PODMAN_IMAGE=" + image, "XDG_DATA_HOME=" + data, "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR")}
}

// rootless is Podman of an ordinary user with subordinate ids, who has root's image in a storage that ends with the
// test.
func rootless(t *testing.T, image string) place {
	t.Helper()
	uid, gid, _ := e2e.Rootless(t)
	dir, err := os.MkdirTemp("/var/tmp", "hutch-rootless-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	env, err := podmantest.OwnStorage(dir)
	must(t, err)
	must(t, errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, uid, gid), os.Chown(filepath.Join(dir, "run"), uid, gid)))
	archive := filepath.Join(dir, "image.tar")
	as := &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	env = append(env, "PATH=/usr/local/bin:/usr/bin:/bin", "PODMAN_IMAGE="+image)
	for _, cmd := range []*exec.Cmd{
		exec.Command("podman", "save", "-q", "-o", archive, image),
		exec.Command("chmod", "0644", archive),
		{Path: "/usr/bin/podman", Args: []string{"podman", "load", "-q", "-i", archive}, Env: env, SysProcAttr: as, Dir: dir},
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := podmantest.EndStorage(dir, env, as); err != nil {
			t.Error(err)
		}
	})
	return place{name: "podman user", backend: "podman", uid: uid, gid: gid, env: env}
}
