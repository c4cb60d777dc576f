// Package podmantest gives tests what they need of Podman where there is no registry: images, made on this machine out
// of the host's own programs, and the agent's program.
package podmantest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-run/hutch/internal/gobuild"
)

// Need skips the test where Podman is missing, or cannot run anything, and fails it where HUTCH_TEST_REQUIRE names
// podman.
func Need(t testing.TB) {
	t.Helper()
	if err := usable(); err != nil {
		if slices.Contains(strings.FieldsFunc(os.Getenv("HUTCH_TEST_REQUIRE"),
			func(r rune) bool { return r == ',' || r == ' ' }), "podman") {
			t.Fatalf("podman is required: %v", err)
		}
		t.Skipf("needs podman: %v", err)
	}
}

var usable = sync.OnceValue(func() error {
	for _, name := range []string{"podman", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			return err
		}
	}
	_, err := podman(nil, "info")
	return err
})

// Busybox returns the name of an image with a shell, the usual tools and some GNU ones, made of busybox-static and the
// host's own programs.
func Busybox(t testing.TB) string {
	t.Helper()
	Need(t)
	name, err := busybox()
	if err != nil {
		t.Fatalf("make the test image: %v", err)
	}
	return name
}

// BusyboxFor is Busybox for the Podman of an environment, such as one with an [OwnStorage].
func BusyboxFor(env []string) (string, error) {
	environment = env
	defer func() { environment = nil }()
	return build("hutch-test-busybox", nil)
}

var environment []string // of podman; nil for that of the test

var busybox = sync.OnceValues(func() (string, error) { return build("hutch-test-busybox", nil) })

// Python is Busybox with the host's python3 and its standard library.
func Python(t testing.TB) string {
	t.Helper()
	Need(t)
	name, err := python()
	if err != nil {
		t.Fatalf("make the test image: %v", err)
	}
	return name
}

var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").Output()
	if err != nil {
		return "", fmt.Errorf("ask /usr/bin/python3 where its library is: %w", err)
	}
	return build("hutch-test-python", []string{"/usr/bin/python3", strings.TrimSpace(string(out))})
})

// Git is Busybox with the host's git.
func Git(t testing.TB) string {
	t.Helper()
	Need(t)
	name, err := withGit()
	if err != nil {
		t.Fatalf("make the test image: %v", err)
	}
	return name
}

var withGit = sync.OnceValues(func() (string, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return "", err
	}
	if git, err = filepath.EvalSymlinks(git); err != nil {
		return "", err
	}
	return build("hutch-test-git", []string{git})
})

// Bubblewrap is Busybox with the host's bwrap, for hutch inside of a container.
func Bubblewrap(t testing.TB) string {
	t.Helper()
	Need(t)
	name, err := withBubblewrap()
	if err != nil {
		t.Fatalf("make the test image: %v", err)
	}
	return name
}

var withBubblewrap = sync.OnceValues(func() (string, error) {
	return build("hutch-test-bwrap",
		[]string{"/usr/bin/bwrap"})
})

