package e2btest_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
)

// binaries is where the command was built, "" if it was not.
var binaries string

// built builds the command, once. Not into t.TempDir, which lies where root alone may enter.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "e2btest-bin-")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", dir, "./hutch-e2b-server").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return filepath.Join(dir, "hutch-e2b-server"), os.Chmod(dir, 0o755)
})

// program starts the command as an own process and returns a client of that server.
func program(t *testing.T, attr *syscall.SysProcAttr, dir string, args ...string) (*client, *exec.Cmd) {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	binaries = bin
	cmd := exec.Command(bin, append([]string{"-quiet", "-allow-root"}, args...)...)
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = dir, os.Stderr, attr
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := &e2btest.Server{}
	for lines := bufio.NewScanner(out); (s.Key == "" || s.URL == "") && lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "export E2B_API_KEY="); ok {
			s.Key = v
		}
		if v, ok := strings.CutPrefix(lines.Text(), "export E2B_API_URL="); ok {
			s.URL = v
		}
	}
	if s.Key == "" || s.URL == "" {
		t.Fatal("the server did not say where it is")
	}
	return newClient(t, s), cmd
}

// TestServerDies kills a server without warning: what runs in its sandboxes ends.
func TestServerDies(t *testing.T) {
	e2btest.ForTest(t, e2btest.Options{}) // skips where there is no bubblewrap
	c, cmd := program(t, nil, t.TempDir())
	id := c.create(t, nil)
	marker := fmt.Sprintf("32%d", time.Now().UnixNano())
	if o := c.run(t, id, "", "setsid sleep "+marker+" >/dev/null 2>&1 &"); o.err != nil {
		t.Fatal(o.err)
	}
	until(t, "it sleeps", func() string { return want(1, sleepers(t, marker)) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "it sleeps no more", func() string { return want(0, sleepers(t, marker)) })
}

// TestServerIsInterrupted ends a server as its user does.
func TestServerIsInterrupted(t *testing.T) {
	e2btest.ForTest(t, e2btest.Options{})
	dir := t.TempDir()
	c, cmd := program(t, nil, dir, "-dir", dir+"/sandboxes")
	c.create(t, nil)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if left, err := os.ReadDir(dir + "/sandboxes"); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}

// TestRootIsRefused starts the server as root without the flag by which root accepts that commands can read its files.
func TestRootIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it needs root")
	}
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	binaries = bin
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a server that starts does not end
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-quiet")
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "-allow-root") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOrdinaryUser runs the server as somebody who is not root.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("all other tests run as an ordinary user already")
	}
	e2btest.ForTest(t, e2btest.Options{})
	// Not t.TempDir: that lies in a directory that root alone may enter.
	dir, err := os.MkdirTemp("/tmp", "e2btest-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	c, _ := program(t, attr, dir)
	id := c.create(t, nil)
	if o := c.run(t, id, "", "id -un; echo x > f; mkdir shut; chmod 0 shut; stat -c %U f"); o.stdout != "user\nuser\n" || o.err != nil {
		t.Errorf("%+v", o)
	}
	if o := c.run(t, id, "root", "id -un; stat -c %U f"); o.stdout != "root\nroot\n" || o.err != nil {
		t.Errorf("%+v", o)
	}
	if status, _, text := c.do(t, http.MethodDelete, "/sandboxes/"+id, nil, nil); status != http.StatusNoContent {
		t.Errorf("with a directory that is shut: %d %s", status, text)
	}
}
