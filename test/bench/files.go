package main

import (
	"bufio"
	"errors"
	"fmt"

	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// search compares a search through the files of a sandbox with the fastest tool there is, on a mount of the same
// layers.
func search(b *bench) (h, base sample, err error) {
	const pattern = `func \w+_\d\(`
	tool, what := []string{"rg", "-uu", "-n", pattern, "."}, "ripgrep on the mounted overlay"
	if _, err := exec.LookPath("rg"); err != nil {
		tool = []string{"grep", "-rnIP", pattern, "."}
		what = "grep -rP on the mounted overlay (there is no ripgrep here)"
	}
	return onLayers(b, what, []string{"fs", "grep", "bench", pattern}, tool)
}

// list compares a list of the files of a sandbox with find, which looks at the same attributes.
func list(b *bench) (h, base sample, err error) {
	return onLayers(b, "find -printf on the mounted overlay", []string{"fs", "list", "--max", "100000", "bench"},
		[]string{"find", ".", "-printf", `%y %m %s %p\n`})
}

// rewrite changes a tenth of the files of a project, removes a tenth and adds as many.
const rewrite = `set -e
for f in */*0.go; do tail -n 5 "$f" > "${f%.go}new.go"; echo "// changed" >> "$f"; done
rm -f */*1.go`

// onLayers runs hutch with args on a sandbox, and tool on its own overlay that was changed in the same way.
func onLayers(b *bench, what string, args, tool []string) (h, base sample, err error) {
	n := 10_000
	if b.quick {
		n = 1000
	}
	src, err := b.sources(n)
	if err != nil {
		return h, base, err
	}
	// The processes of a sandbox that lasts outlive these commands, so their end is not waited for.
	if _, err := b.plain(b.hutch(), "create", "--backend", "bwrap", "--workspace", src, "--name", "bench"); err != nil {
		return h, base, err
	}
	defer func() {
		_, rmErr := b.plain(b.hutch(), "rm", "-f", "bench")
		err = errors.Join(err, rmErr)
	}()
	if _, err := b.plain(b.hutch(), "exec", "bench", "--", "sh", "-c", rewrite); err != nil {
		return h, base, err
	}
	pid, stop, err := b.mounted(src)
	if err != nil {
		return h, base, err
	}
	defer stop()
	enter := append([]string{"nsenter", "--preserve-credentials", "-U", "-m", "-w", "-t", fmt.Sprint(pid)}, tool...)
	h, base, err = interleave(b.rounds(30), timed(b.piped(append([]string{b.hutch()}, args...))), timed(b.piped(enter)))
	base.what = what
	return h, base, err
}

// piped is command with a reader at the other end: to /dev/null some tools print less.
func (b *bench) piped(argv []string) func() error {
	return func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "HUTCH_HOME="+b.home)
		var stderr strings.Builder
		lines := &counter{}
		cmd.Stdout, cmd.Stderr = lines, &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, stderr.String())
		}
		if lines.n == 0 {
			return fmt.Errorf("%s printed nothing", strings.Join(argv, " "))
		}
		return nil
	}
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// sources makes a project of n source files of 2 kB, of which every hundredth holds what is searched for.
func (b *bench) sources(n int) (string, error) {
	dir := filepath.Join(b.tmp, fmt.Sprintf("sources-%d", n))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	body := strings.Repeat("\tline of a source file, as there are many of them\n", 40)
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", i/50))
		if i%50 == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return "", err
			}
		}
		text := body
		if i%100 == 2 {
			text += "func needle_7(x int) {}\n"
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d.go", i)), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// mounted mounts an overlay over src in its own process, and changes what is in it.
func (b *bench) mounted(src string) (pid int, stop func(), err error) {
	dir, err := os.MkdirTemp(b.tmp, "overlay-")
	if err != nil {
		return 0, nil, err
	}
	for _, d := range []string{"upper", "work", "mnt"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return 0, nil, err
		}
	}
	script := fmt.Sprintf("mount -t overlay overlay -o userxattr,lowerdir=%s,upperdir=%[2]s/upper,workdir=%[2]s/work "+
		"%[2]s/mnt && cd %[2]s/mnt && (%s) && echo ready && exec sleep infinity", src, dir, rewrite)
	cmd := exec.Command("unshare", "-Urm", "sh", "-c", script)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		stop()
		return 0, nil, fmt.Errorf("mount an overlay to compare with: %w\n%s", err, stderr.String())
	}
	return cmd.Process.Pid, stop, nil
}
