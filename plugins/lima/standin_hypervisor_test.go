package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/limits"
)

// guestSpec is what a guest is started from.
type guestSpec struct {
	Remove     bool // no guest: remove the disk of Dir
	Name       string
	Dir        string // of the instance
	Disk       string // a directory that outlives the guest
	Root       string // a directory to build its file system on
	User       string
	UID, GID   int
	UserSpace  bool // a user namespace: the guest's root is nobody on this machine
	Mounts     [][2]string
	Provision  []string
	BootDelay  time.Duration
	Executable string
}

// guest is a guest that runs.
type guest struct {
	booted chan error    // one value
	gone   chan struct{} // closed when it has ended
	end    func()        // ends it, and waits for that
}

// base is the directory of all that this package makes, as a program of the stand-in finds it.
func baseDir() (string, error) {
	self, err := os.Executable()
	return filepath.Dir(filepath.Dir(self)), err
}

// startGuest starts a guest: by the hypervisor where there is one.
func (i *vm) startGuest(delay time.Duration) (*guest, error) {
	base, err := baseDir()
	if err != nil {
		return nil, err
	}
	cfg, err := i.config()
	if err != nil {
		return nil, err
	}
	spec := &guestSpec{Name: i.name, Dir: i.dir(), User: account().Username, UID: os.Getuid(), GID: os.Getgid(), BootDelay: delay, Executable: filepath.Join(bin(base), "lima.test")}
	for _, m := range cfg.Mounts {
		spec.Mounts = append(spec.Mounts, [2]string{m.Location, m.MountPoint})
	}
	for _, p := range cfg.Provision {
		spec.Provision = append(spec.Provision, p.Script)
	}
	_ = os.Remove(i.file("guest.sock"))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: i.file("guest.sock"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	hv := filepath.Join(base, "hv.sock")
	if _, err := os.Stat(hv); err == nil {
		return askHypervisor(hv, spec, f)
	}
	spec.UserSpace, spec.Disk, spec.Root = true, i.file("disk"), i.file("root")
	cmd, events, err := launch(spec, f)
	if err != nil {
		return nil, err
	}
	return watch(cmd, events), nil
}

// launch starts a guest's first process.
func launch(spec *guestSpec, listener *os.File) (*exec.Cmd, *os.File, error) {
	for _, dir := range []string{spec.Disk, spec.Root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, nil, err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(spec.Executable), "limatest-guest"))
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = "/", []string{}, strings.NewReader(string(data)), os.Stderr
	cmd.ExtraFiles = []*os.File{listener, w}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
	}
	if spec.UserSpace {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, nil, err
	}
	return cmd, r, nil
}

// watch follows a guest that this process started.
func watch(cmd *exec.Cmd, events io.Reader) *guest {
	g := &guest{booted: make(chan error, 1), gone: make(chan struct{})}
	go func() { hear(events, g.booted) }()
	go func() {
		_ = cmd.Wait()
		close(g.gone)
	}()
	g.end = func() {
		_ = cmd.Process.Kill() // the first process of its namespaces: nothing of them is left
		<-g.gone
	}
	return g
}

// hear waits for the word that the guest has booted.
func hear(events io.Reader, booted chan<- error) {
	in := bufio.NewScanner(events)
	switch {
	case !in.Scan():
		booted <- errors.New("the guest ended while it booted")
	case in.Text() != "booted":
		booted <- errors.New(in.Text())
	default:
		booted <- nil
	}
}

// hypervisor is the root that starts guests for an ordinary user.
type hypervisor struct {
	base string
	uid  int
	l    *net.UnixListener

	mu     sync.Mutex
	guests map[*guest]bool
}

func startHypervisor(base string, uid int) (*hypervisor, error) {
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) // no guest has a descriptor of the process that started the tests
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(base, "hv.sock"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	h := &hypervisor{base: base, uid: uid, l: l, guests: map[*guest]bool{}}
	if err := os.Chown(filepath.Join(base, "hv.sock"), uid, -1); err != nil {
		l.Close()
		return nil, err
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go h.serve(c)
		}
	}()
	return h, nil
}