// build makes an image with further programs and directories of the host, unless the same one is there already.
func build(name string, more []string) (string, error) {
	var root bytes.Buffer
	if err := writeRoot(&root, more); err != nil {
		return "", err
	}
	sum := sha256.Sum256(root.Bytes())
	image := "localhost/" + name + ":" + hex.EncodeToString(sum[:6])
	if _, err := podman(nil, "image", "exists", image); err == nil {
		return image, nil
	}
	file, err := os.CreateTemp("", "hutch-image-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(root.Bytes())
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	_, err = podman(nil, "import", "--change=ENV PATH=/usr/local/bin:/usr/bin:/bin", file.Name(), image)
	return image, err
}

// hostPrograms are those for which busybox's own are too simple. Its shell would take its own before others.
var hostPrograms = []string{"/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/head", "/usr/bin/tail", "/usr/bin/cksum",
	"/usr/bin/stat", "/usr/bin/timeout", "/usr/bin/tee", "/usr/bin/find"}

// writeRoot writes a root file system. The same programs give the same bytes.
func writeRoot(w io.Writer, more []string) error {
	t := &root{w: tar.NewWriter(w), seen: map[string]bool{}}
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "run", "usr/bin", "usr/local/bin", "var/tmp", "root",
		"home"} {
		t.dir(dir, 0o755)
	}
	t.dir("tmp", 0o1777)
	t.file("etc/passwd", 0o644,
		[]byte("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"))
	t.file("etc/group", 0o644, []byte("root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"))
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	t.copy(path, "bin/busybox")
	t.libraries(path)
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return fmt.Errorf("list what busybox can do: %w", err)
	}
	for _, p := range slices.Concat(hostPrograms, more) {
		t.host(p)
	}
	for _, a := range strings.Fields(string(applets)) {
		if a != "busybox" {
			t.link("busybox", "bin/"+a)
		}
	}
	return errors.Join(t.err, t.w.Close())
}

type root struct {
	w    *tar.Writer
	seen map[string]bool
	err  error
}

func (t *root) header(h *tar.Header, data []byte) {
	if t.err != nil || t.seen[h.Name] {
		return
	}
	t.seen[h.Name] = true
	h.Size = int64(len(data))
	if t.err = t.w.WriteHeader(h); t.err == nil {
		_, t.err = t.w.Write(data)
	}
}

// parents makes the directories above a name.
func (t *root) parents(name string) {
	if d := filepath.Dir(name); d != "." && !t.seen[d+"/"] {
		t.parents(d)
		t.dir(d, 0o755)
	}
}

func (t *root) dir(name string, mode int64) {
	t.parents(name)
	t.header(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (t *root) file(name string, mode int64, data []byte) {
	t.parents(name)
	t.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, data)
}

func (t *root) link(target, name string) {
	t.parents(name)
	t.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (t *root) copy(from, name string) {
	data, err := os.ReadFile(from)
	if err != nil {
		t.err = errors.Join(t.err, err)
		return
	}
	t.file(name, 0o755, data)
}

// host copies a program of the host with its libraries, or a directory without what a test has no use for.
func (t *root) host(p string) {
	st, err := os.Stat(p)
	switch {
	case err != nil:
		t.err = errors.Join(t.err, err)
	case st.IsDir():
		t.err = errors.Join(t.err, filepath.WalkDir(p, func(full string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{"__pycache__", "test", "idlelib", "tkinter", "ensurepip", "lib2to3",
				"dist-packages"}, d.Name()):
				return fs.SkipDir
			case d.Type().IsRegular():
				t.copy(full, strings.TrimPrefix(full, "/"))
				if strings.HasSuffix(full, ".so") {
					t.libraries(full)
				}
			}
			return t.err
		}))
	default:
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			t.err = errors.Join(t.err, err)
			return
		}
		t.copy(real, strings.TrimPrefix(p, "/"))
		t.libraries(real)
	}
}

// libraries copies what the dynamic linker would load.
func (t *root) libraries(program string) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return // a static one
	}
	for f := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(f, "/") {
			t.copy(f, strings.TrimPrefix(f, "/"))
		}
	}
}

// podman runs podman, from the root directory, for its helpers drop files where they are.
func podman(stdin io.Reader, args ...string) (string, error) {
	cmd := exec.Command("podman", args...)
	cmd.Dir, cmd.Stdin, cmd.Env = "/", stdin, environment
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("podman %s: %w: %s", args[0], err, strings.TrimSpace(words.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// Agent builds the agent's program into dir and returns its path.
func Agent(dir string) (string, error) {
	path := filepath.Join(dir, "hutch-podman-agent")
	if err := gobuild.Build(path, "github.com/hutch-run/hutch/plugins/podman/agent"); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o755)
}
