package podmantest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// OwnStorage returns the environment of a Podman that keeps all it has below dir: images and what outlives a reboot in
// dir/graph, or rootless in dir/.local, and the rest in dir/run, which is made when it is missing. A test in which a
// user's runtime directory is elsewhere than the user has it needs that: a user's first Podman writes down in the
// user's storage where it is, and every later one believes it.
func OwnStorage(dir string) (env []string, err error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(in("run"), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	storage := fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", in("graph"),
		in("run/storage"))
	engine := fmt.Sprintf("[engine]\ntmp_dir = %q\n", in("run/libpod"))
	err = errors.Join(os.WriteFile(in("storage.conf"), []byte(storage), 0o644),
		os.WriteFile(in("containers.conf"), []byte(engine), 0o644))
	// Rootless, Podman's database lies below the home directory, and what it says of the storage goes before any file.
	return []string{"HOME=" + dir, "XDG_DATA_HOME=" + in(".local/share"), "XDG_RUNTIME_DIR=" + in("run"),
		"CONTAINERS_STORAGE_CONF=" + in("storage.conf"), "CONTAINERS_CONF=" + in("containers.conf")}, err
}

// EndStorage removes what a Podman with its own storage leaves: rootless, files of other users of its user
// namespace, and the process that holds this namespace. env is that of [OwnStorage] and what Podman needs besides.
func EndStorage(dir string, env []string, as *syscall.SysProcAttr) error {
	// Podman mounts the directory of its layers upon itself.
	const script = `umount -l graph/overlay .local/share/containers/storage/overlay 2>/dev/null; exec rm -rf graph .local`
	cmd := exec.Command("podman", "unshare", "sh", "-c", script)
	if os.Getuid() == 0 && as == nil {
		cmd = exec.Command("sh", "-c", script)
	}
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, as
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("podman unshare: %w: %s", err, out)
	}
	EndPause(filepath.Join(dir, "run"))
	return err
}

// EndPause ends the process that a rootless Podman leaves to hold its namespaces, by the file that it has in a runtime
// directory. "podman system migrate" would do that as well, and stop every container of the user.
func EndPause(runtimeDir string) {
	for _, file := range []string{"libpod/tmp/pause.pid", "libpod/pause.pid"} { // up to and from Podman 4.4
		b, err := os.ReadFile(filepath.Join(runtimeDir, file))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || pid < 2 {
			continue
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil &&
			bytes.Contains(line, []byte("podman")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
