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
	"github.com/hutch-run/hutch/sdk/inside"
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
	conn   net.Conn          // to the daemon, which is process 1 of the sandbox: everything ends with the connection
	daemon http.RoundTripper // over conn, whatever the host of the URL
	gone   chan struct{}
	ended  error // why it is gone; to be read after gone
}

// layOut makes the root directory of a new sandbox, with what it does not share with this machine.
func layOut(root string) error {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	at := func(name string) string { return filepath.Join(root, name) }
	for _, dir := range []string{
		"etc/ssl", "home/user", "root", "run", "tmp", "var/lib", "var/tmp", "usr", "proc", "dev", "opt", "srv", "mnt", ".e2b",
	} {
		note(os.MkdirAll(at(dir), 0o755))
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		note(os.Chmod(at(dir), 0o777|os.ModeSticky))
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		target, err := os.Readlink("/" + name)
		if err == nil {
			note(os.Symlink(target, at(name)))
		} else if !errors.Is(err, os.ErrNotExist) { // a system from before the merge of /usr
			note(os.Mkdir(at(name), 0o755))
		}
	}
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":         "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
		"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n127.0.0.1 e2b.local\n",
		"etc/hostname":      "e2b.local\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
		"home/user/.bashrc": "PS1='\\u@\\h:\\w\\$ '\n",
		// Like Debian's, it overwrites PATH in login shells.
		"etc/profile": "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games\n" +
			`[ "$(id -u)" -ne 0 ] || PATH=` + systemPath + "\nexport PATH\n",
	} {
		note(os.WriteFile(at(name), []byte(content), 0o644))
	}
	for _, name := range []string{"etc/ld.so.cache", "etc/localtime", "etc/mime.types", "etc/resolv.conf"} {
		if b, err := os.ReadFile("/" + name); err == nil { // programs do without those that are missing
			note(os.WriteFile(at(name), b, 0o644))
		}
	}
	return errors.Join(errs...)
}

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// arguments are those of bwrap for the sandbox whose root directory is root.
func arguments(root, program string, hostNetwork bool) []string {
	args := []string{
		"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try",
		"--uid", "1000", "--gid", "1000", "--hostname", "e2b.local", "--cap-drop", "ALL", "--clearenv",
		"--setenv", "PATH", systemPath, "--setenv", daemonEnv, "1",
		"--as-pid-1", "--bind", root, "/",
	}
	if !hostNetwork {
		args = append(args, "--unshare-net")
	}
	for _, dir := range []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ssl/certs",
		"/etc/ca-certificates", "/etc/pki/ca-trust", "/etc/pki/tls/certs",
	} {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	// bwrap leaves /proc/sys writable to anyone who may write there on the machine, as root may: the ids are the same.
	args = append(args, "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
	for _, name := range []string{"kcore", "keys", "timer_list", "sysrq-trigger", "latency_stats"} {
		file := "/proc/" + name
		if _, err := os.Lstat(file); err == nil {
			args = append(args, "--ro-bind", "/dev/null", file)
		}
	}
	return append(args, "--ro-bind", program, daemonPath, "--chdir", "/", "--", daemonPath)
}

// startBox starts the sandbox that lies in dir and configures its daemon.
func startBox(ctx context.Context, bwrap, dir string, hostNetwork bool, init daemon.Init) (*box, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "daemon"), os.NewFile(uintptr(fds[1]), "server")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	b := &box{conn: conn, gone: make(chan struct{})}
	log, err := os.OpenFile(filepath.Join(dir, "envd.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(bwrap, arguments(filepath.Join(dir, "root"), program, hostNetwork)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs} // descriptor 3
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of a terminal's keys
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start bwrap: %w", err)
	}
	go func() {
		b.ended = cmd.Wait()
		conn.Close()
		close(b.gone)
	}()
	transport := &http.Transport{
		Protocols:          daemon.Protocols(),
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableCompression: true, // bodies go through as they are
	}
	if b.daemon, err = transport.NewClientConn(ctx, "http", "envd:80"); err == nil {
		err = b.call(ctx, "/init", init)
	}
	if err != nil {
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
	res, err := b.daemon.RoundTrip(req)
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
	b.conn.Close()
	<-b.gone
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
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	return inside.RemoveAll(root, filepath.Base(path))
}
