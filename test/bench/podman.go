package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// perPodman is how many commands of hutch's are measured for each of podman's, which takes so much longer, and after
// which nothing is in the processor's caches any more.
const perPodman = 10

// podmanHutchExec runs commands in one persistent Podman sandbox, each with its own hutch process, against `podman
// exec` in the same container.
func podmanHutchExec(b *bench) (h, base sample, err error) {
	image, err := b.podmanImage()
	if err != nil {
		return h, base, err
	}
	ws, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	file := filepath.Join(b.tmp, "podman.hcl")
	if err := os.WriteFile(file, fmt.Appendf(nil, `run "true" {
  backend "podman" { image = %q }
  workspace { source = %q }
  command = ["true"]
}
`, image, ws), 0o600); err != nil {
		return h, base, err
	}
	const name = "bench"
	if _, err := b.plain(b.hutch(), "create", "--name", name, file); err != nil {
		return h, base, err
	}
	defer func() {
		_, e := b.plain(b.hutch(), "rm", "-f", name)
		err = errors.Join(err, e)
	}()
	out, err := b.plain(b.hutch(), "inspect", "-o", "json", name)
	if err != nil {
		return h, base, err
	}
	var sandbox struct{ ID string }
	if err := json.Unmarshal(out, &sandbox); err != nil {
		return h, base, err
	}
	container, err := containerOf(sandbox.ID)
	if err != nil {
		return h, base, err
	}
	h, base, err = b.againstPodman(func() error {
		_, err := b.plain(b.hutch(), "exec", "-q", name, "--", "true")
		return err
	}, container)
	return h, base, err
}

// podmanExec runs commands in one Podman sandbox from one host process, against `podman exec` in the same container.
func podmanExec(b *bench) (h, base sample, err error) {
	ctx := context.Background()
	image, err := b.podmanImage()
	if err != nil {
		return h, base, err
	}
	plugin, stop, err := b.plugin(ctx, "podman")
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ws, err := b.project("small", 5)
	if err != nil {
		return h, base, err
	}
	config, err := json.Marshal(map[string]string{"image": image})
	if err != nil {
		return h, base, err
	}
	id := fmt.Sprintf("bench-%d", os.Getpid())
	sandbox, err := b.sandbox(ctx, plugin, id, string(config), ws)
	if err != nil {
		return h, base, err
	}
	defer func() { err = errors.Join(err, sandbox.Destroy(ctx)) }()
	container, err := containerOf(id)
	if err != nil {
		return h, base, err
	}
	h, base, err = b.againstPodman(func() error { return execTrue(ctx, sandbox) }, container)
	return h, base, err
}

// againstPodman measures mine and `podman exec` of the same command in turn, [perPodman] to one.
func (b *bench) againstPodman(mine func() error, container string) (h, base sample, err error) {
	theirs := timed(func() error {
		_, err := b.plain("podman", "exec", container, "true")
		return err
	})
	for range b.rounds(40) {
		for i := range perPodman + 1 {
			c, err := timed(mine)()
			if err != nil {
				return h, base, err
			}
			if i > 0 { // the first one only brings the caches back
				h.add(c)
			}
		}
		c, err := theirs()
		if err != nil {
			return h, base, err
		}
		base.add(c)
	}
	base.what = fmt.Sprintf("podman exec in the same container, %d to one", perPodman)
	return h, base, nil
}

// plain runs a command beside which processes of ours live on, a backend or a container's monitor, so that it is not
// known what was spent.
func (b *bench) plain(argv ...string) (stdout []byte, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HUTCH_HOME="+b.home)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if stdout, err = cmd.Output(); err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, stderr.String())
	}
	return stdout, err
}

// containerOf finds the container of a sandbox.
func containerOf(id string) (string, error) {
	out, err := exec.Command("podman", "ps", "--filter", "label=run.hutch.sandbox="+id, "--format", "{{.Names}}").Output()
	name := strings.TrimSpace(string(out))
	if err == nil && name == "" {
		err = errors.New("no sandbox found")
	}
	if err != nil {
		return "", fmt.Errorf("find the container of the sandbox %s: %w", id, err)
	}
	return name, nil
}

// podmanImage makes an image of the machine's static busybox, once, and takes the programs along that this backend
// needs.
func (b *bench) podmanImage() (string, error) {
	for _, program := range []string{"hutch-backend-podman", "hutch-podman-agent"} {
		if there(filepath.Join(b.dir, "libexec/hutch", program)) {
			continue
		}
		if err := install(filepath.Join(b.from, "libexec/hutch", program),
			filepath.Join(b.dir, "libexec/hutch", program)); err != nil {
			return "", err
		}
	}
	const name = "localhost/hutch-bench"
	if exec.Command("podman", "image", "exists", name).Run() == nil {
		return name, nil
	}
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.tmp, "image.tar")
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "run", "tmp"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755,
			ModTime: time.Unix(0, 0)}))
	}
	err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755,
		Size: int64(len(binary))}))
	if _, e := w.Write(binary); e != nil {
		err = errors.Join(err, e)
	}
	for _, applet := range []string{"sh", "true"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink,
			Linkname: "busybox"}))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	_, err = b.plain("podman", "import", file, name)
	return name, err
}
