package e2btest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest/internal/daemon"
)

// The daemon is this same program, bound into the sandbox and started there with this in its environment.
const (
	daemonPath = "/.e2b/envd"
	daemonEnv  = "HUTCH_E2BTEST_DAEMON"
)

// A program that was started as the daemon of a sandbox is one, and gets no further than here.
func init() {
	if os.Getenv(daemonEnv) == "1" && len(os.Args) == 1 && os.Args[0] == daemonPath {
		os.Unsetenv(daemonEnv)
		daemon.Main()
	}
}

// box is one running bubblewrap with its daemon.
type box struct {
	client *http.Client // talks to the daemon whatever the host of the URL
	alive  *os.File     // the daemon ends when this is closed
	root   *os.Process  // the daemon, which is process 1 of the sandbox: with it everything ends
	gone   chan struct{}
	ended  error // why it is gone; to be read after gone
}

// layOut makes the root directory of a new sandbox. What of the system is not the machine's own lies there.
func layOut(root string) error {
	for _, dir := range []string{"etc/ssl", "home/user", "root", "run", "var/lib", "usr", "proc", "dev", "opt", "srv", "mnt", ".e2b"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		dir = filepath.Join(root, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		target, err := os.Readlink("/" + name)
		switch {
		case err == nil:
			err = os.Symlink(target, filepath.Join(root, name))
		case errors.Is(err, os.ErrNotExist):
			err = nil
		default: // a system from before the merge of /usr
			err = os.Mkdir(filepath.Join(root, name), 0o755)
		}
		if err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":         "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
		"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n127.0.0.1 e2b.local\n",
		"etc/hostname":      "e2b.local\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
		"home/user/.bashrc": "PS1='\\u@\\h:\\w\\$ '\n",
		// As Debian's: a login shell forgets what PATH was.
		"etc/profile": "if [ \"$(id -u)\" -eq 0 ]; then\n  PATH=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n" +
			"else\n  PATH=\"/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games\"\nfi\nexport PATH\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"etc/ld.so.cache", "etc/localtime", "etc/mime.types", "etc/resolv.conf"} {
		b, err := os.ReadFile("/" + name)
		if err != nil {
			continue // not every machine has it, and programs do without
		}
		if err := os.WriteFile(filepath.Join(root, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// arguments are those of bwrap for the sandbox whose root directory is root.
func arguments(root, program string, hostNetwork bool) []string {
	args := []string{
		"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try",
		"--uid", "1000", "--gid", "1000", "--hostname", "e2b.local", "--cap-drop", "ALL", "--clearenv",
		"--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "--setenv", daemonEnv, "1",
		"--as-pid-1", "--info-fd", "5", "--bind", root, "/",
	}
	if !hostNetwork {
		args = append(args, "--unshare-net")
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/ca-trust", "/etc/pki/tls/certs"} {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	// bwrap leaves /proc/sys writable to anyone who may write there on the machine, as root may: the ids are the same.
	args = append(args, "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
	for _, file := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger", "/proc/latency_stats"} {
		if _, err := os.Lstat(file); err == nil {
			args = append(args, "--ro-bind", "/dev/null", file)
		}
	}
	return append(args, "--ro-bind", program, daemonPath, "--chdir", "/", "--", daemonPath)
}

// startBox starts the sandbox that lies in dir and tells its daemon what it is.
func startBox(ctx context.Context, bwrap, dir string, hostNetwork bool, init daemon.Init) (_ *box, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var files []io.Closer // those that are not needed once bwrap runs, or has not started
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r)
		}
		return r, w, err
	}
	// The directory may lie too deep for the name of a socket.
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			at.Close()
		}
	}()
	socket := fmt.Sprintf("/proc/self/fd/%d/envd.sock", at.Fd())
	if err := os.Remove(filepath.Join(dir, "envd.sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	files = append(files, listener)
	theirs, err := listener.File()
	if err != nil {
		return nil, err
	}
	files = append(files, theirs)
	life, alive, err := pipe()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			alive.Close()
		}
	}()
	info, infoIn, err := pipe()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "envd.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		infoIn.Close()
		return nil, err
	}
	files = append(files, log)

	cmd := exec.Command(bwrap, arguments(filepath.Join(dir, "root"), program, hostNetwork)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs, life, infoIn} // 3, 4 and 5
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of a terminal's keys
	err = cmd.Start()
	infoIn.Close()
	if err != nil {
		return nil, fmt.Errorf("start bwrap: %w", err)
	}
	b := &box{alive: alive, gone: make(chan struct{})}
	b.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableCompression: true, // bodies go through as they are
		// The daemon closes a connection whose request it has answered without reading it to its end, and the next request
		// on it would be lost. A new one costs next to nothing here.
		DisableKeepAlives: true,
	}}
	var child struct {
		Pid int `json:"child-pid"`
	}
	decoded := json.NewDecoder(info).Decode(&child) // ends when bwrap has written it, or died
	if decoded == nil {
		b.root, err = os.FindProcess(child.Pid)
	}
	go func() {
		b.ended = cmd.Wait()
		alive.Close()
		at.Close()
		b.client.CloseIdleConnections()
		close(b.gone)
	}()
	if decoded != nil || err != nil {
		b.kill()
		return nil, fmt.Errorf("start bwrap: %w", errors.Join(decoded, err, b.ended, lastLines(dir)))
	}
	if err := b.call(ctx, "/init", init); err != nil {
		b.kill()
		return nil, fmt.Errorf("start the daemon: %w", errors.Join(err, b.ended, lastLines(dir)))
	}
	return b, nil
}

// call makes a POST request of the server's own to the daemon.
func (b *box) call(ctx context.Context, path string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://envd"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if init, ok := body.(daemon.Init); ok && init.AccessToken != "" {
		req.Header.Set("X-Access-Token", init.AccessToken)
	}
	res, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		return fmt.Errorf("%s: %s: %s", path, res.Status, text)
	}
	return nil
}

// kill ends everything in the sandbox and returns when it has ended.
func (b *box) kill() {
	b.alive.Close()
	if b.root != nil {
		_ = b.root.Kill() // gone already is as good
	}
	<-b.gone
	if b.root != nil {
		_ = b.root.Release() // its descriptor would wait for the garbage collector
	}
}

// lastLines returns what bwrap and the daemon said last, as an error.
func lastLines(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "envd.log"))
	if err != nil {
		return nil //nolint:nilerr // it is only about a better message
	}
	if len(b) > 2<<10 {
		b = b[len(b)-2<<10:]
	}
	if text := strings.TrimSpace(string(b)); text != "" {
		return errors.New(strconv.Quote(text))
	}
	return nil
}

// removeAll removes a tree that may hold directories which their owner closed to itself.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	root, rerr := os.OpenRoot(filepath.Dir(path))
	if rerr != nil {
		return err
	}
	defer root.Close()
	openUp(root, filepath.Base(path))
	return os.RemoveAll(path)
}

func openUp(root *os.Root, name string) {
	if st, err := root.Lstat(name); err != nil || !st.IsDir() || root.Chmod(name, 0o700) != nil {
		return
	}
	dir, err := root.Open(name)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, n := range names {
		openUp(root, filepath.Join(name, n))
	}
}