// serve starts one guest, says what it says, and ends it when the other end lets go.
func (h *hypervisor) serve(c *net.UnixConn) {
	defer c.Close()
	answer := func(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }
	spec := &guestSpec{}
	fds, err := receive(c, spec)
	if err != nil {
		answer("%v", err)
		return
	}
	for _, f := range fds {
		defer f.Close()
	}
	sum := sha256.Sum256([]byte(spec.Dir))
	name := hex.EncodeToString(sum[:6])
	spec.Disk, spec.Root = filepath.Join(h.base, "disks", name), filepath.Join(h.base, "roots", name)
	if spec.Remove {
		if err := os.RemoveAll(spec.Disk); err != nil {
			answer("%v", err)
			return
		}
		answer("removed")
		return
	}
	if len(fds) != 1 || spec.UID != h.uid {
		answer("a guest has one listener and belongs to uid %d", h.uid)
		return
	}
	cmd, events, err := launch(spec, fds[0])
	if err != nil {
		answer("%v", err)
		return
	}
	defer events.Close()
	g := watch(cmd, events)
	h.mu.Lock()
	h.guests[g] = true
	h.mu.Unlock()
	defer func() {
		g.end()
		removeGroups(spec.Disk)
		h.mu.Lock()
		delete(h.guests, g)
		h.mu.Unlock()
	}()
	go func() {
		if err := <-g.booted; err != nil {
			answer("%v", err)
		} else {
			answer("booted")
		}
	}()
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, c)
		close(over)
	}()
	select {
	case <-over:
	case <-g.gone:
	}
}

// removeGroups removes what a machine that is off has no longer: the cgroups of its sandboxes, which in truth are this
// machine's.
func removeGroups(disk string) {
	boxes, _ := os.ReadDir(filepath.Join(disk, "var/lib/hutch"))
	for _, box := range boxes {
		all, _ := limits.List(box.Name())
		for _, handle := range all {
			if handle.ID != box.Name() {
				continue
			}
			if group, err := limits.Open(handle); err == nil {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if err := group.Destroy(ctx); err != nil {
					fmt.Fprintln(os.Stderr, "limatest:", err)
				}
				cancel()
			}
		}
	}
}

func (h *hypervisor) close() {
	h.l.Close()
	h.mu.Lock()
	all := make([]*guest, 0, len(h.guests))
	for g := range h.guests {
		all = append(all, g)
	}
	h.mu.Unlock()
	for _, g := range all {
		g.end()
	}
}

// askHypervisor has a guest started; it lives as long as the connection.
func askHypervisor(at string, spec *guestSpec, listener *os.File) (*guest, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := send(c, spec, listener); err != nil {
		c.Close()
		return nil, err
	}
	g := &guest{booted: make(chan error, 1), gone: make(chan struct{})}
	go func() {
		r := bufio.NewReader(c)
		hear(r, g.booted)
		_, _ = io.Copy(io.Discard, r)
		close(g.gone)
	}()
	g.end = func() {
		_ = c.CloseWrite()
		<-g.gone
		c.Close()
	}
	return g, nil
}

// removeDisk removes the disk of an instance that does not run.
func removeDisk(dir string) error {
	base, err := baseDir()
	if err != nil {
		return err
	}
	hv := filepath.Join(base, "hv.sock")
	if _, err := os.Stat(hv); err != nil {
		return nil // it lies in the instance's directory
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: hv, Net: "unix"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := send(c, &guestSpec{Remove: true, Dir: dir}); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if strings.TrimSpace(line) != "removed" {
		return fmt.Errorf("remove the disk: %s %w", line, err)
	}
	return nil
}

// send sends a message with descriptors.
func send(c *net.UnixConn, v any, files ...*os.File) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(append(b, '\n'), rights, nil)
	return err
}

// receive takes what send sent.
func receive(c *net.UnixConn, v any) ([]*os.File, error) {
	buf, oob := make([]byte, 1<<20), make([]byte, 1024)
	n, m, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	for n == 0 || buf[n-1] != '\n' { // a long message comes in pieces
		more, err := c.Read(buf[n:])
		if err != nil {
			return nil, err
		}
		n += more
	}
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(oob[:m])
	if err != nil {
		return nil, err
	}
	for _, msg := range messages {
		fds, err := unix.ParseUnixRights(&msg)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, json.Unmarshal(buf[:n], v)
}
